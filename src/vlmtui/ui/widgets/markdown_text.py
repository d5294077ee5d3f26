"""A widget for Markdown that grows while it is read."""

from __future__ import annotations

import time

from textual.content import Content
from textual.strip import Strip
from textual.visual import Visual

from vlmtui.ui.document.markdown_lines import MarkdownLines
from vlmtui.ui.widgets.line_widget import Lines, LineWidget

_AT_ONCE = 32_000
"""Most characters that are laid out at once; a longer text is laid out in pieces."""
_PIECE = 16_000
"""Characters of a piece, which takes about a tenth of a second."""
_PAUSE_S = 0.05
"""Least seconds between pieces, as a key takes from the terminal to its letter; half of the time is for others."""


class MarkdownText(LineWidget):
    """One widget, however long the text; only changed lines are redrawn. Of much text that comes at once the rest
    follows piece by piece: keys do not wait for all of it."""

    DEFAULT_CSS = "MarkdownText { padding: 0; }"

    def __init__(self) -> None:
        super().__init__()
        self.source = ""
        self._begun = ""
        """The beginning of the text that is laid out so far."""
        self._goes_on = False
        """Whether the next piece is due."""
        self._instead = ""
        self._layout_of_source = MarkdownLines()
        self._folds = True

    def show(self, source: str, instead: str = "") -> None:
        """Show this text; control characters must be visible already. `instead`: a line in place of an empty text."""
        if (source, instead) != (self.source, self._instead):
            self.source, self._instead = source, instead
            if not self._goes_on:
                self._lay_out_more()

    def toggle_json(self) -> None:
        """Show long JSON completely, or fold it."""
        self._folds = not self._folds
        self.lay_out_again()

    def _lay_out_more(self) -> None:
        began_s = time.monotonic()
        begun = len(self._begun) if self.source.startswith(self._begun) else 0
        self._goes_on = len(self.source) - begun > _AT_ONCE
        self._begun = self.source[: begun + _PIECE] if self._goes_on else self.source
        self.lines_changed()
        if self._goes_on:
            self.set_timer(max(_PAUSE_S, time.monotonic() - began_s), self._lay_out_more)

    def lines_of(self, width: int) -> Lines:
        if self._instead and not self.source:
            return Content.styled(self._instead, "$muted").wrap(width)[:1]
        return [line.content for line in self._layout_of_source.lay_out(self._begun, width, folds=self._folds)]

    def render_line(self, y: int) -> Strip:
        if self.text_selection is not None:
            return super().render_line(y)
        lines = self._lines_at(self.content_size.width)
        if y >= len(lines):
            return Strip.blank(self.size.width, self.visual_style.rich_style)
        strips = Visual.to_strips(self, lines[y], self.size.width, 1, self.visual_style)
        return strips[0].apply_offsets(0, y)
