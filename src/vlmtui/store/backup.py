"""Backups: a daily copy of the database, and archives of database and media."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, BinaryIO, NamedTuple, cast

from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.files import new_file, not_written
from vlmtui.media.content_store import NAME, store_medium
from vlmtui.paths import private_dir
from vlmtui.reading import opened, shown_name, unreadable
from vlmtui.store.database import explained, is_damage, open_connection
from vlmtui.store.errors import StoreError
from vlmtui.store.opening import (
    FILE,
    daily_backups,
    damage_of,
    damaged_store,
    new_database,
    prepare_database,
    replace_database,
)
from vlmtui.store.tables import copy_rows
from vlmtui.text import human_bytes

KEPT = 3
"""Number of daily backups to keep."""
_DAY_S = 86_400
_MEDIA_MEMBER = re.compile(rf"media/[0-9a-f]{{2}}/{NAME.pattern}")
_BUSY_S = 5.0
_MARK_IMPORTED = "UPDATE turns SET recipe = json_set(recipe, '$.imported', json('true')) WHERE recipe IS NOT NULL"
_BYTES_MAX = 1 << 44
"""Maximum size of a backup, in bytes: a large disk."""
_HEADERS_MAX = 64_000
"""Maximum bytes of a member's headers, which tarfile reads at once; each of vlmtui's has up to 3 kB."""


class RestoreResult(NamedTuple):
    """The result of a restore."""

    media: int
    left_out: tuple[str, ...]
    """Names of files in the archive that are no image, video, audio file or PDF."""
    set_aside: Path | None
    """The new path of the previous database."""


def back_up_daily(data: Path, *, now: float | None = None) -> Path | None:
    """Copy the database in `data` to `backups/`, unless there is a copy of the last 24 hours, and keep the newest three
    copies. A damaged database is not copied. Blocking; other processes may write meanwhile. Return the path of the new
    copy; None if no copy was made. Raises VlmtuiError."""
    path, folder = data / FILE, data / "backups"
    now = time.time() if now is None else now
    known = daily_backups(data)
    if not path.exists() or any(now - _DAY_S < file.stat().st_mtime <= now for file in known):
        return None
    for abandoned in (*data.glob(".new-*"), *folder.glob(".new-*")):  # by killed processes
        if abandoned.is_dir() and now - abandoned.stat().st_mtime > _DAY_S:
            shutil.rmtree(abandoned, ignore_errors=True)
    target = private_dir(folder) / time.strftime("conversations-%Y-%m-%d.db", time.localtime(now))
    with tempfile.TemporaryDirectory(prefix=".new-", dir=folder) as temporary:
        copy = copy_database(path, Path(temporary) / FILE)
        os.utime(copy, (now, now))
        copy.replace(target)
    for old in sorted({*known, target})[:-KEPT]:
        old.unlink(missing_ok=True)
    return target


def write_archive(data: Path, media: Path, target: Path) -> int:
    """Write the database and all stored media to the tar archive `target`, atomically (0600); return the number of
    media files. Raises VlmtuiError."""
    path, count = data / FILE, 0
    if not path.exists():
        raise bad_input("There are no conversations to back up yet.")
    with (
        new_file(target.parent, target.name, durable=True) as new,  # the data folder may be read-only
        tempfile.TemporaryDirectory(prefix=".new-", dir=target.parent) as temporary,
    ):
        with tarfile.open(fileobj=new.file, mode="w") as archive:
            archive.add(copy_database(path, Path(temporary) / FILE), FILE)
            for file in sorted(media.glob("[0-9a-f][0-9a-f]/*")):
                member = f"media/{file.parent.name}/{file.name}"
                if _MEDIA_MEMBER.fullmatch(member) and file.is_file() and not file.is_symlink():
                    archive.add(file, member)
                    count += 1
        new.replace(target)
    return count


def restore_archive(source: Path, data: Path, media: Path) -> RestoreResult:
    """Restore an archive that `write_archive` made, or a daily backup.

    Rows are copied into a new database. The previous database is renamed, and stored media stay. Answers are marked as
    imported (`GenerationRecord.imported`), unless the backup is a daily backup of this folder. Raises VlmtuiError and
    replaces nothing if the backup is damaged, of another version, or has a foreign schema.
    """
    with _room(data) as temporary:
        try:
            theirs = temporary / "theirs.db"
            count, left_out = _extract(source, theirs, media)
            theirs.chmod(0o600)
            fresh = new_database(temporary / FILE)
            try:
                if (fault := damage_of(theirs, name=shown_name(source))) is not None:
                    raise _damaged(source, fault)
                with closing(open_connection(theirs)) as old, closing(open_connection(fresh)) as new:
                    copy_rows(old, new, media)
                    if source not in daily_backups(data):
                        with new:
                            new.execute(_MARK_IMPORTED)
            except (sqlite3.DatabaseError, ValueError) as error:
                raise _damaged(source, str(error)) from error
            aside = replace_database(data, fresh, busy_s=_BUSY_S)
        except (OSError, EOFError) as error:
            raise unreadable(source, error) from error
    return RestoreResult(count, tuple(left_out), aside)


def restore_newest(data: Path, media: Path) -> str:
    """Replace a damaged database with its newest good backup, or with an empty database if there is none. If only its
    indexes are damaged, rebuild them instead. Return a sentence for the user that says what was done. Raises
    VlmtuiError, also if the database is not damaged."""
    with _room(data) as temporary:
        try:
            if rebuilt := prepare_database(data, media, busy_s=_BUSY_S, thorough=True):
                return rebuilt
        except StoreError as error:
            damage = error.damage
            if damage is None:
                raise
            if damage.backup is not None:
                aside = restore_archive(damage.backup, data, media).set_aside
                return f"Continuing with a backup. {damage.offer} The damaged file is {aside}."
        else:
            raise bad_input("The database is not damaged.", hint="To go back to a backup, name its file.")
        aside = replace_database(data, new_database(temporary / FILE), busy_s=_BUSY_S)
        return f"Continuing with an empty database, as there is no good backup. The damaged file is {aside}."


@contextmanager
def _room(data: Path) -> Iterator[Path]:
    """Create a temporary folder in the data folder. Raises VlmtuiError if that is read-only."""
    try:
        temporary = tempfile.TemporaryDirectory(prefix=".new-", dir=private_dir(data))
    except OSError as error:
        raise not_written("the database", data, error) from error
    with temporary as folder:
        yield Path(folder)


def copy_database(path: Path, target: Path) -> Path:
    """Copy a database, even while others write to it. Raises VlmtuiError, also if the copy is damaged."""
    try:
        with closing(open_connection(path)) as source, closing(open_connection(target)) as copy:
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, without companion files
        fault = damage_of(target)
    except sqlite3.Error as error:
        raise (damaged_store(path, str(error)) if is_damage(error) else explained(error, path)) from error
    if fault is not None:
        raise damaged_store(path, fault)
    target.chmod(0o600)
    return target


def _extract(source: Path, fresh: Path, media: Path) -> tuple[int, list[str]]:
    """Copy only the database and the media out of a backup: the database to `fresh`, the media to `media` after
    checking their hashes. Return the number of media files, and the names of files left out because they are not
    media."""
    with opened(source, bytes_max=_BYTES_MAX) as file:
        is_archive = file.read(262)[257:] == b"ustar"  # vlmtui compresses none
        file.seek(0)
        if is_archive:
            return _extract_archive(file, source, fresh, media)
        with fresh.open("wb") as copy:
            shutil.copyfileobj(file, copy)
    return 0, []


class _BoundedFile:
    """The file of an archive, for tarfile: of `left` more bytes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.left = 0
        self.seek = file.seek
        self.tell = file.tell

    def read(self, size: int) -> bytes:
        """Read `size` bytes. Raises TarError if that is more than `left`."""
        if not 0 <= size <= self.left:
            raise tarfile.ReadError(f"a header of more than {human_bytes(_HEADERS_MAX)}")
        self.left -= size
        return self._file.read(size)


