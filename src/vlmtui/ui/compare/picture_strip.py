"""A row with the pictures of the compared message."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from textual.app import ComposeResult
from textual.containers import HorizontalScroll

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.generation import PromptReady
from vlmtui.inspection.tokens import attachment_of
from vlmtui.ui.widgets.attachment_view import AttachmentView

TALL = 30
"""Fewest screen rows for pictures."""
_ROWS = ((60, 16), (50, 10), (40, 6), (TALL, 3))
"""Screen rows, and picture rows for screens at least that high."""


class PictureStrip(HorizontalScroll, can_focus=False):
    """Thumbnails with their numbers, names, sizes and tokens. Hidden on a low screen, or without pictures."""

    DEFAULT_CSS = """
    PictureStrip {
        display: none;
        height: auto;
        padding: 0 1;
        scrollbar-size-horizontal: 0;
        & > AttachmentView { width: 40; margin-right: 2; }
    }
    """

    def __init__(self, attachments: Sequence[Attachment], *, cache: Path, id: str | None = None) -> None:
        super().__init__(id=id)
        self._attachments = tuple(attachments)
        self._cache = cache
        self._rows = 0
        self._tokens: dict[str, int] = {}
        """Tokens by the attachment's SHA-256."""

    def compose(self) -> ComposeResult:
        if not self._rows:
            return
        for number, item in enumerate(self._attachments, 1):
            view = AttachmentView(item, number, cache=self._cache, columns=2 * self._rows + 8, rows=self._rows)
            view.tell_tokens(self._tokens.get(item.sha256))
            yield view

    async def fit(self, height: int) -> None:
        """Set the rows for pictures on a screen of this height."""
        rows = next((rows for least, rows in _ROWS if height >= least), 0) if self._attachments else 0
        self.display = bool(rows)
        if rows != self._rows:
            self._rows = rows
            await self.recompose()

    def tell_tokens(self, prompt: PromptReady, sent: Sequence[Attachment]) -> None:
        """Show the tokens of each picture in this prompt; `sent` are the prompt's attachments."""
        for span in prompt.media:
            if (item := attachment_of(span, sent)) is not None:
                self._tokens[item.sha256] = span.tokens
        for view in self.query(AttachmentView):
            view.tell_tokens(self._tokens.get(view.attachment.sha256))
