"""A scrollbar that is drawn from lines that were drawn before."""

from __future__ import annotations

from typing import cast

from rich.style import Style as RichStyle
from textual.containers import VerticalScroll
from textual.geometry import Region
from textual.scrollbar import ScrollBar, ScrollBarRender
from textual.strip import Strip

_Look = tuple[object, ...]


class LineScrollBar(ScrollBar):
    """Looks like Textual's, which draws all its lines anew whenever the content grows. There are few different ones."""

    def __init__(self, *, thickness: int) -> None:
        super().__init__(vertical=True, name="vertical", thickness=thickness)
        self._look: _Look | None = None
        self._drawn: dict[tuple[str, RichStyle | None], Strip] = {}
        """Lines in this look, by what Textual's bar has there."""

    def render_lines(self, crop: Region) -> list[Strip]:
        width, height = self.size
        bar = self.render()
        if crop.column_span != (0, width) or not isinstance(bar, ScrollBarRender):
            return super().render_lines(crop)
        style = cast(RichStyle, bar.style)
        back, thumb = style.bgcolor, style.color
        if back is None or thumb is None:
            return super().render_lines(crop)
        look = (width, style, self.background_colors, self.visual_style, self.opacity, tuple(self.get_line_filters()))
        if look != self._look:
            self._look = look
            self._drawn.clear()
        segments = bar.render_bar(
            size=height,
            virtual_size=bar.virtual_size,
            window_size=bar.window_size,
            position=bar.position,
            thickness=width,
            back_color=back,
            bar_color=thumb,
        ).segments
        return [self._line(y, segments[y].text, segments[y].style) for y in crop.line_range]

    def _line(self, y: int, text: str, style: RichStyle | None) -> Strip:
        found = self._drawn.get((text, style))
        if found is None:
            found = self._drawn[text, style] = super().render_lines(Region(0, y, self.size.width, 1))[0]
        return found


def line_scrollbar(view: VerticalScroll) -> ScrollBar:
    """Return the view's scrollbar, which is made when it is first asked for, as Textual's is."""
    if view._vertical_scrollbar is None:
        bar = view._vertical_scrollbar = LineScrollBar(thickness=view.scrollbar_size_vertical)
        bar.display = False
        view.app._start_widget(view, bar)
    return view._vertical_scrollbar
