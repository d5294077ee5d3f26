"""A scroll view that keeps its visible content in place when content above it changes."""

from __future__ import annotations

from typing import Any

from textual.containers import VerticalScroll
from textual.geometry import Region, Size
from textual.layout import DockArrangeResult
from textual.scrollbar import ScrollBar
from textual.strip import Strip
from textual.widget import Widget

from vlmtui.ui.widgets.blank_lines import blank_lines
from vlmtui.ui.widgets.line_scroll import line_scrollbar


class AnchoredScroll(VerticalScroll):
    """Follows its end while anchored; otherwise keeps a visible child in place when the layout changes.

    The new scroll offset is set during the layout, as Textual does for its anchor, so no intermediate state is shown.
    Nothing is animated: an animation would target a position from before the layout changed, and each frame sends a
    screenful to the terminal.
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.ends_here = True
        """Whether the last child is the end of the content: only then is the end followed after scrolling to it."""
        self._regions: dict[Widget, Region] = {}
        """Position of each child, relative to the first child."""
        self._arranged: DockArrangeResult | None = None
        self._held: tuple[Widget, float] | None = None
        """The child kept in place, and its distance in rows from the top of the view."""
        self._kept: Widget | None = None
        """A child that stays partly in view."""
        self._goes_to_kept = False
        """Whether to scroll to all of it, or to its start."""
        self._is_going = False
        """True while scrolling to it."""
        self._moved = 0.0
        """Rows scrolled so far to keep content in place."""

    @property
    def vertical_scrollbar(self) -> ScrollBar:
        return line_scrollbar(self)

    def render_lines(self, crop: Region) -> list[Strip]:
        return blank_lines(self, crop)

    def _size_updated(self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True) -> bool:
        """As Textual's, without a second layout after each growth, which would find everything in its place."""
        is_layout_due = layout and (size, container_size) != (self._size, self._container_size)
        return super()._size_updated(size, virtual_size, container_size, layout=is_layout_due)

    def keep_in_view(self, child: Widget | None, *, go: bool = True) -> None:
        """Keep part of a child in view whatever changes; None: no child. `go`: show all of it, or its start, until
        the user scrolls, even if it is laid out later."""
        self._kept, self._goes_to_kept = child, child is not None and (go or self._goes_to_kept)
        if child is not None and go:
            self.release_anchor()
            y = self._y_of_kept(self.scroll_y, self.max_scroll_y, self.scrollable_content_region.height)
            self._is_going = True
            self.scroll_to(y=y, immediate=True)
            self._is_going = False

    def is_in_view(self, child: Widget) -> bool:
        """Return whether part of a child is in view; True for one that is not laid out yet."""
        region = self._regions.get(child)
        height = self.scrollable_content_region.height
        return region is None or (region.bottom > self.scroll_y and region.y < self.scroll_y + height)

    @property
    def is_following(self) -> bool:
        """Whether the view follows its end."""
        return self._anchored and not self._anchor_released

    def in_view(self) -> list[Widget]:
        """The children in view, as last laid out."""
        top, bottom = self.scroll_y, self.scroll_y + self.scrollable_content_region.height
        found = ((child, self._regions.get(child)) for child in self.children)
        return [child for child, region in found if region and region.bottom > top and region.y < bottom]

    def watch_scroll_y(self, old: float, new: float) -> None:
        was_following = self.is_following
        super().watch_scroll_y(old, new)
        if self.is_following and not was_following and (self._kept is not None or not self.ends_here):
            self.release_anchor()
        self._goes_to_kept = self._goes_to_kept and self._is_going
        self._hold()
        if not self._is_going:
            self.scrolled(new - old)

    def scrolled(self, by: float) -> None:
        """Called after the user scrolled, with the rows."""

    def release_anchor(self) -> None:
        super().release_anchor()
        if self._held is None:
            self._hold()

    def scroll_to(self, x: float | None = None, y: float | None = None, **options: Any) -> None:
        """As Textual's; if delayed until the next layout, it scrolls to the content that is at `y` now."""
        if y is None or options.pop("immediate", False):
            super().scroll_to(x, y, **options, immediate=True)
            return
        if options.get("release_anchor", True):
            self.release_anchor()
        moved = self._moved

        def go() -> None:
            super(AnchoredScroll, self).scroll_to(x, y + self._moved - moved, immediate=True, **options)

        self.call_after_refresh(go)

    def _scroll_to(self, x: float | None = None, y: float | None = None, **options: Any) -> bool:
        return super()._scroll_to(x, y, **options | {"animate": False})

    def arrange(self, size: Size, optimal: bool = False) -> DockArrangeResult:
        result = super().arrange(size, optimal)
        if not optimal and result is not self._arranged:
            self._arranged = result
            self._regions = {placement.widget: placement.region for placement in result.placements}
            self._put_back(result.total_region.bottom - size.height, size.height)
            self.laid_out()
        return result

    def laid_out(self) -> None:
        """Called during the layout, if it changed."""

    def let_go(self) -> None:
        """Keep no child in place until the user scrolls."""
        self._held = None

    def _hold(self) -> None:
        """Choose a visible child to keep in place, preferably one that starts in view: its own changes do not
        matter."""
        if self.is_following or not self._anchored:
            self._held = None
            return
        seen = self.in_view()
        child = next((child for child in seen if self._regions[child].y >= self.scroll_y), seen[0] if seen else None)
        self._held = None if child is None else (child, self._regions[child].y - self.scroll_y)

    def _y_of_kept(self, y: float, y_max: float, height: int) -> float:
        """Return the offset nearest to `y` that keeps the child in view."""
        region = self._regions.get(self._kept) if self._kept is not None else None
        if region is None:
            return y
        if self._goes_to_kept:
            y = min(max(y, region.bottom - height), region.y)
        elif region.y >= y + height or region.bottom <= y:
            y = region.y
        return min(max(0.0, y), float(max(0, y_max)))

    def _put_back(self, y_max: int, height: int) -> None:
        if self.is_following:
            return
        y = self.scroll_y
        child, below_top = self._held or (None, 0.0)
        region = self._regions.get(child) if child is not None else None
        if region is not None:
            y = min(max(0.0, region.y - below_top), float(max(0, y_max)))
        y = self._y_of_kept(y, y_max, height)
        if y != self.scroll_y:
            self._moved += y - self.scroll_y
            self.set_reactive(Widget.scroll_y, y)
            self.set_reactive(Widget.scroll_target_y, y)
            self.vertical_scrollbar.set_reactive(ScrollBar.position, y)
