"""The work that each session does once: the day's backup, the end of conversations deleted long ago, and of files that
killed processes left."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from vlmtui.config.settings import Settings
from vlmtui.errors import VlmtuiError
from vlmtui.files import remove_abandoned
from vlmtui.paths import Paths
from vlmtui.session.async_store import AsyncStore
from vlmtui.session.raw_draft import draft_file

if TYPE_CHECKING:
    from vlmtui.store.records import ConversationId
    from vlmtui.store.store import Store

_log = logging.getLogger(__name__)


async def keep_house(
    store: AsyncStore, paths: Paths, settings: Settings, tell_error: Callable[[VlmtuiError], object]
) -> None:
    """Delete the unfinished files of killed processes, copy the database if no copy of the last 24 hours is there, and
    purge conversations whose time after deletion is over. Damage is told; what else fails is tried by the next
    session."""
    from vlmtui.store.backup import back_up_daily
    from vlmtui.store.database import StoreError

    await asyncio.to_thread(remove_abandoned_files, paths)
    try:
        await asyncio.to_thread(back_up_daily, paths.data)
    except (VlmtuiError, OSError) as error:
        _log.warning("there is no backup of today: %s", error)
        if isinstance(error, StoreError) and error.damage is not None:
            tell_error(error)
    if settings.keep_deleted_s is None:
        return
    try:
        purged = await _purge(store, paths, older_than_s=settings.keep_deleted_s)
    except (VlmtuiError, OSError) as error:
        _log.warning("deleted conversations stay for now: %s", error)
        return
    if purged:
        _log.info("purged, as they were deleted long ago: %s", ", ".join(purged))


async def _purge(conversations: AsyncStore, paths: Paths, *, older_than_s: float) -> list[ConversationId]:
    """Purge conversations deleted more than `older_than_s` seconds ago, and return their ids. Raises VlmtuiError as
    the store does."""

    def work(store: Store) -> list[ConversationId]:
        purged = store.purge_deleted(older_than_s)
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
