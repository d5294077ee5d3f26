"""Checks a stored database and its media without changing them."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Literal

import msgspec

from vlmtui.errors import VlmtuiError
from vlmtui.media.content_store import NAME, require_intact
from vlmtui.store.database import open_connection
from vlmtui.store.opening import FILE, search_fault
from vlmtui.store.schema import VERSION, schema_fault, version_of
from vlmtui.store.tables import TABLES

SAME_KIND_MAX = 20
"""Most findings of one kind that are told one by one."""
_COPY_TRIES = 3


FaultKind = Literal["database", "search", "row", "missing media", "damaged media", "stray file"]
"""`database`: the file, its header, its schema or its pages. `search`: an index for searching. `row`: a row that refers
to one that is not there, or a value that cannot be decoded. `stray file`: among the media, but not of vlmtui."""


class StoreFinding(msgspec.Struct, frozen=True):
    """One thing that is wrong."""

    kind: FaultKind
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


def verify_store(folder: Path, media: Path, scratch: Path) -> StoreReport:
    """Check the database in `folder`, and the files in `media`. Blocking; reads every page and every stored file.

    The database is copied to `scratch` first, since SQLite may write to one that it opens. Raises VlmtuiError if a file
    cannot be read.
    """
    path = folder / FILE
    findings: list[StoreFinding] = []
    counts = {"conversations": 0, "turns": 0}
    wanted: set[str] = set()
    if os.path.lexists(path):
        if not path.exists() or not stat.S_ISREG(path.stat().st_mode) or path.stat().st_size == 0:
            findings.append(StoreFinding("database", FILE, "is a broken link, empty, or no regular file"))
        else:
            with tempfile.TemporaryDirectory(prefix="verify-", dir=scratch) as temporary:
                copy = Path(temporary) / FILE
                _copy_as_it_is(path, copy)
                with closing(open_connection(copy)) as connection:
                    findings += _check_database(connection)
                    with suppress(sqlite3.DatabaseError):
                        wanted = {str(row[0]) for row in connection.execute("SELECT sha256 FROM media_references")}
                        for table in counts:
                            counts[table] = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    found, stored, unused = _check_media(media, wanted)
    return StoreReport(findings=(*findings, *found), **counts, media=stored, unused_media=unused)


def _copy_as_it_is(path: Path, copy: Path) -> None:
    """Copy the database with its log, again if it was written meanwhile."""
    names = ("", "-wal")
    files = [path.with_name(path.name + name) for name in names]
    for _ in range(_COPY_TRIES):
        before = [(file.stat().st_mtime_ns, file.stat().st_size) for file in files if file.exists()]
        for name, file in zip(names, files, strict=True):
            with suppress(FileNotFoundError):
                shutil.copyfile(file, copy.with_name(copy.name + name))
        if before == [(file.stat().st_mtime_ns, file.stat().st_size) for file in files if file.exists()]:
            return


def _check_database(connection: sqlite3.Connection) -> Iterator[StoreFinding]:
    """Check header and schema, then the pages, then the rows and the search indexes; stop where there are faults."""
    kind: FaultKind = "database"
    try:
        version = version_of(connection)
        fault = schema_fault(connection)
        if version not in (0, VERSION):
            fault = f"is of another version of vlmtui (schema version {version})"
        told = [fault] if fault else [str(row[0]) for row in connection.execute("PRAGMA integrity_check(20)")]
        if told != ["ok"]:
            yield from (StoreFinding(kind, FILE, " ".join(one.split())) for one in told)
            return
        yield from _limited(_odd_rows(connection))
        kind = "search"
        if (index := search_fault(connection)) is not None:
            yield StoreFinding(kind, FILE, index)
    except sqlite3.DatabaseError as error:
        yield StoreFinding(kind, FILE, str(error))


def _odd_rows(connection: sqlite3.Connection) -> Iterator[StoreFinding]:
    for table, row, other, _ in connection.execute("PRAGMA foreign_key_check"):
        yield StoreFinding("row", f"{table} {row}", f"refers to a row of {other} that is not there")
    for checked in TABLES:
        for number, *values in connection.execute(f"SELECT rowid, {checked.names} FROM {checked.name} NOT INDEXED"):
            for column, value in zip(checked.columns, values, strict=True):
                if (problem := column.problem(value)) is not None:
                    yield StoreFinding("row", f"{checked.name} {number}", f"{column.name}: {problem}")


def _limited(found: Iterable[StoreFinding]) -> Iterator[StoreFinding]:
    count = 0
    for count, finding in enumerate(found, 1):
        if count <= SAME_KIND_MAX:
            yield finding
    if count > SAME_KIND_MAX:
        yield StoreFinding("row", "and", f"{count - SAME_KIND_MAX:,} more of this kind")


def _check_media(media: Path, wanted: set[str]) -> tuple[list[StoreFinding], int, int]:
    """Return what is wrong with the stored files, how many there are, and how many nothing refers to."""
    findings: list[StoreFinding] = []
    hashes: set[str] = set()
    count = unused = 0
    for file in sorted(media.glob("[0-9a-f][0-9a-f]/*")):
        match = NAME.fullmatch(file.name)
        if file.name.startswith("."):
            continue  # being written, or left by a killed process: the next start removes it
        if match is None or file.is_symlink() or not file.is_file():
            findings.append(StoreFinding("stray file", file.name, "is no stored picture, video or sound"))
            continue
        count += 1
        try:
            require_intact(file)
        except VlmtuiError:
            findings.append(StoreFinding("damaged media", file.name, "its content is not what its name says"))
            continue
        hashes.add(match[1])
        unused += match[1] not in wanted
    damaged = {finding.where[:64] for finding in findings if finding.kind == "damaged media"}
    for sha256 in sorted(wanted - hashes - damaged):
        findings.append(StoreFinding("missing media", sha256, "a message or draft needs it"))
    return findings, count, unused
