"""An HTTP client for one model server: limited sizes, no redirects, streamed events, and errors with a hint."""

from __future__ import annotations

import asyncio
import codecs
import html
import json
import math
import os
import re
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from email.utils import parsedate_to_datetime
from enum import Enum, auto
from pathlib import Path
from typing import Any

import httpx2

from vlmtui.errors import ErrorKind, VlmtuiError, bad_input, causes_of
from vlmtui.protocol.endpoint import peer_uid, require_owner
from vlmtui.text import one_line
from vlmtui.worker.backends.remote.answer_stream import valid_text
from vlmtui.worker.backends.remote.options import ServerOptions, server_address
from vlmtui.worker.hf.failures import ONE_EACH, FailureRule, classify

_SETTING = "in config.toml: [engines.NAME]"
_CERTIFICATE_HINT = (
    f'If it is your own, name the certificate that signed it {_SETTING} ca = "FILE". Otherwise: is the clock of this '
    "machine right, and the address the name that the certificate is made for?"
)
_CLIENT_HINT = (
    "Some servers refuse a client without a certificate. Name a certificate and key that it accepts "
    f'{_SETTING} client_cert = "FILE".'
)


def secure_connection_failed(error: ssl.SSLError, shown: str) -> VlmtuiError:
    """Return the error of a failed TLS connection."""
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        message, hint = f"The certificate of {shown} is not trusted: {error.verify_message}.", _CERTIFICATE_HINT
    elif isinstance(error, ssl.SSLEOFError):
        message, hint = f"{shown} closed the secure connection while it was being made.", _CLIENT_HINT
    elif "ALERT" in reason or "CERTIFICATE_REQUIRED" in reason:
        message, hint = f"{shown} refused the secure connection: {reason.lower().replace('_', ' ')}.", _CLIENT_HINT
    else:
        message, hint = f"{shown} does not speak TLS.", "Is it http:// instead?"
    detail = f"{type(error).__name__}: {error}"
    return VlmtuiError(ErrorKind.NO_NETWORK, message, detail=detail, hint=hint)


_TEXT_MAX = 400
_PAGE_MAX = 20_000
"""The most bytes of a response in which its words are looked for."""
_SHOWN_ERRORS = 8
_DEPTH_MAX = 6
NOT_NOW = (502, 503, 504)
"""The status codes of a server that loads a model, or of a proxy that cannot reach it at the moment."""
RATE_LIMITED = (429, 529)
"""The status codes of a server that limits how many requests it takes in a time."""
_LATER = "Send the message again later."
_AGAIN = "Send the message again."
_NO_KEY = (
    "Name the variable that holds it: --key-env NAME, or in config.toml: [engines.NAME] api_key_env (or api_key_file)."
)
_WRONG_KEY = "Check the variable or file that holds it. A worker that runs reads it anew after `vlmtui stop`."


class NothingListens(VlmtuiError):
    """No server listens at the address. It may still be starting."""


class ConnectionBroken(VlmtuiError):
    """The connection broke before the first part of an answer."""


class Unanswered(VlmtuiError):
    """The server accepts connections but does not answer in time."""


class About(Enum):
    """The attachments of a request that a refusal is about."""

    NOTHING = auto()
    ONE = auto()
    ALL = auto()


class ServerError(VlmtuiError):
    """An HTTP status other than 200, or an error event in a stream. `code`: the status."""

    def __init__(self, kind: ErrorKind, message: str, code: int, *, detail: str = "", hint: str = "") -> None:
        super().__init__(kind, message, detail=detail, hint=hint)
        self.code = code
        self.about = About.NOTHING
        self.retry_after_s: float | None = None
        """The seconds after which the server may be asked again; None: it did not say."""


_SMALLER = (
    "Attach fewer or smaller files. The limit of vLLM's Rust front end is its variable "
    "VLLM_HTTP_MAX_REQUEST_BODY_SIZE; a proxy has its own."
)
_LARGE = 1_000_000
"""Bytes of a request that a server or proxy may refuse for its size. If it closes the connection before all is sent,
its refusal is lost."""


class _Rule(FailureRule, frozen=True):
    about: About = About.NOTHING