def _members(archive: tarfile.TarFile, file: _BoundedFile) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the name and content of each regular file in an archive. Raises TarError, also for a damaged header or a
    missing end, which tarfile takes for the end of the archive.

    TarFile remembers each member that it reads, and there may be millions: this reads them itself.
    """
    member, begin = archive.next(), 0
    while member is not None:
        if archive.offset <= begin:
            raise tarfile.ReadError("a member has a negative size")
        # A sparse member may be larger than any disk.
        if member.isreg() and not member.issparse() and (content := archive.extractfile(member)) is not None:
            file.left = member.size
            yield member.name, content
        begin, file.left = archive.offset, _HEADERS_MAX
        file.seek(begin)
        block = file.read(tarfile.BLOCKSIZE)
        if not any(block):
            if not block:
                raise tarfile.ReadError("the archive does not end where it should")
            return
        file.seek(begin)
        member = tarfile.TarInfo.fromtarfile(archive)


def _extract_archive(whole_file: BinaryIO, source: Path, fresh: Path, media: Path) -> tuple[int, list[str]]:
    count = 0
    left_out: list[str] = []
    bounded = _BoundedFile(whole_file)
    try:
        bounded.left = _HEADERS_MAX
        with tarfile.open(fileobj=cast(BinaryIO, bounded), mode="r:") as archive:
            for name, content in _members(archive, bounded):
                if name == FILE:
                    with fresh.open("wb") as file:
                        shutil.copyfileobj(content, file)
                elif match := _MEDIA_MEMBER.fullmatch(name):
                    with tempfile.TemporaryFile(dir=fresh.parent) as whole:
                        shutil.copyfileobj(content, whole)
                        stored = store_medium(whole, media, name=name)
                    if stored is None:
                        left_out.append(Path(name).name)
                        continue
                    if stored.sha256 != match[1]:
                        raise _damaged(source, f"{name} does not match its name")
                    count += 1
    except (tarfile.TarError, ValueError, OverflowError) as error:
        raise _damaged(source, str(error)) from error
    if not fresh.exists():
        raise bad_input(f"{shown_name(source)} is not a backup of vlmtui: it has no {FILE}.")
    return count, left_out


def _damaged(source: Path, why: str) -> VlmtuiError:
    return bad_input(f"Can't restore {shown_name(source)}; nothing was changed.", detail=why)
