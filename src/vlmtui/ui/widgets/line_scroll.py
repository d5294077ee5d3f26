"""A vertical scroll view whose scrollbar is drawn from lines that were drawn before."""

from __future__ import annotations

from typing import cast

from rich.style import Style as RichStyle
from textual.containers import VerticalScroll
from textual.geometry import Region, Size
from textual.layout import DockArrangeResult
from textual.scrollbar import ScrollBar, ScrollBarRender
from textual.strip import Strip
from textual.widget import Widget

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


class LineScroll(VerticalScroll):
    """A scroll view with this scrollbar. While `follows_end`, it goes to its end when the content grows, unless the
    user has scrolled up."""

    follows_end = False
    _is_released = False
    """Whether the user has scrolled away from the end."""

    @property
    def is_following(self) -> bool:
        return self.follows_end and not self._is_released

    def release_anchor(self) -> None:
        super().release_anchor()
        self._is_released = True

    def watch_scroll_y(self, old: float, new: float) -> None:
        super().watch_scroll_y(old, new)
        self._is_released = self._is_released and self.max_scroll_y - new >= 1

    def arrange(self, size: Size, optimal: bool = False) -> DockArrangeResult:
        result = super().arrange(size, optimal)
        if size.height and not optimal and self.is_following:
            end = float(max(0, result.total_region.bottom - size.height))
            self.set_reactive(Widget.scroll_y, end)
            self.set_reactive(Widget.scroll_target_y, end)
            self.vertical_scrollbar.set_reactive(ScrollBar.position, end)
        return result

    @property
    def vertical_scrollbar(self) -> ScrollBar:
        return line_scrollbar(self)


def line_scrollbar(view: VerticalScroll) -> ScrollBar:
    """Return the view's scrollbar, which is made when it is first asked for, as Textual's is."""
    if view._vertical_scrollbar is None:
        bar = view._vertical_scrollbar = LineScrollBar(thickness=view.scrollbar_size_vertical)
        bar.display = False
        view.app._start_widget(view, bar)
    return view._vertical_scrollbar