_KNOWN = tuple(
    _Rule(kind, re.compile(pattern, re.IGNORECASE), message, hint, *about)
    for kind, pattern, message, hint, *about in (
        (
            ErrorKind.CONTEXT_TOO_LONG,
            r"maximum context length|exceeds model's maximum context|exceeds the available context size",
            "The prompt is longer than the server's context.",
            "Shorten the message, make its images smaller, or leave older ones out.",
        ),
        (
            ErrorKind.PLACEHOLDER_MISMATCH,
            r"Failed to apply prompt replacement",
            "The prompt has fewer placeholders than there are attachments.",
            ONE_EACH,
        ),
        (
            ErrorKind.NO_NETWORK,
            r"EngineCore encountered an issue|EngineDeadError|engine (core )?(is )?dead"
            r"|^500 The server had an error while processing your request\.$",  # vLLM 0.33
            "The server's engine died.",
            "Its own log says why. Once it runs again, send the message again.",
        ),
        (
            ErrorKind.BAD_INPUT,
            r"^413 |length limit exceeded",
            "The message is larger than the server accepts.",
            _SMALLER,
            About.ALL,
        ),
        (
            ErrorKind.BAD_INPUT,
            r"VLLM_MAX_MEDIA_REQUEST_\w+",
            "The message's attachments together exceed the server's limit.",
            lambda found: f"Attach fewer or smaller files, or start the server with a higher {found[0]}.",
            About.ALL,
        ),
        (
            ErrorKind.BAD_INPUT,
            r"(VLLM_MAX_(?:MEDIA|IMAGE|AUDIO)_\w+)|audio_filesize_mb",
            "An attachment exceeds the server's limit.",
            lambda found: (
                "Attach a smaller file, or start the server with a higher "
                f"{found[1] or 'VLLM_MAX_AUDIO_CLIP_FILESIZE_MB'}."
            ),
            About.ONE,
        ),
        (
            ErrorKind.BAD_INPUT,
            r"exceeds the pre-allocated encoder cache size",
            "An attachment takes more tokens than the server's encoder cache holds.",
            "Attach a smaller file, or start the server with a higher --max-num-batched-tokens.",
            About.ONE,
        ),
        (
            ErrorKind.BAD_INPUT,
            r"At most \d+ (\w+)\(s\) may be provided",
            "The prompt has more attachments of a kind than the server accepts.",
            lambda found: f"Leave some out, or start the server with a higher `{found[1]}` in --limit-mm-per-prompt.",
        ),
        (
            ErrorKind.ENGINE_BUSY,
            r"cannot accept new requests|(prefill token backlog limit)",
            "The server's queue is full.",
            lambda found: (
                "Send the message again later, or start the server with a higher "
                f"{'--max-num-queued-tokens' if found[1] else '--max-num-queued-reqs'}."
            ),
        ),
        (
            ErrorKind.ENGINE_BUSY,
            r"Generation is paused",
            "The server is paused.",
            "Send the message again once it resumes.",
        ),
    )
)
"""The errors of servers, by status and text. The text of other errors is shown unchanged."""


def refusal(response: httpx2.Response, body: bytes, *, shown: str, has_key: bool) -> ServerError:
    """Return the error for an unexpected response. `shown`: the server's address. `has_key`: the request had a key or
    another header from the settings."""
    code, text = response.status_code, _message_of(body)
    if code in (401, 403):
        message = f"{shown} refused this key ({code})." if has_key else f"{shown} wants a key ({code}); none was sent."
        hint = _WRONG_KEY if has_key else _NO_KEY
        return ServerError(ErrorKind.BAD_ENGINE_ARGUMENT, message, code, detail=text[:_TEXT_MAX], hint=hint)
    if 300 <= code < 400:
        hint = "Give the address where it really is."
        message = f"{shown} sends requests to another address ({code}), which is not followed: the key would go along."
        return ServerError(ErrorKind.PROTOCOL, message, code, hint=hint)
    is_page = "html" in response.headers.get("content-type", "") or body.lstrip()[:1] == b"<"
    if is_page and code not in (413, *RATE_LIMITED):  # a proxy's, as a page
        hint = "Is the address that of vLLM, and is a proxy in between?"
        message = f"{shown} answered with a web page ({code}), not as a model server."
        found = ServerError(ErrorKind.PROTOCOL, message, code, detail=text, hint=hint)
    else:
        found = _meaning(text or response.reason_phrase, code, shown)
    found.retry_after_s = retry_after_s(response.headers)
    if found.retry_after_s and code in (*RATE_LIMITED, *NOT_NOW):
        found.hint = f"It may be asked again in {found.retry_after_s:,.0f} s. {found.hint}"
    return found


