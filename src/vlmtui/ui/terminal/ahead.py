"""Which growing texts the terminal shows ahead of a screen's layout, and when the layout follows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from textual.geometry import Region
from textual.screen import Screen
from textual.widget import Widget

from vlmtui.ui.terminal.growth import LAID_OUT_AFTER_S, Growth

if TYPE_CHECKING:
    from textual._compositor import Compositor

    from vlmtui.ui.terminal.driver import NonBlockingDriver


class Ahead:
    """The texts of one screen; true while the layout is behind."""

    def __init__(self, compositor: Compositor) -> None:
        self._compositor = compositor
        self._growths: dict[Widget, Growth | None] = {}
        """Texts that were shown since the last layout; None: they need one."""
        self._map: object = None
        """The layout of which they are."""
        self._behind: list[Growth] = []
        """Those that the layout does not have yet."""
        self._timer: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        return bool(self._behind)

    def meets(self, regions: Iterable[Region]) -> bool:
        """Return whether one of these regions of the screen is in a view whose layout is behind."""
        return any(region.overlaps(growth.area) for region in regions for growth in self._behind)

    def grow(self, widget: Widget, before: int, now: int, same: int) -> bool:
        """Show the lines of a text that has grown: there were `before`, are `now`, and the first `same` have not
        changed. False: a layout is needed."""
        screen = widget.screen
        driver = screen.app._driver
        layer = getattr(driver, "layer", None)
        if layer is None or screen._layout_required or screen._scroll_required or screen.app.screen is not screen:
            return False
        if self._compositor._dirty_regions:
            return False  # the layout is not what the terminal shows
        seen = self._compositor.visible_widgets
        if seen is not self._map:
            self._growths, self._map = {}, seen
        if widget not in self._growths:
            self._growths[widget] = Growth.of(screen, widget)
        growth = self._growths[widget]
        if growth is None or not growth.show(layer, before, now, same):
            self._growths[widget] = None
            return False
        if growth not in self._behind:
            self._behind.append(growth)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LAID_OUT_AFTER_S, self._settle_late)
        cast("NonBlockingDriver", driver).send_soon()
        return True

    def settle(self) -> None:
        """Lay out what the terminal shows already: what follows depends on where things are."""
        screen = self._compositor.root
        if self._behind and isinstance(screen, Screen) and screen.is_current:
            screen._refresh_layout()

    def catch_up(self) -> bool:
        """Have the layout that is about to be made take in all lines, and draw their views: it compares itself with the
        one before, which is not what the terminal shows. Returns whether it was behind."""
        behind, self._behind = self._behind, []
        for growth in behind:
            if growth.view_area:
                self._compositor._dirty_regions.add(growth.view_area)
            if not growth.widget.is_attached:
                continue
            growth.widget.refresh(layout=True)
            forget_layout(growth.widget)
        return bool(behind)

    def _settle_late(self) -> None:
        self._timer = None
        screen = self._compositor.root
        if screen is not None and screen.is_attached:
            self.settle()


def forget_layout(widget: Widget) -> None:
    """Have the widgets around this one lay out their children again, as Textual does before it asks for a layout."""
    for node in widget.ancestors:
        if not isinstance(node, Widget):
            break
        node._clear_arrangement_cache()
        node._layout_updates += 1
        if not node.styles.auto_dimensions:
            break
