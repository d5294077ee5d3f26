"""The users and messages that a worker accepts, and the folders of its files."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, cast

import pytest

from tests.support.hosts import patient_host
from tests.support.other_user import NOBODY, needs_root, other_user
from tests.worker.echo_server import echo_launcher
from tests.worker.hosted import SPEC, EchoEngine
from tests.worker.stage import Stage, answer, ready, request, serving
from vlmtui.domain.engine import LoadSpec
from vlmtui.domain.generation import Delta, Finished
from vlmtui.engine.local.processes import worker_processes
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import Paths
from vlmtui.protocol.endpoint import Endpoint, require_own_peer
from vlmtui.protocol.messages import (
    MAX_MESSAGE_BYTES,
    PROTOCOL_VERSION,
    Hello,
    Refused,
    Welcome,
    decode_worker_message,
    encode,
)
from vlmtui.protocol.spool import spool_path, write_spooled

_MIB = 2**20
_GREETING = encode(Hello(version=PROTOCOL_VERSION, client="stranger", pid=1))


@pytest.fixture
async def stage(short_path: Path) -> AsyncIterator[Stage]:
    async def load(spec: LoadSpec) -> EchoEngine:
        return EchoEngine()

    async with serving(short_path, load) as found:
        yield found


@pytest.fixture
def loose_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def umask(pid: int) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("Umask:"))


@pytest.mark.usefixtures("loose_umask")
async def test_a_loose_umask_opens_nothing_to_others(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file and folder that a real worker and its client make, with an answer left behind."""
    paths = Paths.below(short_path / "root")
    host = patient_host(paths, echo_launcher(monkeypatch, short_path / "release"))
    engine = await host.open(SPEC, client="test", keep_alive_s=60)
    await ready(engine)
    await answer(engine, request("to be kept", keep=True))
    await engine.close()
    await host.stop(engine.endpoint)
    again = await host.open(SPEC, client="test", keep_alive_s=60)
    assert {umask(process.pid) for process in worker_processes(engine.endpoint)} == {"0077"}, (
        "what an engine makes is private"
    )
    made = [path for path in paths.runtime.parent.rglob("*") if not path.is_symlink()]
    assert spool_path(paths.runtime, "r") in made
    assert engine.endpoint.socket in made
    loose = {str(path): oct(mode(path)) for path in made if mode(path) & 0o077}
    # Parents on the way to a private folder need not be private themselves.
    assert set(loose) <= {str(paths.state)}
    await again.shutdown()


class AnotherUsersSocket:
    """A socket whose peer has the given uid."""

    def __init__(self, uid: int) -> None:
        self.uid = uid

    def get_extra_info(self, name: str) -> AnotherUsersSocket:
        assert name == "socket"
        return self

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_PEERCRED)
        return struct.pack("3i", 1, self.uid, self.uid)[:size]


def test_only_this_user_and_root_may_connect() -> None:
    for uid in (os.getuid(), 0):
        require_own_peer(cast("asyncio.StreamWriter", AnotherUsersSocket(uid)))
    with pytest.raises(VlmtuiError, match="4711"):
        require_own_peer(cast("asyncio.StreamWriter", AnotherUsersSocket(4711)))


@needs_root
async def test_another_user_is_refused_despite_open_modes(stage: Stage) -> None:
    friend = await ready(await stage.client())
    for folder in (stage.endpoint.runtime, *stage.endpoint.runtime.parents[:1]):
        folder.chmod(0o755)
    stage.endpoint.socket.chmod(0o666)
    with other_user(lambda said: _greeted(stage.endpoint.socket, said)) as said:
        refused = decode_worker_message(await asyncio.to_thread(said.read))
    assert isinstance(refused, Refused)
    assert str(NOBODY) in refused.failure.message
    assert isinstance((await answer(friend, request("unharmed")))[1], Finished)
    await friend.close()


def _greeted(path: Path, said: BinaryIO) -> None:
    """Greet there, and say what is answered."""
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.settimeout(30)
        stranger.connect(str(path))
        with suppress(BrokenPipeError):  # who is refused may be so before he has said a word
            stranger.sendall(_GREETING)
        said.write(stranger.recv(65536))


@pytest.mark.parametrize("planted", ["folder", "dangling", "file"])
async def test_a_planted_runtime_folder_is_refused(
    short_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str
) -> None:
    paths = Paths.below(short_path / "root")
    paths.runtime.parent.mkdir()
    elsewhere = short_path / "elsewhere"
    match planted:
        case "folder":
            elsewhere.mkdir()
            paths.runtime.symlink_to(elsewhere)
        case "dangling":
            paths.runtime.symlink_to(elsewhere)
        case _:
            paths.runtime.write_text("")
    host = patient_host(paths, echo_launcher(monkeypatch, short_path / "release"))
    with pytest.raises(VlmtuiError, match=r"create or use the folder|not your own folder"):
        await host.open(SPEC, client="test", keep_alive_s=0)
    assert not elsewhere.exists() or list(elsewhere.iterdir()) == []


