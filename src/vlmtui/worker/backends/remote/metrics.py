"""Asks a server for vLLM's metrics."""

from __future__ import annotations

from vlmtui.domain.metrics import EngineMetrics, parse_metrics
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.worker.backends.remote.http_api import ServerApi
from vlmtui.worker.backends.remote.http_errors import ServerError

_HINT = "Other servers and some proxies tell none."


async def ask_for_metrics(api: ServerApi) -> EngineMetrics:
    """Return what the server tells. Raises VlmtuiError, of kind UNSUPPORTED where it tells no metrics of vLLM."""
    try:
        found = parse_metrics(await api.text("/metrics"))
    except ServerError as error:
        if error.code not in (404, 405):
            raise
        raise _none(api, f"status {error.code}: {error.detail}") from error
    if not found.ranks:
        raise _none(api, "")
    return found


def _none(api: ServerApi, detail: str) -> VlmtuiError:
    return VlmtuiError(ErrorKind.UNSUPPORTED, f"{api.shown} tells no metrics of vLLM.", detail=detail, hint=_HINT)
