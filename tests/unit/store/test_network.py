"""On a network file system one machine at a time writes the database, and no message is lost."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vlmtui import paths
from vlmtui.cli.main import main
from vlmtui.domain.conversation import user_turn
from vlmtui.errors import VlmtuiError
from vlmtui.protocol import endpoint
from vlmtui.protocol.endpoint import Machine, make_socket_folder
from vlmtui.store import holder
from vlmtui.store.opening import FILE, verify_store
from vlmtui.store.store import Store

HAS_FUSE = os.access("/dev/fuse", os.R_OK | os.W_OK) and shutil.which("bindfs") is not None
MACHINE = """
import itertools, sys, time
from pathlib import Path
import vlmtui.store.holder as holder
from vlmtui.domain.conversation import user_turn
from vlmtui.errors import VlmtuiError
from vlmtui.protocol.endpoint import Machine
from vlmtui.store.store import Store
folder, name = Path(sys.argv[1]), sys.argv[2]
holder.this_machine = lambda: Machine(name, name, "", "")
store = conversation = None
for number in itertools.count():
    try:
        if store is None or store.is_stale:
            if store is not None:
                store.close()
            store = None
            store = Store.open(folder)
        conversation = conversation or store.new_conversation(title=name)
        store.add_turn(conversation, store.conversation(conversation).leaf, user_turn(f"{number}"))
        print(number, flush=True)
    except VlmtuiError as error:
        print("refused", error.message, flush=True)
        time.sleep(0.02)
"""
"""Plays a machine: writes messages without end, and prints the number of each that is saved."""


class Machines:
    """Stands for this machine: other names are other machines."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.name = "login"
        monkeypatch.setattr(holder, "this_machine", lambda: Machine(self.name, self.name, "", ""))


@pytest.fixture
def machines(monkeypatch: pytest.MonkeyPatch) -> Machines:
    """Make all folders those of a network file system."""
    for module in (holder, endpoint):
        monkeypatch.setattr(module, "is_network", lambda folder: True)
    return Machines(monkeypatch)


