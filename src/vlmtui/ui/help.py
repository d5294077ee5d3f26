"""The help screen with every key and command, and the strip of keys that work after the leader key (Ctrl+X)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from textual import events, on
from textual.app import App, ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen, SystemModalScreen
from textual.widgets import Static

from vlmtui.ui.actions import SCOPES, Scope, bindings
from vlmtui.ui.document.blocks import TextBlock
from vlmtui.ui.document.document import Block
from vlmtui.ui.document.lines import Line, Lines, one, wrapped
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.keys import LEADER, LeaderEntry, hint, key_bindings, key_of, leader_entries, shown_keys, spell_key
from vlmtui.ui.widgets.footer_bar import FooterBar
from vlmtui.ui.widgets.line_editing import LineInput

_COLUMN_GAP = 3
_GROUPS = ("Message", "Look closer", "Attachments", "Chats and models")
"""Headings that come first; then the screen's, and the app's last."""


class LeaderScreen(ModalScreen[LeaderEntry | None]):
    """The strip of keys that work after the leader key. Returns the entry of the pressed key, or None for Escape. For
    any other key it shows a note."""

    AUTO_FOCUS = ""
    DEFAULT_CSS = """
    LeaderScreen {
        align: left bottom;
        background: $background 0%;
        & > #strip {
            width: 100%;
            height: auto;
            max-height: 100%;
            padding: 0 2;
            background: $panel;
            border-top: solid $accent;
        }
    }
    """
    SCOPE = "leader_screen"
    BINDINGS = bindings(SCOPE)

    def __init__(self, entries: Mapping[str, LeaderEntry]) -> None:
        super().__init__()
        self._entries = entries
        self._said = ""

    def compose(self) -> ComposeResult:
        yield Static(id="strip", markup=False)

    @on(events.Resize)
    def _show(self) -> None:
        close = f" then a key · {hint(self.app, 'leader_screen.close')}"
        said = Content.styled(f"   {self._said}", "$text-warning") if self._said else Content()
        title = Content.assemble((key_of(self.app, LEADER), "bold $accent"), close, said)
        width = (self.query_one("#strip").content_size.width or self.app.size.width) - 1
        self.query_one("#strip", Static).update(Content("\n").join([title, *_columns(self._blocks(), width)]))

    async def on_key(self, event: events.Key) -> None:
        keys = key_bindings(self.app)
        if event.key in (*keys.of("leader_screen.close"), *keys.of("interrupt")):
            return
        event.stop()
        event.prevent_default()
        entry = self._entries.get(event.key)
        if entry is not None:
            self.dismiss(entry)
        else:
            self._said = f"{spell_key(event.key)} does nothing here."
            self._show()

    def action_close(self) -> None:
        self.dismiss(None)

    def _blocks(self) -> list[list[Content]]:
        """Return the lines of each group of keys: the group's heading, then its keys."""
        groups: dict[str, list[LeaderEntry]] = {group: [] for group in _GROUPS}
        for entry in self._entries.values():
            groups.setdefault(entry.group, []).append(entry)
        last = groups.pop("App", [])
        groups["App"] = last
        return [_block(group, entries) for group, entries in groups.items() if entries]


def show_leader(app: App[Any]) -> None:
    """Show the strip of leader keys and run the chosen action; if the strip is shown, close it."""
    screen = app.screen

    async def run(entry: LeaderEntry | None) -> None:
        if entry is not None and entry.node.is_attached:
            await app.run_action(entry.command, entry.node)

    if isinstance(screen, LeaderScreen):
        screen.dismiss()
    elif not isinstance(screen, SystemModalScreen):
        app.push_screen(LeaderScreen(leader_entries(screen)), run)


def _block(group: str, entries: Sequence[LeaderEntry]) -> list[Content]:
    keys = [spell_key(entry.action.leader) for entry in entries]
    width = max(map(len, keys))
    rows = (
        Content.assemble((key.rjust(width), "bold $accent"), " ", (entry.action.title, "dim" if entry.lacking else ""))
        for key, entry in zip(keys, entries, strict=True)
    )
    return [Content.styled(group, "$muted"), *rows]


