"""Files are written completely or not at all, private, never through a link; failures leave nothing behind."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from vlmtui import files
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.files import (
    new_file,
    open_to_append,
    remove_abandoned,
    write_atomically,
    write_new,
    write_numbered,
    write_output,
    write_private,
)
from vlmtui.paths import Paths
from vlmtui.session.conversation_holder import remove_abandoned_files

Write = Callable[[Path, bytes], object]
WRITERS: dict[str, Write] = {
    "atomically": write_atomically,
    "durably": lambda target, data: write_atomically(target, data, durable=True),
    "private": write_private,
    "new": write_new,
    "numbered": lambda target, data: write_numbered(target.parent, target.name, data),
    "output": write_output,
}
REPLACING = ("atomically", "durably", "private", "output")


@pytest.fixture(params=WRITERS)
def write(request: pytest.FixtureRequest) -> Write:
    return WRITERS[request.param]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_whole_and_its_owners_alone(write: Write, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write(tmp_path / "a.txt", b"one")
    finally:
        os.umask(before)
    assert (tmp_path / "a.txt").read_bytes() == b"one"
    assert mode(tmp_path / "a.txt") == 0o600
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("name", REPLACING)
def test_a_write_replaces_the_file(name: str, tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_text("a longer text")
    target.chmod(0o644)
    with target.open("rb") as reader:
        WRITERS[name](target, b"two")
        assert reader.read() == b"a longer text", "who reads it sees the old file or the new one"
    assert target.read_bytes() == b"two"
    assert mode(target) == 0o600
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("call", ["replace", "link", "write", "fsync"])
def test_a_failed_write_leaves_the_old_file_alone(
    write: Write, call: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("old")

    def failing(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    class Full:
        """A file on a full disk."""

        def __init__(self, file: object) -> None:
            self.file = file

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            self.close()

        def write(self, _: bytes) -> None:
            failing()

        def close(self) -> None:
            self.file.close()  # type: ignore[attr-defined]

    match call:
        case "replace":
            monkeypatch.setattr(Path, "replace", failing)
            monkeypatch.setattr(Path, "hardlink_to", failing)
        case "link":
            monkeypatch.setattr(os, "open", failing)
            monkeypatch.setattr(os, "link", failing)
            monkeypatch.setattr(Path, "hardlink_to", failing)
        case "fsync":
            monkeypatch.setattr(os, "fsync", failing)
        case _:
            fdopen = os.fdopen
            monkeypatch.setattr(os, "fdopen", lambda *args: Full(fdopen(*args)))
    try:
        write(tmp_path / "a.txt", b"new")
    except VlmtuiError as error:
        assert error.kind is (ErrorKind.DISK_FULL if "disk is full" in error.message else ErrorKind.BAD_INPUT)
        assert "a.txt" in error.message
        assert code != errno.ENOSPC or "disk is full" in error.message or "already" in error.message
        monkeypatch.undo()
        assert names(tmp_path) == ["a.txt"]
        assert (tmp_path / "a.txt").read_text() == "old"
    else:  # it did without the call that fails
        monkeypatch.undo()
        assert not [name for name in names(tmp_path) if name.startswith(files.TEMPORARY_PREFIX)]


def test_interrupted_writing_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), new_file(tmp_path, "a.txt") as new:
        new.file.write(b"half")
        raise KeyboardInterrupt
    assert names(tmp_path) == []


def test_a_planted_link_is_never_written_through(tmp_path: Path) -> None:
    """Neither at the file's name nor at the unfinished file's, which nobody can guess."""
    other = tmp_path / "other"
    other.write_text("somebody else's")
    for name, write in WRITERS.items():
        if name == "output":
            continue
        folder = tmp_path / name
        folder.mkdir()
        (folder / "a.txt").symlink_to(other)
        with suppress(VlmtuiError):
            write(folder / "a.txt", b"mine")
        assert other.read_text() == "somebody else's"
    with pytest.raises(OSError, match="symbolic links"):
        open_to_append(tmp_path / "private" / ".." / "atomically" / ".." / "new" / "a.txt")


def test_private_folders_are_made_and_closed_to_others(tmp_path: Path) -> None:
    write_private(tmp_path / "state" / "raw" / "a.json", b"{}")
    assert mode(tmp_path / "state" / "raw") == 0o700
    (tmp_path / "link").symlink_to(tmp_path / "state")
    with pytest.raises(VlmtuiError, match="not your own folder"):
        write_private(tmp_path / "link" / "b.json", b"{}")


def test_a_new_file_replaces_no_other(tmp_path: Path) -> None:
    write_new(tmp_path / "a.txt", b"one")
    with pytest.raises(VlmtuiError, match="already exists"):
        write_new(tmp_path / "a.txt", b"two")
    assert (tmp_path / "a.txt").read_bytes() == b"one"
    assert names(tmp_path) == ["a.txt"]


def test_numbered_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert write_numbered(tmp_path, "a.txt", b"one") == tmp_path / "a.txt"
    assert write_numbered(tmp_path, "a.txt", b"two") == tmp_path / "a-2.txt"

    def no_links(path: Path, target: Path) -> None:
        raise FileExistsError if path.exists() else PermissionError

    monkeypatch.setattr(Path, "hardlink_to", no_links)
    assert write_numbered(tmp_path, "a.txt", b"three") == tmp_path / "a-3.txt"
    assert [path.read_bytes() for path in sorted(tmp_path.iterdir())] == [b"two", b"three", b"one"]
    with pytest.raises(VlmtuiError, match="write"):
        write_numbered(tmp_path / "none", "a.txt", b"")
    monkeypatch.setattr(files, "_TRIES", 2)
    with pytest.raises(VlmtuiError, match="there are already"):
        write_numbered(tmp_path, "a.txt", b"")
    assert len(list(tmp_path.iterdir())) == 3


def test_two_writers_of_the_same_name_get_two_files(tmp_path: Path) -> None:
    barrier, paths = threading.Barrier(8), list[Path]()

    def save(number: int) -> None:
        barrier.wait()
        paths.append(write_numbered(tmp_path, "a.txt", b"%d" % number))

    threads = [threading.Thread(target=save, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(paths)) == 8
    assert sorted(path.read_bytes() for path in paths) == [b"%d" % number for number in range(8)]


def test_output_goes_where_a_shell_would_write(tmp_path: Path) -> None:
    real, link = tmp_path / "real.md", tmp_path / "link.md"
    real.write_text("old")
    link.symlink_to(real.name)
    write_output(link, b"new")
    assert link.is_symlink() and real.read_bytes() == b"new"

    dangling = tmp_path / "dangling.md"
    dangling.symlink_to(tmp_path / "not there yet.md")
    write_output(dangling, b"x")
    assert dangling.is_symlink() and (tmp_path / "not there yet.md").read_bytes() == b"x"

    write_output(tmp_path / "new folder" / "a.md", real)
    assert (tmp_path / "new folder" / "a.md").read_bytes() == b"new"
    with pytest.raises(VlmtuiError, match="is a folder"):
        write_output(tmp_path, b"")


def test_a_pipe_gets_the_bytes_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe, got = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write_output(pipe, b"through")
    reader.join(10)
    assert got == [b"through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_device_stays_a_device(tmp_path: Path) -> None:
    link = tmp_path / "null"
    link.symlink_to("/dev/null")
    for path in (Path("/dev/null"), link):
        write_output(path, b"x")
        assert stat.S_ISCHR(path.stat().st_mode)
    with pytest.raises(VlmtuiError, match="disk is full"):
        write_output(Path("/dev/full"), b"x" * 100_000)
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


def test_standard_output_by_its_name(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_output(Path("/dev/stdout"), b"shown")
    assert capfd.readouterr().out == "shown"


_STOPPED = """
import os, signal, sys
from pathlib import Path
from vlmtui import files
replace = Path.replace
def stop(self, target):
    print(self.name, flush=True)
    sys.stdin.readline()
    replace(self, target)
