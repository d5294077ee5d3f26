"""Opens the database: creates it, or salvages a damaged one."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.paths import private_dir
from vlmtui.store.database import explained, is_damage, open_connection, set_up
from vlmtui.store.newest_changes import LACKS_NEWEST, flush_log_again, lacks_newest, mark_file, marked_ms
from vlmtui.store.process_lock import alone
from vlmtui.store.records import Recovery
from vlmtui.store.salvage import salvage
from vlmtui.store.schema import (
    APPLICATION_ID,
    VERSION,
    create_schema,
    expected_schema,
    foreign_parts,
    schema_of,
    version_of,
)

FILE = "conversations.db"
COMPANIONS = ("-wal", "-shm")
"""Endings of SQLite's own files beside the database."""


def prepare_database(folder: Path, *, busy_s: float, is_shared: Callable[[], bool]) -> tuple[Path, Recovery | None]:
    """Return the path of an intact database in `folder`, and what was lost in a recovery.
    `is_shared` tells whether another living process may have it open.

    Raises VlmtuiError if the folder is unusable, the disk is full, or the database is of another version or has
    foreign parts.
    """
    path = private_dir(folder) / FILE
    with explaining(path), alone(folder / f"{FILE}.lock", busy_s + 30):
        if path.is_symlink() and not path.exists():
            raise bad_input(
                f"{path} is a broken link.",
                hint="Is its disk mounted? Remove the link to start with an empty store.",
            )
        if not path.exists():
            _make(path)
            return path, None
        path.chmod(0o600)
        _undo_set_aside(path)
        if not is_shared():
            flush_log_again(path)
        reason = _damage(path)
        return path, None if reason is None else _recover(path, reason)


def repair_database(folder: Path, *, busy_s: float) -> Recovery:
    """Set the database in `folder` aside, and put a new one with all its readable rows in its place. Other processes
    that have it open change to the new one. Raises VlmtuiError."""
    path = private_dir(folder) / FILE
    with explaining(path), alone(folder / f"{FILE}.lock", busy_s + 30):
        _undo_set_aside(path)
        _damage(path)  # one of another version is refused
        return _recover(path, "repaired on request")


def replace_database(folder: Path, other: Path, *, busy_s: float) -> Path | None:
    """Put a database file, which is moved, in the place of that in `folder`; return where that one is now, or None if
    there was none. Raises VlmtuiError."""
    path = private_dir(folder) / FILE
    with explaining(path), alone(folder / f"{FILE}.lock", busy_s + 30):
        _undo_set_aside(path)
        aside = _set_aside(path) if path.exists() else None
        mark_file(path).unlink(missing_ok=True)
        other.replace(path)
        return aside


def require_readable(path: Path) -> None:
    """Raise VlmtuiError unless the database at `path` has this version. Writes nothing."""
    with explaining(path), closing(open_connection(path, exclusively=True)) as connection:
        version = version_of(connection)
    if version != VERSION:
        raise other_version(str(path), version)


def _make(path: Path) -> None:
    """Create a database and only then give it its name, so that an empty file always means damage."""
    for companion in COMPANIONS:
        path.with_name(path.name + companion).unlink(missing_ok=True)
    mark_file(path).unlink(missing_ok=True)
    fresh = new_database(path.with_name(f"{path.name}.new"))
    fresh.replace(path)


