"""Downloads images, videos and audio from `http` or `https` addresses into a private folder.

Nothing that the server says is trusted: neither length, type, redirects nor file name. Imports httpx2, which is slow:
import this module only to download.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from http import HTTPStatus
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path

import httpx2
import msgspec

from vlmtui.errors import ErrorKind, VlmtuiError, bad_input, causes_of
from vlmtui.files import NewFile, new_file
from vlmtui.media.paths import is_url, shown_address
from vlmtui.media.sniff import HEAD_BYTES, FileType, Kind, sniff
from vlmtui.paths import private_dir
from vlmtui.text import human_bytes, one_line

_CHUNK = 65_536
_HEADERS_MAX = 100
_HEADERS = {"User-Agent": "vlmtui", "Accept": "image/*,video/*,*/*;q=0.5", "Accept-Encoding": "identity"}
_PAGE_HINT = "Copy the address of the image itself: right click on it, Copy Image Address."


class DownloadLimits(msgspec.Struct, frozen=True):
    total_s: float = 60.0
    """Seconds for the whole download, including redirects and slow servers."""
    wait_s: float = 10.0
    """Seconds for the connection, and for each chunk."""
    bytes_max: int = 500_000_000
    redirects: int = 5


LIMITS = DownloadLimits()


async def download(url: str, folder: Path, *, limits: DownloadLimits = LIMITS) -> Path:
    """Download the file at `url` into `folder`, named by its hash and its detected type.

    The same content is one file, whatever its address. Uses the environment's proxies and checks certificates.
    Credentials in the address are only sent to that scheme, host and port. To stop it, cancel the task.

    Raises VlmtuiError: NO_NETWORK if the server cannot be reached or disconnects; otherwise BAD_INPUT. After an error
    or a cancellation nothing is left in `folder`.
    """
    if not is_url(url):
        raise bad_input(f"{one_line(url)[:100]} is not an http or https address.")
    try:
        asked = httpx2.URL(url.strip())
    except (httpx2.InvalidURL, UnicodeError) as error:
        raise bad_input(f"{shown_address(url)} is not a valid address.", detail=str(error)) from error
    try:
        async with asyncio.timeout(limits.total_s):
            return await _fetch(asked, folder, limits)
    except TimeoutError as error:
        raise VlmtuiError(
            ErrorKind.NO_NETWORK,
            f"The download took more than {limits.total_s:g} s and was stopped.",
            hint="Download the file another way, then attach it from disk.",
        ) from error


async def _fetch(asked: httpx2.URL, folder: Path, limits: DownloadLimits) -> Path:
    with new_file(private_dir(folder), "The download") as new:
        async with await asyncio.to_thread(_client, limits) as client, _answer(client, asked, limits) as (at, response):
            name = await _receive(response, new, limits, at)
        new.replace(folder / name)
        return folder / name


def _client(limits: DownloadLimits) -> httpx2.AsyncClient:
    """Create the client. Blocks while reading certificates. Raises VlmtuiError for an unsupported proxy."""
    try:
        no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
        return httpx2.AsyncClient(headers=_HEADERS, timeout=limits.wait_s, cookies=no_cookies)
    except (ImportError, ValueError, httpx2.InvalidURL) as error:
        message = "The proxy set in the environment is not supported."
        raise bad_input(message, detail=str(error)) from error


@asynccontextmanager
async def _answer(
    client: httpx2.AsyncClient, asked: httpx2.URL, limits: DownloadLimits
) -> AsyncIterator[tuple[str, httpx2.Response]]:
    """Follow redirects, without reading their bodies. Yield the final address for display, and its response (status
    200)."""
    request = client.build_request("GET", asked)
    for _ in range(limits.redirects + 1):
        at = shown_address(str(request.url))
        with _network_errors(at, limits):
            response = await client.send(request, stream=True)
        try:
            if len(response.headers.raw) > _HEADERS_MAX:
                raise _invalid_answer(at, f"more than {_HEADERS_MAX} headers")
            if response.status_code == 200:
                yield at, response
                return
        finally:
            with suppress(httpx2.HTTPError, OSError):
                await response.aclose()
        if response.next_request is None:
            raise _refused(response.status_code, at)
        request = response.next_request
        if request.url.scheme not in ("http", "https"):
            raise bad_input(
                f"{at} redirects to {shown_address(str(request.url))}, which is not allowed.",
                hint="Only http and https addresses are followed.",
            )
    raise bad_input(f"{shown_address(str(asked))} was redirected more than {limits.redirects} times.")


def _refused(status: int, at: str) -> VlmtuiError:
    try:
        words = f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        words = str(status)
    hint = ""
    if status in (401, 403, 407):
        hint = "It may need a login: download the file with your browser, then attach it from disk."
    elif status in (404, 410):
        hint = "Check the address."
    elif status == 429 or status >= 500:
        hint = "Try again later."
    return bad_input(f"Can't download {at}: the server answered {words}.", hint=hint)


async def _receive(response: httpx2.Response, new: NewFile, limits: DownloadLimits, name: str) -> str:
    """Write the body to the file and return its name in the folder. The type is checked as soon as the first bytes
    arrive."""
    promised = response.headers.get("Content-Length", "")
    if promised.isdecimal() and int(promised[:20]) > limits.bytes_max:
        raise _too_large(name, limits)
    size, head, digest = 0, b"", hashlib.sha256()
    pieces = aiter(response.aiter_raw(_CHUNK))
    while True:
        with _network_errors(name, limits, receiving=True):
            piece = await anext(pieces, b"")
        if not piece:
            break
        size += len(piece)
        if size > limits.bytes_max:
            raise _too_large(name, limits)
        if len(head) < HEAD_BYTES:
            head += piece[: HEAD_BYTES - len(head)]
            if len(head) == HEAD_BYTES:
                _require_media(head, name)
        digest.update(piece)
        new.file.write(piece)
    return digest.hexdigest() + _require_media(head, name).suffix


def _require_media(head: bytes, name: str) -> FileType:
    if not head:
        raise bad_input(f"{name} is empty (0 bytes).")
    found = sniff(head)
    if found.kind is Kind.OTHER:
        hint = _PAGE_HINT if found is FileType.HTML else ""
        raise bad_input(f"{name} is {found.title}, not an image, a video or a sound.", hint=hint)
    return found


def _too_large(name: str, limits: DownloadLimits) -> VlmtuiError:
    return bad_input(f"{name} is too large: the limit for downloads is {human_bytes(limits.bytes_max)}.")


@contextmanager
def _network_errors(name: str, limits: DownloadLimits, *, receiving: bool = False) -> Iterator[None]:
    try:
        yield
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, ValueError) as error:
        raise _explained(error, name, limits, receiving=receiving) from error


def _explained(error: Exception, name: str, limits: DownloadLimits, *, receiving: bool) -> VlmtuiError:
    causes = list(causes_of(error))
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        return _no_network(f"Can't download {name}: the server's certificate is invalid.", error)
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return _no_network(f"Can't download {name}: no secure connection to the server.", error)
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return _no_network(f"Can't download {name}: host not found.", error, "Check the address.")
    match error:
        case httpx2.TimeoutException():
            return _no_network(f"Can't download {name}: no answer for {limits.wait_s:g} s.", error)
        case httpx2.ConnectError() | httpx2.ProxyError():
            return _no_network(f"Can't download {name}: the server can't be reached.", error)
        case httpx2.ProtocolError() | ValueError() if not receiving:
            return _invalid_answer(name, str(error))
        case _:
            return _no_network(f"The download of {name} was cut off by the server.", error, "Try again.")


def _invalid_answer(name: str, detail: str) -> VlmtuiError:
    return _no_network(f"Can't download {name}: the server's answer is not valid HTTP.", one_line(detail)[:300])


def _no_network(message: str, error: BaseException | str, hint: str = "") -> VlmtuiError:
    return VlmtuiError(ErrorKind.NO_NETWORK, message, detail=one_line(str(error)), hint=hint)
