"""The help: every key and command from the action table, those of the screen below first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from vlmtui.ui.actions import SCOPES, Scope, bindings, line_bindings
from vlmtui.ui.document.blocks import TextBlock
from vlmtui.ui.document.document import Block
from vlmtui.ui.document.lines import Line, Lines, one, wrapped
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.keys import hint, shown_keys
from vlmtui.ui.widgets.footer_bar import FooterBar

_GAP = 2
_MIN_TEXT = 20
_KEYS_SHOWN = 3


class Row(msgspec.Struct, frozen=True):
    """A line of the help: keys, slash command, and explanation."""

    keys: str
    slash: str
    text: str

    def has(self, word: str) -> bool:
        return any(word in part.lower() for part in (self.keys, self.slash, self.text))

    def lines(self, keys: int, slash: int, width: int) -> Lines:
        """Return the row with columns of these widths; the text is wrapped."""
        columns = Content.styled(self.keys.ljust(keys + _GAP), "bold")
        if slash:
            columns = Content.assemble(columns, (self.slash.ljust(slash + _GAP), "$muted"))
        indent = len(columns)
        first, *rest = wrapped(Content(self.text), max(_MIN_TEXT, width - indent))
        return [Line(Content.assemble(columns, first.content)), *(line.after(" " * indent) for line in rest)]


class HelpBlock(Block):
    """The rows of a scope below its title."""

    margin = 1

    def __init__(self, title: str, rows: Sequence[Row], keys: int) -> None:
        """`keys`: the columns for the keys."""
        super().__init__()
        self._title, self._rows, self._keys = title, rows, keys

    def lay_out(self, width: int) -> Lines:
        slash = max(len(row.slash) for row in self._rows)
        rows = (line for row in self._rows for line in row.lines(self._keys, slash, width))
        return [one(self._title, "bold $text-accent"), *rows]


class HelpFilter(Input):
    """The field for words to filter the lines by."""

    BINDINGS = line_bindings()


class HelpScreen(ModalScreen[None]):
    """A sheet over the screen, scrollable. `scope` is that of the screen below, `first` that of its focused widget."""

    AUTO_FOCUS = ""
    CSS_PATH = "screen.tcss"
    SCOPE = "help_screen"
    BINDINGS = bindings(SCOPE)

    def __init__(self, scope: str = "", *, first: str = "") -> None:
        super().__init__()
        self._scope, self._first = scope, first

    def compose(self) -> ComposeResult:
        with Vertical(id="sheet"):
            with Horizontal(id="head"):
                yield Static("Keys and commands", id="title")
                yield Static(id="hint", markup=False)
            yield HelpFilter(placeholder="Filter", compact=True)
            yield DocumentView(has_edge=False, id="text")
        yield FooterBar()

    def on_mount(self) -> None:
        self.query_one("#hint", Static).update(hint(self.app, "help_screen.filter", "help_screen.close"))
        self.query_one(HelpFilter).cursor_blink = False
        self._show()

    def action_close(self) -> None:
        """Leave the filter, or close the help."""
        word = self.query_one(HelpFilter)
        if not word.display:
            self.dismiss()
            return
        word.value = ""
        word.display = False
        self.set_focus(None)

    def action_filter(self) -> None:
        """Focus the filter."""
        word = self.query_one(HelpFilter)
        word.display = True
        word.focus()

    def action_scroll(self, where: str) -> None:
        getattr(self.query_one("#text"), f"scroll_{where}")(animate=False)

    @on(HelpFilter.Changed)
    def _show(self) -> None:
        word = self.query_one(HelpFilter).value.strip().lower()
        sections = [(scope.title, [row for row in self._rows(scope) if row.has(word)]) for scope in self._scopes()]
        sections = [(title, rows) for title, rows in sections if rows]
        keys = max((len(row.keys) for _, rows in sections for row in rows), default=0)
        nothing = TextBlock(Content.styled(f"No key or command with “{word}”.", "$muted"))
        blocks: list[Block] = [HelpBlock(title, rows, keys) for title, rows in sections]
        self.query_one("#text", DocumentView).show(*(blocks or [nothing]))

    def _scopes(self) -> Iterator[Scope]:
        """Yield the scopes of the screen and its widgets, the app's, then all others."""
        own = [scope for scope in SCOPES.values() if self._scope and self._scope in (scope.name, scope.within)]
        yield from sorted(own, key=lambda scope: scope.name != self._first)
        yield SCOPES["app"]
        yield from (scope for scope in SCOPES.values() if scope not in own and scope.name != "app")

    def _rows(self, scope: Scope) -> Iterator[Row]:
        for action in scope.actions:
            keys, slash = shown_keys(self.app, action, _KEYS_SHOWN), f"{action.slash} {action.argument}".strip()
            if keys or slash:
                yield Row(keys, slash, action.help)
        for fixed in scope.fixed:
            yield Row(fixed.keys, "", fixed.help)
