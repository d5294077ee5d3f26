"""Limits what a hub may answer: size, speed, redirects and names, whatever it announces.

huggingface_hub waits for ever for a hub that sends a byte now and then, writes an endless body to the disk, begins a
file that is cut off again and again, does not check a file's hash, and takes a file's place in its cache from the hub.
The start-up hook of `worker/site` puts this client in its place in every process of an engine.
"""

from __future__ import annotations

import contextvars
import hashlib
import re
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any
from urllib.parse import urljoin

import httpx2
import msgspec

_NAME = re.compile(r"[\w-][\w.:=+-]{0,199}")
"""Names that the hub gives, under which huggingface_hub keeps files: of contents (ETag) and commits."""
_RATE_LIMIT = re.compile(r"\bt=(\d+)")
_RANGE = re.compile(r"bytes=(\d{1,18})-(\d*)")
_PIECE = 1_000_000
_READ_AHEAD_MAX = 10_000_000
"""How much of a body huggingface_hub reads before it writes it (DOWNLOAD_CHUNK_SIZE), and asks for again if it is cut
off."""
_GZIP = 31
"""zlib's window size that stands for gzip."""


class HubLimits(msgspec.Struct, frozen=True):
    """What a hub may take."""

    wait_s: float = 30.0
    """For a connection, and for each piece of an answer."""
    header_s: float = 120.0
    """For the head of an answer, redirects included."""
    bytes_s_min: int = 1000
    """The least speed of a body, over `slow_s`."""
    slow_s: float = 60.0
    listing_bytes_max: int = 100_000_000
    """Of an answer that is no file."""
    pages_max: int = 1000
    """Of one listing."""
    unannounced_bytes_max: int = 1_000_000_000
    """Of a file whose size the hub does not say."""
    starts_max: int = 10
    """How often a file that is cut off may begin again."""
    pause_s_max: int = 300
    """How long the hub may have us wait."""


LIMITS = HubLimits()


class HubAnswerError(Exception):
    """A hub's answer was refused. Not one of httpx2's errors: huggingface_hub would ask again."""

    def __init__(self, url: httpx2.URL | str, why: str) -> None:
        address = httpx2.URL(url)
        path = address.raw_path.partition(b"?")[0].decode("ascii", "replace")
        super().__init__(f"The hub's answer was refused: {address.host}{path[:200]} {why}.")


class _File:
    """What the hub has announced of a file, and what came of it so far."""

    def __init__(self) -> None:
        self.size: int | None = None
        self.sha256 = ""
        self.starts = 0
        self.seen_at = 0.0
        self.window = (0.0, 0)
        """When it began, and the bytes since."""
        self._digest = hashlib.sha256()
        self._digested = 0
        """How many bytes from the file's beginning `_digest` is of."""
        self._last = bytearray()
        """The bytes that came after them."""

    def announce(self, headers: httpx2.Headers) -> None:
        """Take over size and hash, unless the hub said them before."""
        size, etag = headers.get("X-Linked-Size", ""), headers.get("X-Linked-Etag", "").strip('"')
        if self.size is None and size.isdecimal():
            self.size = int(size[:20])
        if not self.sha256 and re.fullmatch("[0-9a-f]{64}", etag):
            self.sha256 = etag

    def begin_at(self, start: int) -> bool:
        """Drop what came of the file from `start` on, as it comes again. Returns False if what is before is unknown."""
        if start == 0:
            self._digest, self._digested = hashlib.sha256(), 0
            self._last.clear()
        if not self._digested <= start <= self._digested + len(self._last):
            return False
        del self._last[start - self._digested :]
        return True

    def take(self, piece: bytes) -> None:
        """Take over the next bytes of the file."""
        self._last += piece
        settled = len(self._last) - _READ_AHEAD_MAX
        if settled >= _PIECE:
            self._digest.update(self._last[:settled])
            self._digested += settled
            del self._last[:settled]

    def end(self) -> str:
        """Return the hex SHA-256 of all that came from the file's beginning, and forget it."""
        self._digest.update(self._last)
        found = self._digest.hexdigest()
        self.begin_at(0)
        return found


