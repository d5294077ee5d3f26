"""Repairs a store: only what is wrong with it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path

import msgspec

from vlmtui.paths import private_dir
from vlmtui.store.database import is_damage, open_connection
from vlmtui.store.opening import COMPANIONS, FILE, explaining, repair_database
from vlmtui.store.process_lock import alone
from vlmtui.store.records import Recovery
from vlmtui.store.search import SEARCHES
from vlmtui.store.verifying import StoreFaultKind, StoreFinding

REBUILT = frozenset({StoreFaultKind.DATABASE, StoreFaultKind.CHECKSUM, StoreFaultKind.ROW, StoreFaultKind.VALUE})
"""What a new database mends, with all readable rows."""
MENDABLE = REBUILT | {StoreFaultKind.SEARCH, StoreFaultKind.MODE}


class RepairResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was done."""

    recovery: Recovery | None = None
    """The database that was set aside, if a new one is in its place."""
    indexes: tuple[str, ...] = ()
    """The search indexes that were rebuilt."""
    closed: tuple[str, ...] = ()
    """Files that other users of this machine can no longer read."""


def repair_store(folder: Path, findings: Iterable[StoreFinding], *, busy_s: float) -> RepairResult:
    """Repair what `verify_store` found wrong with the database in `folder`. Raises VlmtuiError."""
    kinds = {finding.kind for finding in findings}
    closed = _close_to_others(folder) if StoreFaultKind.MODE in kinds else ()
    if kinds & REBUILT:
        return RepairResult(recovery=_rebuilt(folder, busy_s), closed=closed)
    if StoreFaultKind.SEARCH not in kinds:
        return RepairResult(closed=closed)
    if _rebuild_indexes(folder, busy_s):
        return RepairResult(indexes=SEARCHES, closed=closed)
    return RepairResult(recovery=_rebuilt(folder, busy_s), closed=closed)


def _rebuilt(folder: Path, busy_s: float) -> Recovery:
    recovery = repair_database(folder, busy_s=busy_s)
    (folder / FILE).chmod(0o600)
    return recovery


def _close_to_others(folder: Path) -> tuple[str, ...]:
    path, closed = folder / FILE, []
    with explaining(path):
        if folder.stat().st_mode & 0o077:
            private_dir(folder)
            closed.append(folder.name)
        for file in (path, *(path.with_name(path.name + companion) for companion in COMPANIONS)):
            with suppress(FileNotFoundError):
                if file.stat().st_mode & 0o077:
                    file.chmod(0o600)
                    closed.append(file.name)
    return tuple(closed)


def _rebuild_indexes(folder: Path, busy_s: float) -> bool:
    """Rebuild the indexes from the texts, which stay unchanged. Return False if the database is too damaged."""
    path = folder / FILE
    with explaining(path), alone(folder / f"{FILE}.lock", busy_s), closing(open_connection(path)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
            for index in SEARCHES:
                connection.execute(f"INSERT INTO {index} ({index}) VALUES ('rebuild')")
            connection.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            return False
    return True