def _columns(blocks: Sequence[list[Content]], width: int) -> list[Content]:
    """Arrange blocks of lines side by side, in as many columns as fit into `width` cells. Each block goes below the
    shortest column."""
    if not blocks:
        return []
    widest = max(line.cell_length for block in blocks for line in block) + _COLUMN_GAP
    columns: list[list[Content]] = [[] for _ in range(max(1, min(len(blocks), width // widest)))]
    for block in blocks:
        shortest = min(columns, key=len)
        shortest += block
    rows = max(map(len, columns))
    cells = [[column[at] if at < len(column) else Content() for column in columns] for at in range(rows)]
    return [Content.assemble(*(cell.pad_right(widest - cell.cell_length) for cell in row)) for row in cells]


_GAP = 2
_MIN_TEXT = 20
_KEYS_SHOWN = 3


class Row(msgspec.Struct, frozen=True):
    """A row of the help: keys, slash command, and explanation."""

    keys: str
    slash: str
    text: str

    def has(self, word: str) -> bool:
        return any(word in part.lower() for part in (self.keys, self.slash, self.text))

    def lines(self, keys: int, slash: int, width: int) -> Lines:
        """Return the row's lines, with the explanation wrapped. `keys`, `slash`: the widths of the first two
        columns."""
        columns = Content.styled(self.keys.ljust(keys + _GAP), "bold")
        if slash:
            columns = Content.assemble(columns, (self.slash.ljust(slash + _GAP), "$muted"))
        indent = len(columns)
        first, *rest = wrapped(Content(self.text), max(_MIN_TEXT, width - indent))
        return [Line.of(Content.assemble(columns, first.content)), *(line.after(" " * indent) for line in rest)]


class HelpBlock(Block):
    """The help about one scope (a screen, a widget or the app): a heading, and a row for each of its actions."""

    margin = 1

    def __init__(self, title: str, rows: Sequence[Row], keys: int) -> None:
        """`keys`: the width of the column with the keys."""
        super().__init__()
        self._title, self._rows, self._keys = title, rows, keys

    def lay_out(self, width: int) -> Lines:
        slash = max(len(row.slash) for row in self._rows)
        rows = (line for row in self._rows for line in row.lines(self._keys, slash, width))
        return [one(self._title, "bold $text-accent"), *rows]


class HelpScreen(ModalScreen[None]):
    """The help, shown over another screen. `scope`: that screen's scope in the table of actions. `first`: the scope of
    that screen's focused widget, which the help shows first."""

    AUTO_FOCUS = ""
    CSS_PATH = "help.tcss"
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
            yield LineInput(placeholder="Filter", compact=True)
            yield DocumentView(has_edge=False, id="text")
        yield FooterBar()

    def on_mount(self) -> None:
        self.query_one("#hint", Static).update(hint(self.app, "help_screen.filter", "help_screen.close"))
        self._show()

    def action_close(self) -> None:
        """Leave the filter, or close the help."""
        word = self.query_one(LineInput)
        if not word.display:
            self.dismiss()
            return
        word.value = ""
        word.display = False
        self.set_focus(None)

    def action_filter(self) -> None:
        """Focus the filter."""
        word = self.query_one(LineInput)
        word.display = True
        word.focus()

    def action_scroll(self, where: str) -> None:
        getattr(self.query_one("#text"), f"scroll_{where}")(animate=False)

    @on(LineInput.Changed)
    def _show(self) -> None:
        word = self.query_one(LineInput).value.strip().lower()
        sections = [(scope.title, [row for row in self._rows(scope) if row.has(word)]) for scope in self._scopes()]
        sections = [(title, rows) for title, rows in sections if rows]
        keys = max((len(row.keys) for _, rows in sections for row in rows), default=0)
        nothing = TextBlock(Content.styled(f"No key or command with “{word}”.", "$muted"))
        blocks: list[Block] = [HelpBlock(title, rows, keys) for title, rows in sections]
        self.query_one("#text", DocumentView).show(*(blocks or [nothing]))

    def _scopes(self) -> Iterator[Scope]:
        """Yield the scopes of the screen below and its widgets, then the app's, then all others."""
        own = [scope for scope in SCOPES.values() if self._scope and self._scope in (scope.name, scope.within)]
        yield from sorted(own, key=lambda scope: scope.name != self._first)
        yield SCOPES["app"]
        yield from (scope for scope in SCOPES.values() if scope not in own and scope.name != "app")

    def _rows(self, scope: Scope) -> Iterator[Row]:
        for action in scope.actions:
            keys, slash = shown_keys(self.app, action, _KEYS_SHOWN), action.usage
            if keys or slash:
                yield Row(keys, slash, action.help)
        for fixed in scope.fixed:
            yield Row(fixed.keys, "", fixed.help)
