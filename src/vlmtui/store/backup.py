"""Backups: a daily copy of the database, and archives of database and media."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import tarfile
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import Media, Part
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.files import new_file
from vlmtui.paths import private_dir
from vlmtui.reading import opened, shown_name, unreadable
from vlmtui.store.checksums import broken_checksums, keep_checksums
from vlmtui.store.database import Row, Value, explained, is_damage, open_connection
from vlmtui.store.media_files import keep_copy, place
from vlmtui.store.opening import FILE, foreign_schema, new_database, other_version, replace_database
from vlmtui.store.schema import APPLICATION_ID, VERSION, expected_schema, foreign_parts, schema_of, version_of
from vlmtui.store.tables import TABLES, Table

KEPT = 3
"""Number of daily backups that stay."""
_DAY_S = 86_400
_BACKUP = re.compile(r"conversations-\d{4}-\d{2}-\d{2}\.db")
_MEDIA_MEMBER = re.compile(r"media/[0-9a-f]{2}/([0-9a-f]{64})(\.[a-z0-9]{1,8})?")
_BUSY_S = 5.0
_BYTES_MAX = 1 << 44
"""Most bytes of a backup: all of a large disk; what never ends is no regular file."""


class DamageFoundError(VlmtuiError):
    """The database that was to be copied is damaged; the copies that are there stay."""


class RestoreResult(NamedTuple):
    """What was restored."""

    media: int
    left_out: tuple[str, ...]
    """Names of files in the archive that are no picture, video, sound or document."""
    set_aside: Path | None
    """The database that was there before."""


def backups_folder(data: Path) -> Path:
    """Return the folder of the daily backups."""
    return data / "backups"


def back_up_daily(data: Path, *, now: float | None = None) -> Path | None:
    """Copy the database in `data` to `backups/`, unless there is a copy of the last 24 hours, and keep the newest three
    copies. A damaged database is not copied. Blocking; other processes may write meanwhile. Return the copy; None if
    there was nothing to do. Raises DamageFoundError, VlmtuiError."""
    path, folder = data / FILE, backups_folder(data)
    now = time.time() if now is None else now
    known = sorted(file for file in folder.glob("conversations-*.db") if _BACKUP.fullmatch(file.name))
    if not path.exists() or any(now - _DAY_S < file.stat().st_mtime <= now for file in known):
        return None
    for abandoned in (*data.glob(".new-*"), *folder.glob(".new-*")):  # by killed processes
        if abandoned.is_dir() and now - abandoned.stat().st_mtime > _DAY_S:
            shutil.rmtree(abandoned, ignore_errors=True)
    target = private_dir(folder) / time.strftime("conversations-%Y-%m-%d.db", time.localtime(now))
    try:
        with tempfile.TemporaryDirectory(prefix=".new-", dir=folder) as temporary:
            copy = _copy(path, Path(temporary) / FILE)
            os.utime(copy, (now, now))
            copy.replace(target)
    except sqlite3.Error as error:
        raise (_not_backed_up(path, str(error)) if is_damage(error) else explained(error, path)) from error
    for old in sorted({*known, target})[:-KEPT]:
        old.unlink(missing_ok=True)
    return target


def write_archive(data: Path, media: Path, target: Path) -> int:
    """Write the database and all stored media to the tar archive `target`, atomically (0600); return the number of
    media files. Raises VlmtuiError."""
    path, count = data / FILE, 0
    if not path.exists():
        raise bad_input("There are no conversations to back up yet.")
    try:
        with (
            tempfile.TemporaryDirectory(prefix=".new-", dir=data) as temporary,
            new_file(target.parent, target.name, durable=True) as new,
        ):
            with tarfile.open(fileobj=new.file, mode="w") as archive:
                archive.add(_copy(path, Path(temporary) / FILE), FILE)
                for file in sorted(media.glob("[0-9a-f][0-9a-f]/*")):
                    member = f"media/{file.parent.name}/{file.name}"
                    if _MEDIA_MEMBER.fullmatch(member) and file.is_file() and not file.is_symlink():
                        archive.add(file, member)
                        count += 1
            new.replace(target)
    except sqlite3.Error as error:
        raise explained(error, path) from error
    return count


def restore_archive(source: Path, data: Path, media: Path) -> RestoreResult:
    """Restore what `write_archive` wrote, or a daily backup. The database that is there is set aside; media that are
    there stay. Only rows are taken from the backup's database: they are copied into a new one. Raises VlmtuiError and
    replaces nothing if the archive is damaged, of another version, or has a schema with foreign parts."""
    private_dir(data)
    try:
        with tempfile.TemporaryDirectory(prefix=".new-", dir=data) as temporary:
            theirs = Path(temporary) / "theirs.db"
            count, left_out = _extract(source, theirs, media)
            theirs.chmod(0o600)
            _require_sound(theirs, source)
            fresh = new_database(Path(temporary) / FILE)
            try:
                with closing(open_connection(theirs)) as old, closing(open_connection(fresh)) as new:
                    copy_rows(old, new, media)
            except (sqlite3.DatabaseError, ValueError) as error:
                raise _damaged(source, str(error)) from error
            aside = replace_database(data, fresh, busy_s=_BUSY_S)
    except (OSError, EOFError) as error:
        raise unreadable(source, error) from error
    return RestoreResult(count, tuple(left_out), aside)


def copy_rows(old: sqlite3.Connection, new: sqlite3.Connection, media: Path) -> None:
    """Copy all rows of a sound database into an empty one. Attachments refer to the files in `media`. Raises
    sqlite3.Error, and ValueError for a value of another type than its column's."""
    keep_checksums(new)
    new.execute("PRAGMA foreign_keys = OFF")  # until all are there
    new.execute("BEGIN IMMEDIATE")
    for table in TABLES:
        marks = ", ".join("?" * len(table.columns))
        rows = old.execute(f"SELECT {table.names} FROM {table.name} ORDER BY rowid")
        insert = f"INSERT INTO {table.name} ({table.names}) VALUES ({marks})"
        new.executemany(insert, (_copied(table, row, media) for row in rows))
    given_out = "SELECT seq, name FROM sqlite_sequence WHERE typeof(seq) = 'integer' AND typeof(name) = 'text'"
    new.executemany("UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?", old.execute(given_out))
    (last_ms,) = old.execute("SELECT max(last_ms) FROM clock WHERE typeof(last_ms) = 'integer'").fetchone()
    new.execute("UPDATE clock SET last_ms = ?", (last_ms or 0,))
    if broken := new.execute("PRAGMA foreign_key_check").fetchone():
        raise ValueError(f"a row of {broken[0]} refers to a row of {broken[2]} that is not there")
    new.execute("COMMIT")


