"""The error for a worker whose process has ended."""

from __future__ import annotations

from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.protocol.endpoint import Endpoint

_LINES_SHOWN = 12
_BYTES_READ = 16384


def worker_died(message: str, endpoint: Endpoint) -> VlmtuiError:
    """Return ENGINE_DIED with the last lines of the worker's log as its detail."""
    hint = f"Start it again. Log: {endpoint.log}"
    return VlmtuiError(ErrorKind.ENGINE_DIED, message, detail="\n".join(last_log_lines(endpoint)), hint=hint)


def last_log_lines(endpoint: Endpoint, lines: int = _LINES_SHOWN) -> list[str]:
    """Return the last lines of the worker's log; [] if there is no log. Hostile text."""
    try:
        with endpoint.log.open("rb") as file:
            file.seek(max(0, endpoint.log.stat().st_size - _BYTES_READ))
            return file.read().decode(errors="replace").splitlines()[-lines:]
    except OSError:
        return []
