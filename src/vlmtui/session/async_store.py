"""Runs the conversation store on a dedicated thread, for use from the app's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import Paths
from vlmtui.store.errors import Damage, StoreError, damaged

if TYPE_CHECKING:
    from vlmtui.store.store import Store

_T = TypeVar("_T")


class AsyncStore:
    """Opens the store on first use; calls run one at a time, in order."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._store: Store | None = None
        self._closed = False
        self._notice = ""
        self._was_damaged = False
        """The database turned out to be damaged in use: the next opening checks all of it."""
        self.damage: Damage | None = None
        """The damage that prevents opening the store, until `restore` or another process replaces the file."""

    async def run(self, work: Callable[[Store], _T]) -> _T:
        """Run `work` on the store's thread, even if the caller is cancelled; return its result. Raises VlmtuiError."""
        return await asyncio.shield(asyncio.wrap_future(self._begun(work)))

    def _begun(self, work: Callable[[Store], _T]) -> Future[_T]:
        if self._closed:
            raise VlmtuiError(ErrorKind.INTERNAL, "The conversation store is closed: vlmtui is exiting.")
        return self._thread.submit(self._work, work)

    def run_now(self, work: Callable[[Store], _T]) -> _T:
        """Run `work` like `run`, without an event loop. Blocking."""
        return self._begun(work).result()

    async def restore(self) -> str:
        """Replace a damaged database by its newest good backup. Return a message for the user. Raises VlmtuiError."""
        return await asyncio.wrap_future(self._thread.submit(self._restore))

    def take_notice(self) -> str:
        """Return the store's message for the user, such as a warning from opening it, and forget it; empty if there is
        none."""
        notice, self._notice = self._notice, ""
        return notice

    async def close(self) -> None:
        """Finish all pending calls, then close the store. May be called twice."""
        await asyncio.to_thread(self.close_now)

    def close_now(self) -> None:
        """Close like `close`, without an event loop. Blocking."""
        self._closed = True
        self._thread.shutdown(wait=True)
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def _work(self, work: Callable[[Store], _T]) -> _T:
        if self._store is not None and self._store.is_stale:
            self._was_damaged = self._store.database.is_damaged
            self._store.close()
            self._store = None
        if self._store is None:
            self._store = self._opened()
        return work(self._store)

    def _opened(self) -> Store:
        # Imported here, so that the app's first paint does not wait for sqlite3.
        from vlmtui.store.database import file_identity
        from vlmtui.store.store import Store

        if self.damage is not None and file_identity(self.damage.path) == self.damage.file:
            raise damaged(self.damage)
        self.damage = None
        try:
            store = Store.open(self._paths.data, self._paths.media, thorough=self._was_damaged)
        except StoreError as error:
            self.damage = error.damage
            raise
        except VlmtuiError as error:
            # The next attempt may succeed.
            raise StoreError(error.kind, error.message, detail=error.detail, hint=error.hint) from error
        self._was_damaged = False
        self._notice = store.notice or self._notice
        return store

    def _restore(self) -> str:
        from vlmtui.store.backup import restore_newest

        if self._store is not None:
            self._store.close()
            self._store = None
        done = restore_newest(self._paths.data, self._paths.media)
        self.damage, self._was_damaged = None, False
        return done