def _copied(table: Table, row: Row, media: Path) -> Row:
    found: list[Value] = []
    for column, value in zip(table.columns, row, strict=True):
        if not column.accepts(value):
            raise ValueError(f"a value of {table.name}.{column.name} has another type")
        match column.decode(value) if column.name in ("parts", "attachments") else None:
            case tuple(parts) if parts:
                value = column.encode(tuple(_local_part(part, media) for part in parts))
            case dict(attachments) if attachments:
                value = column.encode({number: _local(item, media) for number, item in attachments.items()})
        found.append(value)
    return tuple(found)


def _local_part(part: Part, media: Path) -> Part:
    return Media(_local(part.attachment, media)) if isinstance(part, Media) else part


def _local(attachment: Attachment, media: Path) -> Attachment:
    try:
        path = str(place(media, attachment.sha256))
    except VlmtuiError as error:
        raise ValueError(error.message) from error
    return msgspec.structs.replace(attachment, path=path)


def _copy(path: Path, target: Path) -> Path:
    """Copy a database that others may be writing. Raises sqlite3.Error; VlmtuiError if the copy is damaged."""
    with closing(open_connection(path)) as source, closing(open_connection(target)) as copy:
        source.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, without companion files
        found = _fault(copy)
        if found is not None:
            raise _not_backed_up(path, found)
    target.chmod(0o600)
    return target


