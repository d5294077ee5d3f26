"""The help: every key and command from the action table, those of the screen below first."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import msgspec
from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from vlmtui.ui.actions import SCOPES, Scope, bindings, line_bindings
from vlmtui.ui.keys import hint, shown_keys
from vlmtui.ui.widgets.footer_bar import FooterBar

_GAP = 2
_MIN_TEXT = 20
_WIDTH = 73
_KEYS_SHOWN = 3


class Row(msgspec.Struct, frozen=True):
    """A line of the help: keys, slash command, and explanation."""

    keys: str
    slash: str
    text: str

    def has(self, word: str) -> bool:
        return any(word in part.lower() for part in (self.keys, self.slash, self.text))

    def lines(self, keys: int, slash: int, width: int) -> list[Content]:
        """Return the row with columns of these widths; the text is wrapped."""
        columns = [(self.keys.ljust(keys + _GAP), "bold")]
        if slash:
            columns.append((self.slash.ljust(slash + _GAP), "$muted"))
        indent = sum(len(text) for text, _ in columns)
        first, *rest = textwrap.wrap(self.text, max(_MIN_TEXT, width - indent), break_on_hyphens=False) or [""]
        return [Content.assemble(*columns, first), *(Content(" " * indent + more) for more in rest)]


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
        with VerticalScroll(id="sheet", can_focus=False):
            with Horizontal(id="head"):
                yield Static("Keys and commands", id="title")
                yield Static(id="hint", markup=False)
            yield HelpFilter(placeholder="Filter", compact=True)
            yield Static(id="text", markup=False)
        yield FooterBar()

    def on_mount(self) -> None:
        self.query_one("#hint", Static).update(hint(self.app, "help_screen.filter", "help_screen.close"))
        self.query_one(HelpFilter).cursor_blink = False
        self._show(_WIDTH)

    @on(events.Resize)
    @on(HelpFilter.Changed)
    def _show_again(self) -> None:
        self._show(self.query_one("#text").content_size.width or _WIDTH)

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
        self.query_one("#sheet").scroll_home(animate=False)

    def action_scroll(self, where: str) -> None:
        getattr(self.query_one("#sheet"), f"scroll_{where}")(animate=False)

    def _show(self, width: int) -> None:
        word = self.query_one(HelpFilter).value.strip().lower()
        sections = [(scope.title, [row for row in self._rows(scope) if row.has(word)]) for scope in self._scopes()]
        sections = [(title, rows) for title, rows in sections if rows]
        keys = max((len(row.keys) for _, rows in sections for row in rows), default=0)
        lines: list[Content] = []
        for title, rows in sections:
            slash = max(len(row.slash) for row in rows)
            lines += [Content(""), Content.styled(title, "bold $text-accent")]
            lines += [line for row in rows for line in row.lines(keys, slash, width)]
        text = Content("\n").join(lines[1:]) if lines else Content.styled(f"No key or command with “{word}”.", "$muted")
        self.query_one("#text", Static).update(text)

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
