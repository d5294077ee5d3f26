"""Watches a folder into which the user copies images and videos from another computer."""

from __future__ import annotations

import getpass
import os
import shlex
import socket
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from vlmtui.media.paths import looks_like_media
from vlmtui.reading import unreadable

_PARTIAL = (".part", ".partial", ".filepart", ".crdownload", ".download", ".tmp", ".swp", "~")


class _State(NamedTuple):
    """The size, time and inode of a file, which change when it is written again."""

    size: int
    mtime_ns: int
    inode: int


class Inbox:
    """Finds new, completely written media files. Files already in `folder` do not count as new."""

    def __init__(self, folder: Path) -> None:
        """Raises VlmtuiError if the folder cannot be read; a missing folder counts as empty."""
        self.folder = folder
        self._known = dict(self._look())
        self._growing: dict[str, _State] = {}

    def scan(self) -> list[Path]:
        """Return the media files that arrived since the last call, oldest first. Blocking; call it every second or so.

        A file is reported once its size and time are the same in two calls, and again after it is rewritten. Hidden,
        partial and empty files and links to outside are ignored. Raises VlmtuiError.
        """
        found = dict(self._look())
        same = {name for name, state in found.items() if self._known.get(name) == state}
        arrived = {
            name: state for name, state in found.items() if self._growing.get(name) == state and name not in same
        }
        self._growing = {name: state for name, state in found.items() if name not in same and name not in arrived}
        self._known = {name: state for name, state in self._known.items() if name in found} | arrived
        names = sorted(arrived, key=lambda name: (arrived[name].mtime_ns, os.fsencode(name)))
        return [path for name in names if looks_like_media(path := self.folder / name)]

    def _look(self) -> Iterator[tuple[str, _State]]:
        try:
            root = self.folder.resolve()
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    state = None if _is_partial(entry.name) else _state(entry, root)
                    if state is not None:
                        yield entry.name, state
        except FileNotFoundError:
            return
        except (OSError, RuntimeError) as error:
            raise unreadable(self.folder, error) from error


def scp_line(folder: Path, *, environ: Mapping[str, str] = os.environ) -> str:
    """Return a shell command for the user's own computer that copies `FILE` into `folder` on this machine.

    Host and port are those of the SSH session; behind a jump host or port forwarding they may differ.
    """
    host, port = _address(environ.get("SSH_CONNECTION", ""))
    user = environ.get("USER") or environ.get("LOGNAME") or _user()
    there = str(folder.absolute()).rstrip("/") + "/"
    option = f"-P {shlex.quote(port)} " if port != "22" else ""
    quoted = "'" + there.replace("'", "'\\''") + "'"
    return f"scp {option}FILE {shlex.quote(f'{user}@{host}')}:{quoted}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "USER"


def _address(connection: str) -> tuple[str, str]:
    """Return this machine's address and port from `SSH_CONNECTION` (client, its port, server, its port)."""
    fields = connection.split()
    if len(fields) != 4:
        return socket.gethostname(), "22"
    _, _, host, port = fields
    return (f"[{host}]" if ":" in host else host), port


def _is_partial(name: str) -> bool:
    return name.startswith(".") or name.lower().endswith(_PARTIAL)


def _state(entry: os.DirEntry[str], root: Path) -> _State | None:
    """Return a file's state, or None if it is empty, not a regular file, or outside `root`."""
    try:
        if entry.is_symlink() and not Path(entry.path).resolve().is_relative_to(root):
            return None
        found = entry.stat()
    except (OSError, RuntimeError):
        return None
    if not stat.S_ISREG(found.st_mode) or found.st_size == 0:
        return None
    return _State(found.st_size, found.st_mtime_ns, found.st_ino)