def new_database(path: Path) -> Path:
    """Create an empty database at `path`, replacing any file, without companion files."""
    for old in (path, *(path.with_name(path.name + companion) for companion in COMPANIONS)):
        old.unlink(missing_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    with closing(open_connection(path)) as connection:
        set_up(connection)
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN IMMEDIATE")
        create_schema(connection)
        connection.execute("COMMIT")
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return path


def _damage(path: Path) -> str | None:
    """Return why the file counts as damaged, or None. Raises VlmtuiError if it is of another version."""
    if path.stat().st_size == 0:
        return "the file was empty"
    marked = marked_ms(path)
    with closing(open_connection(path)) as connection:
        try:
            version = version_of(connection)
            if version not in (0, VERSION):
                raise other_version(str(path), version)
            if path.with_name(f"{path.name}.suspect").exists():
                return "an error while it was used"
            if version == 0 or connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
                return "the file's header"
            if foreign := foreign_parts(connection):
                raise foreign_schema(str(path), foreign, hint="`vlmtui store restore FILE` restores a backup.")
            if expected_schema() != schema_of(connection):
                return "the file's schema"
            found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
            if found != "ok":
                return " ".join(found.removeprefix("*** in database main ***").split())
            return LACKS_NEWEST if lacks_newest(connection, marked) else None
        except sqlite3.DatabaseError as error:
            if is_damage(error) or _is_broken_schema(error):
                return str(error)
            raise


def _is_broken_schema(error: sqlite3.DatabaseError) -> bool:
    """Whether the header or schema is damaged, for which SQLite reports its general error code."""
    return getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_ERROR


def foreign_schema(name: str, parts: Sequence[str], *, hint: str = "") -> VlmtuiError:
    """Return the error for a database with parts that vlmtui did not make, which stays as it is."""
    return bad_input(
        f"{name} has parts that vlmtui did not make, so it is not opened: {', '.join(parts[:5])}.",
        detail=f"{len(parts)} of its tables, indexes, views and triggers are foreign",
        hint=hint,
    )


def other_version(name: str, version: int) -> VlmtuiError:
    """Return the error for a database of another version, which stays as it is."""
    return bad_input(
        f"{name} was written by another version of vlmtui, so this one won't open it.",
        detail=f"schema version {version}; this vlmtui reads version {VERSION}",
        hint="Use the vlmtui that wrote it, or set VLMTUI_DATA_DIR to another folder.",
    )


def _recover(path: Path, reason: str) -> Recovery:
    """Copy all readable rows into a new database, then swap the two. If the process dies before that, the damaged file
    stays in place and the next start tries again."""
    fresh = new_database(path.with_name(f"{path.name}.new"))
    found = salvage(path, fresh, make=new_database)
    aside = _set_aside(path)
    mark_file(path).unlink(missing_ok=True)
    fresh.replace(path)
    path.with_name(f"{path.name}.suspect").unlink(missing_ok=True)
    return Recovery(
        reason=reason,
        set_aside=aside,
        conversations=found.conversations,
        turns=found.turns,
        turns_lost=found.turns_lost,
    )


def _set_aside(path: Path) -> Path:
    """Give the database another name, too, under which it stays; its journal has only that one."""
    aside = _free_name(path)
    try:
        os.link(path, aside)
    except OSError:
        # Some file systems have no links.
        shutil.copyfile(path, aside)
        aside.chmod(0o600)
    for companion in COMPANIONS:
        # The old file's journal must never be applied to the new one.
        with suppress(FileNotFoundError):
            path.with_name(path.name + companion).rename(aside.with_name(aside.name + companion))
    return aside


def _undo_set_aside(path: Path) -> None:
    """Give the database its log back, if a process was killed after it set the database aside and before it put the new
    one in its place."""
    for aside in path.parent.glob(f"{path.stem}.damaged-*.db"):
        if path.exists() and aside.samefile(path):
            for companion in COMPANIONS:
                with suppress(FileNotFoundError):
                    aside.with_name(aside.name + companion).rename(path.with_name(path.name + companion))
            aside.unlink()


def _free_name(path: Path) -> Path:
    stem = f"{path.stem}.damaged-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    names = (path.with_name(f"{stem}{suffix}.db") for suffix in ("", *(f"-{number}" for number in range(2, 1000))))
    return next(name for name in names if not name.exists())


@contextmanager
def explaining(path: Path) -> Iterator[None]:
    """Convert errors to VlmtuiError with a readable message."""
    try:
        yield
    except sqlite3.Error as error:
        raise explained(error, path) from error
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise VlmtuiError(
            ErrorKind.DISK_FULL if full else ErrorKind.BAD_INPUT,
            "Can't open the conversations: " + (f"the disk of {path} is full." if full else f"{path} is unusable."),
            detail=str(error),
            hint="Free some space, check the permissions, or set VLMTUI_DATA_DIR to another folder.",
        ) from error
