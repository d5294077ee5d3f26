"""Purging on request: what would go is listed first, and goes only while nobody else has the store open."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.media.content_store import freed_folder, freed_marker, remove_copies
from vlmtui.paths import private_dir
from vlmtui.store.database import Value
from vlmtui.store.media_files import MEDIA_NAME
from vlmtui.store.opening import FILE, explaining
from vlmtui.store.process_lock import alone
from vlmtui.store.records import ConversationId
from vlmtui.store.search import SEARCHES
from vlmtui.store.store import Store
from vlmtui.store.tables import MEDIA_REFERENCES

_DAY_S = 86_400.0
_BUSY_S = 5.0


class PurgeWish(msgspec.Struct, frozen=True, kw_only=True):
    """What is to go."""

    deleted: bool = False
    """The deleted conversations."""
    unreferenced: bool = False
    """The stored files that nothing refers to."""
    older_than_s: float | None = None
    """Of these, only what has not changed for so long. If this alone is given: every conversation that has not."""


class PurgedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation that goes."""

    id: ConversationId
    title: str
    turns: int
    changed_ms: int
    """When it, or its draft, changed last, or was deleted."""
    is_deleted: bool


class PurgePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What goes."""

    conversations: tuple[PurgedConversation, ...]
    files: tuple[Path, ...]
    """Stored files, also those that only these conversations use."""
    bytes: int
    """Size of these files."""


class PurgeResult(msgspec.Struct, frozen=True, kw_only=True):
    """What went."""

    conversations: tuple[ConversationId, ...]
    files: int
    bytes: int
    """By how much stored files and database are smaller."""


def plan_purge(store: Store, wish: PurgeWish) -> PurgePlan:
    """List what a purge would remove; nothing is changed. Raises VlmtuiError.

    A conversation that was not deleted stays if it is pinned or has a draft, and a deleted one if it or its draft
    changed later. One that a living process answers in always stays. A file that was stored in the last 24 hours stays
    unless only a conversation that goes refers to it: somebody may just be attaching it.
    """
    with store.database.reading():
        conversations = tuple(_conversations(store, wish))
        files = tuple(_files(store, wish, {one.id for one in conversations}))
    return PurgePlan(conversations=conversations, files=files, bytes=_size(files))


def purge_on_request(store: Store, plan: PurgePlan, wish: PurgeWish) -> PurgeResult:
    """Remove what `plan` lists, as far as it still matches `wish`. A kill in the middle leaves whole conversations, and
    files that a later call removes. Raises VlmtuiError if another process has the store open, and if not everything
    could be removed."""
    path = store.database.path
    with explaining(path), alone(path.with_name(f"{FILE}.lock"), _BUSY_S):
        if store.is_shared:
            message = "Another vlmtui has the conversations open, so nothing was purged."
            raise VlmtuiError(ErrorKind.INTERNAL, message, hint="Close it, then try again.")
        now = plan_purge(store, wish)
        listed = {one.id for one in plan.conversations}
        going = [one.id for one in now.conversations if one.id in listed]
        files = sorted(set(plan.files).intersection(now.files))
        before = _database_size(path)
        for conversation in going:
            _free_media(store, conversation)
            store.purge(conversation)
        freed = _remove_files(store, files)
        if going:
            _compact(store)
        return PurgeResult(
            conversations=tuple(going),
            files=len(freed),
            bytes=sum(freed) + max(0, before - _database_size(path)),
        )


@contextmanager
def store_to_purge(folder: Path, media: Path) -> Iterator[Store]:
    """Open the store. Raises VlmtuiError."""
    store = Store.open(folder, media).store
    try:
        yield store
    finally:
        store.close()


def _conversations(store: Store, wish: PurgeWish) -> Iterator[PurgedConversation]:
    every = wish.older_than_s is not None and not (wish.deleted or wish.unreferenced)
    if not (every or wish.deleted):
        return
    latest_ms = store.database.clock_ms - int((wish.older_than_s or 0.0) * 1000)
    sql = """
        SELECT c.id, c.title, c.deleted_ms, c.updated_ms, d.saved_ms, c.pinned,
            (SELECT count(*) FROM turns AS t WHERE t.conversation = c.id)
        FROM conversations AS c LEFT JOIN drafts AS d ON d.conversation = c.id ORDER BY c.number
    """
    for identifier, title, deleted_ms, updated_ms, saved_ms, is_pinned, turns in store.database.rows(sql):
        changed_ms = max(updated_ms, deleted_ms or 0, saved_ms or 0)
        is_wanted = changed_ms == deleted_ms if deleted_ms is not None else every and not is_pinned and saved_ms is None
        is_young = wish.older_than_s is not None and changed_ms > latest_ms
        if not is_wanted or is_young or store.is_answering(ConversationId(identifier)):
            continue
        yield PurgedConversation(
            id=ConversationId(identifier),
            title=title,
            turns=turns,
            changed_ms=changed_ms,
            is_deleted=deleted_ms is not None,
        )


def _files(store: Store, wish: PurgeWish, going: set[ConversationId]) -> Iterator[Path]:
    """Yield the files that only what goes refers to, and, if they are asked for, those that nothing refers to."""
    sql = f"""
        SELECT m.sha256, coalesce(m.draft, t.conversation) FROM {MEDIA_REFERENCES.name} AS m
        LEFT JOIN turns AS t ON t.id = m.turn
    """
    stays: set[str] = set()
    goes: set[str] = set()
    for sha256, conversation in store.database.rows(sql):
        (goes if conversation in going else stays).add(sha256)
    oldest = store.database.clock_ms / 1000 - max(_DAY_S, wish.older_than_s or 0.0)
    for file in sorted(store.media.glob("[0-9a-f][0-9a-f]/*")):
        match = MEDIA_NAME.fullmatch(file.name)
        if match is None or match[1] in stays or file.is_symlink() or not file.is_file():
            continue
        if match[1] in goes or (wish.unreferenced and _last_use(store, file, match[1]) <= oldest):
            yield file


def _last_use(store: Store, file: Path, sha256: str) -> float:
    """Return when the file was stored, or stored again, as far as that is known."""
    times = [file.stat().st_mtime]
    with suppress(FileNotFoundError):
        times.append(freed_marker(store.media, sha256).stat().st_mtime)
    return max(times)


def _free_media(store: Store, conversation: ConversationId) -> None:
    """Mark its media, so that a later start removes them if this process is killed after the commit."""
    sql = """
        SELECT DISTINCT m.sha256 FROM media_references AS m LEFT JOIN turns AS t ON t.id = m.turn
        WHERE t.conversation = ?1 OR m.draft = ?1
    """
    values: tuple[Value, ...] = (conversation,)
    for (sha256,) in store.database.rows(sql, values):
        private_dir(freed_folder(store.media))
        freed_marker(store.media, sha256).touch(mode=0o600)


def _remove_files(store: Store, files: list[Path]) -> list[int]:
    """Remove files that nothing refers to any more, and return the sizes of those that are gone."""
    sizes = {file: file.stat().st_size for file in files}
    with store.database.writing():  # no process can start to refer to one meanwhile
        for sha256 in dict.fromkeys(file.stem for file in files):
            if store.database.row("SELECT 1 FROM media_references WHERE sha256 = ?", (sha256,)) is None:
                _remove_copies(store, sha256)
    return [size for file, size in sizes.items() if not os.path.lexists(file)]


def _remove_copies(store: Store, sha256: str) -> None:
    private_dir(freed_folder(store.media))
    marker = freed_marker(store.media, sha256)
    marker.touch(mode=0o600)
    marked_ns = marker.stat().st_mtime_ns
    # Whoever stores the same content in this moment touches the marker.
    remove_copies(store.media, sha256, unless=lambda: marker.stat().st_mtime_ns != marked_ns)
    if marker.stat().st_mtime_ns == marked_ns:
        marker.unlink()


def _compact(store: Store) -> None:
    """Give the room of erased rows back to the disk, so that their text is gone from the file and the search index."""
    for index in SEARCHES:
        store.database.rows(f"INSERT INTO {index} ({index}) VALUES ('optimize')")
    store.database.rows("VACUUM")
    store.database.rows("PRAGMA wal_checkpoint(TRUNCATE)")


def _size(files: tuple[Path, ...]) -> int:
    return sum(file.stat().st_size for file in files)


def _database_size(path: Path) -> int:
    found = 0
    for one in (path, path.with_name(f"{path.name}-wal")):
        with suppress(FileNotFoundError):
            found += one.stat().st_size
    return found
