"""A screen that draws only what is seen, at once where that is asked for, and growing texts ahead of the layout."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, cast

from textual import events
from textual.geometry import Size
from textual.screen import Screen, ScreenResultType
from textual.widget import Widget

from vlmtui.ui.terminal.compositor import FrontCompositor
from vlmtui.ui.terminal.growth import LAID_OUT_AFTER_S, Growth

if TYPE_CHECKING:
    from vlmtui.ui.terminal.driver import NonBlockingDriver


class FrontScreen(Screen[ScreenResultType]):
    """A screen with this compositor."""

    def __init__(self) -> None:
        super().__init__()
        self._compositor = FrontCompositor()
        self._held_until_s = float("-inf")
        self._growths: dict[Widget, Growth | None] = {}
        """Texts that were shown since the last layout; None: they need one."""
        self._map: object = None
        """The layout of which `_growths` are."""
        self._ahead: list[Growth] = []
        """Those that the terminal shows and the layout does not have yet."""
        self._behind: asyncio.TimerHandle | None = None

    # -- when it is drawn

    def hold_frames(self, seconds: float) -> None:
        """Draw nothing for this long, or until `show_frame`."""
        self._held_until_s = time.monotonic() + seconds

    def show_frame(self) -> None:
        """Draw what has changed now, instead of at the next tick of the screen's timer."""
        self._held_until_s = float("-inf")
        self.call_next(self._on_timer_update)

    def _on_timer_update(self) -> None:
        if time.monotonic() < self._held_until_s:
            return
        if self._ahead and (self._layout_required or self._scroll_required or self._repaint_required or self._meets()):
            self._catch_up()
        super()._on_timer_update()

    # -- texts that grow

    @property
    def is_ahead(self) -> bool:
        """Whether the terminal shows lines that the layout does not have yet."""
        return bool(self._ahead)

    def grow(self, widget: Widget, before: int, now: int, same: int) -> bool:
        """Show the lines of a text that has grown, without a layout: there were `before`, are `now`, and the first
        `same` have not changed. False: a layout is needed."""
        driver = self.app._driver
        layer = getattr(driver, "layer", None)
        if layer is None or self._layout_required or self._scroll_required or self.app.screen is not self:
            return False
        seen = self._compositor.visible_widgets
        if seen is not self._map:
            self._growths, self._map = {}, seen
        if widget not in self._growths:
            self._growths[widget] = Growth.of(self, widget)
        growth = self._growths[widget]
        if growth is None or not growth.show(layer, before, now, same):
            self._growths[widget] = None
            return False
        if growth not in self._ahead:
            self._ahead.append(growth)
        if self._behind is None:
            self._behind = asyncio.get_running_loop().call_later(LAID_OUT_AFTER_S, self._lay_out_late)
        cast("NonBlockingDriver", driver).send_soon()
        return True

    def settle(self) -> None:
        """Lay out what the terminal shows already: what follows depends on where things are."""
        if self._ahead:
            self._catch_up()
            self._on_timer_update()

    def _lay_out_late(self) -> None:
        self._behind = None
        if self.is_attached and self._ahead:
            self._catch_up()
            self.check_idle()

    def _catch_up(self) -> None:
        """Have the next layout take in all lines."""
        ahead, self._ahead = self._ahead, []
        for growth in ahead:
            if not growth.widget.is_attached:
                continue
            growth.widget.refresh(layout=True)
            for node in growth.widget.ancestors:
                if not isinstance(node, Widget):
                    break
                node._clear_arrangement_cache()
                node._layout_updates += 1
                self._layout_widgets.setdefault(node, set()).add(growth.widget)
                if not node.styles.auto_dimensions:
                    break
            self._layout_required = True

    def _meets(self) -> bool:
        """Return whether a widget that is to be drawn is in a view whose layout is behind."""
        seen = self._compositor.visible_widgets
        for widget in self._dirty_widgets:
            region, clip = seen.get(widget, (None, None))
            if region is None or clip is None:
                continue
            if any(region.intersection(clip).overlaps(growth.area) for growth in self._ahead):
                return True
        return False

    def _refresh_layout(self, size: Size | None = None, scroll: bool = False) -> None:
        if self._ahead:
            self._catch_up()
            scroll = False
        super()._refresh_layout(size, scroll)

    def _forward_event(self, event: events.Event) -> None:
        if isinstance(event, events.MouseEvent):
            self.settle()
        super()._forward_event(event)
