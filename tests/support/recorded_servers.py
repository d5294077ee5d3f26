"""Records the HTTP answers of real servers other than vLLM's, and replays them.

`python -m tests.support.recorded_servers record URL FILE [--model NAME]` sends questions to a running server,
through a proxy that records the answers.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import sys
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from PIL import Image

from vlmtui.domain.conversation import Attachment, ChatPrompt, Prompt, RawPrompt, user_turn
from vlmtui.domain.engine import LoadSpec
from vlmtui.domain.generation import Delta, EngineEvent, Finished, GenerateRequest
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import VlmtuiError
from vlmtui.worker.backends.remote.engine import RemoteEngine, connect_to_server

RAW = "<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n"
SAMPLES = Path(__file__).parents[2] / "src" / "vlmtui" / "bundled" / "samples"
FOLDER = Path(__file__).parents[1] / "data" / "servers"


class Exchange(msgspec.Struct, frozen=True):
    """A request to a path, and the answer."""

    path: str
    fields: tuple[str, ...]
    """Keys of the request's JSON."""
    status: int
    content_type: str
    body: str


class Recording(msgspec.Struct, frozen=True):
    """A server's answers, in order."""

    server: str
    exchanges: tuple[Exchange, ...]

    @classmethod
    def named(cls, name: str) -> Recording:
        return msgspec.json.decode((FOLDER / f"{name}.json").read_bytes(), type=cls)


class Asked(msgspec.Struct, frozen=True):
    """The result of one question."""

    text: str
    finished: Finished | None = None
    failure: str = ""
    hint: str = ""


async def ask(engine: RemoteEngine, picture: Attachment) -> dict[str, Asked]:
    """Send a chat, a chat about an image, a raw prompt, a prompt that is too long, and a file that is not an image."""
    broken = msgspec.structs.replace(picture, path=str(Path(picture.path).with_name("broken.png")), sha256="b" * 64)
    asked: dict[str, Prompt] = {
        "chat": ChatPrompt(turns=(user_turn("Hello!"),)),
        "picture": ChatPrompt(turns=(user_turn("What is in this image?", [picture]),)),
        "raw": RawPrompt(text=RAW),
        "too long": ChatPrompt(turns=(user_turn("x y " * 5000),)),
        "no picture": ChatPrompt(turns=(user_turn("What is in this image?", [broken]),)),
    }
    return {name: await outcome(engine, asked[name]) for name in asked}


async def outcome(engine: RemoteEngine, prompt: Prompt) -> Asked:
    request = GenerateRequest(request_id="r", prompt=prompt, sampling=Sampling(max_tokens=24, temperature=0.0))
    events: list[EngineEvent] = []
    try:
        async for event in engine.generate(request):
            events.append(event)
    except VlmtuiError as error:
        return Asked(said(events), failure=error.message, hint=error.hint)
    end = events[-1]
    return Asked(said(events), end if isinstance(end, Finished) else None)


def said(events: list[EngineEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, Delta))


def sample(folder: Path) -> Attachment:
    """Return the bundled image as an attachment, and a file next to it that is not an image."""
    (folder / "broken.png").write_bytes(b"\x89PNG rubbish")
    path = folder / "circle.png"
    with Image.open(SAMPLES / "circle.png") as found:
        found.save(path)
        width, height = found.size
    return Attachment(
        modality="image", name="circle.png", path=str(path), sha256="a" * 64, width=width, height=height,
        size_bytes=path.stat().st_size, format="PNG",
    )  # fmt: skip


async def connect(url: str, **options: object) -> RemoteEngine:
    spec = LoadSpec(model="m", name="m", backend="remote", engine_args={"url": url, "wait_s": 0, **options})
    return await connect_to_server(spec, lambda step: None)


Answer = Callable[[str, bytes, bytes], Awaitable[Exchange]]
"""Returns the answer to a request, given its path, head and body."""


@asynccontextmanager
async def listening(answer: Answer) -> AsyncIterator[str]:
    """The address of a local server that answers one request per connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            lengths = [line for line in head.lower().splitlines() if line.startswith(b"content-length:")]
            body = await reader.readexactly(int(lengths[0].split(b":")[1])) if lengths else b""
            told = await answer(head.split()[1].decode(), head, body)
            content = told.body.encode()
            said = (
                f"HTTP/1.1 {told.status} X\r\nContent-Type: {told.content_type}\r\nContent-Length: {len(content)}\r\n"
            )
            writer.write(f"{said}Connection: close\r\n\r\n".encode() + content)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=100_000_000)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@asynccontextmanager
async def played(recording: Recording) -> AsyncIterator[str]:
    """The address of a server that replays a recording: each path's answers in order."""
    waiting: dict[str, list[Exchange]] = defaultdict(list)
    for exchange in recording.exchanges:
        waiting[exchange.path].append(exchange)

    async def answer(path: str, _head: bytes, body: bytes) -> Exchange:
        found = waiting[path].pop(0)
        assert fields_of(body) == found.fields, (path, fields_of(body), "asked as when it was recorded")
        return found

    async with listening(answer) as url:
        yield url


def fields_of(body: bytes) -> tuple[str, ...]:
    return tuple(sorted(msgspec.json.decode(body))) if body else ()


async def record(url: str, model: str | None) -> tuple[Exchange, ...]:
    """Record the answers of the server at an address to all questions."""
    found: list[Exchange] = []
    parts = urlsplit(url)

    async def answer(path: str, head: bytes, body: bytes) -> Exchange:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=100_000_000)
        kept = [
            line for line in head.splitlines() if not line.lower().startswith((b"connection:", b"accept-encoding:"))
        ]
        writer.write(b"\r\n".join([*filter(None, kept), b"Connection: close", b"", body]))
        await writer.drain()
        told = parsed(await reader.read(-1))
        writer.close()
        found.append(msgspec.structs.replace(told, path=path, fields=fields_of(body)))
        return found[-1]

    with tempfile.TemporaryDirectory() as folder:
        async with listening(answer) as proxy:
            engine = await connect(proxy, model=model)
            for name, one in (await ask(engine, sample(Path(folder)))).items():
                print(f"{name}: {one}", file=sys.stderr)
            await engine.shutdown()
    return tuple(found)


def parsed(answer: bytes) -> Exchange:
    """Parse an HTTP/1.1 answer, chunked or not."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        stream, pieces = io.BytesIO(body), []
        while size := int(stream.readline() or b"0", 16):
            pieces.append(stream.read(size))
            stream.readline()
        body = b"".join(pieces)
    return Exchange("", (), int(status.split()[1]), headers.get("content-type", ""), body.decode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["record"])
    parser.add_argument("url")
    parser.add_argument("file", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--server", required=True, help="its name and version")
    args = parser.parse_args()
    found = Recording(args.server, asyncio.run(record(args.url, args.model)))
    args.file.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")


if __name__ == "__main__":
    main()
