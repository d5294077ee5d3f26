"""Pictures and videos named by an `http` or `https` address: fetched into a folder of ours before they are staged.

Nothing that a server says is believed: not its length, not its type, not where it sends us, not the name it gives.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import tempfile
import unicodedata
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit, urlunsplit

from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.media.connection import LIMITS, Guard, GuardedHandler, Limits, network, no_network
from vlmtui.media.files import human_bytes, visible
from vlmtui.media.sniff import HEAD_BYTES, Kind, sniff
from vlmtui.paths import private_dir

_CHUNK = 65_536
_URL_MAX = 8000
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_ODD = re.compile(r"[^\w.+-]+")
_PAGE_HINT = "Copy the address of the picture itself: right click on it, Copy Image Address."


def is_url(text: str) -> bool:
    """Whether `text` is one `http` or `https` address and nothing else."""
    bare = text.strip()
    if not bare or len(bare) > _URL_MAX or any(char.isspace() or char < " " for char in bare):
        return False
    try:
        parts = urlsplit(bare)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def fetch(url: str, folder: Path, *, cancelled: Callable[[], bool] = lambda: False, limits: Limits = LIMITS) -> Path:
    """Download the picture or video at `url` into `folder`, as `<name>-<16 hex digits of its hash>.<ending>`.

    The same content is one file, whatever its address. Blocking: call it in a thread; `cancelled` is asked from
    another one, about every 50 ms. Proxies come from the environment, certificates are checked, a name and password
    in the address go to that scheme, host and port alone. Only the look-up of the host's name cannot be cut short.

    Raises:
        FetchCancelled: within about 0.1 s.
        VlmtuiError: NO_NETWORK when the server cannot be reached or breaks off; BAD_INPUT for all else. Nothing is
            left in `folder`.
    """
    if not is_url(url):
        raise bad_input(f"{visible(url)[:100]} is not an http or https address.")
    asked = urlsplit(url.strip())
    with Guard(cancelled, limits) as guard, _partial(private_dir(folder)) as (file, temporary):
        response, answered = _open(asked, guard)
        with response:
            given = _given_name(response)
            digest = _receive(response, file, guard, _shown(answered))
        file.close()
        names = (given, asked.path, answered.path)
        return _keep(temporary, folder, digest, next((name for name in map(_tidy, names) if name), "picture"))


def _open(asked: SplitResult, guard: Guard) -> tuple[http.client.HTTPResponse, SplitResult]:
    """The answer of status 200 and the address that gave it. Redirects are followed here, one fresh request each."""
    opener = urllib.request.OpenerDirector()
    for handler in (urllib.request.ProxyHandler(), GuardedHandler(guard)):
        opener.add_handler(handler)
    at = asked
    for _ in range(guard.limits.redirects + 1):
        request = _request(at)
        if asked.username is not None and _origin(at) == _origin(asked):
            pair = f"{unquote(asked.username)}:{unquote(asked.password or '')}"
            request.add_unredirected_header(
                "Authorization", "Basic " + b64encode(pair.encode(errors="replace")).decode()
            )
        with network(_shown(at), guard):
            response: http.client.HTTPResponse | None = opener.open(request, timeout=guard.limits.wait_s)
        if response is None:
            raise bad_input("The proxy named in the environment is of a kind that cannot be used.")
        if response.status == 200:
            return response, at
        response.close()
        if response.status not in _REDIRECTS:
            raise _refused(response.status, at)
        at = _redirected(at, response.headers.get("Location", ""))
    raise bad_input(f"{_shown(asked)} was redirected more than {guard.limits.redirects} times.")


def _origin(at: SplitResult) -> tuple[str, str | None, int]:
    return at.scheme, at.hostname, at.port or (443 if at.scheme == "https" else 80)


def _request(at: SplitResult) -> urllib.request.Request:
    """Raises VlmtuiError for a host that cannot be a name on the net. Name and password are left out."""
    host = at.hostname or ""
    try:
        name = f"[{host}]" if ":" in host else host.encode("idna").decode()
    except UnicodeError as error:
        raise bad_input(f"{visible(host)[:100]} is not a host's name.", detail=str(error)) from error
    port = f":{at.port}" if at.port else ""
    safe = "/%:@!$&'()*+,;=~?"
    path, query = (quote(part, safe=safe, errors="replace") for part in (at.path or "/", at.query))
    full = urlunsplit((at.scheme, name + port, path, query, ""))
    return urllib.request.Request(full, headers={"User-Agent": "vlmtui", "Accept": "image/*,video/*,*/*;q=0.5"})


def _redirected(at: SplitResult, location: str) -> SplitResult:
    # Headers are read as Latin-1; most servers mean UTF-8.
    with suppress(UnicodeError):
        location = location.encode("latin-1").decode("utf-8")
    target = location.strip()
    with suppress(ValueError):
        target = urljoin(urlunsplit(at), quote(target, safe="/%:@!$&'()*+,;=~?#[]")) if target else ""
    if not is_url(target):
        where = visible(re.sub("//[^/]*@", "//", target))[:120] or "nowhere"
        raise bad_input(
            f"{_shown(at)} redirects to {where}, which is not followed.", hint="Only http and https addresses are."
        )
    return urlsplit(target)


def _refused(status: int, at: SplitResult) -> VlmtuiError:
    try:
        words = f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        words = str(status)
    hint = ""
    if status in (401, 403, 407):
        hint = "It may want a login: fetch the file with your browser, and attach it from disk."
    elif status in (404, 410):
        hint = "Check the address."
    elif status == 429 or status >= 500:
        hint = "Try again later."
    return bad_input(f"{_shown(at)} could not be fetched: the server answered {words}.", hint=hint)


def _receive(response: http.client.HTTPResponse, file: BinaryIO, guard: Guard, name: str) -> str:
    """Write the body to `file`; the hex digest of its SHA-256. It is looked at as soon as its beginning is there."""
    promised, size, head, digest = response.length, 0, b"", hashlib.sha256()
    limit = guard.limits.bytes_max
    if promised is not None and promised > limit:
        raise _too_large(name, limit)
    while chunk := _next(response, guard, name):
        size += len(chunk)
        if size > limit:
            raise _too_large(name, limit)
        if len(head) < HEAD_BYTES:
            head += chunk[: HEAD_BYTES - len(head)]
            if len(head) == HEAD_BYTES:
                _require_media(head, name)
        digest.update(chunk)
        file.write(chunk)
    if promised is not None and size < promised:
        raise no_network(f"{name} was cut off: {size} of {promised} bytes came.", hint="Try again.")
    _require_media(head, name)
    return digest.hexdigest()


def _next(response: http.client.HTTPResponse, guard: Guard, name: str) -> bytes:
    with network(name, guard):
        return response.read1(_CHUNK)


def _require_media(head: bytes, name: str) -> None:
    if not head:
        raise bad_input(f"{name} is empty (0 bytes).")
    sniffed = sniff(head)
    if sniffed.kind is Kind.OTHER:
        hint = _PAGE_HINT if "HTML" in sniffed.what else ""
        raise bad_input(f"{name} is {sniffed.what}, not a picture or a video.", hint=hint)


def _too_large(name: str, limit: int) -> VlmtuiError:
    return bad_input(f"{name} is too large: the limit for downloads is {human_bytes(limit)}.")


def _shown(at: SplitResult) -> str:
    """The address for a message: without name, password and query, which may be secrets."""
    port = f":{at.port}" if at.port else ""
    text = visible(f"{at.scheme}://{at.hostname}{port}{at.path}")
    return text if len(text) <= 120 else f"{text[:119]}…"


def _given_name(response: http.client.HTTPResponse) -> str:
    """What Content-Disposition calls the file; empty when it does not, or not in a way that can be read."""
    with suppress(LookupError, ValueError, TypeError):
        return response.headers.get_filename() or ""
    return ""


def _tidy(name: str) -> str:
    """The last part of a path or URL path as a harmless file name: letters, digits, `_ . + -`; may be empty."""
    last = unicodedata.normalize("NFC", re.split(r"[/\\]", unquote(name))[-1])
    clean = _ODD.sub("-", last).strip(".-")
    stem, dot, ending = clean.rpartition(".")
    if not dot or not ending.isalnum() or len(ending) > 5:
        return clean.replace(".", "-")[:40]
    return f"{stem[:40].strip('.-')}.{ending}"


def _keep(temporary: Path, folder: Path, digest: str, name: str) -> Path:
    """Give a finished download its name, unless its content is here already."""
    mark = f"-{digest[:16]}"
    for found in folder.glob(f"*{mark}*"):
        if not found.is_symlink() and found.is_file():
            with found.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() == digest:
                    return found
    wanted = Path(name)
    return temporary.replace(folder / f"{wanted.stem}{mark}{wanted.suffix}")


@contextmanager
def _partial(folder: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """A temporary file of mode 0600 in `folder`; it is gone afterwards unless it was renamed."""
    temporary: Path | None = None
    try:
        descriptor, created = tempfile.mkstemp(prefix=".fetching-", dir=folder)
        temporary = Path(created)
        with os.fdopen(descriptor, "wb") as file:
            yield file, temporary
    except OSError as error:
        raise bad_input(f"The download could not be kept in {visible(str(folder))}.", detail=str(error)) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
