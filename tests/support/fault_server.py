"""A local server with vLLM's HTTP interface, and with faults that tests set."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress

WORDS = ("<|im_start|>", "user", "<|image_pad|>", "<|im_end|>", "A", " red", " circle", ".", " blue", "hello")
"""The vocabulary: a token's id is its index."""
PROMPT = (0, 1, 2, 2, 2, 2, 9, 3)
"""The prompt of every chat with an image."""
WRITTEN = (0, 1, 2, 9, 3)
"""The same prompt before its placeholder is expanded."""
ANSWER = (4, 5, 6, 7, 3)
Reply = Callable[["FaultServer", asyncio.StreamWriter], Awaitable[None]]


def event(**fields: object) -> bytes:
    return f"data: {json.dumps(fields)}\n\n".encode()


def first_event() -> bytes:
    """Return a chat's first event: the prompt, before any token."""
    choice = {"index": 0, "delta": {"role": "assistant", "content": ""}}
    text = "".join(WORDS[one] for one in WRITTEN)
    return event(choices=[choice], prompt_token_ids=list(PROMPT), prompt_text=text)


def token_event(token: int, *, finish: str | None = None) -> bytes:
    text = "" if token == 3 else WORDS[token]
    choice = {"index": 0, "delta": {"content": text}, "token_ids": [token], "finish_reason": finish}
    return event(choices=[choice])


def whole_answer(tokens: Iterable[int] = ANSWER, finish: str = "stop") -> list[bytes]:
    """Return the pieces of an answer."""
    *before, last = tokens
    return [first_event(), *map(token_event, before), token_event(last, finish=finish), b"data: [DONE]\n\n"]


DONE = b"data: [DONE]\n\n"


class FaultServer:
    """Answers one request per connection. `replies` maps a path to the faulty replies to send instead, once each, in
    order."""

    def __init__(self) -> None:
        self.url = ""
        self.heads: list[str] = []
        """HTTP heads of all requests."""
        self.bodies: list[dict[str, object]] = []
        """JSON bodies of requests for answers."""
        self.replies: dict[str, list[Reply]] = {}
        self.health = 200
        self.version = "0.32.0"
        self.takes_templates = False
        """True if a request may bring a chat template."""
        self.generate_status: int | None = None
        """Status of a request with token ids and an invalid image: 400, in older servers 200; None: no such path."""
        self.tells_prompts = False
        """True if a chat that is no stream tells its prompt's text."""
        self.tokens: dict[object, list[int]] = {}
        """Answers of `/tokenize` by text."""
        self.released = asyncio.Event()
        """Set when the test ends, so that endless waits stop."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            lengths = [line for line in head.splitlines() if line.lower().startswith("content-length:")]
            body = await reader.readexactly(int(lengths[0].split(":")[1])) if lengths else b""
            path = head.split()[1]
            asked = json.loads(body) if body else {}
            is_answer = bool(asked.get("stream"))
            if is_answer:
                self.bodies.append(asked)
            waiting = self.replies.get(path) if is_answer or path not in ("/v1/chat/completions",) else None
            if waiting:
                await waiting.pop(0)(self, writer)
            else:
                await self.honest(path, asked, writer)
        writer.close()

    async def honest(self, path: str, asked: dict[str, object], writer: asyncio.StreamWriter) -> None:
        match path:
            case "/v1/models":
                await send(writer, {"data": [{"id": "shapes", "root": "shapes", "max_model_len": 4096}]})
            case "/version":
                await send(writer, {"version": self.version})
            case "/inference/v1/generate" if self.generate_status is not None and not asked.get("stream"):
                await send(writer, {"choices": []}, status=self.generate_status if asked else 400)
            case "/health":
                await send(writer, {}, status=self.health)
            case "/tokenize" if asked:
                told = list(PROMPT if "messages" in asked else WRITTEN)
                await send(writer, {"tokens": self.tokens.get(asked.get("prompt"), told)})
            case "/detokenize" if asked:
                tokens = asked["tokens"]
                assert isinstance(tokens, list)
                await send(writer, {"prompt": "".join(WORDS[one] for one in tokens)})
            case "/v1/chat/completions" if asked.get("stream"):
                await stream(writer, whole_answer())
            case "/v1/chat/completions" if self.tells_prompts and asked.get("return_prompt_text"):
                self.bodies.append(asked)
                await send(writer, {"choices": [], "prompt_text": "".join(WORDS[one] for one in WRITTEN)})
            case "/tokenize" | "/detokenize" | "/v1/chat/completions":
                template = "" if self.takes_templates else "--trust-request-chat-template and "
                said = f"{template}--trust-request-mm-kwargs are not set"
                await send(writer, {"error": {"message": said}}, status=400)
            case _:
                await send(writer, {"detail": "Not Found"}, status=404)


async def send(
    writer: asyncio.StreamWriter, body: object, *, status: int = 200, kind: str = "application/json", more: str = ""
) -> None:
    """Send an answer that is not a stream; a text is sent as it is."""
    content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n{more}"
    writer.write(f"{head}Connection: close\r\n\r\n".encode() + content)
    await writer.drain()


async def stream(writer: asyncio.StreamWriter, pieces: Iterable[bytes]) -> None:
    """Send each piece of a stream in its own write."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
    for piece in pieces:
        writer.write(piece)
        await writer.drain()


def streams(*pieces: bytes) -> Reply:
    """Return a reply that streams these pieces and closes."""

    async def reply(_server: FaultServer, writer: asyncio.StreamWriter) -> None:
        await stream(writer, pieces)

    return reply


def sends(body: object, *, status: int = 200, kind: str = "application/json", more: str = "") -> Reply:
    """Return a reply with this content."""

    async def reply(_server: FaultServer, writer: asyncio.StreamWriter) -> None:
        await send(writer, body, status=status, kind=kind, more=more)

    return reply


def responds(
    body: bytes, *, status: int = 200, kind: str = "text/event-stream", more: str = "", piece: int = 1 << 20
) -> Reply:
    """Return a reply with these bytes, in pieces of this size."""

    async def reply(_server: FaultServer, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\n{more}Connection: close\r\n\r\n".encode())
        for start in range(0, len(body), piece):
            writer.write(body[start : start + piece])
            await writer.drain()

    return reply


def falls_silent(*pieces: bytes) -> Reply:
    """Return a reply that streams these pieces, then nothing until the test ends."""

    async def reply(server: FaultServer, writer: asyncio.StreamWriter) -> None:
        await stream(writer, pieces)
        await server.released.wait()

    return reply


def never_ends(beginning: bytes, piece: bytes) -> Reply:
    """Return a reply that repeats the piece for ever."""

    async def reply(server: FaultServer, writer: asyncio.StreamWriter) -> None:
        await stream(writer, [beginning])
        while not server.released.is_set():
            writer.write(piece)
            await writer.drain()

    return reply


@asynccontextmanager
async def fault_server(tls: ssl.SSLContext | None = None) -> AsyncIterator[FaultServer]:
    """A server on a free port of this machine; `tls` adds TLS."""
    server = FaultServer()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, limit=100_000_000, ssl=tls)
    server.url = f"http{'s' if tls else ''}://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        server.released.set()
        listening.close()
