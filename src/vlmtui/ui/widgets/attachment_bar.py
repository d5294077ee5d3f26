"""What is staged for the next turn."""

from __future__ import annotations

import asyncio
from pathlib import Path

from textual.widget import Widget
from textual.widgets import Static

from vlmtui.domain.attachment import Attachment
from vlmtui.ui.widgets.attachment_grid import COLUMN, PICTURE, AttachmentGrid
from vlmtui.ui.widgets.attachment_view import AttachmentView

_PICTURE_ROWS = 5
_TALL = 32
"""Rows of the terminal from which staged attachments have pictures."""


class AttachmentBar(AttachmentGrid):
    """Hidden while nothing is staged. The attachments side by side, in as many rows as it takes."""

    DEFAULT_CSS = """
    AttachmentBar {
        display: none;
        height: auto;
        max-height: 10;
        margin: 1 2 0 4;
        overflow-y: auto;
        scrollbar-size-vertical: 1;
        .busy { height: 1; color: $muted; }
    }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._busy = asyncio.Lock()

    async def show(self, staged: list[Attachment], *, first_number: int, pending: int, cache: Path) -> None:
        """Show these, and how many more are being looked at."""
        one_row = len(staged) + bool(pending) <= max(1, self.app.size.width // COLUMN)
        rows = _PICTURE_ROWS if one_row and self.app.size.height >= _TALL else 0
        widgets: list[Widget] = [
            AttachmentView(item, first_number + offset, cache=cache, columns=PICTURE, rows=rows, brief=not rows)
            for offset, item in enumerate(staged)
        ]
        if pending:
            widgets.append(Static(f"looking at {pending} file{'s' if pending != 1 else ''}…", classes="busy"))
        async with self._busy:
            await self.remove_children()
            await self.mount_all(widgets)
        self.display = bool(widgets)