def broken(error: httpx2.HTTPError | ssl.SSLError, *, shown: str, is_answering: bool) -> VlmtuiError:
    """Return the error for a failed connection. `is_answering`: True if part of an answer has arrived."""
    detail = f"{type(error).__name__}: {error}"
    if is_answering:
        message = f"The connection to {shown} broke in the middle of the answer."
        return VlmtuiError(ErrorKind.NO_NETWORK, message, detail=detail, hint=f"What came is kept. {_AGAIN}")
    if failed := next((one for one in causes_of(error) if isinstance(one, ssl.SSLError)), None):
        return secure_connection_failed(failed, shown)
    if isinstance(error, httpx2.ConnectError):
        hint = "Is it running, and is the address right?"
        return NothingListens(ErrorKind.NO_NETWORK, f"Nothing listens at {shown}.", detail=detail, hint=hint)
    if isinstance(error, httpx2.TimeoutException):
        return Unanswered(ErrorKind.NO_NETWORK, f"{shown} did not answer in time.", detail=detail, hint=_AGAIN)
    if (size := _bytes_sent(error)) >= _LARGE:
        message = f"The connection to {shown} broke on a message of {size / 1e6:.0f} MB."
        hint = f"{_AGAIN} If it breaks again, the message may exceed a limit. {_SMALLER}"
        return ConnectionBroken(ErrorKind.NO_NETWORK, message, detail=detail, hint=hint)
    if shown.startswith("https:") and isinstance(error, httpx2.RemoteProtocolError | httpx2.ReadError):
        message = f"{shown} closed the secure connection without an answer."
        return VlmtuiError(ErrorKind.NO_NETWORK, message, detail=detail, hint=_CLIENT_HINT)
    return ConnectionBroken(ErrorKind.NO_NETWORK, f"The connection to {shown} broke.", detail=detail, hint=_AGAIN)


def _bytes_sent(error: httpx2.HTTPError | ssl.SSLError) -> int:
    """Return the size of the request's body; 0 if unknown."""
    try:
        return int(error.request.headers.get("content-length", 0)) if isinstance(error, httpx2.HTTPError) else 0
    except (RuntimeError, ValueError):  # the error belongs to no request
        return 0


def endless(shown: str) -> VlmtuiError:
    """Return the error for an answer that exceeds a size limit."""
    message = f"{shown} sends more than an answer can hold."
    return VlmtuiError(ErrorKind.PROTOCOL, message, hint="Is it a model server?")


def _meaning(text: str, code: int | None, shown: str, *, is_answering: bool = False) -> ServerError:
    """Return the error for a server's words. `code`: the HTTP status; None: it told none. `is_answering`: True if part
    of an answer has arrived."""
    status, told = code or 500, f" ({code})" if code else ""
    said = one_line(text)[:_TEXT_MAX] or "(nothing)"
    for rule in _KNOWN:
        if (known := classify(f"{status} {text}", [rule], detail=said)) is not None:
            found = ServerError(known.kind, known.message, status, detail=said, hint=known.hint)
            found.about = rule.about
            return found
    kind = ErrorKind.BAD_INPUT if 400 <= status < 500 else ErrorKind.INTERNAL
    if is_answering:
        message, hint = f"{shown} ended the answer with an error{told}.", "What came is kept."
    elif status in RATE_LIMITED:
        kind, message, hint = ErrorKind.ENGINE_BUSY, f"{shown} takes no more requests now{told}.", _LATER
    else:
        message, hint = f"{shown} refused the request{told}.", ""
    return ServerError(kind, message, status, detail=said, hint=hint)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the seconds after which a server may be asked again, by its headers; None if they do not say.

    Reads `Retry-After` (seconds or an HTTP date), `Retry-After-Ms`, and the headers of rate limits, whose names hold
    `ratelimit-reset`: seconds, a duration such as `6m0.5s`, or seconds or milliseconds since 1970. The soonest
    counts."""
    try:
        now = parsedate_to_datetime(headers["date"]).timestamp()
    except (KeyError, ValueError):
        now = time.time()
    found = []
    for name, value in headers.items():
        if name.lower() == "retry-after-ms":
            found.append(_seconds(value, 0.0) / 1000)
        elif name.lower() == "retry-after" or "ratelimit-reset" in name.lower():
            found.append(_seconds(value, now))
    return min((seconds for seconds in found if math.isfinite(seconds)), default=None)


def _seconds(value: str, now: float) -> float:
    """Return the seconds that a header names, at least 0; NaN if it is no time. `now`: the server's time."""
    with suppress(ValueError):
        number = float(value)
        number = number / 1000 if number > 1e12 else number
        return max(0.0, number - now if number > 1e9 else number)
    with suppress(ValueError):
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
    if not re.fullmatch(r"\s*(?:\d{1,9}(?:\.\d{1,9})?(?:ms|s|m|h|d))+\s*", value):
        return math.nan
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+)(ms|s|m|h|d)", value))