class HubClient(httpx2.Client):
    """The client of huggingface_hub with limits. `event_hooks` are huggingface_hub's own."""

    def __init__(self, limits: HubLimits, **options: Any) -> None:
        super().__init__(**options)
        self._limits = limits
        self._files: dict[str, _File] = {}
        self._pages: Counter[str] = Counter()
        hooks = self.event_hooks
        self.event_hooks = {**hooks, "response": [*hooks.get("response", []), self._look_at]}

    def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        """Send a request. Raises HubAnswerError, besides httpx2's own errors."""
        timeout = request.extensions.get("timeout") or {}
        request.extensions["timeout"] = {
            what: min(timeout.get(what) or self._limits.wait_s, self._limits.wait_s)
            for what in ("connect", "read", "write", "pool")
        }
        asked = _RANGE.fullmatch(request.headers.get("Range", ""))
        if asked and not asked[2] and int(asked[1]):
            file = self._file(request.url)
            if file.sha256 and not file.begin_at(int(asked[1])):
                del request.headers["Range"]  # the whole file comes, so that its hash can be checked
        if request.headers.get("Accept-Encoding") != "identity":
            request.headers["Accept-Encoding"] = "identity" if "Range" in request.headers else "gzip"
        response = self._head_in_time(request, options)
        with ExitStack() as unless_all_is_well:
            unless_all_is_well.callback(response.close)
            self._bound(request, response)
            if not stream:
                response.read()
            unless_all_is_well.pop_all()
        return response

    def _head_in_time(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Response:
        """Wait for the answer's head in another thread: a hub that trickles lets no read run out of time."""
        outcome: list[httpx2.Response | Exception] = []
        lock, is_late = threading.Lock(), threading.Event()
        has_ended = threading.Event()

        def send() -> None:
            try:
                came: httpx2.Response | Exception = super(HubClient, self).send(request, stream=True, **options)
            except Exception as error:
                came = error
            with lock:
                outcome.append(came)
                if is_late.is_set() and isinstance(came, httpx2.Response):
                    came.close()
            has_ended.set()

        context = contextvars.copy_context()  # huggingface_hub marks its downloads in it
        threading.Thread(target=context.run, args=(send,), name="hub", daemon=True).start()
        has_ended.wait(self._limits.header_s)
        with lock:
            if not outcome:
                is_late.set()
                raise HubAnswerError(request.url, f"did not begin within {self._limits.header_s:g} s")
        match outcome[0]:
            case httpx2.Response() as response:
                return response
            case httpx2.TooManyRedirects() | httpx2.UnsupportedProtocol() | httpx2.InvalidURL() as error:
                raise HubAnswerError(request.url, f"leads nowhere: {error}") from error
            case error:
                raise error

    def _look_at(self, response: httpx2.Response) -> None:
        """Look at every head, those of redirects included, before anything of the body is read."""
        headers, url = response.headers, response.request.url
        for name in ("ETag", "X-Linked-Etag", "X-Repo-Commit"):
            given = headers.get(name, "").removeprefix("W/").strip('"')
            if given and not _NAME.fullmatch(given):
                raise HubAnswerError(url, f"has a {name} that is no name")
        pause = _RATE_LIMIT.search(headers.get("ratelimit", ""))
        for name, seconds in (
            ("Retry-After", headers.get("Retry-After", "")),
            ("ratelimit", pause[1] if pause else ""),
        ):
            if seconds.isdecimal() and int(seconds[:10]) > self._limits.pause_s_max:
                del headers[name]
        file = self._file(url)
        file.announce(headers)
        location = headers.get("Location", "")
        if response.is_redirect and location:
            self._files[urljoin(str(url), location)] = file
            response.stream = _Bounded(response.stream, self._limits, url, _File(), _PIECE)
        elif response.request.method == "HEAD" and file.size is None and "Content-Encoding" not in headers:
            length = headers.get("Content-Length", "")
            file.size = int(length[:20]) if length.isdecimal() and response.is_success else None

    def _file(self, url: httpx2.URL) -> _File:
        return self._files.setdefault(str(url), _File())

    def _bound(self, request: httpx2.Request, response: httpx2.Response) -> None:
        url, headers, limits = request.url, response.headers, self._limits
        encoding = headers.get("Content-Encoding", "identity").lower()
        if encoding not in ("identity", "gzip", ""):
            raise HubAnswerError(url, f"is compressed by {encoding[:20]!r}")
        is_page = headers.get("Content-Type", "").startswith("text/html")
        if response.is_success and is_page and "/api/" in url.path:
            raise HubAnswerError(url, "is a web page")
        is_file = request.method == "GET" and response.is_success and "/api/" not in url.path
        file = self._file(url) if is_file else _File()
        if response.is_success and not is_file:
            self._pages[url.path] += 1
            if self._pages[url.path] > limits.pages_max:
                raise HubAnswerError(url, f"has more than {limits.pages_max} pages")
        bytes_max, start, length = limits.listing_bytes_max, 0, headers.get("Content-Length", "")
        is_to_end = is_file and bool(file.sha256)
        if is_file:
            if response.status_code == 200:
                file.starts += 1
                if file.starts > limits.starts_max:
                    raise HubAnswerError(url, f"was cut off {limits.starts_max} times")
                if encoding != "gzip" and length.isdecimal() and file.size not in (None, int(length[:20])):
                    raise HubAnswerError(url, f"has {length[:20]} bytes, and {file.size} were announced")
            else:
                found = re.match(r"bytes (\d{1,18})-", headers.get("Content-Range", ""))
                start = int(found[1]) if found else 0
                asked = _RANGE.fullmatch(request.headers.get("Range", ""))
                if asked and int(asked[1]) != start:
                    raise HubAnswerError(url, f"goes on at byte {start}, and {asked[1]} was asked for")
                is_to_end = is_to_end and asked is not None and not asked[2]
            size = file.size if file.size is not None else int(length[:20]) if length.isdecimal() else None
            bytes_max = limits.unannounced_bytes_max if size is None else max(size - start, 0)
        is_zipped = encoding == "gzip"
        if is_zipped:
            for name in ("Content-Encoding", "Content-Length"):
                with suppress(KeyError):
                    del headers[name]
        if is_to_end:
            file.begin_at(start)
        response.stream = _Bounded(
            response.stream, limits, url, file, bytes_max, is_to_end=is_to_end, is_zipped=is_zipped
        )


class _Bounded(httpx2.SyncByteStream):
    """A body that ends with an error where it is longer, slower or another one than announced."""

    def __init__(
        self,
        stream: Any,
        limits: HubLimits,
        url: httpx2.URL,
        file: _File,
        bytes_max: int,
        *,
        is_to_end: bool = False,
        is_zipped: bool = False,
    ) -> None:
        """`is_to_end`: it is a whole file, or the rest of one, whose SHA-256 was announced."""
        self._stream = stream
        self._limits = limits
        self._url = url
        self._file = file
        self._bytes_max = bytes_max
        self._is_to_end = is_to_end
        self._is_zipped = is_zipped

    def __iter__(self) -> Iterator[bytes]:
        file, left = self._file, self._bytes_max
        for piece in self._unzipped() if self._is_zipped else self._in_time():
            left -= len(piece)
            if left < 0:
                raise HubAnswerError(self._url, f"is longer than {self._bytes_max} bytes")
            if self._is_to_end:
                file.take(piece)
            yield piece
        if self._is_to_end and file.end() != file.sha256:
            raise HubAnswerError(self._url, "does not have the SHA-256 that was announced")
        file.starts = 0

    def _in_time(self) -> Iterator[bytes]:
        file, limits = self._file, self._limits
        if time.monotonic() - file.seen_at > limits.slow_s:
            file.window = time.monotonic(), 0
        for piece in self._stream:
            file.seen_at = time.monotonic()
            since, count = file.window[0], file.window[1] + len(piece)
            if file.seen_at - since > limits.slow_s:
                if count < limits.slow_s * limits.bytes_s_min:
                    raise HubAnswerError(self._url, f"comes with less than {limits.bytes_s_min} bytes a second")
                since, count = file.seen_at, 0
            file.window = since, count
            yield piece

    def _unzipped(self) -> Iterator[bytes]:
        """Unpack in pieces of bounded size."""
        unzip = zlib.decompressobj(_GZIP)
        for packed in self._in_time():
            waiting = packed
            while waiting and not unzip.eof:
                try:
                    yield unzip.decompress(waiting, _PIECE)
                except zlib.error as error:
                    raise HubAnswerError(self._url, "is not the gzip that it says to be") from error
                waiting = unzip.unconsumed_tail

    def close(self) -> None:
        self._stream.close()


def limit_hub(limits: HubLimits = LIMITS) -> None:
    """Have huggingface_hub use a client with limits from now on, in this process."""
    from huggingface_hub import get_session, set_client_factory

    hooks = get_session().event_hooks
    set_client_factory(lambda: HubClient(limits, event_hooks=hooks, follow_redirects=True, timeout=limits.wait_s))
