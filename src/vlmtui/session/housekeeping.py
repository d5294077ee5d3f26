"""What each session does once for the stored conversations: the day's backup, and the end of those deleted long ago."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from vlmtui.config.settings import Settings
from vlmtui.errors import VlmtuiError
from vlmtui.paths import Paths
from vlmtui.session.async_store import AsyncStore
from vlmtui.session.purge import purge, remove_abandoned_files

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
        purged = await purge(store, paths, older_than_s=settings.keep_deleted_s)
    except (VlmtuiError, OSError) as error:
        _log.warning("deleted conversations stay for now: %s", error)
        return
    if purged:
        _log.info("purged, as they were deleted long ago: %s", ", ".join(purged))
