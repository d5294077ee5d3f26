"""A client's connection over a real socket, in both kinds of loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from vlmtui.protocol.messages import LogLines, decode_worker_message
from vlmtui.worker.engine_thread import new_event_loop
from vlmtui.worker.server import Connection

_MIB = 2**20
Run = Callable[[Callable[[], Awaitable[None]]], None]


@pytest.fixture(params=[asyncio.new_event_loop, new_event_loop], ids=["asyncio", "worker"])
def run(request: pytest.FixtureRequest) -> Run:
    async def whole(test: Callable[[], Awaitable[None]]) -> None:
        await asyncio.wait_for(test(), 60)

    def ran(test: Callable[[], Awaitable[None]]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(whole(test))

    return ran


@asynccontextmanager
async def connected(folder: Path) -> AsyncIterator[tuple[Connection, asyncio.StreamReader, asyncio.StreamWriter]]:
    """The worker's end, and both directions of the client's."""
    came: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
    server = await asyncio.start_unix_server(
        lambda reader, writer: came.set_result(Connection(reader, writer)), folder / "s"
    )
    reader, writer = await asyncio.open_unix_connection(folder / "s", limit=64 * _MIB)
    connection = await came
    yield connection, reader, writer
    connection.close()
    writer.close()
    server.close()


async def read_lines(reader: asyncio.StreamReader, count: int) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        message = decode_worker_message(await reader.readline())
        assert isinstance(message, LogLines)
        found += message.lines
    return found


def test_flushing_waits_until_the_client_has_read(run: Run, short_path: Path) -> None:
    async def test() -> None:
        async with connected(short_path) as (connection, reader, _):
            connection.send(LogLines(("x" * 4 * _MIB,)))
            flushing = asyncio.create_task(connection.flush(30))
            await asyncio.sleep(0)
            assert not flushing.done()
            assert len((await read_lines(reader, 1))[0]) == 4 * _MIB
            await flushing
            await connection.flush(30)

    run(test)


def test_a_client_that_never_reads_is_disconnected(run: Run, short_path: Path) -> None:
    async def test() -> None:
        async with connected(short_path) as (connection, _, _):
            for _ in range(40):
                connection.send(LogLines(("x" * _MIB,)))
            assert await connection.receive() is None
            await connection.flush(30)  # there is nothing to wait for

    run(test)


def test_nothing_is_sent_once_it_is_closed_or_the_client_gone(run: Run, short_path: Path) -> None:
    async def test() -> None:
        async with connected(short_path) as (connection, reader, writer):
            connection.send(LogLines(("one",)))
            connection.close()
            connection.send(LogLines(("two",)))
            assert await read_lines(reader, 1) == ["one"]
            assert await reader.read() == b""
        async with connected(short_path) as (connection, _, writer):
            writer.transport.abort()
            assert await connection.receive() is None
            connection.send(LogLines(("to nobody",)))

    run(test)
