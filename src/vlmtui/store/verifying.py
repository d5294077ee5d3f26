"""Checks a stored database and its media without changing them."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import msgspec

from vlmtui.reading import unreadable
from vlmtui.store.checksums import broken_checksums
from vlmtui.store.database import Row, is_damage, open_connection
from vlmtui.store.media_files import MEDIA_NAME
from vlmtui.store.newest_changes import LACKS_NEWEST, lacks_newest, marked_ms
from vlmtui.store.opening import COMPANIONS, FILE
from vlmtui.store.row_repair import mend
from vlmtui.store.salvage import readable_rows
from vlmtui.store.schema import APPLICATION_ID, VERSION, expected_schema, foreign_parts, schema_of, version_of
from vlmtui.store.search import SEARCHES
from vlmtui.store.tables import MEDIA_REFERENCES, TABLES, Table

SAME_KIND_MAX = 20
"""Most findings of one kind that are told one by one."""
_COPY_TRIES = 3


class StoreFaultKind(StrEnum):
    """What is wrong. `DATABASE`, `CHECKSUM`, `ROW`, `VALUE`, `SEARCH` and `MODE` are what a repair mends."""

    DATABASE = "database"
    """The file, its header, its schema or its pages."""
    CHECKSUM = "checksum"
    """A row whose content is not what was stored, or rows that are missing."""
    ROW = "row"
    """A row that contradicts another one, or breaks its table's rules."""
    VALUE = "value"
    """A value that cannot be decoded."""
    SEARCH = "search"
    """The index for searching."""
    MODE = "mode"
    """Other users may read a file."""
    MISSING_MEDIA = "missing media"
    DAMAGED_MEDIA = "damaged media"
    STRAY_FILE = "stray file"
    """Something among the media that vlmtui did not put there."""
    DRAFT = "draft"


class StoreFinding(msgspec.Struct, frozen=True):
    """One thing that is wrong."""

    kind: StoreFaultKind
    where: str
    """A file, a table with its row, or a hash."""
    what: str


class StoreReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a check found, and how much it looked at."""

    findings: tuple[StoreFinding, ...]
    conversations: int
    turns: int
    media: int
    unused_media: int
    """Stored files that nothing refers to. They are no fault: an import that was cut off leaves them, for example."""


class _Checked(NamedTuple):
    findings: list[StoreFinding]
    rows: Mapping[str, list[Row]]


def verify_store(folder: Path, media: Path, scratch: Path) -> StoreReport:
    """Check the database in `folder`, and the files in `media`. Blocking; reads every stored file once.

    The database is copied to `scratch` first, since reading SQLite's write-ahead log may change files. Raises
    VlmtuiError if a file cannot be read.
    """
    path = folder / FILE
    findings: list[StoreFinding] = []
    rows: Mapping[str, list[Row]] = {}
    if os.path.lexists(path):
        findings, rows = _check_database(path, scratch)
        findings += _modes(folder, path)
    wanted = {str(row[0]) for row in rows.get(MEDIA_REFERENCES.name, ())}
    found, stored, unused = _check_media(media, wanted)
    return StoreReport(
        findings=(*findings, *found),
        conversations=len(rows.get("conversations", ())),
        turns=len(rows.get("turns", ())),
        media=stored,
        unused_media=unused,
    )


def _check_database(path: Path, scratch: Path) -> _Checked:
    if not path.exists():
        return _Checked([StoreFinding(StoreFaultKind.DATABASE, path.name, "is a broken link")], {})
    file = path.stat()
    if not stat.S_ISREG(file.st_mode):
        return _Checked([StoreFinding(StoreFaultKind.DATABASE, path.name, "is no regular file")], {})
    if file.st_size == 0:
        return _Checked([StoreFinding(StoreFaultKind.DATABASE, path.name, "is empty")], {})
    marked = marked_ms(path)  # before the copy, which may only be newer
    with tempfile.TemporaryDirectory(prefix="verify-", dir=scratch) as temporary:
        copy = _copied(path, Path(temporary))
        findings = list(_structure(copy, marked))
        rows = readable_rows(copy)
        if not any(finding.kind is StoreFaultKind.DATABASE for finding in findings):
            odd, unreadable_values = list(_contradictions(rows)), list(_undecodable(rows))
            told = {where for where, _ in (*odd, *unreadable_values)}
            changed = [one for one in _unlike_what_was_stored(copy) if one[0] not in told]
            findings += _limited(StoreFaultKind.CHECKSUM, changed)
            findings += _limited(StoreFaultKind.ROW, odd)
            findings += _limited(StoreFaultKind.VALUE, unreadable_values)
            findings += _search(copy)
        if path.with_name(f"{path.name}.suspect").exists():
            findings.append(StoreFinding(StoreFaultKind.DATABASE, path.name, "an error occurred while it was used"))
        return _Checked(findings, rows)


def _copied(path: Path, folder: Path) -> Path:
    """Copy the database with its log, again if it was written meanwhile."""
    copy = folder / path.name
    for _ in range(_COPY_TRIES):
        before = _versions(path)
        for suffix in ("", "-wal"):
            with suppress(FileNotFoundError):
                shutil.copyfile(path.with_name(path.name + suffix), copy.with_name(copy.name + suffix))
        if _versions(path) == before:
            break
    return copy


def _versions(path: Path) -> list[tuple[int, int]]:
    found = []
    for suffix in ("", "-wal"):
        with suppress(FileNotFoundError):
            file = path.with_name(path.name + suffix).stat()
            found.append((file.st_mtime_ns, file.st_size))
    return found


def _structure(copy: Path, marked: int) -> Iterator[StoreFinding]:
    """Check the header, the schema, and every page."""
    with closing(open_connection(copy)) as connection:
        try:
            version = version_of(connection)
            if version not in (0, VERSION):
                yield _database(copy, f"is of another version of vlmtui (schema version {version})")
                return
            if version == 0 or connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
                yield _database(copy, "has a damaged header")
                return
            if foreign := foreign_parts(connection):
                yield _database(copy, f"has parts that vlmtui did not make: {', '.join(foreign)}")
                return
            if lacking := expected_schema() - schema_of(connection):
                names = ", ".join(sorted(part.name for part in lacking))
                yield _database(copy, f"lacks a part of its schema: {names}")
                return
            for (told,) in connection.execute(f"PRAGMA integrity_check({SAME_KIND_MAX})"):
                if told != "ok":
                    yield _database(copy, " ".join(str(told).removeprefix("*** in database main ***").split()))
            if lacks_newest(connection, marked):
                yield _database(copy, f"is damaged at the end of its log: {LACKS_NEWEST}")
            for table, row, other, _ in connection.execute("PRAGMA foreign_key_check").fetchmany(SAME_KIND_MAX):
                yield StoreFinding(
                    StoreFaultKind.ROW, f"{table} {row}", f"refers to a row of {other} that is not there"
                )
        except sqlite3.DatabaseError as error:
            yield _database(copy, str(error))


def _database(copy: Path, what: str) -> StoreFinding:
    return StoreFinding(StoreFaultKind.DATABASE, copy.name, what)


def _contradictions(rows: Mapping[str, list[Row]]) -> Iterator[tuple[str, str]]:
    """Yield where and how rows differ from what a repair makes of them."""
    mended = mend(rows)
    for table in TABLES:
        before, after = set(rows[table.name]), set(mended[table.name])
        changed = {_key(table, row): row for row in after - before}
        for row in sorted(before - after, key=str):
            other = changed.pop(_key(table, row), None)
            if other is None:
                yield _place(table, row), "breaks the rules of its table"
            else:
                pairs = zip(table.columns, row, other, strict=True)
                if names := [one.name for one, a, b in pairs if a != b and one.problem(a) is None]:
                    yield _place(table, row), f"contradicts other rows: {', '.join(names)}"
        for row in changed.values():
            yield _place(table, row), "is missing, though other rows need it"


def _undecodable(rows: Mapping[str, list[Row]]) -> Iterator[tuple[str, str]]:
    for table in TABLES:
        for row in rows[table.name]:
            for column, value in zip(table.columns, row, strict=True):
                if (problem := column.problem(value)) is not None:
                    yield _place(table, row), f"{column.name} cannot be read: {problem}"


def _key(table: Table, row: Row) -> object:
    """Return what identifies a row: of references all of it."""
    if table is MEDIA_REFERENCES:
        return row
    names = [column.name for column in table.columns]
    return row[names.index("id" if "id" in names else "conversation")]


def _place(table: Table, row: Row) -> str:
    key = _key(table, row)
    return f"{table.name} {key[0] if isinstance(key, tuple) else key}"


def _limited(kind: StoreFaultKind, found: Iterable[tuple[str, str]]) -> Iterator[StoreFinding]:
    count = 0
    for count, (where, what) in enumerate(found, 1):
        if count <= SAME_KIND_MAX:
            yield StoreFinding(kind, where, what)
    if count > SAME_KIND_MAX:
        yield StoreFinding(kind, "and", f"{count - SAME_KIND_MAX:,} more of this kind")


def _unlike_what_was_stored(copy: Path) -> Iterator[tuple[str, str]]:
    with closing(open_connection(copy)) as connection:
        yield from broken_checksums(connection)


def _search(copy: Path) -> Iterator[StoreFinding]:
    with closing(open_connection(copy)) as connection:
        for index in SEARCHES:
            try:
                # With rank 1 the index is compared with the texts.
                connection.execute(f"INSERT INTO {index} ({index}, rank) VALUES ('integrity-check', 1)")
            except sqlite3.DatabaseError as error:
                said = "does not match the texts" if is_damage(error) else str(error)
                yield StoreFinding(StoreFaultKind.SEARCH, index, said)


def _modes(folder: Path, path: Path) -> Iterator[StoreFinding]:
    for one in (folder, path, *(path.with_name(path.name + companion) for companion in COMPANIONS)):
        with suppress(FileNotFoundError):
            if one.stat().st_mode & 0o077:
                yield StoreFinding(StoreFaultKind.MODE, one.name, "other users of this machine may read it")


def _check_media(media: Path, wanted: set[str]) -> tuple[list[StoreFinding], int, int]:
    """Return what is wrong with the stored files, how many there are, and how many nothing refers to."""
    findings: list[StoreFinding] = []
    hashes: set[str] = set()
    count = unused = 0
    for file in sorted(media.glob("[0-9a-f][0-9a-f]/*")):
        match = MEDIA_NAME.fullmatch(file.name)
        if file.name.startswith("."):
            continue  # being written, or left by a killed process: the next start removes it
        if match is None or file.is_symlink() or not file.is_file():
            findings.append(StoreFinding(StoreFaultKind.STRAY_FILE, file.name, "is no stored picture, video or sound"))
            continue
        count += 1
        if _digest(file) != match[1]:
            findings.append(
                StoreFinding(StoreFaultKind.DAMAGED_MEDIA, file.name, "its content is not what its name says")
            )
            continue
        hashes.add(match[1])
        unused += match[1] not in wanted
    damaged = {finding.where[:64] for finding in findings if finding.kind is StoreFaultKind.DAMAGED_MEDIA}
    for sha256 in sorted(wanted - hashes - damaged):
        findings.append(StoreFinding(StoreFaultKind.MISSING_MEDIA, sha256, "a message or draft needs it"))
    return findings, count, unused


def _digest(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise unreadable(file, error) from error
