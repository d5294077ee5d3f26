"""The text area for writing a message."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import Binding
from textual.message import Message
from textual.widgets import TextArea
from textual.widgets.text_area import Document, EditResult, Location, Selection

from vlmtui.session.draft import Draft
from vlmtui.session.prompt_history import PromptHistory
from vlmtui.ui.actions import SCOPES, UNBOUND, bindings
from vlmtui.ui.chat.path_completion import Span, path_at
from vlmtui.ui.keys import default_keys, key_bindings


def _own_keys() -> list[Binding]:
    """Return the keys of Textual's text area but for those of the editor's actions and the function keys, each with an
    id for the keymap."""
    ours = {key for action in SCOPES["editor"].actions for key in default_keys(action.id)} | {"f6", "f7"}
    own = Binding.make_bindings(TextArea.BINDINGS)
    return [replace(binding, id=f"text_area.{binding.key}") for binding in own if binding.key not in ours]


class Composer(TextArea, inherit_bindings=False):
    """A multi-line text area. Enter sends, Shift+Enter and Ctrl+J break the line; a pasted line break never sends.

    A token of an attachment acts as one piece: the cursor jumps over it, and it is deleted whole.
    """

    BINDINGS = [*bindings("editor"), *_own_keys()]
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
        """Enter was pressed."""

        text: str

    @dataclass
    class PathsPasted(Message):
        """The pasted or dropped text consists only of existing files, at least one of them a picture or video."""

        paths: list[Path]

    @dataclass
    class ScrollWanted(Message):
        """PageUp or PageDown, for the transcript."""

        pages: int

    @dataclass
    class MenuKey(Message):
        """A key for the open command menu: `up`, `down`, `tab` or `escape`."""

        key: str

    class SelectionWanted(Message):
        """↑ in an empty composer: select a message above."""

    class Interrupted(Message):
        """Ctrl+C without a selection."""

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
        """Set by the screen: the arrow keys go to the menu."""

    def on_mount(self) -> None:
        """Free the keys that the user assigned to actions of the chat."""
        chosen = key_bindings(self.app).chosen("chat", "app")
        self.app.update_keymap({f"text_area.{key}": UNBOUND for key in chosen})
        self.cursor_blink = False  # an idle screen sends nothing

    async def on_key(self, event: events.Key) -> None:
        # Textual calls the text area's own handler after this one, unless prevented.
        if self._take_key(event.key):
            event.stop()
            event.prevent_default()
        elif event.key.startswith("alt+"):
            # The event carries a letter, which the text area would type before bindings are checked.
            event.prevent_default()
        elif event.is_printable and event.character:
            self._leave_gap(event.character)

    async def on_paste(self, event: events.Paste) -> None:
        from vlmtui.media.paths import pasted_media

        paths = await asyncio.to_thread(pasted_media, event.text)
        if paths:
            event.stop()
            event.prevent_default()
            self.post_message(self.PathsPasted(paths))
        else:
            self._leave_gap(event.text[:1])

    def _leave_gap(self, first: str) -> None:
        """Insert a space if `first` is about to be written directly behind the attachments at the start."""
        is_behind = not self.selected_text and 0 < self.draft.lead_in(self.text) == self.cursor_offset
        if is_behind and first not in "/@" and not first.isspace():
            self.insert(" ", self.cursor_location)

    def _take_key(self, key: str) -> bool:
        """Handle a key; False to leave it to the text area."""
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
        """Return the `@path` being typed."""
        return path_at(self.text, self._index_of(self.cursor_location)) if "@" in self.text else None

    def replace_span(self, start: int, end: int, text: str) -> None:
        """Replace the text between two offsets; the cursor moves behind it."""
        self.replace(text, self._location_of(start), self._location_of(end), maintain_selection_offset=False)

    def put_text(self, text: str, cursor: int) -> None:
        """Replace the text; `cursor` is an offset. Clears the undo history."""
        self.text = text
        if cursor:
            self.move_cursor(self._location_of(cursor))

    def take_away(self, text: str) -> None:
        """Remove a text from the start; the cursor moves to the end of the rest."""
        self.put_text(rest := self.text.removeprefix(text), len(rest))

    def forget_edits(self) -> None:
        """Clear the undo history."""
        self.history.clear()

    @property
    def cursor_offset(self) -> int:
        return self._index_of(self.cursor_location)

    def insert_token(self, token: str) -> None:
        """Insert a token at the cursor."""
        self.insert(token, self.cursor_location)

    def replace_token(self, old: str, new: str) -> None:
        """Replace a token, if the text still contains it."""
        at = self.text.find(old)
        while at >= 0 and old != new:
            self.replace(new, self._location_of(at), self._location_of(at + len(old)))
            at = self.text.find(old, at + len(new))

    def move_token(self, step: Literal[-1, 1]) -> bool:
        """Swap the token next to the cursor with the word before (-1) or after (1) it, moving the cursor along.
        False if there is no such token or word."""
        self.draft.text = self.text
        token = self.draft.token_at(self._index_of(self.cursor_location))
        edit = self.draft.moved(token, step) if token is not None else None
        if edit is not None:
            self.replace_span(edit.start, edit.end, edit.text)
            self.move_cursor(self._location_of(edit.cursor))
        return edit is not None

    def validate_selection(self, selection: Selection) -> Selection:
        """Keep the ends of a selection outside tokens: continue in the direction of the movement."""
        start, end = selection
        if "[" not in self.text:
            return selection
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
        """Show the previous sent message; False if there is none."""
        return self._recall(self.prompts.older(self.text))

    def _recall(self, text: str | None) -> bool:
        """Show another message. Its attachments stay, in front."""
        if text is None:
            return False
        tokens = "" if self.draft.tokens_in(text) else self.draft.only_tokens()
        self.text = tokens + " " * bool(tokens and text.strip() and not text[0].isspace()) + text
        self.move_cursor(self.document.end)
        return True
