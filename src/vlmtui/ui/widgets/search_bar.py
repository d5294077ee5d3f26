"""The search field for a document, and the base of screens that have one."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input, Static

from vlmtui.text import one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.document.document import Block
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.widgets.line_editing import LineInput


class SearchBar(Horizontal):
    """The search field, hidden until `open`. While the user types, all matches are highlighted, and the first is shown;
    arrow keys go to the others. Enter closes the field and keeps the match, Escape ends the search."""

    class Accepted(Message):
        """The field was closed at a match."""

    DEFAULT_CSS = """
    SearchBar {
        display: none;
        height: 1;
        background: $surface;
        border-left: outer $accent;
        & > LineInput { width: 1fr; border: none; padding: 0 1; background: $surface; }
        & > Static { width: auto; padding: 0 1; color: $muted; }
    }
    """
    BINDINGS = bindings("search_bar")

    def __init__(self) -> None:
        super().__init__()
        self._view: DocumentView | None = None
        self._focused_before: Widget | None = None

    def compose(self) -> ComposeResult:
        yield LineInput(placeholder="Find", compact=True)
        yield Static(markup=False)

    def open(self, view: DocumentView) -> None:
        """Show and focus the search field for a document."""
        self._view = view
        if not self.display:
            self._focused_before = self.screen.focused
            self.display = True
        self._field.focus()

    @property
    def words(self) -> str:
        """The text to find."""
        return one_line(self._field.value)

    def look_for(self, words: str, view: DocumentView, start: Block) -> None:
        """Find words in a document from a block on, without the field; `find` continues."""
        self._view = view
        with self.prevent(Input.Changed):
            self._field.value = words
        view.find(words, start=start)

    def close(self) -> None:
        """Hide the search field. The matches stay highlighted, and `find` continues from the last."""
        if self.display:
            self.display = False
            if self._field.has_focus and self._focused_before is not None:
                self._focused_before.focus()

    def find(self, view: DocumentView, *, back: bool = False, stay: bool = False) -> None:
        """Go to the next match in a document. If there is no text to find, open the search field. `stay`: the current
        match may be found again."""
        self._view = view
        words = self.words
        hit = view.find(words, back=back, stay=stay)
        told = "" if not words else f"{hit.number:,} of {hit.total:,}" if hit else "not found"
        self.query_one(Static).update(told)
        if not words and not stay:
            self.open(view)

    @property
    def _field(self) -> LineInput:
        return self.query_one(LineInput)

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        if self._view is not None:
            self.find(self._view, stay=True)

    def action_next(self) -> None:
        """Go to the next match."""
        if self._view is not None:
            self.find(self._view)

    def action_previous(self) -> None:
        """Go to the previous match."""
        if self._view is not None:
            self.find(self._view, back=True)

    def action_accept(self) -> None:
        """Close the field, and keep the match."""
        self.close()
        self.post_message(self.Accepted())

    def action_close(self) -> None:
        """End the search."""
        self.close()
        if self._view is not None:
            self._view.find("")


class SearchScreen(Screen[None]):
    """A screen with a `SearchBar` and a document that it searches."""

    @property
    def searched(self) -> DocumentView | None:
        """The document to search; None if there is none now."""
        return None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "search" and self.query_one(SearchBar).has_focus_within:
            return False
        return not action.startswith("search") or self.searched is not None

    def action_search(self) -> None:
        """Open the search field."""
        if self.searched is not None:
            self.query_one(SearchBar).open(self.searched)

    def action_search_again(self, back: bool) -> None:
        """Go to the next or previous match of the last text."""
        if self.searched is not None:
            self.query_one(SearchBar).find(self.searched, back=back)
