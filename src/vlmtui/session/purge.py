"""Removes deleted conversations from the disk, with everything stored only for them, and what killed processes left."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from vlmtui.files import remove_abandoned
from vlmtui.paths import Paths
from vlmtui.session.async_store import AsyncStore
from vlmtui.session.raw_draft import draft_file

if TYPE_CHECKING:
    from vlmtui.store.records import ConversationId
    from vlmtui.store.store import Store


async def purge(conversations: AsyncStore, paths: Paths, *, older_than_s: float) -> list[ConversationId]:
    """Purge conversations deleted more than `older_than_s` seconds ago, and return their ids. Raises VlmtuiError as
    the store does."""
    from vlmtui.store.purging import purge_deleted

    def work(store: Store) -> list[ConversationId]:
        purged = purge_deleted(store, older_than_s)
        for conversation in purged:
            draft_file(paths, conversation).unlink(missing_ok=True)
        return purged

    return await conversations.run(work)


def remove_abandoned_files(paths: Paths) -> None:
    """Delete the unfinished files that killed processes left in the application's folders. Blocking."""
    for folder in (paths.config, paths.data, paths.media, paths.state, paths.cache, paths.runtime):
        for path in (folder, *_folders_in(folder)):
            remove_abandoned(path)


def _folders_in(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
