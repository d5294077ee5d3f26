"""Protects the newest changes, which stand in SQLite's write-ahead log until they are copied into the database."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

LACKS_NEWEST = "its newest changes are missing"
_LOG = "-wal"
_MARK = ".newest"
_DIGITS = 16
_CHUNK = 1 << 20


class NewestMark:
    """A small file beside the database with the time of the newest change that was committed.

    Where SQLite finds damage in the log of a killed app, it takes it for the log's end: what follows is gone without
    an error. Then the database is older than the mark. The mark is not flushed: a power failure may leave an older
    one, or none, but no newer one, since every change is flushed before it is marked.
    """

    def __init__(self, path: Path) -> None:
        """`path` is the database's. Without room on the disk there is no mark."""
        self._file: int | None = None
        with suppress(OSError):
            self._file = os.open(mark_file(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def write(self, time_ms: int) -> None:
        """Note the time of a change, in milliseconds, after its commit."""
        if self._file is not None:
            with suppress(OSError):
                os.pwrite(self._file, f"{time_ms:0{_DIGITS}d}\n".encode(), 0)

    def close(self) -> None:
        """May be called twice."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


def mark_file(path: Path) -> Path:
    """Return where the mark of the database at `path` is."""
    return path.with_name(path.name + _MARK)


def marked_ms(path: Path) -> int:
    """Return the time of the newest change of the database at `path`, as marked; 0 if it is unknown."""
    with suppress(OSError, ValueError):
        if (mark := mark_file(path)).is_file():
            with mark.open("rb") as file:
                text = file.read(_DIGITS + 1)
            if len(text) == _DIGITS + 1 and text.endswith(b"\n"):
                return int(text)
    return 0


def lacks_newest(connection: sqlite3.Connection, marked: int) -> bool:
    """Return whether the database is older than what was `marked` before it was opened. Raises sqlite3.Error."""
    found = connection.execute("SELECT last_ms FROM clock").fetchone()
    return found is not None and isinstance(found[0], int) and found[0] < marked


def flush_log_again(path: Path) -> None:
    """Write what the database's log holds once more, and flush it. No process may have it open. Raises OSError.

    A change whose fsync failed was refused. But the kernel keeps what it could not write in memory, and holds it for
    written: the next start would find the change in the log and copy part of it into the database, though the disk has
    nothing of it. Written again, it is either on the disk, or the start is refused.
    """
    log = path.with_name(path.name + _LOG)
    if log.exists() and log.stat().st_size:
        write_again(log)


def write_again(file: Path) -> None:
    """Write a file's content over itself, and flush it. Raises OSError."""
    opened = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        at = 0
        while chunk := os.pread(opened, _CHUNK, at):
            at += os.pwrite(opened, chunk, at)
        os.fsync(opened)
    finally:
        os.close(opened)
