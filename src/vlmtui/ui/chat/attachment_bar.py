"""The attachments of the draft, and the prompt's cost."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from vlmtui.domain.attachment import Attachment
from vlmtui.errors import Remedy
from vlmtui.ui.chat.attachment_grid import COLUMN, PICTURE, AttachmentGrid
from vlmtui.ui.keys import with_remedy
from vlmtui.ui.widgets.attachment_view import AttachmentView

_PICTURE_ROWS = 5
_TALL = 32
"""Fewest terminal rows for pictures of the attachments."""


class AttachmentBar(Vertical):
    """The attachments side by side, then the cost. Hidden without attachments."""

    DEFAULT_CSS = """
    AttachmentBar {
        display: none;
        height: auto;
        margin: 1 2 0 4;
        & > AttachmentGrid { max-height: 10; overflow-y: auto; scrollbar-size-vertical: 1; }
        & > Static { display: none; height: auto; color: $muted; }
        & > Static.-shown { display: block; }
        & > .-too-much { color: $text-error; text-style: bold; }
    }
    """

    def __init__(self, *, cache: Path, id: str | None = None) -> None:
        super().__init__(id=id)
        self._cache = cache
        self._busy = asyncio.Lock()
        self._views: dict[int, AttachmentView] = {}
        self._rows = 0
        self._tokens: dict[int, int] = {}
        self._estimates: dict[int, int] = {}
        self._grid = AttachmentGrid()
        self._pending = Static("", id="pending", markup=False)
        self._cost = Static("", id="cost", markup=False)

    def compose(self) -> ComposeResult:
        yield self._grid
        yield self._pending
        yield self._cost

    async def show(self, staged: Mapping[int, Attachment], *, pending: int) -> None:
        """Show these attachments by number, in this order, and how many more are loading."""
        async with self._busy:
            await self._show(staged, pending)

    async def _show(self, staged: Mapping[int, Attachment], pending: int) -> None:
        if not self._grid.is_attached:
            return
        self._say(self._pending, f"reading {pending} file{'s' if pending != 1 else ''}…" if pending else "")
        one_row = len(staged) <= max(1, self.app.size.width // COLUMN)
        rows = _PICTURE_ROWS if one_row and self.app.size.height >= _TALL else 0
        old = self._views if rows == self._rows else {}
        kept = {n: old[n] for n, item in staged.items() if n in old and old[n].attachment == item}
        order = [number for number in self._views if number in kept]
        if rows != self._rows or list(self._views) != list(staged) or len(kept) < len(staged):
            grid, self._rows = self._grid, rows
            await grid.remove_children([view for number, view in self._views.items() if number not in kept])
            # A number may belong to another attachment now, with other tokens.
            self._tokens = {number: count for number, count in self._tokens.items() if number in kept}
            self._views = {number: kept.get(number) or self._view(number, item) for number, item in staged.items()}
            await grid.mount_all(view for number, view in self._views.items() if number not in kept)
            if list(self._views)[: len(order)] != order:
                grid.sort_children(key=lambda view: list(self._views.values()).index(view))  # type: ignore[arg-type]
        self._update_display()

    def tell_tokens(self, tokens: Mapping[int, int]) -> None:
        """Show the tokens of each attachment, by number."""
        self._tokens = dict(tokens)
        for number, view in self._views.items():
            self._tell(view, number)

    def tell_estimates(self, tokens: Mapping[int, int]) -> None:
        """Show estimated tokens, by number, for attachments without counted tokens."""
        self._estimates = dict(tokens)
        for number, view in self._views.items():
            self._tell(view, number)

    def tell_cost(self, text: str, remedy: Remedy | None = None, *, too_much: bool = False) -> None:
        """Show the tokens of the whole prompt, and the keys that reduce them."""
        self._say(self._cost, with_remedy(self.app, text, remedy))
        self._cost.set_class(too_much, "-too-much")
        self._update_display()

    def _view(self, number: int, item: Attachment) -> AttachmentView:
        rows = self._rows
        view = AttachmentView(item, number, cache=self._cache, columns=PICTURE, rows=rows, brief=not rows)
        self._tell(view, number)
        return view

    def _tell(self, view: AttachmentView, number: int) -> None:
        known = self._tokens.get(number)
        view.tell_tokens(self._estimates.get(number) if known is None else known, is_estimate=known is None)

    @staticmethod
    def _say(line: Static, text: str) -> None:
        line.update(text)
        line.set_class(bool(text), "-shown")

    def _update_display(self) -> None:
        self.display = bool(self._views) or any(line.has_class("-shown") for line in (self._pending, self._cost))
