"""The SQLite connection: short transactions, a monotonic clock, and readable errors."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.text import counted

Row = tuple[Any, ...]
Value = str | int | float | None
_AHEAD_MAX_MS = 366 * 86_400_000
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_UNUSABLE_INDEX = ("invalid fts5 file format", "vtable constructor failed")
"""How SQLite's general error begins where an index for searching has lost its own settings."""
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_UNWRITABLE = frozenset(
    {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
)


class _Connection(sqlite3.Connection):
    """Python cannot decode SQLite's message if that quotes a damaged name, and raises UnicodeDecodeError instead."""

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        try:
            return super().execute(*arguments)
        except UnicodeDecodeError as error:
            damage = sqlite3.DatabaseError("a name in the schema is damaged")
            damage.sqlite_errorcode, damage.sqlite_errorname = sqlite3.SQLITE_CORRUPT, "SQLITE_CORRUPT"
            raise damage from error


def open_connection(path: Path, *, busy_s: float = 0.25, exclusively: bool = False) -> sqlite3.Connection:
    """Open a connection in autocommit mode. Invalid UTF-8 is read as U+FFFD, so that one damaged byte costs one
    character. `busy_s`: seconds to wait for another process's lock. `exclusively`: locks out other processes, and
    creates no companion files."""
    connection = sqlite3.connect(
        path, timeout=busy_s, isolation_level=None, check_same_thread=False, factory=_Connection
    )
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    if exclusively:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    return connection


def set_up(connection: sqlite3.Connection) -> None:
    """Set the pragmas. synchronous = FULL: committed data survives a power failure."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def code_of(error: sqlite3.Error) -> int:
    """Return the primary result code; 0 if Python's sqlite3 module itself raised."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def is_damage(error: sqlite3.Error) -> bool:
    code = code_of(error)
    return code in _DAMAGE or (code == sqlite3.SQLITE_ERROR and str(error).startswith(_UNUSABLE_INDEX))


class Damage(NamedTuple):
    """A damaged database. It stays as it is, until somebody says that a backup takes its place."""

    path: Path
    reason: str
    """The fault that was found."""
    backup: Path | None
    """The newest good daily copy."""
    lacking: int | None
    """How many messages and answers that lacks at most; None if unknown."""
    file: tuple[int, int] | None
    """The `file_identity` of the database."""

    @property
    def offer(self) -> str:
        """Return a sentence about the backup."""
        if self.backup is None:
            return "There is no good backup."
        when = time.strftime("%-d %b %Y, %H:%M", time.localtime(self.backup.stat().st_mtime))
        turns = "an unknown number of turns" if self.lacking is None else f"at most {counted(self.lacking, 'turn')}"
        return f"The newest good backup, of {when}, lacks {turns if self.lacking != 0 else 'no turn'}."

    @property
    def successor(self) -> str:
        """Return the words for what would take its place, after `offer`."""
        return "an empty database" if self.backup is None else "it"


class StoreError(VlmtuiError):
    """The database is currently unusable; the same call may succeed later. `damage`: it is damaged."""

    def __init__(
        self, kind: ErrorKind, message: str, *, detail: str = "", hint: str = "", damage: Damage | None = None
    ) -> None:
        super().__init__(kind, message, detail=detail, hint=hint)
        self.damage = damage


def damaged(damage: Damage) -> StoreError:
    """Return the error for a damaged database, with the way to continue."""
    return StoreError(
        ErrorKind.INTERNAL,
        f"The conversation database {damage.path} is damaged.",
        detail=damage.reason,
        hint=f"{damage.offer} `vlmtui store restore` continues with {damage.successor} and keeps the damaged file.",
        damage=damage,
    )


def explained(error: sqlite3.Error, path: Path) -> StoreError:
    """Convert a database error to a StoreError with a readable message."""
    code, name = code_of(error), getattr(error, "sqlite_errorname", type(error).__name__)
    kind, message, hint = ErrorKind.INTERNAL, "The conversation database rejected a statement.", ""
    if is_damage(error):
        message = f"The conversation database {path} is damaged."
        hint = "`vlmtui store restore` continues with the newest good backup and keeps the damaged file."
    elif code in _BUSY:
        message = "Can't save: another process has locked the conversation database."
        hint = "Try again; if it stays locked, find the process with `fuser` on the file."
    elif code == sqlite3.SQLITE_FULL or name == "SQLITE_IOERR_SHMSIZE":
        kind, message = ErrorKind.DISK_FULL, f"The disk of the conversation database {path} is full."
        hint = "Free some space, then try again."
    elif code in _UNWRITABLE:
        kind, message = ErrorKind.BAD_INPUT, f"Can't use the conversation database {path}."
        hint = "Check its permissions and disk."
    return StoreError(kind, message, detail=f"{name}: {error}", hint=hint)


class Database:
    """An open database.

    Args:
        path: the file.
        busy_s: seconds to wait for another process's lock.
        now: the clock, seconds since 1970.
        exclusively: lock out other processes; works without free disk space.
    """

    def __init__(
        self,
        path: Path,
        *,
        busy_s: float,
        now: Callable[[], float],
        exclusively: bool = False,
    ) -> None:
        self.path = path
        self._now = now
        self.connection = open_connection(path, busy_s=busy_s, exclusively=exclusively)
        set_up(self.connection)
        self._file = file_identity(path)
        self._time: int | None = None
        """Time of the current transaction in milliseconds."""
        self.is_damaged = False
        """Whether SQLite has met damage while it was used."""

    @property
    def is_replaced(self) -> bool:
        """Whether another process has set the file aside, so that anything written to it would be lost."""
        return file_identity(self.path) != self._file

    @property
    def clock_ms(self) -> int:
        """The machine's clock in milliseconds since 1970, which may be set back, unlike the time of `writing`."""
        return int(self._now() * 1000)

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        """Execute a statement and return all rows. Raises VlmtuiError."""
        try:
            return self.connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise self._raised(error) from error

    def row(self, sql: str, values: Sequence[Value] = ()) -> Row | None:
        found = self.rows(sql, values)
        return found[0] if found else None

    def insert(self, table: str, values: Mapping[str, Value]) -> int:
        """Add a row and return its number. Raises VlmtuiError."""
        marks = ", ".join("?" * len(values))
        sql = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks}) RETURNING rowid"
        return int(self.rows(sql, tuple(values.values()))[0][0])

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Group reads so that they see one state of the database. Joins a surrounding `writing`."""
        if self._time is not None:
            yield
            return
        try:
            self.connection.execute("BEGIN")
            yield
        except sqlite3.Error as error:
            raise self._raised(error) from error
        finally:
            self._roll_back()

    @contextmanager
    def writing(self) -> Iterator[int]:
        """Run one transaction: committed on exit, rolled back on an error. Yields a time in milliseconds that is later
        than that of every earlier write. Joins a surrounding `writing`."""
        if self._time is not None:
            yield self._time
            return
        if self.is_replaced:
            raise self._replaced()
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            self._time = self._tick()
            yield self._time
            self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._raised(error) from error
        finally:
            self._time = None
            self._roll_back()

    def close(self) -> None:
        self.connection.close()

    def _tick(self) -> int:
        now = self.clock_ms
        # A stored time too far in the future is discarded; otherwise all later records would get such times.
        sql = "UPDATE clock SET last_ms = CASE WHEN last_ms > ? THEN ? ELSE max(last_ms + 1, ?) END RETURNING last_ms"
        found = self.connection.execute(sql, (now + _AHEAD_MAX_MS, now, now)).fetchall()
        return int(found[0][0]) if found else now

    def _roll_back(self) -> None:
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def _replaced(self) -> StoreError:
        return StoreError(
            ErrorKind.INTERNAL,
            f"Can't save: the conversation database {self.path} was moved or replaced.",
            hint="Restart vlmtui.",
        )

    def _raised(self, error: sqlite3.Error) -> StoreError:
        self.is_damaged |= is_damage(error)
        return explained(error, self.path)


def file_identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from another one in its place; None without a file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
