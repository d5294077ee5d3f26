"""Asks a `vllm serve` for its metrics, which vLLM serves without a key. Imports httpx2 only when it asks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from vlmtui.domain.metrics import EngineMetrics, parse_metrics
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.text import one_line

if TYPE_CHECKING:
    import httpx2

_BYTES_MAX = 16_000_000
_WAIT_S = 10.0
_TOTAL_S = 30.0


def fetch_metrics(address: str) -> EngineMetrics:
    """Ask a server, given by `http://host:port`, with or without `/v1`. Blocks for up to half a minute. Redirects
    are not followed. Raises VlmtuiError."""
    import httpx2

    url = _metrics_url(address)
    try:
        with httpx2.Client(timeout=_WAIT_S, follow_redirects=False) as client, client.stream("GET", url) as response:
            if response.status_code != 200:
                message = f"{url} answers with status {response.status_code}, not with metrics."
                raise bad_input(message, hint="Give the address of a vLLM server, such as http://127.0.0.1:8000.")
            text = _text_of(response, url)
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, ValueError) as error:
        hint = "Check address and port; a server that still loads a model does not listen yet."
        raise VlmtuiError(
            ErrorKind.BAD_INPUT,
            f"{url} cannot be read.",
            detail=one_line(str(error) or type(error).__name__),
            hint=hint,
        ) from error
    found = parse_metrics(text)
    if not found.ranks:
        raise bad_input(f"{url} has no metrics of vLLM.", hint="Other servers and proxies are not supported.")
    return found


def _metrics_url(address: str) -> str:
    try:
        parts = urlsplit(address)
        secret, host = parts.username is not None or parts.password is not None or parts.query, parts.hostname
    except ValueError:
        secret, host, parts = "", None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host:
        shown = "What is given" if "@" in address else repr(one_line(address)[:200])
        raise bad_input(f"{shown} is no address of a server.", hint="Write http://host:port.")
    if secret:
        raise bad_input("An address with a name, a key or a query is not taken.", hint="Metrics need no key.")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}/metrics"


def _text_of(response: httpx2.Response, url: str) -> str:
    """Read a body of limited size in a limited time."""
    body, end = bytearray(), time.monotonic() + _TOTAL_S
    for part in response.iter_bytes():
        body += part
        if len(body) > _BYTES_MAX or time.monotonic() > end:
            raise bad_input(f"{url} sends too much, or too slowly, for metrics.", hint="Check the address.")
    return body.decode(errors="replace")