def _message_of(body: bytes) -> str:
    """Return the words in a response: of JSON the error's text, of a web page its title, or else all of it."""
    text = body[:_PAGE_MAX].decode("utf-8", "replace")
    if (title := re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)) is not None:
        return html.unescape(title[1]).strip()[:_TEXT_MAX]
    try:
        return text_of(json.loads(body)) if body else ""
    except (ValueError, RecursionError):
        return text[:_TEXT_MAX]


_WORDS = ("error", "errors", "message", "detail", "details", "msg", "reason", "description", "title")
"""The fields of an error that hold its text; the first with a text counts."""


def text_of(error: object) -> str:
    """Return the text of a server's error, of any shape; without any text, its JSON."""
    words = _words_of(error, 0)
    with suppress(RecursionError):
        words = words or json.dumps(error)
    return valid_text(words)[:_TEXT_MAX]


def _words_of(error: object, depth: int) -> str:
    if isinstance(error, str) or depth > _DEPTH_MAX:
        return error if isinstance(error, str) else ""
    if isinstance(error, list):
        return "; ".join(filter(None, (_words_of(one, depth + 1) for one in error[:_SHOWN_ERRORS])))
    if not isinstance(error, dict):
        return ""
    words = next(filter(None, (_words_of(error.get(name), depth + 1) for name in _WORDS)), "")
    match error:
        case {"loc": [*place]} if words:  # FastAPI: the field of the request that is wrong
            return f"{'.'.join(map(str, place))}: {words}"
        case {"metadata": {"raw": str(raw)}}:  # OpenRouter: the words of the server behind it
            return f"{words}: {raw}"
    return words


_BODY_MAX = 64_000_000
"""The most bytes of a response that is not a stream."""
_EVENT_MAX = 16_000_000
_STREAM_MAX = 1_000_000_000
"""The most bytes of a stream, enough for 500,000 tokens with 20 log-probabilities each."""
_CONNECT_S = 10.0
_ANSWER_S = 120.0
"""The time limit in seconds for a response that is not a stream."""
_STATUS_S = 10.0
_SECRET_MIN = 6
"""Shorter keys are not hidden in answers, because they may be ordinary words."""
_HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")
DONE = "[DONE]"
StreamEvent = tuple[str, str]
"""The name of a stream's event (mostly empty) and its data."""
_FIELDS = (b"", b"data", b"event", b"id", b"retry", b"error")
"""The fields of an event in a stream; a comment has no name."""
_BROKEN = (httpx2.HTTPError, ssl.SSLError)
"""Exceptions of a failed connection. TLS alerts after the handshake are raised as a bare SSLError."""


