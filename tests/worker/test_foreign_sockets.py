"""Another user's socket in the place of a worker's: it is told, and nothing is said to it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.support.command_line import CommandLine, opened
from tests.support.hosts import patient_host
from tests.support.other_user import NOBODY, needs_root, other_user
from tests.worker.echo_server import echo_launcher
from tests.worker.hosted import SPEC
from vlmtui.domain.generation import Delta
from vlmtui.engine.local.host import WorkerHost
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.protocol.endpoint import Endpoint
from vlmtui.protocol.spool import write_spooled

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
    """Listens in another user's name, and tells all that is said to it."""

    def __init__(self, place: Path, said: BinaryIO) -> None:
        self._place = place
        self._said = said

    def heard(self) -> list[bytes]:
        """What each connection has said, up to now."""
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
def test_commands_tell_of_a_foreign_socket_and_say_nothing_to_it(line: CommandLine, command: tuple[str, ...]) -> None:
    with eavesdropper(Endpoint.of(line.paths, SPEC).socket) as foreign:
        ran = line(*command)
        assert (ran.code, ran.out) == (1, "")
        assert f"Another user of this machine (uid {NOBODY})" in ran.err
        assert foreign.heard() == [b"b''"], "it was looked at, and nothing was said"


async def test_a_load_tells_of_a_foreign_socket_and_says_nothing_to_it(line: CommandLine, host: WorkerHost) -> None:
    with eavesdropper(Endpoint.of(line.paths, SPEC).socket) as foreign:
        for looking in (host.open(SPEC, client="test", keep_alive_s=0), host.running(), host.workers.leftovers()):
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
