"""Lines from a real socket: whole, in order, none lost between the greeting and the listener."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from vlmtui.engine.local.client import LineSocket
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.protocol.endpoint import require_own_peer
from vlmtui.protocol.messages import MAX_MESSAGE_BYTES


class Line:
    """Both ends of a connection, and what the client's end heard."""

    def __init__(self, socket: LineSocket, writer: asyncio.StreamWriter) -> None:
        self.socket = socket
        self.writer = writer
        self.lines: list[bytes] = []
        self.ends: list[VlmtuiError | None] = []
        self.news = asyncio.Event()

    def on_line(self, line: bytes) -> None:
        self.lines.append(line)
        self.news.set()

    def on_end(self, cause: VlmtuiError | None) -> None:
        self.ends.append(cause)
        self.news.set()

    async def until(self, count: int) -> None:
        while len(self.lines) + len(self.ends) < count:
            self.news.clear()
            await self.news.wait()


@pytest.fixture
async def line(short_path: Path) -> AsyncIterator[Line]:
    came: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()
    server = await asyncio.start_unix_server(lambda _, writer: came.set_result(writer), short_path / "s")
    found = Line(await LineSocket.open(short_path / "s"), await came)
    yield found
    found.socket.close()
    found.writer.close()
    await found.socket.wait_closed()
    server.close()


async def test_lines_that_came_before_the_listener_are_given_to_it_in_order(line: Line) -> None:
    line.writer.write(b"greeting\none\ntw")
    assert await line.socket.first_line() == b"greeting"
    line.socket.listen(line.on_line, line.on_end)
    line.writer.write(b"o\nthree\n")
    await line.until(3)
    assert line.lines == [b"one", b"two", b"three"]


async def test_a_line_of_many_pieces_is_one(line: Line) -> None:
    line.socket.listen(line.on_line, line.on_end)
    long = b"x" * (3 * 2**20)
    line.writer.write(long + b"\nshort\n")
    await line.until(2)
    assert line.lines == [long, b"short"]


async def test_a_line_without_end_ends_the_connection_with_its_cause(line: Line) -> None:
    line.socket.listen(line.on_line, line.on_end)
    line.writer.write(b"x" * (MAX_MESSAGE_BYTES + 1))
    await line.until(1)
    assert line.lines == []
    assert [cause and cause.kind for cause in line.ends] == [ErrorKind.PROTOCOL]


async def test_a_refused_message_ends_the_connection_once(line: Line) -> None:
    def refuse(piece: bytes) -> None:
        line.on_line(piece)
        raise VlmtuiError(ErrorKind.PROTOCOL, "no")

    line.socket.listen(refuse, line.on_end)
    line.writer.write(b"one\ntwo\n")
    await line.socket.wait_closed()
    assert line.lines == [b"one"]
    assert [str(cause) for cause in line.ends] == ["no"]


async def test_a_listener_learns_of_an_earlier_end(line: Line) -> None:
    line.writer.write(b"greeting\nlast\n")
    line.writer.close()
    await line.socket.wait_closed()
    assert await line.socket.first_line() == b"greeting"
    line.socket.listen(line.on_line, line.on_end)
    assert line.lines == [b"last"]
    assert line.ends == [None]


async def test_without_a_greeting_there_is_no_first_line(line: Line) -> None:
    line.writer.close()
    assert await line.socket.first_line() is None


async def test_writing_waits_while_the_other_side_does_not_read(line: Line) -> None:
    line.socket.listen(line.on_line, line.on_end)
    writing = asyncio.create_task(line.socket.write(b"x" * 2**23 + b"\n"))
    await asyncio.sleep(0)
    assert not writing.done()
    line.writer.transport.abort()  # what waits for a connection that has gone must not wait for ever
    await writing
    assert line.ends == [None]


async def test_messages_during_a_pause_arrive_together(line: Line) -> None:
    line.socket.listen(line.on_line, line.on_end)
    line.socket.rest()
    for number in range(5):
        line.writer.write(b"%d\n" % number)
        await asyncio.sleep(0)
    assert line.lines == []
    await line.until(1)
    assert line.lines == [b"0", b"1", b"2", b"3", b"4"]


async def test_an_end_during_a_pause_is_reported(line: Line) -> None:
    line.socket.listen(line.on_line, line.on_end)
    line.socket.rest()
    line.writer.write(b"last\n")
    line.writer.close()
    await line.until(2)
    assert line.lines == [b"last"]
    assert line.ends == [None]


def test_it_works_in_uvloop_too(short_path: Path) -> None:
    """Ray's actors run in it wherever it is installed, as it is beside vLLM."""
    uvloop = pytest.importorskip("uvloop")

    async def talk() -> bytes | None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"heard " + await reader.readline())
            writer.close()

        server = await asyncio.start_unix_server(answer, short_path / "s")
        socket = await LineSocket.open(short_path / "s")
        require_own_peer(socket.transport, place="s", hint="")
        socket.post(b"hello\n")
        line = await socket.first_line()
        socket.close()
        await socket.wait_closed()
        server.close()
        return line

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(talk()) == b"heard hello"


async def test_a_side_that_is_far_ahead_is_read_without_a_rest(line: Line) -> None:
    rests: list[int] = []

    def on_line(data: bytes) -> None:
        line.on_line(data)
        line.socket.rest()
        rests.append(not line.socket.transport.is_reading())

    line.socket.listen(on_line, line.on_end)
    line.writer.write(b"x\n" * 50_000)
    await line.until(50_000)
    assert sum(rests) < 25_000, "most of it came in large pieces"
