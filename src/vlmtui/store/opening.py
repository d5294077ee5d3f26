"""Opens the database: creates it, checks it, and replaces it by another one."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Literal

import msgspec

from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.media.content_store import NAME, require_intact
from vlmtui.paths import private_dir
from vlmtui.store.database import (
    HELD,
    READ_ONLY,
    SEARCHES,
    VERSION,
    WRITABLE,
    alone,
    code_of,
    create_schema,
    explained,
    file_identity,
    held_by,
    is_damage,
    is_read_only,
    open_connection,
    schema_fault,
    set_up,
    version_of,
)
from vlmtui.store.errors import Damage, StoreError, damaged
from vlmtui.store.holder import hold, other_holder
from vlmtui.store.tables import TABLES, copy_rows

FILE = "conversations.db"
COMPANIONS = ("-wal", "-shm", "-journal")
"""Endings of SQLite's own files beside the database."""
_CHECK_S = 1.0
"""Maximum time to check the database's pages at opening, in seconds; a gigabyte takes half of it."""
FaultKind = Literal["database", "missing media", "damaged media", "stray file"]
"""`stray file`: a file in the media folder that is not vlmtui's."""


def prepare_database(folder: Path, media: Path, *, busy_s: float, thorough: bool = False) -> str:
    """Make sure that `folder` has an intact database. Return a message about it for the user; usually empty. If only
    its search indexes are damaged, rebuild them. A database that can't be written is only checked. `thorough`: check
    everything, however long it takes.

    Raises StoreError if it is damaged, and VlmtuiError if the folder is unusable, the disk is full, or the database is
    of another version.
    """
    path = folder / FILE
    if is_read_only(path) or not (private_dir(folder) and hold(path)):
        holder = other_holder(path)
        if holder and not path.exists():  # the other machine is making it
            raise StoreError(ErrorKind.BAD_INPUT, held_by(holder), hint=HELD)
        with explaining(path):
            if (reason := damage_of(path, seconds=None if thorough else _CHECK_S)) is not None:
                raise damaged_store(path, reason)
        if holder:
            return f"Nothing can be saved here: {held_by(holder)} {HELD}"
        return f"Nothing can be saved: {path} {READ_ONLY} {WRITABLE}"
    with explaining(path), alone(folder / f"{FILE}.lock", busy_s + 30):
        if path.is_symlink() and not path.exists():
            raise bad_input(
                f"{path} is a broken link.",
                hint="Is its disk mounted? Remove the link to start with an empty store.",
            )
        if not path.exists():
            _make(path)
            return ""
        path.chmod(0o600)
        _undo_set_aside(path)
        reason = damage_of(path, seconds=None if thorough else _CHECK_S)
        if reason is None:
            _flush_log(path)
            return ""
        if not _rows_are_intact(path):
            raise damaged_store(path, reason)
        fresh = new_database(path.with_name(f"{path.name}.new"))
        try:
            with closing(open_connection(path)) as old, closing(open_connection(fresh)) as new:
                copy_rows(old, new, media)
        except (sqlite3.DatabaseError, ValueError) as error:
            raise damaged_store(path, reason) from error
        aside = _put_in_place(fresh, path)
        return f"The search index was damaged and is rebuilt ({reason}). No message is lost. The old file is {aside}."


def replace_database(folder: Path, other: Path, *, busy_s: float) -> Path | None:
    """Replace the database in `folder` by the file `other`. Return the new path of the old database, or None if there
    was none. Raises VlmtuiError."""
    path = private_dir(folder) / FILE
    with explaining(path), alone(folder / f"{FILE}.lock", busy_s + 30):
        _undo_set_aside(path)
        return _put_in_place(other, path)


def require_readable(path: Path) -> None:
    """Raise VlmtuiError unless the database at `path` has this version. Writes nothing."""
    with explaining(path), closing(open_connection(path, exclusively=True)) as connection:
        version = version_of(connection)
    if version != VERSION:
        raise other_version(str(path), version)


