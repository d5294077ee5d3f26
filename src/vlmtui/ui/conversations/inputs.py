"""The lines of the list of conversations in which one types: the search and a new title."""

from __future__ import annotations

from textual.message import Message
from textual.widgets import Input

from vlmtui.text import one_line
from vlmtui.ui.actions import bindings


class SearchInput(Input):
    """The search line. Enter opens, and the arrows move in the list below."""

    BINDINGS = bindings("conversation_search")

    def on_mount(self) -> None:
        # A blinking cursor repaints twice a second for ever: over SSH an idle screen says nothing.
        self.cursor_blink = False

    def validate_value(self, value: str) -> str:
        """What is pasted may hold control characters."""
        return one_line(value)


class RenameInput(Input):
    """A title that is being written, over the old one."""

    BINDINGS = bindings("conversation_title")

    class RenameCancelled(Message):
        """The old title stays."""

    def on_mount(self) -> None:
        self.cursor_blink = False

    def validate_value(self, value: str) -> str:
        return one_line(value)

    def on_blur(self) -> None:
        self.post_message(self.RenameCancelled())

    def action_cancel(self) -> None:
        """Keep the old title."""
        self.post_message(self.RenameCancelled())
