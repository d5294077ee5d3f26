"""Where one writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from textual import events
from textual.message import Message
from textual.widgets import TextArea

from vlmtui.ui.controllers.history import PromptHistory


class Composer(TextArea):
    """A text of several lines. Enter sends, Shift+Enter and Ctrl+J break the line; a pasted line break never sends."""

    DEFAULT_CSS = """
    Composer {
        height: auto;
        min-height: 1;
        max-height: 8;
        border: none;
        padding: 0 1;
        background: $surface;
        &:focus { border: none; }
        .text-area--cursor-line { background: $surface; }
        .text-area--placeholder { color: $faint; }
    }
    """

    @dataclass
    class Submitted(Message):
        """Enter."""

        text: str

    @dataclass
    class PathsPasted(Message):
        """What was pasted or dropped is nothing but files that exist."""

        paths: list[Path]

    @dataclass
    class ScrollWanted(Message):
        """PageUp or PageDown: meant for the transcript."""

        pages: int

    @dataclass
    class MenuKey(Message):
        """A key that the open command menu takes: `up`, `down`, `tab` or `escape`."""

        key: str

    @dataclass
    class DropWanted(Message):
        """Backspace with nothing written."""

    @dataclass
    class Interrupted(Message):
        """Ctrl+C with nothing selected."""

    def __init__(self, prompts: PromptHistory, *, id: str | None = None) -> None:
        super().__init__(
            id=id,
            compact=True,
            soft_wrap=True,
            tab_behavior="focus",
            show_line_numbers=False,
            placeholder="Message, or / for commands",
        )
        self.prompts = prompts
        self.menu_is_open = False
        """Set by the screen: then the arrow keys are the menu's."""

    async def _on_key(self, event: events.Key) -> None:
        # Textual calls the text area's own handler after this one, unless its default is prevented.
        if self._take_key(event.key):
            event.stop()
            event.prevent_default()

    async def _on_paste(self, event: events.Paste) -> None:
        from vlmtui.media.paths import parse_paths

        paths = parse_paths(event.text)
        if paths:
            event.stop()
            event.prevent_default()
            self.post_message(self.PathsPasted(paths))

    def _take_key(self, key: str) -> bool:
        """Act on a key; False for one that is the text area's own."""
        if self.menu_is_open and key in ("up", "down", "tab", "escape"):
            self.post_message(self.MenuKey(key))
            return True
        match key:
            case "enter":
                self.post_message(self.Submitted(self.text))
            case "shift+enter" | "ctrl+j" | "alt+enter":
                self.insert("\n")
            case "backspace" if not self.text:
                self.post_message(self.DropWanted())
            case "ctrl+c" if not self.selected_text:
                self.post_message(self.Interrupted())
            case "pageup" | "pagedown":
                self.post_message(self.ScrollWanted(-1 if key == "pageup" else 1))
            case "up" if self.cursor_at_first_line:
                return self._recall(self.prompts.older(self.text))
            case "down" if self.cursor_at_last_line:
                return self._recall(self.prompts.newer())
            case _:
                return False
        return True

    def _recall(self, text: str | None) -> bool:
        if text is None:
            return False
        self.text = text
        self.move_cursor(self.document.end)
        return True