class ServerApi:
    """An HTTP client for one server. It never follows redirects, which would pass the key on."""

    def __init__(self, options: ServerOptions) -> None:
        """Raises VlmtuiError for an invalid host name, or if the key or a certificate cannot be read."""
        address = server_address(options.url)
        self.shown = address.shown
        try:
            httpx2.URL(address.base)
        except httpx2.InvalidURL as error:
            raise bad_input(f"Not an address of a server: {address.shown!r}.", detail=str(error)) from error
        self._base = address.base
        self._options = options
        self.stall_s, self.deaf_max_s = options.stall_s, options.deaf_max_s
        self.retry_s, self.back_off_s, self.patience_s = options.retry_s, options.back_off_s, options.patience_s
        verify: ssl.SSLContext | bool = True
        if options.ca or options.client_cert:
            verify = _context(options)
        headers = options.request_headers()
        self._has_key = bool(headers)
        self._hide = _hiding([value.removeprefix("Bearer ").encode() for value in headers.values()])
        transport = httpx2.AsyncHTTPTransport(uds=address.socket, verify=verify)
        self._client = httpx2.AsyncClient(
            transport=transport,
            event_hooks={"request": [self._trace_connection]} if address.socket else {},
            headers=headers,
            timeout=httpx2.Timeout(_ANSWER_S, connect=_CONNECT_S, read=None),
            follow_redirects=False,
            trust_env=False,
        )

    async def _trace_connection(self, request: httpx2.Request) -> None:
        """Make a request check the owner of the Unix socket when it connects, before it sends anything."""
        request.extensions["trace"] = self._require_owner

    async def _require_owner(self, event: str, told: Mapping[str, Any]) -> None:
        """Raise ForeignSocket unless the socket's file, the target of its symbolic link and the listening process all
        belong to this user, root or `allow_owner`."""
        if event == "connection.connect_unix_socket.started":
            for look in (os.lstat, os.stat):
                with suppress(OSError):  # connecting will fail with a better error
                    require_owner(look(told["path"]).st_uid, self.shown, allowed=self._options.allow_owner)
        elif event == "connection.connect_unix_socket.complete":
            stream = told["return_value"]
            uid = peer_uid(stream.get_extra_info("socket"))
            try:
                require_owner(os.getuid() if uid is None else uid, self.shown, allowed=self._options.allow_owner)
            except VlmtuiError:
                await stream.aclose()
                raise

    async def close(self) -> None:
        await self._client.aclose()

    async def get(self, path: str) -> Any:
        """Return the JSON of a GET. Raises VlmtuiError."""
        return await self._json("GET", path, None)

    async def text(self, path: str) -> str:
        """Return the body of a GET as text. Raises VlmtuiError."""
        response, content = await self._answered("GET", path, None, _STATUS_S)
        if response.status_code != 200:
            raise self._refusal(response, content)
        return content.decode("utf-8", "replace")

    async def post(self, path: str, body: object, *, seconds: float = _ANSWER_S) -> Any:
        """Return the JSON of a POST. Raises VlmtuiError."""
        return await self._json("POST", path, body, seconds)

    async def status(self, path: str, body: object | None = None, *, seconds: float = _STATUS_S) -> tuple[int, bytes]:
        """Return the status and body of any response. Raises VlmtuiError if there is none."""
        response, content = await self._answered("GET" if body is None else "POST", path, body, seconds)
        return response.status_code, content

    async def events(self, path: str, body: object) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the events of a stream, up to `[DONE]` or its end. Raises VlmtuiError for another status than 200, an
        error event, a broken connection, and a silent server whose `/health` fails."""
        is_answering = False
        try:
            async with aclosing(self._heard(self._texts(path, body))) as texts:
                async for name, text in texts:
                    if text.strip() == DONE:
                        return
                    event = _event(text, name, self.shown)
                    if (error := _error_in(event, name)) is not None:
                        raise _meaning(text_of(error), _code_of(error), self.shown, is_answering=is_answering)
                    is_answering = is_answering or bool(event)
                    yield event
        except _BROKEN as broken_off:
            raise self._broken(broken_off, is_answering=is_answering) from broken_off

    async def _texts(self, path: str, body: object) -> AsyncGenerator[StreamEvent, None]:
        """Yield the events of a stream. Raises VlmtuiError for another status than 200, or a web page."""
        async with self._client.stream("POST", self._base + path, json=body) as response:
            if response.status_code != 200 or "html" in response.headers.get("content-type", ""):
                raise self._refusal(response, await self._content(response))
            async with aclosing(self._data_of(response)) as texts:
                async for text in texts:
                    yield text

    async def _heard(self, texts: AsyncGenerator[StreamEvent, None]) -> AsyncGenerator[StreamEvent, None]:
        """Pass on the data of each event. While none arrives, check the server's health every `stall_s` seconds."""
        since = time.monotonic()
        next_text = asyncio.ensure_future(anext(texts, None))
        try:
            while True:
                done, _ = await asyncio.wait({next_text}, timeout=self._options.stall_s)
                if not done:
                    try:
                        await self._check_health(since)
                    except VlmtuiError:
                        if not next_text.done():
                            raise
                    continue
                text = next_text.result()
                if text is None:
                    return
                yield text
                since = time.monotonic()
                next_text = asyncio.ensure_future(anext(texts, None))
        finally:
            next_text.cancel()
            await asyncio.gather(next_text, return_exceptions=True)
            await texts.aclose()

    async def _check_health(self, since: float) -> None:
        """Raise VlmtuiError if `/health` fails, or if the server has been silent for `silence_max_s`: a hung engine
        still reports good health. `since`: the `time.monotonic()` of its last event."""
        try:
            code, _ = await self.status("/health", seconds=self._options.health_s)
        except Unanswered as error:
            if (silent_s := time.monotonic() - since) < self._options.deaf_max_s:
                return
            message = f"{self.shown} has answered nothing for {silent_s:.0f} seconds, nor how it is."
            hint = "It may be stopped, or its machine too busy. What came is kept; send the message again later."
            raise VlmtuiError(ErrorKind.NO_NETWORK, message, detail=error.message, hint=hint) from error
        except VlmtuiError as error:
            message = f"{self.shown} went away in the middle of the answer."
            hint = "What came is kept. Once it runs again, send the message again."
            raise VlmtuiError(ErrorKind.NO_NETWORK, message, detail=error.message, hint=hint) from error
        if code >= 500:
            hint = "Its own log says why. Once it runs again, send the message again."
            raise VlmtuiError(ErrorKind.NO_NETWORK, f"The engine of {self.shown} died.", hint=hint)
        if (silent_s := time.monotonic() - since) >= self._options.silence_max_s:
            hint = "It may hang or sleep, though it says that it is well. Look at its log."
            message = f"{self.shown} has been silent for {silent_s:.0f} seconds."
            raise VlmtuiError(ErrorKind.NO_NETWORK, message, hint=hint)

    async def _json(self, method: str, path: str, body: object | None, seconds: float = _ANSWER_S) -> Any:
        response, content = await self._answered(method, path, body, seconds)
        if response.status_code != 200:
            raise self._refusal(response, content)
        try:
            return _decoded(content)
        except (ValueError, RecursionError) as error:
            raise self._refusal(response, content) from error

    async def _answered(
        self, method: str, path: str, body: object | None, seconds: float
    ) -> tuple[httpx2.Response, bytes]:
        """Return the response and its body. Raises VlmtuiError if there is no response."""
        try:
            async with (
                asyncio.timeout(seconds),
                self._client.stream(method, self._base + path, json=body) as response,
            ):
                return response, await self._content(response)
        except TimeoutError as error:
            hint = "It may hang, sleep or be busy. Look at its log."
            raise Unanswered(ErrorKind.NO_NETWORK, f"{self.shown} did not answer in time.", hint=hint) from error
        except _BROKEN as error:
            raise self._broken(error) from error

    async def _content(self, response: httpx2.Response) -> bytes:
        """Return the body. Raises VlmtuiError if it is too long."""
        found = bytearray()
        async for piece in response.aiter_bytes():
            found += piece
            if len(found) > _BODY_MAX:
                raise endless(self.shown)
        return self._hide(bytes(found))

    async def _data_of(self, response: httpx2.Response) -> AsyncGenerator[StreamEvent, None]:
        """Yield each event. It ends at an empty line, or if its data is complete at the next event's first line, or at
        the end of the response; JSON lines may have no `data:`. So a plain JSON answer and JSON lines are events too.

        Raises VlmtuiError if an event or the whole stream is too long, or the response has no event."""
        is_stream = "event-stream" in response.headers.get("content-type", "")
        name, data, size, total, is_empty = "", list[str](), 0, 0, True
        async for line in _lines(response.aiter_bytes(), self.shown):
            field, _, value = line.partition(b":")
            if line[:1] in (b"{", b"[") or (not is_stream and field not in _FIELDS):
                field, value = b"data", line
            if field in (b"data", b"event", b"error") and len(data) == 1 and _is_complete(data[0]):
                yield name, data[0]
                name, data, size, is_empty = "", [], 0, False
            if field == b"event":
                name = self._decoded(value)
            elif field in (b"data", b"error"):  # older versions of llama.cpp send `error: {…}`
                name = "error" if field == b"error" else name
                size += len(line)
                total += len(line)
                if size > _EVENT_MAX or total > _STREAM_MAX:
                    raise endless(self.shown)
                data.append(self._decoded(value))
            elif not line and data and (is_stream or _is_complete("\n".join(data))):
                yield name, "\n".join(data)
                name, data, size, is_empty = "", [], 0, False
        if data and _is_complete(text := "\n".join(data)):
            yield name, text
        elif is_empty and not is_stream:
            raise self._refusal(response, "\n".join(data).encode(errors="replace"))

    def _decoded(self, value: bytes) -> str:
        return self._hide(value).decode("utf-8", "replace").removeprefix(" ")

    def _refusal(self, response: httpx2.Response, content: bytes) -> ServerError:
        return refusal(response, content, shown=self.shown, has_key=self._has_key)

    def _broken(self, error: httpx2.HTTPError | ssl.SSLError, *, is_answering: bool = False) -> VlmtuiError:
        found = broken(error, shown=self.shown, is_answering=is_answering)
        found.detail = self._hide(found.detail.encode()).decode()
        return found


