"""Workers of earlier sessions that are unusable but still hold memory."""

from __future__ import annotations

from vlmtui.engine.interface import EngineCleanup, Leftover
from vlmtui.errors import VlmtuiError
from vlmtui.text import one_line
from vlmtui.ui.navigator import AppNavigator
from vlmtui.ui.view import View


class Leftovers:
    """Tells the user about them, and stops them on request."""

    def __init__(self, view: View, navigator: AppNavigator, cleanup: EngineCleanup | None) -> None:
        """`cleanup` is None if nothing can be left over."""
        self._view = view
        self._navigator = navigator
        self._cleanup = cleanup

    def look(self) -> None:
        """Report leftover workers."""
        self._view.start(self._look, "leftovers")

    def clean_up(self) -> None:
        """Stop them after a confirmation."""
        self._view.start_dialog(self._clean_up)

    async def _look(self) -> None:
        found = await self._found()
        if found:
            names = ", ".join(one_line(leftover.title) for leftover in found)
            text = f"Unusable workers of earlier sessions hold memory: {names}. /cleanup stops them."
            self._view.tell(text, seconds=30, severity="warning")

    async def _clean_up(self) -> None:
        cleanup, found = self._cleanup, await self._found()
        if cleanup is None or not found:
            if found is not None:
                self._view.tell("There are no leftover workers.")
            return
        names = ", ".join(one_line(leftover.title) for leftover in found)
        if not await self._navigator.confirm(f"Stop {names}?", yes="Stop them"):
            return
        for leftover in found:
            try:
                await cleanup.end(leftover)
            except VlmtuiError as error:
                self._view.tell_error(error)
        self._view.tell(f"Stopped: {names}")

    async def _found(self) -> list[Leftover] | None:
        """Return them; None if the search failed, which is reported."""
        if self._cleanup is None:
            return []
        try:
            return await self._cleanup.leftovers()
        except VlmtuiError as error:
            self._view.tell_error(error)
            return None
