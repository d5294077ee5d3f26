"""A screen that draws only what is seen, and at once where that is asked for."""

from __future__ import annotations

import time

from textual.screen import Screen, ScreenResultType
from textual.widget import Widget

from vlmtui.ui.terminal.ahead import forget_layout
from vlmtui.ui.terminal.compositor import FrontCompositor


class FrontScreen(Screen[ScreenResultType]):
    """A screen with this compositor."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._compositor = FrontCompositor()
        self._held_until_s = float("-inf")

    @property
    def is_current(self) -> bool:
        """Whether it is seen. As Textual's, but for a screen below one that lets nothing through: that is laid out when
        it is shown again."""
        if not super().is_current:
            return False
        stack = self.app.screen_stack
        return not any(screen.styles.background.a == 1 for screen in stack[stack.index(self) + 1 :])

    @property
    def holds_frames(self) -> bool:
        """Whether nothing is drawn now."""
        return time.monotonic() < self._held_until_s

    def hold_frames(self, seconds: float) -> None:
        """Draw nothing for this long, or until `show_frame`."""
        self._held_until_s = time.monotonic() + seconds

    def show_frame(self) -> None:
        """Draw what has changed now, instead of at the next tick of the screen's timer."""
        self._held_until_s = float("-inf")
        self.call_next(self._draw_now)

    def _draw_now(self) -> None:
        if self.is_current and not self.app._batch_count:
            self._take_requests(self)
            if self._layout_required:
                self._scroll_required = False  # else Textual would move what is laid out, and no more
        self._on_timer_update()

    def _take_requests(self, widget: Widget) -> None:
        """Note which of a widget and those in it are to be drawn or laid out: their messages are behind others."""
        if widget._repaint_required and widget is not self:
            widget._repaint_required = False
            self._dirty_widgets.add(widget)
        if widget._layout_required and widget is not self:
            widget._layout_required = False
            self._layout_required = True
            forget_layout(widget)
        for child in widget._nodes:
            if child.display:
                self._take_requests(child)

    def _on_timer_update(self) -> None:
        if not self.holds_frames:
            super()._on_timer_update()
