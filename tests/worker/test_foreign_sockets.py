"""Another user's socket in the place of a worker's or a server's is reported, and gets no message."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec
import pytest

from tests.support.command_line import CommandLine, opened
from tests.support.fault_server import FaultServer
from tests.support.hosts import patient_host
from tests.support.other_user import NOBODY, needs_root, other_user
from tests.worker.echo_server import echo_launcher
from tests.worker.hosted import SPEC
from vlmtui.config.settings import EngineSettings
from vlmtui.domain.generation import Delta
from vlmtui.engine.local.host import WorkerHost
from vlmtui.engine.remote_models import find_remote_model
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.protocol.endpoint import Endpoint, ForeignSocket
from vlmtui.protocol.spool import write_spooled
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model

pytestmark = needs_root

_LAST = b"that was all"


@pytest.fixture
def line(
    short_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[CommandLine]:
    short_path.chmod(0o755)
    with opened(short_path / "root", monkeypatch, capsys) as found:
        yield found
        if found.paths.runtime.exists():
            os.chown(found.paths.runtime, os.getuid(), os.getgid())
        Endpoint.of(found.paths, SPEC).socket.unlink(missing_ok=True)


@pytest.fixture
def host(line: CommandLine, short_path: Path, monkeypatch: pytest.MonkeyPatch) -> WorkerHost:
    return patient_host(line.paths, echo_launcher(monkeypatch, short_path / "release"))


class Eavesdropper:
    """A listener of another user that reports every message to it."""

    def __init__(self, place: Path, said: BinaryIO) -> None:
        self._place = place
        self._said = said

    def heard(self) -> list[bytes]:
        """Return the bytes of each connection so far."""
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(str(self._place))
            last.sendall(_LAST)
        heard = [line.rstrip(b"\n") for line in iter(self._said.readline, _LAST + b"\n")]
        assert all(line.startswith(b"heard ") for line in heard)
        return [line.removeprefix(b"heard ") for line in heard]


@contextmanager
def eavesdropper(place: Path) -> Iterator[Eavesdropper]:
    """Another user listens at `place`, in a folder where he could write."""
    place.parent.mkdir(parents=True)
    place.parent.chmod(0o777)
    place.parent.parent.chmod(0o755)

    def listen(out: BinaryIO) -> None:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(place))
            place.chmod(0o777)
            listener.listen()
            out.write(b"listens\n")
            while True:
                connection, _ = listener.accept()
                with connection.makefile("rb") as stream:
                    heard = stream.read()
                out.write(_LAST + b"\n" if heard == _LAST else b"heard " + repr(heard).encode() + b"\n")

    with other_user(listen) as said:
        assert said.readline() == b"listens\n"
        yield Eavesdropper(place, said)


@pytest.mark.parametrize("command", [("ps",), ("ps", "--json"), ("stop", "--all"), ("stop", "test")], ids=" ".join)
def test_commands_report_a_foreign_socket_and_send_nothing(line: CommandLine, command: tuple[str, ...]) -> None:
    with eavesdropper(Endpoint.of(line.paths, SPEC).socket) as foreign:
        ran = line(*command)
        assert (ran.code, ran.out) == (1, "")
        assert f"Another user of this machine (uid {NOBODY})" in ran.err
        assert foreign.heard() == [b"b''"], "it was looked at, and nothing was said"


async def test_a_load_reports_a_foreign_socket_and_sends_nothing(line: CommandLine, host: WorkerHost) -> None:
    with eavesdropper(Endpoint.of(line.paths, SPEC).socket) as foreign:
        for looking in (host.open(SPEC, client="test", keep_alive_s=0), host.running(), host.leftovers()):
            with pytest.raises(VlmtuiError) as raised:
                await looking
            assert raised.value.kind is ErrorKind.FOREIGN_PEER
        assert set(foreign.heard()) == {b"b''"}


def test_commands_do_not_look_into_another_users_folder(line: CommandLine) -> None:
    with eavesdropper(Endpoint.of(line.paths, SPEC).socket) as foreign:
        os.chown(line.paths.runtime, NOBODY, NOBODY)
        for command in (("ps",), ("stop", "--all"), ("stop", "test")):
            ran = line(*command)
            assert ran.code == 2
            assert "not your own folder" in ran.err
        assert foreign.heard() == []


async def test_nothing_in_another_users_folder_is_believed(line: CommandLine, host: WorkerHost) -> None:
    with eavesdropper(Endpoint.of(line.paths, SPEC).socket) as foreign:
        write_spooled(line.paths.runtime, [Delta(request_id="r", text="forged", tokens=1)])
        os.chown(line.paths.runtime, NOBODY, NOBODY)
        line.paths.runtime.chmod(0o755)
        for looking in (host.open(SPEC, client="test", keep_alive_s=0), host.running(), host.unfetched_answer("r")):
            with pytest.raises(VlmtuiError, match="not your own folder"):
                await looking
        assert foreign.heard() == []


@pytest.mark.parametrize("owner_of_file", [NOBODY, 0], ids=["his file", "root's file"])
def test_another_users_server_socket_gets_nothing(
    line: CommandLine, short_path: Path, monkeypatch: pytest.MonkeyPatch, owner_of_file: int
) -> None:
    """Neither by who made the socket nor by who listens: its file could be root's, and a process of his behind it."""
    monkeypatch.setenv("SERVER_KEY", "s3cr3t-key")
    (line.paths.config).mkdir(parents=True)
    with eavesdropper(short_path / "open" / "vllm.sock") as foreign:
        socket_file = short_path / "open" / "vllm.sock"
        os.chown(socket_file, owner_of_file, owner_of_file)
        (line.paths.config / "config.toml").write_text(
            f'[engines.box]\nurl = "unix:{socket_file}"\napi_key_env = "SERVER_KEY"\n'
        )
        for command in (
            ("ask", "--engine", f"unix:{socket_file}", "--key-env", "SERVER_KEY", "private words"),
            ("ask", "--engine", "box", "private words"),
            ("top", "box", "--json"),
        ):
            ran = line(*command)
            assert ran.code == 1, command
            assert f"unix:{socket_file} belongs to another user of this machine: nobody" in ran.err
            assert 'allow_owner = "nobody"' in ran.err
        assert set(foreign.heard()) <= {b"b''"}


async def test_an_allowed_users_server_socket_is_used(short_path: Path) -> None:
    server, place = FaultServer(), short_path / "vllm.sock"
    listening = await asyncio.start_unix_server(server.serve, place)
    os.chown(place, NOBODY, NOBODY)
    box = EngineSettings(url=f"unix:{place}")
    engines = {"box": box, "other": msgspec.structs.replace(box, allow_owner="4711")}

    async def find(engine: str, allow_owner: str | None = None) -> Model:
        return await asyncio.to_thread(find_remote_model, Registry.bundled(), engines, engine, allow_owner=allow_owner)

    for engine in engines:
        with pytest.raises(ForeignSocket) as raised:
            await find(engine)
        assert raised.value.owner == "nobody"
    assert server.heads == []
    for allowed in ("nobody", str(NOBODY)):
        model = await find("box", allow_owner=allowed)
        assert model.spec.engine_args["allow_owner"] == allowed
    link = short_path / "link.sock"
    link.symlink_to(place)
    os.chown(place, 0, 0)
    assert (await find(f"unix:{link}")).spec.model == "shapes"
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(ForeignSocket):
        await find(f"unix:{link}")
    listening.close()