def _hiding(secrets: Sequence[bytes]) -> Callable[[bytes], bytes]:
    """Return a function that replaces these secrets in a response by `[hidden]`, because some servers quote a wrong key
    in their error."""
    found = re.compile(b"|".join(re.escape(secret) for secret in secrets if len(secret) >= _SECRET_MIN) or b"(?!)")
    return lambda content: found.sub(b"[hidden]", content)


async def _lines(pieces: AsyncIterator[bytes], shown: str) -> AsyncGenerator[bytes, None]:
    """Yield the lines of a stream, which end with LF, CR LF or CR; without a byte order mark."""
    rest, mark = b"", codecs.BOM_UTF8
    async for piece in pieces:
        rest += piece
        if mark and len(rest) >= len(mark):
            rest, mark = rest.removeprefix(mark), b""
        lines = rest.splitlines(keepends=True)
        # The end of a last line is not known yet: LF may follow CR.
        rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        for line in lines:
            yield line.rstrip(b"\r\n")
        if len(rest) > _EVENT_MAX:
            raise endless(shown)
    if rest:
        yield rest.rstrip(b"\r")


def _decoded(content: bytes) -> Any:
    """Decode JSON. Half of a surrogate pair, which cannot be encoded, becomes "?". Raises ValueError or
    RecursionError."""
    found = json.loads(content)
    if _HALF_PAIR.search(content):
        found = json.loads(json.dumps(found, ensure_ascii=False).encode(errors="replace"))
    return found


