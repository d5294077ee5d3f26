"""The SQLite file: its schema, its connection, the locks of the processes that use it, and readable errors."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import private_dir
from vlmtui.store.errors import StoreError
from vlmtui.store.holder import is_on_network, is_ours, other_holder
from vlmtui.text import one_line

SEARCHES = ("turns_search", "titles_search")
"""The full-text indexes: of turns, and of titles."""
_SQL = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")
VERSION, _APPLICATION_ID = (int(number, 0) for number in re.findall(r"^PRAGMA \w+ = (\w+);", _SQL, re.MULTILINE))
SchemaPart = tuple[str, str, str]
"""A table, index, view or trigger: its kind, its name and its SQL."""
Row = tuple[Any, ...]
Value = str | int | float | None
_AHEAD_MAX_MS = 366 * 86_400_000
_COPIES = 10
"""How often to copy a database that is being changed."""
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_UNUSABLE_INDEX = ("invalid fts5 file format", "vtable constructor failed")
"""How SQLite's general error begins if a full-text index has lost its settings."""
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_LOCKLESS = ("SQLITE_IOERR_LOCK", "SQLITE_IOERR_RDLOCK", "SQLITE_IOERR_CHECKRESERVEDLOCK", "SQLITE_NOLFS")
_UNWRITABLE = frozenset(
    {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
)


def create_schema(connection: sqlite3.Connection) -> None:
    """Create all tables, indexes, views and triggers in an empty database. If that fails, the database stays empty."""
    connection.executescript(f"BEGIN IMMEDIATE; {_SQL} COMMIT;")


def version_of(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def schema_fault(connection: sqlite3.Connection) -> str | None:
    """Return what is wrong with a database's schema, compared with `schema.sql`; None if nothing is wrong. Raises
    sqlite3.Error."""
    if connection.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
        return "its header is not vlmtui's"
    found, expected = schema_of(connection), expected_schema()
    foreign, lacking = _named(found - expected), _named(expected - found)
    if foreign:
        return f"it has parts that vlmtui did not make: {foreign}"
    return f"it lacks parts of its schema: {lacking}" if lacking else None


@cache
def expected_schema() -> frozenset[SchemaPart]:
    """Return every table, index, view and trigger of `schema.sql`."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        create_schema(connection)
        return schema_of(connection)
    finally:
        connection.close()


def schema_of(connection: sqlite3.Connection) -> frozenset[SchemaPart]:
    rows = connection.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    return frozenset((str(kind), str(name), str(sql)) for kind, name, sql in rows)


def _named(parts: frozenset[SchemaPart]) -> str:
    names = sorted(f"{one_line(kind)} {one_line(name)}"[:80] for kind, name, _ in parts)
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


class ProcessLock:
    """A lock file that a store holds while its process lives. `id` identifies the lock in the database. A store that
    only reads holds none, and deletes none: another machine's locks may not be seen here."""

    def __init__(self, folder: Path, *, to_read: bool = False) -> None:
        self._folder = folder if to_read else private_dir(folder)
        self._to_read = to_read
        self.id = "none" if to_read else ""
        self._descriptor = -1
        while not self.id:
            self._start()

    def is_alive(self, session: str) -> bool:
        """Return True if the process that holds the lock with the id `session` still runs, or if that can't be found
        out. Otherwise delete its lock file."""
        if session == self.id or (self._to_read and (self._folder / f"{session}.lock").exists()):
            return True
        path = self._folder / f"{session}.lock"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False

    def forget_dead(self) -> None:
        """Delete the lock files of dead processes."""
        if not self._to_read:
            self.others()

    def others(self) -> list[str]:
        """Return the ids of the other locks whose processes run."""
        found = [path.stem for path in self._folder.glob("*.lock")]
        return [session for session in found if session != self.id and self.is_alive(session)]

    def close(self) -> None:
        if self._descriptor >= 0:
            with suppress(OSError):
                (self._folder / f"{self.id}.lock").unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1

    def _start(self) -> None:
        name = os.urandom(8).hex()
        path = self._folder / f"{name}.lock"
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        # Before it is locked, another process could consider the new file a dead one's; this lock prevents that.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if path.exists():
            self.id, self._descriptor = name, descriptor
        else:
            os.close(descriptor)


@contextmanager
def alone(path: Path, timeout_s: float) -> Iterator[None]:
    """Run the body of a `with` statement in one process at a time, with a lock file at `path`. Raises VlmtuiError if
    another process holds the lock for longer than `timeout_s` seconds."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + timeout_s
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if not isinstance(error, BlockingIOError):
                    raise no_locks(path, error) from error
                if time.monotonic() > deadline:
                    raise VlmtuiError(
                        ErrorKind.INTERNAL,
                        "Another vlmtui is still opening the conversations.",
                        detail=f"waited {timeout_s:g} s for {path}",
                        hint="Wait for it, or end it.",
                    ) from error
                time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)


def no_locks(path: Path, error: Exception) -> StoreError:
    """Return the error for a file system without locks."""
    return StoreError(
        ErrorKind.BAD_INPUT,
        f"Can't open the conversations: the file system of {path} locks no files.",
        detail=str(error),
        hint="Mount it with locks (Lustre: flock), or set VLMTUI_DATA_DIR to a folder on a local disk.",
    )


class _Connection(sqlite3.Connection):
    """A connection that reports a damaged database if a name in the schema is not UTF-8. Python's own connection raises
    UnicodeDecodeError for such a name."""

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        try:
            return super().execute(*arguments)
        except UnicodeDecodeError as error:
            damage = sqlite3.DatabaseError("a name in the schema is damaged")
            damage.sqlite_errorcode, damage.sqlite_errorname = sqlite3.SQLITE_CORRUPT, "SQLITE_CORRUPT"
            raise damage from error


def open_connection(path: Path, *, busy_s: float = 0.25, exclusively: bool = False) -> sqlite3.Connection:
    """Open a connection in autocommit mode. Invalid UTF-8 is read as U+FFFD, so that one damaged byte costs one
    character. `busy_s`: seconds to wait for another process's lock. `exclusively`: lock out other processes; SQLite
    then creates no `-shm` file. A file or folder that this process may not write is only read."""
    connection = _to_read(path, busy_s) if is_read_only(path) else _connected(path, busy_s)
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    if exclusively:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    return connection


def is_read_only(path: Path) -> bool:
    """Return True if a database exists that this process may not write, or not the folder with its companion files (a
    disk can be mounted to be read only, too), or that another machine writes."""
    writable = os.access(path, os.W_OK) and os.access(path.resolve().parent, os.W_OK)
    return path.exists() and not (writable and not other_holder(path))


def _connected(place: Path | str, busy_s: float = 0.25) -> sqlite3.Connection:
    """Connect to a path or a URI."""
    return sqlite3.connect(
        place,
        timeout=busy_s,
        isolation_level=None,
        check_same_thread=False,
        factory=_Connection,
        uri=isinstance(place, str),
    )


def _to_read(path: Path, busy_s: float) -> sqlite3.Connection:
    """Connect to a database that can't be written. Raises sqlite3.Error, or OSError if there is no room for a copy.

    Without the file `-shm`, which could not be created, SQLite reads no `-wal`. If that is empty or missing, no process
    has the database open, so it does not change (`immutable`). Otherwise, both are copied, and the copy is deleted as
    soon as it is open. A database that another machine writes is copied too: its locks may not be seen here."""
    if other_holder(path):
        return _copied(path, "-journal")
    address = path.resolve().as_uri()
    connection = _connected(f"{address}?mode=ro", busy_s)
    try:
        version_of(connection)
    except sqlite3.OperationalError:
        connection.close()
    else:
        return connection
    log = path.resolve().with_name(f"{path.resolve().name}-wal")
    if not log.exists() or not log.stat().st_size:
        return _connected(f"{address}?immutable=1")
    return _copied(path, "-wal")


def _copied(path: Path, companion: str) -> sqlite3.Connection:
    """Connect to a copy of a database and of its log or journal. If the database is changed meanwhile, copy it again.
    Raises sqlite3.OperationalError if that happens again and again."""
    log = path.resolve().with_name(f"{path.resolve().name}{companion}")
    for _ in range(_COPIES):
        before = _changes(path)
        with tempfile.TemporaryDirectory(prefix="vlmtui-") as folder:
            copy = Path(folder) / "copy.db"
            shutil.copyfile(path, copy)
            with suppress(FileNotFoundError):
                shutil.copyfile(log, f"{copy}{companion}")
            if before == _changes(path):
                connection = _connected(copy)
                connection.execute("PRAGMA query_only = ON")
                version_of(connection)  # opens the log
                return connection
    raise sqlite3.OperationalError("the database changes while it is copied")


def _changes(path: Path) -> bytes:
    """Return the part of a database's header that each change without a write-ahead log changes."""
    with path.open("rb") as file:
        return file.read(28)[24:]


def set_up(connection: sqlite3.Connection, path: Path) -> None:
    """Set the pragmas of the database at `path`. With synchronous = FULL, committed data survives a power failure. On a
    network file system there is no write-ahead log, which needs shared memory."""
    connection.execute(f"PRAGMA journal_mode = {'DELETE' if is_on_network(path) else 'WAL'}")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def code_of(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code of an error; 0 if Python's sqlite3 module itself raised the error."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def is_damage(error: sqlite3.Error) -> bool:
    code = code_of(error)
    return code in _DAMAGE or (code == sqlite3.SQLITE_ERROR and str(error).startswith(_UNUSABLE_INDEX))


def explained(error: sqlite3.Error, path: Path) -> StoreError:
    """Convert a database error to a StoreError with a readable message."""
    code, name = code_of(error), getattr(error, "sqlite_errorname", type(error).__name__)
    kind, message, hint = ErrorKind.INTERNAL, "The conversation database rejected a statement.", ""
    if name in _LOCKLESS:
        return no_locks(path, error)
    if is_damage(error):
        message = f"The conversation database {path} is damaged."
        hint = "`vlmtui store restore` continues with the newest good backup and keeps the damaged file."
    elif code in _BUSY:
        message = "Can't save: another process has locked the conversation database."
        hint = "Try again; if it stays locked, find the process with `fuser` on the file."
    elif code == sqlite3.SQLITE_FULL or name == "SQLITE_IOERR_SHMSIZE":
        kind, message = ErrorKind.DISK_FULL, f"The disk of the conversation database {path} is full."
        hint = "Free some space, then try again."
    elif code == sqlite3.SQLITE_READONLY:
        kind, message, hint = ErrorKind.BAD_INPUT, f"Can't save: the conversation database {path} {READ_ONLY}", WRITABLE
    elif code in _UNWRITABLE:
        kind, message = ErrorKind.BAD_INPUT, f"Can't use the conversation database {path}."
        hint = "Check its permissions and disk."
    return StoreError(kind, message, detail=f"{name}: {error}", hint=hint)


def held_by(holder: str) -> str:
    """Return the sentence about a database that the machine `holder` writes."""
    return f"On a network file system, one machine at a time saves conversations, now {holder}."


HELD = "Quit vlmtui there. If it has ended without that, `vlmtui store take` lets this machine write them."
READ_ONLY = "or its folder is read-only."
WRITABLE = (
    "Make its disk and folder writable, or start vlmtui with --data-dir and another folder. "
    "Reading, searching, exporting and `vlmtui store backup` work."
)


class Database:
    """An open database. If this process may not write it, `writing` raises StoreError.

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
        self.is_read_only = is_read_only(path)
        self.connection = open_connection(path, busy_s=busy_s, exclusively=exclusively)
        if not self.is_read_only:
            set_up(self.connection, path)
        self._file = file_identity(path)
        self._time: int | None = None
        """Time of the current transaction in milliseconds."""
        self.is_damaged = False
        """True once SQLite has reported damage."""

    @property
    def is_replaced(self) -> bool:
        """True if another process has replaced the file, so that anything written to it would be lost."""
        return file_identity(self.path) != self._file

    @property
    def is_stale(self) -> bool:
        """True if the file must be opened again: it was replaced, or has become read-only, or writable, or has no
        holder any more."""
        if self.is_replaced or self.is_read_only != is_read_only(self.path):
            return True
        return not self.is_read_only and not is_ours(self.path)

    @property
    def clock_ms(self) -> int:
        """The machine's clock in milliseconds since 1970. It may be set back; the times that `writing` yields always
        increase."""
        return int(self._now() * 1000)

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[Row]:
        """Execute a statement and return all rows. Raises VlmtuiError."""
        try:
            return self.connection.execute(sql, values).fetchall()
        except sqlite3.Error as error:
            raise self._as_store_error(error) from error

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
        """Run the body in one read transaction, so that its reads see one state of the database. Within `writing`, the
        body is part of that transaction."""
        if self._time is not None:
            yield
            return
        try:
            self.connection.execute("BEGIN")
            yield
        except sqlite3.Error as error:
            raise self._as_store_error(error) from error
        finally:
            self._roll_back()

    @contextmanager
    def writing(self) -> Iterator[int]:
        """Run the body in one transaction: committed on exit, rolled back on an error. Yields a time in milliseconds
        that is later than that of every earlier write. Within another `writing`, the body is part of the outer
        transaction."""
        if self._time is not None:
            yield self._time
            return
        if self.is_replaced:
            raise self._replaced()
        if holder := other_holder(self.path):
            raise StoreError(ErrorKind.BAD_INPUT, f"Can't save: {held_by(holder)}", hint=HELD)
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            self._time = self._tick()
            yield self._time
            self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._as_store_error(error) from error
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

    def _as_store_error(self, error: sqlite3.Error) -> StoreError:
        self.is_damaged |= is_damage(error)
        return explained(error, self.path)


def file_identity(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of a file, which show whether another file has replaced it; None if there is no
    file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
