"""A widget for Markdown that grows while it is read."""

from __future__ import annotations

from itertools import takewhile

from rich.style import Style as RichStyle
from textual.content import Content
from textual.geometry import Region
from textual.strip import Strip
from textual.style import Style
from textual.visual import Visual

from vlmtui.ui.widgets.blank_lines import blank_style, filtered
from vlmtui.ui.widgets.line_widget import LineWidget
from vlmtui.ui.widgets.markdown_lines import Lines, MarkdownLines

_DRAWN_MAX = 2000
"""Drawn lines that are kept at most."""


class MarkdownText(LineWidget):
    """One widget, however long the text; only changed lines are redrawn."""

    DEFAULT_CSS = "MarkdownText { padding: 0; }"

    def __init__(self) -> None:
        super().__init__()
        self.source = ""
        self._layout_of_source = MarkdownLines()
        self._folds = True
        self._drawn: dict[int, tuple[Content, Strip]] = {}
        """Lines that were drawn, by number."""
        self._look: tuple[int, Style, RichStyle] | None = None
        """Their width and styles."""

    def show(self, source: str) -> None:
        """Show this text; control characters must be visible already."""
        if source == self.source:
            return
        self.source = source
        width = self._lines_width
        if width < 0:
            return
        before, now = self._lines, self.lines_of(width)
        self._lines = now
        if len(now) != len(before):
            self.refresh(layout=True)
            return
        same = sum(1 for _ in takewhile(_is_same, zip(before, now, strict=True)))
        if same < len(now):
            self.refresh(Region(0, same, width, len(now) - same))

    def toggle_json(self) -> None:
        """Show long JSON completely, or fold it."""
        self._folds = not self._folds
        self.lay_out_again()

    def lines_of(self, width: int) -> Lines:
        return self._layout_of_source.lay_out(self.source, width, folds=self._folds)

    def render_lines(self, crop: Region) -> list[Strip]:
        """As Textual's, but lines that were drawn stay so when the widget grows."""
        if self.text_selection is not None or self.gutter:
            return super().render_lines(crop)
        look = self.size.width, self.visual_style, blank_style(self)
        if self._look != look or len(self._drawn) > _DRAWN_MAX:
            self._drawn.clear()
            self._look = look
        lines = self._lines_at(self.content_size.width)
        strips = [self._strip_of(lines, y, *look) for y in crop.line_range]
        return strips if crop.column_span == (0, look[0]) else [strip.crop(*crop.column_span) for strip in strips]

    def _strip_of(self, lines: Lines, y: int, width: int, style: Style, beside: RichStyle) -> Strip:
        if y >= len(lines):
            return Strip.blank(width, beside)
        line, drawn = lines[y], self._drawn.get(y)
        if drawn is not None and _is_same((drawn[0], line)):
            return drawn[1]
        strip = Visual.to_strips(self, line, width, 1, style)[0].adjust_cell_length(width, beside)
        self._drawn[y] = line, filtered(self, strip)
        return self._drawn[y][1]

    def render_line(self, y: int) -> Strip:
        if self.text_selection is not None:
            return super().render_line(y)
        lines = self._lines_at(self.content_size.width)
        if y >= len(lines):
            return Strip.blank(self.size.width, self.visual_style.rich_style)
        strips = Visual.to_strips(self, lines[y], self.size.width, 1, self.visual_style)
        return strips[0].apply_offsets(0, y)


def _is_same(lines: tuple[Content, Content]) -> bool:
    before, now = lines
    return before is now or (before.plain == now.plain and before.spans == now.spans)
