"""A widget for Markdown that grows while it is read."""

from __future__ import annotations

from textual.content import Content
from textual.strip import Strip
from textual.visual import Visual

from vlmtui.ui.widgets.line_widget import LineWidget
from vlmtui.ui.widgets.markdown_lines import Lines, MarkdownLines


class MarkdownText(LineWidget):
    """One widget, however long the text; only changed lines are redrawn."""

    DEFAULT_CSS = "MarkdownText { padding: 0; }"

    def __init__(self) -> None:
        super().__init__()
        self.source = ""
        self._instead = ""
        self._layout_of_source = MarkdownLines()
        self._folds = True

    def show(self, source: str, instead: str = "") -> None:
        """Show this text; control characters must be visible already. `instead`: a line in place of an empty text."""
        if (source, instead) != (self.source, self._instead):
            self.source, self._instead = source, instead
            self.lines_changed()

    def toggle_json(self) -> None:
        """Show long JSON completely, or fold it."""
        self._folds = not self._folds
        self.lay_out_again()

    def lines_of(self, width: int) -> Lines:
        if self._instead and not self.source:
            return Content.styled(self._instead, "$muted").wrap(width)[:1]
        return self._layout_of_source.lay_out(self.source, width, folds=self._folds)

    def render_line(self, y: int) -> Strip:
        if self.text_selection is not None:
            return super().render_line(y)
        lines = self._lines_at(self.content_size.width)
        if y >= len(lines):
            return Strip.blank(self.size.width, self.visual_style.rich_style)
        strips = Visual.to_strips(self, lines[y], self.size.width, 1, self.visual_style)
        return strips[0].apply_offsets(0, y)
