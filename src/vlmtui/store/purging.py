"""Erases deleted conversations after a while, and the media that nothing else uses."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

import msgspec

from vlmtui.errors import VlmtuiError
from vlmtui.files import write_private
from vlmtui.media.content_store import freed_folder, freed_marker, remove_copies
from vlmtui.paths import private_dir
from vlmtui.reading import read_whole
from vlmtui.store.json_text import from_json_text
from vlmtui.store.records import ConversationId
from vlmtui.store.store import Store

_LOG = logging.getLogger(__name__)
_DAY_S = 86_400.0
_DUE_BYTES_MAX = 10_000_000

_Due = dict[ConversationId, int]
"""When the conversations were first found to be due, in milliseconds since 1970."""


def purge_deleted(store: Store, older_than_s: float, *, media_wait_s: float = _DAY_S) -> list[ConversationId]:
    """Erase the conversations that were deleted at least `older_than_s` seconds ago, and return their ids. Those with
    newer changes or a running answer stay. A failure to erase one does not affect the others.

    A clock that is set forward for less than a day erases nothing: a conversation goes when two calls, a day apart (or
    `older_than_s`, if that is less), find its time over.

    Media that only they used stay for another `media_wait_s` seconds, as the same file may just be being attached; a
    later call deletes them. Media without any record, for example after a recovery, are left alone. Raises VlmtuiError
    if the database cannot be read.
    """
    purged: list[ConversationId] = []
    known, due = _read_due(store), _Due()
    for found in store.deleted():
        try:
            if _purge(store, found.id, older_than_s, known, due):
                purged.append(found.id)
                del due[found.id]
        except VlmtuiError as error:
            _LOG.warning("the deleted conversation %s stays for now: %s", found.id, error)
    if due != known:
        _write_due(store, due)
    _remove_freed_media(store, media_wait_s)
    return purged


def _purge(store: Store, conversation: ConversationId, older_than_s: float, known: _Due, due: _Due) -> bool:
    """Erase the conversation and return True if its time is over, and was `known` to be for a while; else only add it
    to the `due` ones."""
    with store.database.writing():
        now = store.database.clock_ms
        found = store.conversation(conversation)
        if found.deleted_ms is None or store.is_answering(conversation):
            return False
        saved = store.database.row("SELECT saved_ms FROM drafts WHERE conversation = ?", (conversation,))
        last = max(found.deleted_ms, found.updated_ms, saved[0] if saved else 0)
        over_ms = last + older_than_s * 1000
        if now < over_ms:
            return False
        since = known.get(conversation, now)
        due[conversation] = since if over_ms <= since <= now else now
        if now - due[conversation] < min(_DAY_S, older_than_s) * 1000:
            return False
        for sha256 in _media(store, conversation):
            # Before the commit, because a superfluous marker does no harm.
            private_dir(freed_folder(store.media))
            freed_marker(store.media, sha256).touch(mode=0o600)
        store.purge(conversation)
    return True


def _due_file(store: Store) -> Path:
    return store.database.path.with_name("due.json")


def _read_due(store: Store) -> _Due:
    path = _due_file(store)
    try:
        text = read_whole(path, bytes_max=_DUE_BYTES_MAX) if os.path.lexists(path) else None
    except VlmtuiError:
        return _Due()
    return from_json_text(text, _Due, otherwise=_Due())


def _write_due(store: Store, due: _Due) -> None:
    try:
        write_private(_due_file(store), msgspec.json.encode(due))
    except VlmtuiError as error:
        _LOG.warning("deleted conversations stay for now: %s", error)


def _media(store: Store, conversation: ConversationId) -> list[str]:
    """Return the hashes of the media that its turns and its draft use."""
    sql = """
        SELECT DISTINCT m.sha256 FROM media_references AS m LEFT JOIN turns AS t ON t.id = m.turn
        WHERE t.conversation = ?1 OR m.draft = ?1
    """
    return [row[0] for row in store.database.rows(sql, (conversation,))]


def _remove_freed_media(store: Store, wait_s: float) -> None:
    folder = freed_folder(store.media)
    for marker in sorted(folder.glob("*")) if folder.is_dir() else ():
        try:
            _remove_if_free(store, marker, wait_s)
        except (VlmtuiError, OSError) as error:
            _LOG.warning("the stored file %s stays for now: %s", marker.name, error)


def _remove_if_free(store: Store, marker: Path, wait_s: float) -> None:
    with store.database.writing():  # no process can start to use it meanwhile
        if time.time() - marker.stat().st_mtime < wait_s:
            return
        if store.database.row("SELECT 1 FROM media_references WHERE sha256 = ?", (marker.name,)) is None:
            remove_copies(store.media, marker.name, unless=lambda: time.time() - marker.stat().st_mtime < wait_s)
        marker.unlink()
