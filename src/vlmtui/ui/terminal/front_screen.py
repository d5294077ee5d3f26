"""A screen that draws only what is seen, and at once where that is asked for."""

from __future__ import annotations

import threading
import time

from textual import messages
from textual.message import Message
from textual.screen import Screen, ScreenResultType

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
        if self.is_current and not self.app._batch_count:
            self._take_requests()
            if self._layout_required:
                self._scroll_required = False  # else Textual would move what is laid out, and no more
        self._on_timer_update()

    def _take_requests(self) -> None:
        """Note which widgets are to be drawn or laid out: those that have not told it yet."""
        widgets = list(self._nodes)
        for widget in widgets:
            if widget._repaint_required and widget.display:
                widget._repaint_required = False
                self._dirty_widgets.add(widget)
            if widget._layout_required and widget.display:
                widget._layout_required = False
                self._layout_required = True
                forget_layout(widget)
            widgets += widget._nodes

    def post_message(self, message: Message) -> bool:
        """As Textual's, but note at once that a widget is to be drawn or laid out: as a message, it would wait behind
        others, and a frame that is drawn meanwhile would not have it."""
        if isinstance(message, messages.Update | messages.Layout | messages.UpdateScroll) and self._takes_now:
            match message:
                case messages.Update(widget=widget):
                    if self in self._compositor:
                        self._dirty_widgets.add(widget)
                case messages.Layout(widget=widget):
                    self._layout_widgets.setdefault(widget, set())
                    self._layout_required = True
                case _:
                    self._scroll_required = True
            self.check_idle()
            return True
        return super().post_message(message)

    @property
    def _takes_now(self) -> bool:
        return self._running and not (self._closing or self._closed) and self._thread_id == threading.get_ident()

    def _on_timer_update(self) -> None:
        if not self.holds_frames:
            super()._on_timer_update()
