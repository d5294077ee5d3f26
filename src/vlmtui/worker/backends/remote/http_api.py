"""HTTP to one server: bounded answers, no redirects, events of a stream, a clock of our own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import httpx2

from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.protocol.peer import peer_uid, require_owner
from vlmtui.worker.backends.remote.http_errors import ServerError, Unanswered, broken, endless, event_error, refusal
from vlmtui.worker.backends.remote.options import ServerOptions, server_address

_BODY_MAX = 64_000_000
"""Bytes of an answer that is no stream."""
_EVENT_MAX = 16_000_000
"""Bytes of one event."""
_STREAM_MAX = 1_000_000_000
"""Bytes of the events of one answer: 500,000 tokens with 20 log-probabilities each."""
_CONNECT_S = 10.0
_ANSWER_S = 120.0
"""Seconds for an answer that is no stream."""
_STATUS_S = 10.0
_SECRET_MIN = 6
"""Shorter keys are words that stand in answers by chance."""
_HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")
DONE = "[DONE]"
_BROKEN = (httpx2.HTTPError, ssl.SSLError)
"""A failed connection. Alerts that come after the handshake, as TLS 1.3 has them, are told as they are."""


class ServerApi:
    """One server. Redirects are never followed: the key would go with them."""

    def __init__(self, options: ServerOptions) -> None:
        """Raises VlmtuiError: no such host can be, or the key or a certificate cannot be read."""
        address = server_address(options.url)
        self.shown = address.shown
        try:
            httpx2.URL(address.base)
        except httpx2.InvalidURL as error:
            raise bad_input(f"Not an address of a server: {address.shown!r}.", detail=str(error)) from error
        self._base = address.base
        self._options = options
        self.stall_s, self.deaf_max_s = options.stall_s, options.deaf_max_s
        self.retry_s, self.back_off_s = options.retry_s, options.back_off_s
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
        """Have a request ask whose socket it is when it connects, before anything is sent."""
        request.extensions["trace"] = self._require_owner

    async def _require_owner(self, event: str, told: Mapping[str, Any]) -> None:
        """Raise ForeignSocket where the socket's file, what it links to, or the process that listens belongs to another
        user than this one, root, and the one that is allowed."""
        if event == "connection.connect_unix_socket.started":
            for look in (os.lstat, os.stat):
                with suppress(OSError):  # connecting tells what is wrong
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
        """Return what answers a GET, as text. Raises VlmtuiError."""
        code, content, kind = await self._answered("GET", path, None, _STATUS_S)
        if code != 200:
            raise self._refusal(code, content, kind)
        return content.decode("utf-8", "replace")

    async def post(self, path: str, body: object, *, seconds: float = _ANSWER_S) -> Any:
        """Return the JSON that answers a POST. Raises VlmtuiError."""
        return await self._json("POST", path, body, seconds)

    async def status(self, path: str, body: object | None = None, *, seconds: float = _STATUS_S) -> tuple[int, bytes]:
        """Return the status and the content of an answer, whatever it is. Raises VlmtuiError where there is none."""
        code, content, _ = await self._answered("GET" if body is None else "POST", path, body, seconds)
        return code, content

    async def events(self, path: str, body: object) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the events of a stream, up to `[DONE]` or its end. Raises VlmtuiError for a refusal, an error event,
        a broken connection, and a silent server that turns out not to be well."""
        is_answering = False
        try:
            async with aclosing(self._heard(self._texts(path, body))) as texts:
                async for text in texts:
                    if text == DONE:
                        return
                    event = _event(text, self.shown)
                    if "error" in event:
                        raise event_error(event["error"], shown=self.shown)
                    is_answering = True
                    yield event
        except _BROKEN as error:
            raise self._broken(error, is_answering=is_answering) from error

    async def _texts(self, path: str, body: object) -> AsyncGenerator[str, None]:
        """The data of each event of a stream. Raises VlmtuiError for a refusal."""
        async with self._client.stream("POST", self._base + path, json=body) as response:
            kind = response.headers.get("content-type", "")
            if response.status_code != 200 or "event-stream" not in kind:
                content = await self._content(response)
                raise self._refusal(response.status_code, content, kind)
            async with aclosing(self._data_of(response)) as texts:
                async for text in texts:
                    yield text

    async def _heard(self, texts: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
        """The same texts. While none comes, the server's health is looked at now and then; also before the first, as a
        full, a stopped and a sleeping server all let a request wait."""
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
        """Raise VlmtuiError if the server, silent since then, is not well. A health of 200 proves nothing: a hung
        engine has it."""
        try:
            code, _ = await self.status("/health", seconds=self._options.health_s)
            is_asleep = code == 200 and await self._is_asleep()
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
        if is_asleep:
            hint = "Wake it (POST /wake_up), and send the message again."
            raise VlmtuiError(ErrorKind.NO_NETWORK, f"{self.shown} is asleep.", hint=hint)
        if (silent_s := time.monotonic() - since) >= self._options.silence_max_s:
            hint = "It may hang or sleep, though it says that it is well. Look at its log."
            message = f"{self.shown} has been silent for {silent_s:.0f} seconds."
            raise VlmtuiError(ErrorKind.NO_NETWORK, message, hint=hint)

    async def _is_asleep(self) -> bool:
        """Whether it says that it sleeps. Only a vLLM in development mode can be put to sleep, and tells; it asks its
        engine, so that one that hangs says nothing."""
        try:
            code, content = await self.status("/is_sleeping", seconds=self._options.health_s)
        except Unanswered:
            return False
        try:
            return code == 200 and _decoded(content) == {"is_sleeping": True}
        except (ValueError, RecursionError):
            return False

    async def _json(self, method: str, path: str, body: object | None, seconds: float = _ANSWER_S) -> Any:
        code, content, kind = await self._answered(method, path, body, seconds)
        if code != 200:
            raise self._refusal(code, content, kind)
        try:
            return _decoded(content)
        except (ValueError, RecursionError) as error:
            raise self._refusal(code, content, kind) from error

    async def _answered(self, method: str, path: str, body: object | None, seconds: float) -> tuple[int, bytes, str]:
        """Return the status, the content and its type. Raises VlmtuiError where there is no answer."""
        try:
            async with (
                asyncio.timeout(seconds),
                self._client.stream(method, self._base + path, json=body) as response,
            ):
                content = await self._content(response)
                return response.status_code, content, response.headers.get("content-type", "")
        except TimeoutError as error:
            hint = "It may hang, sleep or be busy. Look at its log."
            raise Unanswered(ErrorKind.NO_NETWORK, f"{self.shown} did not answer in time.", hint=hint) from error
        except _BROKEN as error:
            raise self._broken(error) from error

    async def _content(self, response: httpx2.Response) -> bytes:
        """The body, as long as it is not too long."""
        found = bytearray()
        async for piece in response.aiter_bytes():
            found += piece
            if len(found) > _BODY_MAX:
                raise endless(self.shown)
        return self._hide(bytes(found))

    async def _data_of(self, response: httpx2.Response) -> AsyncGenerator[str, None]:
        """The data of each event. An event that is cut off is none."""
        data: list[str] = []
        size = total = 0
        async for line in _lines(response.aiter_bytes(), self.shown):
            if line.startswith(b"data:"):
                size += len(line)
                total += len(line)
                if size > _EVENT_MAX or total > _STREAM_MAX:
                    raise endless(self.shown)
                data.append(self._hide(line)[5:].decode("utf-8", "replace").removeprefix(" "))
            elif not line and data:
                yield "\n".join(data)
                data, size = [], 0

    def _refusal(self, code: int, content: bytes, kind: str) -> ServerError:
        return refusal(code, content, kind, shown=self.shown, has_key=self._has_key)

    def _broken(self, error: httpx2.HTTPError | ssl.SSLError, *, is_answering: bool = False) -> VlmtuiError:
        found = broken(error, shown=self.shown, is_answering=is_answering)
        found.detail = self._hide(found.detail.encode()).decode()
        return found


def _hiding(secrets: Sequence[bytes]) -> Callable[[bytes], bytes]:
    """Return a function that takes these texts out of what a server sends: some repeat a wrong key."""
    found = re.compile(b"|".join(re.escape(secret) for secret in secrets if len(secret) >= _SECRET_MIN) or b"(?!)")
    return lambda content: found.sub(b"[hidden]", content)


async def _lines(pieces: AsyncIterator[bytes], shown: str) -> AsyncGenerator[bytes, None]:
    rest = b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")
        if len(rest) > _EVENT_MAX:
            raise endless(shown)


def _decoded(content: bytes) -> Any:
    """Decode JSON. Half of a surrogate pair, which no file and no terminal can be given, becomes a question mark.
    Raises ValueError and RecursionError."""
    found = json.loads(content)
    if _HALF_PAIR.search(content):
        found = json.loads(json.dumps(found, ensure_ascii=False).encode(errors="replace"))
    return found


def _event(text: str, shown: str) -> dict[str, Any]:
    try:
        event = _decoded(text.encode())
    except (ValueError, RecursionError) as error:
        message = f"{shown} sent an event that is not JSON."
        raise VlmtuiError(ErrorKind.PROTOCOL, message, detail=text[:200], hint="Is it a model server?") from error
    if not isinstance(event, dict):
        raise VlmtuiError(ErrorKind.PROTOCOL, f"{shown} sent an event without fields.", detail=text[:200])
    return event


def _path(text: str) -> Path:
    return Path(text).expanduser()


def _context(options: ServerOptions) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=_path(options.ca) if options.ca else None)
        if options.client_cert:
            context.load_cert_chain(_path(options.client_cert))
    except (OSError, ssl.SSLError) as error:
        message = "Can't read the certificates for the server."
        raise VlmtuiError(
            ErrorKind.BAD_ENGINE_ARGUMENT, message, detail=f"{options.ca or options.client_cert}: {error}"
        ) from error
    return context