@pytest.fixture
def mounts(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """Mount one folder twice: neither mount shows the other's locks or shared memory, as two machines."""
    real, *mounted = (tmp_path / name for name in ("real", "login", "node17"))
    for folder in (real, *mounted):
        folder.mkdir(mode=0o700)
    for folder in mounted:
        subprocess.run(["bindfs", "--no-allow-other", real, folder], check=True)
    yield mounted[0], mounted[1]
    for folder in mounted:
        subprocess.run(["umount", "--lazy", folder], check=True)


def say(store: Store, text: str) -> None:
    conversation = store.new_conversation(title=text)
    store.add_turn(conversation, None, user_turn(text))


def titles(store: Store) -> list[str]:
    return [entry.conversation.title for entry in store.conversations()]


def test_the_second_machine_reads_until_the_first_quits(machines: Machines, tmp_path: Path) -> None:
    here = Store.open(tmp_path)
    say(here, "one")
    assert here.database.row("PRAGMA journal_mode") == ("delete",)
    machines.name = "node17"
    there = Store.open(tmp_path)
    assert there.notice.startswith("Nothing can be saved here: On a network file system, one machine at a time saves")
    assert "now login since " in there.notice and "`vlmtui store take`" in there.notice
    assert titles(there) == ["one"]
    with pytest.raises(VlmtuiError, match=r"Can't save: .* now login since"):
        say(there, "two")
    machines.name = "login"
    second = Store.open(tmp_path)  # another process of the first machine
    say(second, "two")
    here.close()
    machines.name = "node17"
    stale = [there.is_stale]
    machines.name = "login"
    second.close()
    machines.name = "node17"
    assert [*stale, there.is_stale] == [False, True]
    there.close()
    there = Store.open(tmp_path)
    say(there, "three")
    assert titles(there) == ["three", "two", "one"]
    there.close()
    assert not (tmp_path / f"{FILE}.machine").exists()


def test_a_machine_takes_over_and_the_other_stops_writing(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VLMTUI_DATA_DIR", str(tmp_path))
    here = Store.open(tmp_path / "data")
    say(here, "one")
    machines.name = "node17"
    assert main(["store", "take"]) == 0
    assert "This machine writes the conversations now" in capsys.readouterr().err
    there = Store.open(tmp_path / "data")
    say(there, "two")
    machines.name = "login"
    assert here.is_stale
    with pytest.raises(VlmtuiError, match=r"Can't save: .* now node17 since"):
        say(here, "three")
    here.close()
    assert titles(Store.open(tmp_path / "data")) == ["two", "one"]
    assert (tmp_path / "data" / f"{FILE}.machine").exists()


def test_an_unreadable_holder_is_another_machine(machines: Machines, tmp_path: Path) -> None:
    Store.open(tmp_path).close()
    (tmp_path / f"{FILE}.machine").write_text("not JSON")
    assert "now another machine." in Store.open(tmp_path).notice


def test_file_systems_are_known_by_their_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = tmp_path.stat().st_dev
    ours = f"{os.major(device)}:{os.minor(device)}"
    monkeypatch.setattr(paths, "_MOUNTS", tmp_path / "mountinfo")
    kinds = {"nfs4": True, "lustre": True, "fuse.sshfs": True, "fuse": True, "ext4": False, "fuseblk": False}
    for kind, found in kinds.items():
        (tmp_path / "mountinfo").write_text(
            f"22 27 0:0 / /proc rw - proc proc rw\nbroken\n27 1 {ours} / /home rw shared:1 - {kind} server:/home rw\n"
        )
        paths._type_of.cache_clear()
        assert (paths.file_system_of(tmp_path), paths.is_network(tmp_path)) == (kind, found)
    paths._type_of.cache_clear()
    assert paths.file_system_of(tmp_path / "missing") == ""


def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with pytest.raises(VlmtuiError, match="locks no files") as told:
        Store.open(tmp_path)
    assert "VLMTUI_DATA_DIR" in told.value.hint


def test_sockets_are_never_on_the_network(machines: Machines, tmp_path: Path) -> None:
    made = make_socket_folder(tmp_path / "run")
    assert made.parent == Path("/tmp")
    assert make_socket_folder(tmp_path / "run") == made
    made.rmdir()


@pytest.mark.process
@pytest.mark.skipif(not HAS_FUSE, reason="needs /dev/fuse and bindfs")
def test_two_machines_that_are_killed_lose_nothing(mounts: tuple[Path, Path], tmp_path: Path) -> None:
    saved: dict[str, list[int]] = {}
    for number in range(6):
        first, second = (mounts, ("login", "node17")) if number % 2 else (mounts[::-1], ("node17", "login"))
        played = [
            subprocess.Popen(
                [sys.executable, "-c", MACHINE, str(mount / "data"), f"{name}-{number}"],
                stdout=subprocess.PIPE,
                text=True,
            )
            for mount, name in zip(first, second, strict=True)
        ]
        said: list[list[str]] = [[], []]
        while sum(line.isdigit() for lines in said for line in lines) < 10:
            for process, lines in zip(played, said, strict=True):
                assert process.stdout is not None
                lines.append(process.stdout.readline().strip())
                assert lines[-1], "the process has ended"
        for process in played:
            process.send_signal(signal.SIGKILL)
        for process, lines, name in zip(played, said, second, strict=True):
            lines += process.communicate()[0].splitlines()
            saved[f"{name}-{number}"] = [int(line) for line in lines if line.isdigit()]
        (tmp_path / "real" / "data" / f"{FILE}.machine").unlink()  # as `vlmtui store take` does on the next one
    assert not verify_store(tmp_path / "real" / "data", tmp_path / "real" / "data" / "media").findings
    store = Store.open(tmp_path / "real" / "data")
    found = {
        entry.conversation.title: [int(turn.text) for turn in store.path(entry.conversation.id)]
        for entry in store.conversations()
    }
    for name, numbers in saved.items():
        assert found.get(name, [])[: len(numbers)] == numbers
