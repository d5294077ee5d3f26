"""Lines of a growing text, brought to the terminal ahead of the layout.

An answer grows ten times a second, and laying the screen out for it costs five times as much as its new lines do. While
the end of a view is followed, all that happens is known beforehand: the view's lines move up, and the last ones change.
That is told to the frame layer at once; Textual's own layout follows before anything else needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, runtime_checkable

from textual.geometry import Region
from textual.scrollbar import ScrollBar
from textual.strip import Strip
from textual.widget import Widget

from vlmtui.ui.terminal.frame_layer import FrameLayer, PlacedStrip

if TYPE_CHECKING:
    from textual.screen import Screen

LAID_OUT_AFTER_S: Final = 3.0
"""Longest time in seconds that Textual's layout is behind."""


@runtime_checkable
class Following(Protocol):
    """A view that may follow its end."""

    @property
    def is_following(self) -> bool:
        """Whether it does."""
        ...


class Growth:
    """A text at the end of a view that follows it. It is as in the layout of `screen` until the next layout."""

    def __init__(self, widget: Widget, view: Widget, region: Region, area: Region, view_area: Region) -> None:
        self.widget = widget
        self.view = view
        self.area = area
        """Where the view shows its content on the screen; empty: nothing of the view is seen."""
        self.view_area = view_area
        """Where all of the view is, with its scrollbars."""
        self._top = region.y
        """Line of the screen of the text's first line; most often above the view."""
        self._count = region.height
        self._x, self._end = region.x, region.right
        self._blank = -int(view.scroll_y)
        """Blank lines above content that does not fill its view but stands at the bottom."""

    @classmethod
    def of(cls, screen: Screen[Any], widget: Widget) -> Self | None:
        """Return the growth of a widget; None if its lines can't be shown without a layout."""
        seen = screen._compositor.visible_widgets
        view = next(
            (node for node in widget.ancestors if isinstance(node, Widget) and isinstance(node, Following)), None
        )
        if view is None or not widget.size:
            return None
        if view not in seen:
            return cls(widget, view, Region(), Region(), Region())
        if not _follows(view) or widget not in seen or not _is_last(widget, view):
            return None
        region, (place, clip) = seen[widget][0], seen[view]
        area = view._get_scrollable_region(place.shrink(view.styles.gutter))
        is_whole = clip.contains_region(area) and area.x <= region.x and region.right <= area.right
        if widget.size != region.size or not is_whole:
            return None
        for other, (its_place, its_clip) in seen.items():
            if other is widget:
                break
            if its_place.intersection(its_clip).overlaps(area) and view not in other.ancestors:
                return None  # it is in front
        return cls(widget, view, region, area, place.intersection(clip))

    def show(self, layer: FrameLayer, before: int, now: int, same: int) -> bool:
        """Show the widget's lines, of which there were `before`, are `now`, and the first `same` are as they were.
        False: only a layout can."""
        area, grown = self.area, now - before
        if not area:
            return True
        up = max(0, self._top + now - area.bottom)
        can_move = self.view.show_vertical_scrollbar or up <= self._blank
        is_known = before == self._count and area.y < self._top + before <= area.bottom
        if not (_follows(self.view) and is_known and can_move and grown >= 0 and up <= grown and up < area.height):
            return False
        if layer.has_pictures(area.y, area.bottom):
            return False
        last = self._top + before - 1
        beside = layer.copy(last, area.x, self._x), layer.copy(last, self._end, area.right)
        if up:
            layer.move_up(area, up)
        self._top -= up
        self._blank -= up
        self._count = now
        first = max(same, area.y - self._top)
        pieces = self._pieces(first, now)
        if grown and self.view.show_vertical_scrollbar:
            pieces += self._bar(grown, up)
        if not layer.put(pieces):
            return False
        for number in range(max(before, first), now):
            for x, cells in zip((area.x, self._end), beside, strict=True):
                layer.paste(self._top + number, x, cells)
        return True

    def _pieces(self, first: int, now: int) -> list[PlacedStrip]:
        if first >= now:
            return []
        strips = self.widget.render_lines(Region(0, first, self._end - self._x, now - first))
        return self._placed(strips, self._x, self._top + first)

    def _bar(self, grown: int, up: int) -> list[PlacedStrip]:
        """Return the view's scrollbar as the layout will have it."""
        bar = self.view.vertical_scrollbar
        bar.set_reactive(ScrollBar.window_virtual_size, bar.window_virtual_size + grown)
        bar.set_reactive(ScrollBar.position, bar.position + up)
        return self._placed(bar.render_lines(bar.size.region), bar.region.x, bar.region.y)

    def _placed(self, strips: Sequence[Strip], x: int, y: int) -> list[PlacedStrip]:
        return [PlacedStrip(at, x, x + strip.cell_length, strip) for at, strip in enumerate(strips, y)]


def _follows(view: Widget) -> bool:
    return isinstance(view, Following) and view.is_following


def _is_last(widget: Widget, view: Widget) -> bool:
    """Return whether the view ends where the widget does."""
    node = widget
    while node is not view:
        parent = node.parent
        if not isinstance(parent, Widget) or node.styles.margin.bottom or parent.styles.gutter.bottom:
            return False
        if next((child for child in reversed(parent.displayed_children)), None) is not node:
            return False
        node = parent
    return True