async def test_a_worker_does_not_listen_in_a_planted_folder(short_path: Path) -> None:
    elsewhere = short_path / "elsewhere"
    elsewhere.mkdir()
    (short_path / "run").symlink_to(elsewhere)

    async def load(spec: LoadSpec) -> EchoEngine:
        return EchoEngine()

    with pytest.raises(VlmtuiError, match="not your own folder"):
        async with serving(short_path, load) as stage:
            await stage.task
    assert list(elsewhere.iterdir()) == []


async def test_a_planted_lock_or_log_is_not_followed(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = Paths.below(short_path / "root")
    endpoint = Endpoint.of(paths, SPEC)
    host = patient_host(paths, echo_launcher(monkeypatch, short_path / "release"))
    treasure = short_path / "treasure"
    treasure.write_text("gold")
    endpoint.runtime.mkdir(parents=True)
    endpoint.lock.symlink_to(treasure)
    with pytest.raises(VlmtuiError):
        await host.open(SPEC, client="test", keep_alive_s=0)
    endpoint.lock.unlink()
    endpoint.log.parent.mkdir(parents=True)
    endpoint.log.symlink_to(treasure)
    engine = await host.open(SPEC, client="test", keep_alive_s=0)
    await ready(engine)
    assert treasure.read_text() == "gold"
    await engine.shutdown()


def test_kept_answers_are_not_written_into_a_planted_folder(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    runtime = tmp_path / "run"
    runtime.mkdir()
    (runtime / "kept").symlink_to(elsewhere)
    with pytest.raises(VlmtuiError, match="not your own folder"):
        write_spooled(runtime, [Delta(request_id="r", text="x", tokens=1)])
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("greets", [True, False], ids=["after the greeting", "instead of one"])
async def test_a_message_of_a_gibibyte_is_refused_and_harms_nobody(stage: Stage, greets: bool) -> None:
    friend = await ready(await stage.client())
    streaming = friend.generate(request("beside wait", "beside"))
    await anext(streaming)
    reader, writer = await asyncio.open_unix_connection(stage.endpoint.socket, limit=_MIB)
    if greets:
        writer.write(_GREETING)
        assert isinstance(decode_worker_message(await reader.readline()), Welcome)
    sent = 0
    with suppress(ConnectionError):
        while sent < 1024 * _MIB:
            writer.write(b"x" * _MIB)
            await writer.drain()
            sent += _MIB
    assert sent < 4 * MAX_MESSAGE_BYTES, "the worker took far more than a message may hold"
    writer.close()
    await friend.status()
    await friend.cancel("beside")
    assert len([event async for event in streaming]) >= 1
    assert isinstance((await answer(friend, request("unharmed")))[1], Finished)
    await friend.close()


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00" * 4096 + b"\n",
        b"[" * 100_000 + b"\n",
        b'{"type":"generate","request":' + b'{"a":' * 50_000 + b"\n",
        b'{"type":"generate"}\n',
        b'{"type":"resume","request_id":7}\n',
        b'{"type":"delta","request_id":"r","text":"x","tokens":1}\n',
        b"\xed\xa0\x80\n",
        b"\n",
    ],
    ids=["zeros", "deep array", "deep object", "no request", "wrong type", "the worker's own", "surrogate", "empty"],
)
async def test_garbage_disconnects_only_its_sender(stage: Stage, garbage: bytes) -> None:
    friend = await ready(await stage.client())
    reader, writer = await asyncio.open_unix_connection(stage.endpoint.socket, limit=_MIB)
    writer.write(_GREETING + garbage)
    messages = [decode_worker_message(line) async for line in reader]
    assert isinstance(messages[-1], Refused)
    assert messages[-1].failure.kind is ErrorKind.PROTOCOL
    writer.close()
    assert isinstance((await answer(friend, request("unharmed")))[1], Finished)
    await friend.close()


async def test_silent_and_unreading_clients_delay_nobody(stage: Stage) -> None:
    friend = await ready(await stage.client())
    with socket.socket(socket.AF_UNIX) as mute, socket.socket(socket.AF_UNIX) as deaf:
        mute.connect(str(stage.endpoint.socket))
        deaf.connect(str(stage.endpoint.socket))
        deaf.sendall(_GREETING)
        with suppress(ConnectionError):
            for number in range(200):
                line = encode(request("x" * 100_000, f"unread {number}"))
                await asyncio.to_thread(deaf.sendall, line)
        await friend.status()
        assert isinstance((await answer(friend, request("unharmed")))[1], Finished)
    await friend.close()
