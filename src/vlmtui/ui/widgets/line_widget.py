"""A widget of styled lines."""

from __future__ import annotations

from abc import abstractmethod
from itertools import takewhile
from typing import TYPE_CHECKING, cast

from rich.style import Style as RichStyle
from textual.content import Content, Span
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual
from textual.widget import Widget

from vlmtui.ui.terminal.compositor import FrontCompositor
from vlmtui.ui.widgets.blank_lines import blank_style, filtered

if TYPE_CHECKING:
    from textual.css.styles import RulesMap

Lines = list[Content]

_DRAWN_MAX = 2000
"""Drawn lines that are kept at most."""

_WIDTHS = 3
"""Widths of which the lines are kept."""


class LineWidget(Widget):
    """As tall as its lines. Call `lay_out_again` after they change."""

    DEFAULT_CSS = "LineWidget { height: auto; width: 1fr; }"

    def __init__(self, *, classes: str | None = None) -> None:
        super().__init__(classes=classes)
        self._laid_out: dict[int, Lines] = {}
        """Lines by their width: a layout may ask for some widths before it takes one."""
        self._drawn: dict[int, tuple[Content, Strip]] = {}
        """Lines that were drawn, by number."""
        self._look: tuple[int, Style, RichStyle] | None = None
        """Their width and styles."""

    @abstractmethod
    def lines_of(self, width: int) -> Lines:
        """Return the lines, each at most `width` cells wide."""

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines_at(width))

    def render(self) -> Content:
        return Content("\n").join(self._lines_at(self.content_size.width))

    def render_lines(self, crop: Region) -> list[Strip]:
        """As Textual's, but lines that were drawn stay so when the widget grows."""
        if not self.is_attached:  # it has just been removed, and the new layout follows
            return [Strip.blank(crop.width)] * crop.height
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
        if drawn is not None and is_same_line((drawn[0], line)):
            return drawn[1]
        if any(map(_is_clickable, line.spans)) or self.styles.content_align != ("left", "top"):
            strips = Visual.to_strips(self, line, width, 1, style)
        else:  # the same, without a look for links
            strips = line.render_strips(width, 1, style, RenderOptions(self._get_style, cast("RulesMap", self.styles)))
        strip = strips[0].adjust_cell_length(width, beside)
        self._drawn[y] = line, filtered(self, strip)
        return self._drawn[y][1]

    @property
    def line_count(self) -> int:
        """How many lines it has at its width."""
        return len(self._lines_at(self.content_size.width))

    def lines_changed(self) -> None:
        """Repaint the lines that changed, and lay out again if their number did."""
        width = self.content_size.width
        before = self._laid_out.get(width)
        self._laid_out.clear()
        if before is None or not width:
            self.refresh(layout=True)
            return
        now = self._lines_at(width)
        same = sum(1 for _ in takewhile(is_same_line, zip(before, now, strict=False)))
        if same == len(now) == len(before):
            return
        compositor = self.screen._compositor
        if isinstance(compositor, FrontCompositor) and compositor.ahead.grow(self, len(before), len(now), same):
            return
        if len(now) != len(before):
            self.refresh(layout=True)
        else:
            self.refresh(Region(0, same, width, len(now) - same))

    def lay_out_again(self) -> None:
        """Lay out and repaint after the lines changed."""
        self._laid_out.clear()
        self.refresh(layout=True)

    def _lines_at(self, width: int) -> Lines:
        found = self._laid_out.get(width)
        if found is None:
            if len(self._laid_out) >= _WIDTHS:
                self._laid_out.clear()
            found = self._laid_out[width] = self.lines_of(width)
        return found


def _is_clickable(span: Span) -> bool:
    return "@click" in span.style if isinstance(span.style, str) else span.style._meta is not None


def is_same_line(lines: tuple[Content, Content]) -> bool:
    """Return whether two lines look the same."""
    before, now = lines
    return before is now or (before.plain == now.plain and before.spans == now.spans)
