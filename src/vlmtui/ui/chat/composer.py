"""The text area in which a message is written."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.style import Style
from rich.text import Text
from textual import events
from textual.document._document import Document, EditResult, Location, Selection
from textual.message import Message
from textual.widgets import TextArea

from vlmtui.session.draft import Draft
from vlmtui.session.prompt_history import PromptHistory
from vlmtui.ui.actions import bindings
from vlmtui.ui.chat.path_completion import Span, path_at
from vlmtui.ui.keys import key_bindings


class Composer(TextArea):
    """A multi-line text area. Enter sends, Shift+Enter and Ctrl+J break the line; a pasted line break never sends.

    The tokens of the draft's attachments are one piece: the cursor jumps over them, and they are deleted whole.
    """

    BINDINGS = bindings("editor")
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
        """What was pasted or dropped is nothing but files that exist, a picture or video among them."""

        paths: list[Path]

    @dataclass
    class ScrollWanted(Message):
        """PageUp or PageDown: meant for the transcript."""

        pages: int

    @dataclass
    class MenuKey(Message):
        """A key that the open command menu takes: `up`, `down`, `tab` or `escape`."""

        key: str

    class SelectionWanted(Message):
        """↑ where nothing is written: a message above is to be selected."""

    class Interrupted(Message):
        """Ctrl+C with nothing selected."""

    def __init__(self, prompts: PromptHistory, draft: Draft, *, id: str | None = None) -> None:
        self.draft = draft
        super().__init__(
            draft.text,
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

    def on_mount(self) -> None:
        """A key that the user chose for an action of the chat is no key of Textual's text field any more, and the
        function keys of that mean nothing here."""
        for key in key_bindings(self.app).chosen("chat", "app") | {"f6", "f7"}:
            self._bindings.key_to_bindings.pop(key, None)

    async def _on_key(self, event: events.Key) -> None:
        # Textual calls the text area's own handler after this one, unless its default is prevented.
        if self._take_key(event.key):
            event.stop()
            event.prevent_default()
        elif event.key.startswith("alt+"):
            # It comes with its letter, which the text area would write before any binding is asked.
            event.prevent_default()

    async def _on_paste(self, event: events.Paste) -> None:
        from vlmtui.media.paths import pasted_media

        paths = await asyncio.to_thread(pasted_media, event.text)
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
            case "ctrl+c" if not self.selected_text:
                self.post_message(self.Interrupted())
            case "pageup" | "pagedown":
                self.post_message(self.ScrollWanted(-1 if key == "pageup" else 1))
            case "up" if not self.text:
                self.post_message(self.SelectionWanted())
            case "up" if self.cursor_at_first_line:
                return self.recall()
            case "down" if self.cursor_at_last_line:
                return self._recall(self.prompts.newer())
            case _:
                return False
        return True

    def get_line(self, line_index: int) -> Text:
        line = super().get_line(line_index)
        style = Style(color=self.app.theme_variables.get("accent"), bold=True)
        for token in self.draft.tokens_in(line.plain):
            line.stylize(style, token.start, token.end)
        return line

    def delete(self, start: Location, end: Location, *, maintain_selection_offset: bool = True) -> EditResult:
        first, last = self._index_of(min(start, end)), self._index_of(max(start, end))
        for token in self.draft.tokens_in(self.text):
            if token.start < last and first < token.end:
                first, last = min(first, token.start), max(last, token.end)
        start, end = (self._location_of(index) for index in (first, last))
        return super().delete(start, end, maintain_selection_offset=maintain_selection_offset)

    @property
    def path_span(self) -> Span | None:
        """The `@path` that is being written."""
        return path_at(self.text, self._index_of(self.cursor_location)) if "@" in self.text else None

    def replace_span(self, start: int, end: int, text: str) -> None:
        """Replace what stands between two offsets; the cursor is behind it afterwards."""
        self.replace(text, self._location_of(start), self._location_of(end), maintain_selection_offset=False)

    def put_text(self, text: str, cursor: int) -> None:
        """Show another text; `cursor` is an offset. Nothing before it can be undone."""
        self.text = text
        self.move_cursor(self._location_of(cursor))

    def forget_edits(self) -> None:
        """Nothing that was typed until now can be undone."""
        self.history.clear()

    @property
    def cursor_offset(self) -> int:
        return self._index_of(self.cursor_location)

    def insert_token(self, token: str) -> None:
        """At the cursor."""
        self.insert(token, self.cursor_location)

    def replace_token(self, old: str, new: str) -> None:
        """Wherever it stands; where it does not stand any more, nothing happens."""
        at = self.text.find(old)
        while at >= 0 and old != new:
            self.replace(new, self._location_of(at), self._location_of(at + len(old)))
            at = self.text.find(old, at + len(new))

    def move_token(self, step: Literal[-1, 1]) -> bool:
        """The token beside the cursor changes places with the word before it (-1) or behind it (1), and the cursor goes
        along. False where there is no such token or word."""
        self.draft.text = self.text
        token = self.draft.token_at(self._index_of(self.cursor_location))
        edit = self.draft.moved(token, step) if token is not None else None
        if edit is not None:
            self.replace_span(edit.start, edit.end, edit.text)
            self.move_cursor(self._location_of(edit.cursor))
        return edit is not None

    def _validate_selection(self, selection: Selection) -> Selection:
        """Textual's check of a new selection, and no end of it within a token: it goes on in the direction it came."""
        start, end = super()._validate_selection(selection)
        if "[" not in self.text:
            return Selection(start, end)
        came_from = self._index_of(self.selection.end)
        edges = [self._outside(self._index_of(place), came_from) for place in (start, end)]
        return Selection(*(self._location_of(index) for index in edges))

    def _outside(self, index: int, came_from: int) -> int:
        for token in self.draft.tokens_in(self.text):
            if token.start < index < token.end:
                return token.end if came_from <= token.start else token.start
        return index

    def _index_of(self, location: Location) -> int:
        assert isinstance(self.document, Document)
        return self.document.get_index_from_location(location)

    def _location_of(self, index: int) -> Location:
        assert isinstance(self.document, Document)
        return self.document.get_location_from_index(index)

    def recall(self) -> bool:
        """Write what was sent before once more; False where there is nothing."""
        return self._recall(self.prompts.older(self.text))

    def _recall(self, text: str | None) -> bool:
        """Show another prompt. What is attached stays, before it."""
        if text is None:
            return False
        tokens = "" if self.draft.tokens_in(text) else self.draft.only_tokens()
        self.text = tokens + text
        self.move_cursor(self.document.end)
        return True