def _is_complete(data: str) -> bool:
    """Return True if an event's data is whole: JSON, or the end of the stream."""
    try:
        json.loads(data)
    except RecursionError:
        return True
    except ValueError:
        return data.strip() == DONE
    return True


def _event(text: str, name: str, shown: str) -> dict[str, Any]:
    """Return the fields of an event; none for a sign of life (`event: ping`). Half a surrogate pair stays, since the
    next event may have the other half. Raises VlmtuiError."""
    try:
        event = json.loads(text)
    except (ValueError, RecursionError) as error:
        if name == "error":
            return {"error": text}
        if name not in ("", "message"):
            return {}
        message = f"{shown} sent an event that is not JSON."
        raise VlmtuiError(ErrorKind.PROTOCOL, message, detail=text[:200], hint="Is it a model server?") from error
    if isinstance(event, list) and len(event) == 1:
        event = event[0]
    if isinstance(event, dict):
        return event
    if name == "error":
        return {"error": event}
    raise VlmtuiError(ErrorKind.PROTOCOL, f"{shown} sent an event without fields.", detail=text[:200])


def _error_in(event: dict[str, Any], name: str) -> object:
    """Return the error that an event is about, or None. `name`: the event's name. Some servers send empty fields of an
    error in every event; others send an error's fields without a name around them."""
    found = event.get("error")
    if isinstance(found, dict) and not any(found.values()):
        found = None
    if found:
        return found
    is_error = "error" in (name, event.get("object"), event.get("type"))
    is_bare = "choices" not in event and any(
        isinstance(event.get(one), str | list) for one in ("message", "detail", "details")
    )
    return event if event and (is_error or is_bare) else None


def _code_of(error: object) -> int | None:
    """Return the HTTP status in an error's fields, or None."""
    for name in ("code", "status", "status_code") if isinstance(error, dict) else ():
        found = error.get(name) if isinstance(error, dict) else None
        if str(found).isdecimal() and 400 <= int(str(found)[:9]) < 600:
            return int(str(found)[:9])
    return None


def _context(options: ServerOptions) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=Path(options.ca).expanduser() if options.ca else None)
        if options.client_cert:
            context.load_cert_chain(Path(options.client_cert).expanduser())
    except (OSError, ssl.SSLError) as error:
        message = "Can't read the certificates for the server."
        raise VlmtuiError(
            ErrorKind.BAD_ENGINE_ARGUMENT, message, detail=f"{options.ca or options.client_cert}: {error}"
        ) from error
    return context
