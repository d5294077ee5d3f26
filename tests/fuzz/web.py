"""The reader of web addresses, before a server that says anything."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.campaign import Reader
from tests.unit.media.made import corners
from vlmtui.media.download import DownloadLimits, download

_LIMITS = DownloadLimits(total_s=10.0, wait_s=5.0, bytes_max=200_000, redirects=2)


def web_readers() -> list[Reader]:
    return [Reader("web answers", _answers, lambda folder, data: asyncio.run(_fetch(folder, data)))]


def _answers(_: Path) -> Sequence[bytes]:
    buffer = io.BytesIO()
    corners((8, 8)).save(buffer, "PNG")
    body = buffer.getvalue()
    named = b'Content-Disposition: attachment; filename="cat.png"\r\nContent-Type: image/png\r\n'
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(body[at : at + 40]), body[at : at + 40]) for at in range(0, len(body), 40))
    return [
        b"HTTP/1.1 200 OK\r\n" + named + b"Content-Length: %d\r\n\r\n" % len(body) + body,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: /other.png?x=1\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.0 404 Not Found\r\nContent-Length: 2\r\n\r\nno",
    ]


async def _fetch(folder: Path, data: bytes) -> None:
    """The same bytes to every request; the connection ends behind them."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(data)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        found = await download(f"http://127.0.0.1:{port}/cat.png", folder / "downloads", limits=_LIMITS)
        assert found.parent == folder / "downloads"
    finally:
        server.close()
