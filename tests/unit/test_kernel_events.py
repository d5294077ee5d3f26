"""Waiting for the end of a process, a byte in a pipe or a lock."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from vlmtui.engine.local.host import locked, locked_if_free
from vlmtui.engine.local.processes import has_ended, is_alive, readable

HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "a")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def reading() -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that ends when its stdin is closed."""
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as process:
        yield process


@contextmanager
def another_holder(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that holds the lock until its stdin is closed."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process


async def test_a_pipe_is_readable_at_a_byte_or_its_end() -> None:
    reader, writer = os.pipe()
    assert not await readable(reader, 0.01)
    os.write(writer, b"1")
    assert await readable(reader, 60)
    assert os.read(reader, 1) == b"1"
    os.close(writer)
    assert await readable(reader, 60)
    assert os.read(reader, 1) == b""
    os.close(reader)


@pytest.mark.parametrize("has_pidfd", [True, False])
async def test_the_end_of_a_process_is_reported(monkeypatch: pytest.MonkeyPatch, has_pidfd: bool) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    if not has_pidfd:
        monkeypatch.setattr(os, "pidfd_open", refuse)
    with reading() as process:
        known = psutil.Process(process.pid)
        assert not await has_ended(known, 0.01)
        waiting = asyncio.create_task(has_ended(known, 60))
        assert process.stdin is not None
        process.stdin.close()
        assert await waiting
        assert not is_alive(known)
    assert await has_ended(known, 60)


async def test_a_lock_is_waited_for_and_taken_when_its_holder_ends(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with another_holder(path) as holder:
        async with locked_if_free(path) as is_mine:
            assert not is_mine
        got = asyncio.Event()

        async def take() -> None:
            async with locked(path):
                got.set()

        taking = asyncio.create_task(take())
        await asyncio.sleep(0)
        assert not got.is_set()
        holder.kill()
        await asyncio.wait_for(taking, 60)
    assert got.is_set()
    async with locked_if_free(path) as is_mine:
        assert is_mine


async def test_waiting_for_a_lock_that_is_cancelled_does_not_hold_it_later(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with another_holder(path) as holder:
        waiting = asyncio.create_task(locked(path).__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        holder.kill()
    async with asyncio.timeout(60), locked(path):
        pass
