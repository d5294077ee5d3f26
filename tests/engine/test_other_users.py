"""A loaded engine on a machine with other users: what it has open is its owner's alone."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import stat
import sys
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO

import msgspec
import pytest

import vlmtui
from tests.support.open_things import OpenThings, PortAddress, opened_by
from tests.support.other_user import NOBODY, needs_root, other_user
from vlmtui.engine.local.client import WorkerClient
from vlmtui.engine.local.processes import worker_processes

pytestmark = [pytest.mark.engine, needs_root]

_INSTALLED = (Path(sys.prefix), Path(sys.base_prefix), Path(vlmtui.__file__).parent)
_PUBLIC = (*(path.resolve() for path in _INSTALLED), Path("/usr"), Path("/lib"))
"""Installed software, the bundled model among it. It may be read by everybody, but not be written."""
_HARMLESS = frozenset({Path("/dev/null"), Path("/dev/zero"), Path("/dev/urandom"), Path("/dev/random")})
_NO_ANSWER_S = 3.0
"""Seconds that each connection is tried; on one machine it takes well below a millisecond."""


class Reached(msgspec.Struct):
    """The files, sockets and ports that another user reached."""

    uid: int
    readable: list[str] = []
    writable: list[str] = []
    connected: list[str] = []


def opens(path: str | Path, flags: int) -> bool:
    try:
        os.close(os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def connects(name: str) -> bool:
    """Return whether a Unix socket accepts a connection. The name of an abstract socket begins with `@`."""
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
        with socket.socket(socket.AF_UNIX, kind) as stranger, suppress(OSError):
            stranger.connect("\0" + name[1:] if name.startswith("@") else name)
            return True
    return False


def answering(ports: Iterable[PortAddress]) -> list[str]:
    """The TCP ports that take a connection within a while; one of the caller's own shows that any could."""
    with ExitStack() as stack:
        own = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        waiting = {}
        for family, address, port in [*ports, (socket.AF_INET, *own.getsockname())]:
            stranger = stack.enter_context(socket.socket(family))
            stranger.setblocking(False)
            stranger.connect_ex((address, port))
            waiting[stranger] = f"{address}:{port}"
        found: list[str] = []
        while done := select.select([], list(waiting), [], _NO_ANSWER_S)[1]:
            for stranger in done:
                name = waiting.pop(stranger)
                if stranger.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                    found.append(name)
        found.remove("{}:{}".format(*own.getsockname()))
        return found


def try_everything(found: OpenThings, descriptors: list[Path], said: BinaryIO) -> None:
    """Read, write and connect as another user."""
    reached = Reached(os.getuid())
    for path in [*sorted(found.files - _HARMLESS), *descriptors]:
        if opens(path, os.O_RDONLY):
            reached.readable.append(str(path))
        if opens(path, os.O_WRONLY):
            reached.writable.append(str(path))
    reached.connected = [name for name in sorted(found.listening) if connects(name)] + answering(found.ports)
    said.write(msgspec.json.encode(reached))


def sockets_below(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*") if stat.S_ISSOCK(path.lstat().st_mode)}


async def test_another_user_reaches_nothing_of_a_loaded_engine(engine: WorkerClient) -> None:
    processes = worker_processes(engine.endpoint)
    found = opened_by(processes)
    own = sockets_below(engine.endpoint.runtime)
    assert str(engine.endpoint.socket) in own & found.listening
    assert len(own) > 1, "vLLM's own sockets lie beside vlmtui's"
    assert {name for name in found.listening if not name.startswith("@")} <= own
    descriptors = [path for one in processes for path in Path(f"/proc/{one.pid}/fd").iterdir()]
    everything = found._replace(listening=found.listening | own, files=found.files | {engine.endpoint.home})
    with other_user(lambda said: try_everything(everything, descriptors, said)) as said:
        reached = msgspec.json.decode(await asyncio.to_thread(said.read), type=Reached)
    assert reached.uid == NOBODY
    assert reached.writable == []
    private = [name for name in reached.readable if not any(Path(name).is_relative_to(one) for one in _PUBLIC)]
    assert private == []
    assert reached.connected == []
