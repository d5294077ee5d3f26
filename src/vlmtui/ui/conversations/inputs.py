"""The text fields of the list of conversations: search and new title."""

from __future__ import annotations

from textual.message import Message
from textual.widgets import Input

from vlmtui.text import one_line
from vlmtui.ui.actions import bindings, line_bindings


class SearchInput(Input):
    """The search field. Enter opens, and the arrow keys move in the list below."""

    BINDINGS = [*bindings("conversation_search"), *line_bindings()]

    def on_mount(self) -> None:
        # A blinking cursor would repaint twice a second: over SSH an idle screen sends nothing.
        self.cursor_blink = False

    def validate_value(self, value: str) -> str:
        """Remove control characters, which a paste may contain."""
        return one_line(value)


class RenameInput(Input):
    """The field for a new title, over the old one."""

    BINDINGS = [*bindings("conversation_title"), *line_bindings()]

    class RenameCancelled(Message):
        """Keep the old title."""

    def on_mount(self) -> None:
        self.cursor_blink = False

    def validate_value(self, value: str) -> str:
        return one_line(value)

    def on_blur(self) -> None:
        self.post_message(self.RenameCancelled())

    def action_cancel(self) -> None:
        self.post_message(self.RenameCancelled())
