"""What is staged for the next turn."""

from __future__ import annotations

from pathlib import Path

from textual.containers import HorizontalScroll
from textual.widgets import Static

from vlmtui.domain.attachment import Attachment
from vlmtui.ui.widgets.attachment_view import AttachmentView

_TALL = 32
"""Rows of the terminal from which staged attachments have pictures."""


class AttachmentBar(HorizontalScroll):
    """Hidden while nothing is staged."""

    can_focus = False
    DEFAULT_CSS = """
    AttachmentBar {
        display: none;
        height: auto;
        max-height: 8;
        padding: 0 2;
        scrollbar-size-horizontal: 1;
        .busy { width: auto; color: $muted; }
    }
    """

    async def show(self, staged: list[Attachment], *, first_number: int, pending: int, cache: Path) -> None:
        """Show these, and how many more are being looked at."""
        await self.remove_children()
        rows = 4 if self.screen.size.height >= _TALL else 0
        views = [
            AttachmentView(item, first_number + offset, cache=cache, columns=16, rows=rows)
            for offset, item in enumerate(staged)
        ]
        await self.mount_all(views)
        if pending:
            await self.mount(Static(f"looking at {pending} file{'s' if pending != 1 else ''}…", classes="busy"))
        self.display = bool(views or pending)
