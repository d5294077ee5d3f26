"""A vertical line between two panes, which the mouse drags."""

from __future__ import annotations

from dataclasses import dataclass

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget


class Divider(Widget):
    """Tells where it is dragged; a double click asks for the panes' first widths."""

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    Divider {
        width: 1;
        height: 100%;
        color: $border-blurred;
        &:hover, &.-dragged { color: $accent; }
    }
    """

    @dataclass
    class Dragged(Message):
        """The mouse has it at this column of the screen."""

        column: int

    class WidthsWanted(Message):
        """It was clicked twice."""

    def render(self) -> Content:
        return Content("\n".join("│" * max(1, self.size.height)))

    def on_mouse_down(self, event: events.MouseDown) -> None:
        if event.button == 1:
            event.stop()
            self.capture_mouse()
            self.add_class("-dragged")

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self.has_class("-dragged"):
            event.stop()
            self.post_message(self.Dragged(int(event.screen_x)))

    def on_mouse_up(self, event: events.MouseUp) -> None:
        if self.has_class("-dragged"):
            event.stop()
            self.release_mouse()
            self.remove_class("-dragged")

    def on_click(self, event: events.Click) -> None:
        event.stop()
        if event.chain == 2:
            self.post_message(self.WidthsWanted())
