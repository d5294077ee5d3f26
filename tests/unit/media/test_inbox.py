"""A file that arrives in the inbox folder is offered once, when it is complete."""

from __future__ import annotations

import os
import shlex
import socket
from pathlib import Path

import pytest

from vlmtui.errors import VlmtuiError
from vlmtui.media.inbox import Inbox, scp_line


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "in box"
    made.mkdir()
    return made


def _put(path: Path, text: str = "x", mtime_s: int | None = None) -> Path:
    path.write_text(text)
    if mtime_s is not None:
        os.utime(path, (mtime_s, mtime_s))
    return path


def test_a_file_is_offered_once_when_complete(folder: Path) -> None:
    _put(folder / "old.png")
    inbox = Inbox(folder)
    new = _put(folder / "new.png")
    assert inbox.scan() == []
    assert inbox.scan() == [new]
    assert inbox.scan() == []


def test_a_file_that_grows_waits(folder: Path) -> None:
    inbox = Inbox(folder)
    path = folder / "big.mp4"
    for size in (1, 2, 3):
        _put(path, "x" * size, mtime_s=1000)
        assert inbox.scan() == []
    _put(path, "y" * 3, mtime_s=1001)
    assert inbox.scan() == []
    assert inbox.scan() == [path]


def test_a_rewritten_file_is_offered_again(folder: Path) -> None:
    old = _put(folder / "old.png", mtime_s=1000)
    inbox = Inbox(folder)
    _put(old, mtime_s=2000)
    assert [inbox.scan(), inbox.scan()] == [[], [old]]
    old.unlink()
    assert inbox.scan() == []
    _put(old, mtime_s=2000)
    assert [inbox.scan(), inbox.scan()] == [[], [old]]


def test_partial_hidden_empty_and_other_files(folder: Path) -> None:
    inbox = Inbox(folder)
    for name in (".cat.png", "a.png.part", "b.png.filepart", "c.png~", "d.PNG.CRDOWNLOAD", "notes.txt"):
        _put(folder / name)
    (folder / "empty.png").touch()
    (folder / "folder.png").mkdir()
    os.mkfifo(folder / "pipe.png")
    assert [inbox.scan() for _ in range(3)] == [[], [], []]
    done = (folder / "b.png.filepart").rename(folder / "b.png")
    assert [inbox.scan(), inbox.scan()] == [[], [done]]


def test_links(folder: Path, tmp_path: Path) -> None:
    inside, outside = _put(folder / "a.png", mtime_s=1), _put(tmp_path / "secret.png")
    inbox = Inbox(folder)
    (folder / "in.png").symlink_to(inside)
    (folder / "out.png").symlink_to(outside)
    (folder / "up.png").symlink_to("../secret.png")
    (folder / "loop.png").symlink_to("loop.png")
    (folder / "gone.png").symlink_to("nothing.png")
    assert [inbox.scan(), inbox.scan()] == [[], [folder / "in.png"]]


def test_oldest_first(folder: Path) -> None:
    inbox = Inbox(folder)
    paths = [_put(folder / name, mtime_s=1000 + at) for at, name in enumerate(("z.png", "10.png", "a.png"))]
    inbox.scan()
    assert inbox.scan() == paths


def test_nasty_names(folder: Path) -> None:
    inbox = Inbox(folder)
    paths = {_put(folder / name) for name in ("a\nb.png", "[red]*.png", "\u202egnp.png", os.fsdecode(b"\xff.png"))}
    inbox.scan()
    assert set(inbox.scan()) == paths


def test_a_folder_that_comes_and_goes(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "later")
    assert inbox.scan() == []
    (tmp_path / "later").mkdir()
    path = _put(tmp_path / "later" / "x.png")
    assert [inbox.scan(), inbox.scan()] == [[], [path]]
    with pytest.raises(VlmtuiError):
        Inbox(path)


@pytest.mark.parametrize(
    ("connection", "line"),
    [
        ("10.0.0.9 50000 10.0.0.1 22", "scp FILE me@10.0.0.1:'/a b/'"),
        ("10.0.0.9 50000 10.0.0.1 2222", "scp -P 2222 FILE me@10.0.0.1:'/a b/'"),
        ("::1 50000 2001:db8::1 22", "scp FILE 'me@[2001:db8::1]':'/a b/'"),
        ("1 2 $(reboot) 22", "scp FILE 'me@$(reboot)':'/a b/'"),
        ("1 2 10.0.0.1 -oProxy", "scp -P -oProxy FILE me@10.0.0.1:'/a b/'"),
    ],
)
def test_scp_line(connection: str, line: str) -> None:
    assert scp_line(Path("/a b"), environ={"SSH_CONNECTION": connection, "USER": "me"}) == line


@pytest.mark.parametrize("connection", ["", "nonsense"])
def test_scp_line_without_ssh(connection: str) -> None:
    environ = {"SSH_CONNECTION": connection, "LOGNAME": "me"}
    assert scp_line(Path("/x/"), environ=environ) == f"scp FILE {shlex.quote(f'me@{socket.gethostname()}')}:'/x/'"


def test_scp_line_quotes() -> None:
    line = scp_line(Path("/it's $(x)"), environ={"USER": "m e", "SSH_CONNECTION": "1 2 10.0.0.1 22"})
    assert shlex.split(line) == ["scp", "FILE", "m e@10.0.0.1:/it's $(x)/"]