Path.replace = stop
files.write_atomically(Path(sys.argv[1]), b"theirs")
"""
"""Writes a file, and stops before renaming it to the target."""


@contextmanager
def stopped(target: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a process that stops before the last step of a write; return it, and its unfinished file's name."""
    command = [sys.executable, "-c", _STOPPED, str(target)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def test_the_next_write_removes_leftovers_of_a_killed_one(write: Write, tmp_path: Path) -> None:
    with stopped(tmp_path / "a.txt") as (process, name):
        process.kill()
        process.wait()
    assert names(tmp_path) == [name], "nothing could remove it: that is what a kill at this moment leaves"
    write(tmp_path / "b.txt", b"mine")
    assert names(tmp_path) == ["b.txt"]


def test_a_file_that_another_process_still_writes_stays(write: Write, tmp_path: Path) -> None:
    with stopped(tmp_path / "a.txt") as (process, name):
        write(tmp_path / "b.txt", b"mine")
        assert names(tmp_path) == [name, "b.txt"]
        process.communicate("go on\n")
        assert process.returncode == 0
    assert names(tmp_path) == ["a.txt", "b.txt"]
    assert (tmp_path / "a.txt").read_bytes() == b"theirs"


def test_a_file_that_is_taken_for_abandoned_before_it_is_locked_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, swept = files._lock, list[str]()

    def sweep_first(descriptor: int) -> bool:
        if not swept:
            swept.extend(names(tmp_path))
            remove_abandoned(tmp_path)
        return lock(descriptor)

    monkeypatch.setattr(files, "_lock", sweep_first)
    write_atomically(tmp_path / "a.txt", b"whole")
    assert len(swept) == 1 and names(tmp_path) == ["a.txt"]
    assert (tmp_path / "a.txt").read_bytes() == b"whole"


def test_two_processes_that_write_in_one_folder_do_not_disturb_each_other(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _WRITES, str(tmp_path)]
    processes = [subprocess.Popen([*command, name], stderr=subprocess.PIPE, text=True) for name in "abab"]
    assert [process.communicate()[1] for process in processes] == [""] * 4
    assert names(tmp_path) == ["a.txt", "b.txt"]


_WRITES = """
import sys
from pathlib import Path
from vlmtui import files
for number in range(300):
    files.write_atomically(Path(sys.argv[1]) / f"{sys.argv[2]}.txt", b"x" * number)
"""


def test_a_file_that_resembles_an_unfinished_one_stays(tmp_path: Path) -> None:
    name = f"{files.TEMPORARY_PREFIX}vlmtui-0123456789abcdef"
    other = tmp_path / "other"
    other.mkdir()
    (other / "file").write_text("somebody else's")
    for kind in ("link", "folder", "pipe"):
        (tmp_path / kind).mkdir()
    (tmp_path / "link" / name).symlink_to(other / "file")
    (tmp_path / "folder" / name).mkdir()
    os.mkfifo(tmp_path / "pipe" / name)
    similar = tmp_path / "similar"
    similar.mkdir()
    kept = [f"x{name}", f"{name}.txt", f"{name}0", name[:-1], name.upper(), ".new-0123456789abcdef", ".new-abcd1234"]
    for one in kept:
        (similar / one).touch()
    for folder in ("link", "folder", "pipe", "similar"):
        before = names(tmp_path / folder)
        write_atomically(tmp_path / folder / "a.txt", b"mine")
        assert names(tmp_path / folder) == sorted([*before, "a.txt"])
    assert (other / "file").read_text() == "somebody else's"


def test_nothing_of_another_user_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = tmp_path / f"{files.TEMPORARY_PREFIX}vlmtui-0123456789abcdef"
    left.touch()
    us = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: us + 1)
    remove_abandoned(tmp_path)
    assert left.exists()
    monkeypatch.undo()
    remove_abandoned(tmp_path)
    assert not left.exists()


def test_our_own_folders_are_cleaned(tmp_path: Path) -> None:
    paths = Paths.below(tmp_path / "vlmtui")
    name = f"{files.TEMPORARY_PREFIX}vlmtui-0123456789abcdef"
    elsewhere = tmp_path / "elsewhere"
    folders = [paths.config, paths.families, paths.data, paths.media / "ab", paths.state, paths.thumbnails, elsewhere]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    (paths.data / "link").symlink_to(elsewhere)
    remove_abandoned_files(paths)
    assert list(tmp_path.rglob(name)) == [elsewhere / name]