def new_database(path: Path) -> Path:
    """Create an empty database at `path`. An existing file is deleted, along with its `-wal` and `-shm` files."""
    for old in (path, *(path.with_name(path.name + companion) for companion in COMPANIONS)):
        old.unlink(missing_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    with closing(open_connection(path)) as connection:
        set_up(connection, path)
        create_schema(connection)
    return path


def damage_of(path: Path, *, seconds: float | None = None, name: str = "") -> str | None:
    """Return why a database counts as damaged; None if it is intact.

    `seconds`: the maximum time to check its pages, without checking the full-text indexes; None: check everything.
    Raises sqlite3.Error. Raises VlmtuiError if the database is of another version, with `name` (default: the path) as
    its name.
    """
    if path.stat().st_size == 0:
        return "the file is empty"
    with closing(open_connection(path)) as connection:
        try:
            version = version_of(connection)
            if version not in (0, VERSION):
                raise other_version(name or str(path), version)
            if (fault := schema_fault(connection) or _page_fault(connection, seconds)) is not None:
                return fault
            if seconds is not None:
                return None
            if not is_read_only(path):
                return _search_fault(connection)
            with closing(open_connection(Path(":memory:"))) as copy:  # the check is a statement that writes
                connection.backup(copy)
                return _search_fault(copy)
        except sqlite3.DatabaseError as error:
            # A damaged schema is reported with SQLite's general error code.
            if is_damage(error) or code_of(error) == sqlite3.SQLITE_ERROR:
                return str(error)
            raise


def _search_fault(connection: sqlite3.Connection) -> str | None:
    """Return which full-text index does not match the stored texts; None if all match. Raises sqlite3.Error."""
    for index in SEARCHES:
        try:
            # With rank 1 the index is compared with the texts.
            connection.execute(f"INSERT INTO {index} ({index}, rank) VALUES ('integrity-check', 1)")
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            return f"{index} does not match the texts"
    return None


def daily_backups(folder: Path) -> list[Path]:
    """Return the daily copies of the database in `folder`, the newest first."""
    return sorted((folder / "backups").glob("conversations-????-??-??.db"), reverse=True)


def damaged_store(path: Path, reason: str) -> StoreError:
    """Return the error for a damaged database, with the newest good backup and the number of turns that it lacks."""
    backup = next((one for one in daily_backups(path.parent) if _is_good(one)), None)
    lacking = None if backup is None else _turns_after(path, backup)
    return damaged(Damage(path, reason, backup, lacking, file_identity(path)))


def other_version(name: str, version: int) -> VlmtuiError:
    """Return the error for a database of another version."""
    return bad_input(
        f"{name} was written by another version of vlmtui, so this one won't open it.",
        detail=f"schema version {version}; this vlmtui reads version {VERSION}",
        hint="Use the vlmtui that wrote it, or set VLMTUI_DATA_DIR to another folder.",
    )


def _make(path: Path) -> None:
    """Create a database under a temporary name, then rename it. A killed process therefore never leaves an empty file
    under the real name: an empty file always means damage."""
    for companion in COMPANIONS:
        path.with_name(path.name + companion).unlink(missing_ok=True)
    new_database(path.with_name(f"{path.name}.new")).replace(path)


def _flush_log(path: Path) -> None:
    """Copy the write-ahead log that a killed process left behind into the database. If that process could not write the
    log to the disk, the kernel still takes the log for written: a power failure would then lose all later changes in
    it."""
    with closing(open_connection(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")


def _page_fault(connection: sqlite3.Connection, seconds: float | None) -> str | None:
    if seconds is not None:
        deadline = time.monotonic() + seconds
        connection.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
    try:
        found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.OperationalError as error:
        if code_of(error) == sqlite3.SQLITE_INTERRUPT:
            return None
        raise
    finally:
        connection.set_progress_handler(None, 0)
    return None if found == "ok" else " ".join(found.removeprefix("*** in database main ***").split())


def _rows_are_intact(path: Path) -> bool:
    """Return True if only indexes are damaged, which can be rebuilt from the rows."""
    with closing(open_connection(path)) as connection:
        try:
            checks = [f"PRAGMA quick_check({name})" for name in (*(table.name for table in TABLES), "clock")]
            return schema_fault(connection) is None and all(
                connection.execute(check).fetchone()[0] == "ok" for check in checks
            )
        except sqlite3.DatabaseError:
            return False


def _is_good(backup: Path) -> bool:
    try:
        return damage_of(backup) is None
    except (sqlite3.Error, OSError, VlmtuiError):
        return False


def _turns_after(path: Path, backup: Path) -> int | None:
    """Return how many turns a damaged database has, at most, that a backup lacks; None if a file is unreadable."""
    try:
        with closing(open_connection(backup)) as connection:
            (kept,) = connection.execute("SELECT coalesce(max(id), 0) FROM turns").fetchone()
        with closing(open_connection(path)) as connection:
            found = connection.execute("SELECT count(*) FROM turns NOT INDEXED WHERE id > ?", (kept,)).fetchone()
    except sqlite3.Error:
        return None
    return int(found[0])


def _put_in_place(fresh: Path, path: Path) -> Path | None:
    """Move the database `fresh` to `path`. Return the new path of the old file.

    An app that has the old database open refers to rows by number. New rows are therefore numbered from the current
    Unix time on: the old database never reached such numbers, so the app can't mistake a new row for an old one.
    """
    if not path.exists():
        fresh.replace(path)
        return None
    with closing(open_connection(fresh)) as connection:
        for table in ("conversations", "turns", "comparisons"):
            known = connection.execute("SELECT max(seq) FROM sqlite_sequence WHERE name = ?", (table,)).fetchone()[0]
            connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
            last = max(known or 0, int(time.time()))
            connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, last))
    with fresh.open("rb") as file:
        os.fsync(file.fileno())
    aside = _set_aside(path)
    fresh.replace(path)
    return aside


def _set_aside(path: Path) -> Path:
    """Give the database a second name that stays after its replacement, and move its `-wal` and `-shm` files to that
    name. Return the path."""
    stem = f"{path.stem}.replaced-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    names = (path.with_name(f"{stem}{suffix}.db") for suffix in ("", *(f"-{number}" for number in range(2, 1000))))
    aside = next(name for name in names if not name.exists())
    try:
        os.link(path, aside)
    except OSError:
        # Some file systems have no links.
        shutil.copyfile(path, aside)
        aside.chmod(0o600)
    _move_companions(path, aside)  # the old file's journal must never be applied to the new one
    return aside


def _undo_set_aside(path: Path) -> None:
    """Give the database its `-wal` and `-shm` files back, if a process was killed after `_set_aside` and before it
    replaced the database."""
    for aside in path.parent.glob(f"{path.stem}.replaced-*.db"):
        if path.exists() and aside.samefile(path):
            _move_companions(aside, path)
            aside.unlink()


def _move_companions(path: Path, other: Path) -> None:
    for companion in COMPANIONS:
        with suppress(FileNotFoundError):
            path.with_name(path.name + companion).rename(other.with_name(other.name + companion))


@contextmanager
def explaining(path: Path) -> Iterator[None]:
    """Within the `with` block, convert errors to VlmtuiError with a readable message."""
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


class StoreFinding(msgspec.Struct, frozen=True):
    """A fault in the store."""

    kind: FaultKind
    where: str
    """A file, a table with its row, or a hash."""
    what: str


class StoreReport(msgspec.Struct, frozen=True, kw_only=True):
    """The faults that a check found, and how much it checked."""

    findings: tuple[StoreFinding, ...]
    conversations: int
    turns: int
    media: int
    unused_media: int
    """Stored files that nothing refers to. They are no fault: an interrupted import leaves them, for example."""


def verify_store(folder: Path, media: Path) -> StoreReport:
    """Check the database in `folder`, and the files in `media`. Blocking; reads every page and every stored file."""
    path = folder / FILE
    findings: list[StoreFinding] = []
    counts = {"conversations": 0, "turns": 0}
    wanted: set[str] = set()
    if path.is_file():
        try:
            with explaining(path):
                fault = damage_of(path)
        except VlmtuiError as error:
            fault = error.message
        if fault is not None:
            findings.append(StoreFinding("database", FILE, fault))
        with suppress(sqlite3.Error), closing(open_connection(path)) as connection:
            wanted = {str(row[0]) for row in connection.execute("SELECT sha256 FROM media_references")}
            for table in counts:
                counts[table] = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    elif os.path.lexists(path):
        findings.append(StoreFinding("database", FILE, "is a broken link, or not a regular file"))
    found, stored, unused = _check_media(media, wanted)
    return StoreReport(findings=(*findings, *found), **counts, media=stored, unused_media=unused)


def _check_media(media: Path, wanted: set[str]) -> tuple[list[StoreFinding], int, int]:
    """Return the faults of the stored files, the number of stored files, and how many of them are unused."""
    findings: list[StoreFinding] = []
    hashes: set[str] = set()
    count = unused = 0
    for file in sorted(media.glob("[0-9a-f][0-9a-f]/*")):
        match = NAME.fullmatch(file.name)
        if file.name.startswith("."):
            continue  # being written, or left by a killed process: the next start removes it
        if match is None or file.is_symlink() or not file.is_file():
            findings.append(StoreFinding("stray file", file.name, "is not a stored media file"))
            continue
        count += 1
        try:
            require_intact(file)
        except VlmtuiError:
            findings.append(StoreFinding("damaged media", file.name, "its content does not match its name"))
            continue
        hashes.add(match[1])
        unused += match[1] not in wanted
    damaged = {finding.where[:64] for finding in findings if finding.kind == "damaged media"}
    for sha256 in sorted(wanted - hashes - damaged):
        findings.append(StoreFinding("missing media", sha256, "a message or draft needs it"))
    return findings, count, unused