def _not_backed_up(path: Path, found: str) -> DamageFoundError:
    return DamageFoundError(
        ErrorKind.INTERNAL,
        f"The conversation database {path} is damaged, so it is not backed up.",
        detail=found,
        hint="`vlmtui store verify` shows the damage, `vlmtui store repair` mends it.",
    )


def _extract(source: Path, fresh: Path, media: Path) -> tuple[int, list[str]]:
    """Extract the database to `fresh`, and the media, each held against its hash. Nothing else is extracted. Return the
    number of files, and the names of those that are no media."""
    with opened(source, bytes_max=_BYTES_MAX) as file:
        if tarfile.is_tarfile(file):
            file.seek(0)
            return _extract_archive(file, source, fresh, media)
        file.seek(0)
        with fresh.open("wb") as copy:
            shutil.copyfileobj(file, copy)
    return 0, []


def _extract_archive(whole_file: BinaryIO, source: Path, fresh: Path, media: Path) -> tuple[int, list[str]]:
    count = 0
    left_out: list[str] = []
    try:
        with tarfile.open(fileobj=whole_file, mode="r:") as archive:
            for member in archive:
                # A sparse member may be larger than any disk.
                is_plain = member.isreg() and not member.issparse()
                content = archive.extractfile(member) if is_plain else None
                if content is None:
                    continue
                if member.name == FILE:
                    with fresh.open("wb") as file:
                        while piece := content.read(1 << 20):
                            file.write(piece)
                elif match := _MEDIA_MEMBER.fullmatch(member.name):
                    with tempfile.TemporaryFile(dir=fresh.parent) as whole:
                        while piece := content.read(1 << 20):
                            whole.write(piece)
                        stored = keep_copy(media, whole, member.name)
                    if stored is None:
                        left_out.append(Path(member.name).name)
                        continue
                    if stored.sha256 != match[1]:
                        raise _damaged(source, f"{member.name} is not what its name says")
                    count += 1
            # A damaged header, like the end of a file that is cut off, looks to tarfile like the end of the archive.
            whole_file.seek(archive.offset)
            if not (end := whole_file.read(tarfile.BLOCKSIZE)) or any(end):
                raise _damaged(source, "the archive does not end where it should")
    except tarfile.TarError as error:
        raise _damaged(source, str(error)) from error
    if not fresh.exists():
        raise bad_input(f"{shown_name(source)} is no backup of vlmtui: it holds no {FILE}.")
    return count, left_out


def _require_sound(fresh: Path, source: Path) -> None:
    try:
        with closing(open_connection(fresh)) as connection:
            version = version_of(connection)
            if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
                raise bad_input(f"{shown_name(source)} is no backup of vlmtui.")
            if version != VERSION:
                raise other_version(shown_name(source), version)
            if foreign := foreign_parts(connection):
                raise foreign_schema(shown_name(source), foreign)
            if schema_of(connection) != expected_schema():
                raise _damaged(source, "its schema is not vlmtui's")
            found = _fault(connection)
    except sqlite3.DatabaseError as error:
        raise _damaged(source, str(error)) from error
    if found is not None:
        raise _damaged(source, found)


def _fault(connection: sqlite3.Connection) -> str | None:
    """Return what is wrong with a copy. Raises sqlite3.Error."""
    found = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
    if found != "ok":
        return found
    return next((f"{where} {what}" for where, what in broken_checksums(connection)), None)


def _damaged(source: Path, why: str) -> VlmtuiError:
    return bad_input(f"{shown_name(source)} is damaged, and nothing was restored from it.", detail=why)
