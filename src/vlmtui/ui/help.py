"""Where a user finds an action: the help with every key and command, the strip of keys that work after the leader key
(Ctrl+X), and the command palette."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import msgspec
from textual import events, on
from textual.actions import parse
from textual.app import App, ComposeResult
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen, Screen, SystemModalScreen
from textual.widgets import Static

from vlmtui.ui.actions import SCOPES, SUBMENUS, Action, Scope, bindings, method_of
from vlmtui.ui.document.blocks import TextBlock
from vlmtui.ui.document.document import Block
from vlmtui.ui.document.lines import Line, Lines, one, wrapped
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.keys import LEADER, LeaderEntry, hint, key_bindings, key_of, leader_entries, shown_keys, spell_key
from vlmtui.ui.terminal.themes import DARK, LIGHT
from vlmtui.ui.widgets.footer_bar import FooterBar
from vlmtui.ui.widgets.line_editing import LineInput

if TYPE_CHECKING:
    from vlmtui.ui.app import VlmtuiApp

_COLUMN_GAP = 2


class LeaderScreen(ModalScreen[LeaderEntry | None]):
    """The strip of keys that work after the leader key, below the screen that the user looks at. A key of `SUBMENUS`
    shows the keys that follow it. Returns the entry of the pressed keys, or None for Escape. For any other key it shows
    a note."""

    AUTO_FOCUS = ""
    DEFAULT_CSS = """
    LeaderScreen {
        align: left bottom;
        background: $background 0%;
        & > #strip {
            width: 100%;
            height: auto;
            max-height: 100%;
            padding: 0 1;
            background: $panel;
            border-top: solid $accent;
            border-title-color: $accent;
        }
    }
    """
    SCOPE = "leader_screen"
    BINDINGS = bindings(SCOPE)

    def __init__(self, entries: Mapping[str, LeaderEntry]) -> None:
        super().__init__()
        self._entries = entries
        self._pressed = ""
        """The key of a submenu, with a blank; empty on the first level."""

    def compose(self) -> ComposeResult:
        yield Static(id="strip", markup=False)

    @on(events.Resize)
    def _show(self) -> None:
        strip = self.query_one("#strip", Static)
        strip.update(Content("\n").join(_columns(self._choices(), strip.content_size.width or self.app.size.width)))
        keys = self._pressed.strip()
        title = f"{key_of(self.app, LEADER)} {spell_key(keys)} {SUBMENUS[keys]}" if keys else key_of(self.app, LEADER)
        self._title(Content(f"{title} · {hint(self.app, 'leader_screen.close')}"))

    def _title(self, title: Content) -> None:
        self.query_one("#strip", Static).border_title = title

    async def on_key(self, event: events.Key) -> None:
        bound = key_bindings(self.app)
        if event.key in (*bound.of("leader_screen.close"), *bound.of("interrupt")):
            return
        event.stop()
        event.prevent_default()
        keys = self._pressed + event.key
        if keys in self._entries:
            self.dismiss(self._entries[keys])
        elif any(path.startswith(f"{keys} ") for path in self._entries):
            self._pressed = f"{keys} "
            self._show()
        else:
            self._title(Content.styled(f"{_named(event)} does nothing here.", "$text-warning"))

    def action_close(self) -> None:
        self.dismiss(None)

    def _choices(self) -> list[Content]:
        """Return each key that works next, with its title."""
        titles: dict[str, tuple[str, bool]] = {}
        for path, entry in self._entries.items():
            key, _, more = path.removeprefix(self._pressed).partition(" ")
            if path.startswith(self._pressed):
                titles[key] = (f"{SUBMENUS[key]}…", False) if more else (entry.action.title, bool(entry.lacking))
        return [
            Content.assemble((spell_key(key), "bold $accent"), " ", (title, "dim" if is_dim else ""))
            for key, (title, is_dim) in titles.items()
        ]


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


def _named(event: events.Key) -> str:
    """Return a key as written in a sentence; if it is no ASCII character, with its code point."""
    character = event.character or ""
    is_plain = len(character) != 1 or character.isascii()
    return spell_key(event.key) if is_plain else f"{character} (U+{ord(character):04X})"


def _columns(cells: Sequence[Content], width: int) -> list[Content]:
    """Return cells in rows with aligned columns, as many as fit into `width`."""
    for count in range(len(cells), 0, -1):
        widths = [max(cell.cell_length for cell in cells[at::count]) for at in range(count)]
        if count == 1 or sum(widths) + _COLUMN_GAP * (count - 1) <= width:
            break
    else:
        return []
    gap = " " * _COLUMN_GAP
    padded = [cell.pad_right(widths[at % count] - cell.cell_length) for at, cell in enumerate(cells)]
    return [Content(gap).join(padded[at : at + count]) for at in range(0, len(cells), count)]


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

    def __init__(self, title: str, rows: Sequence[Row]) -> None:
        super().__init__()
        self._title, self._rows = title, rows

    def lay_out(self, width: int) -> Lines:
        keys, slash = max(len(row.keys) for row in self._rows), max(len(row.slash) for row in self._rows)
        rows = (line for row in self._rows for line in row.lines(keys, slash, width))
        return [one(self._title, "bold $text-accent"), *rows]


class HelpScreen(ModalScreen[None]):
    """The help, shown over another screen. `scope`: that screen's scope in the table of actions. `first`: the scope of
    that screen's focused widget, which the help shows first."""

    AUTO_FOCUS = ""
    CSS_PATH = "help.tcss"
    SCOPE = "help_screen"
    BINDINGS = bindings(SCOPE)
    not_in_footer = frozenset({"help"})

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
        nothing = TextBlock(Content.styled(f"No key or command with “{word}”.", "$muted"))
        blocks: list[Block] = [HelpBlock(title, rows) for title, rows in sections]
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


_KEYS_ONLY = ("leader", "interrupt", "command_palette")
"""Actions of the app that make sense only as keys."""


def available_actions(screen: Screen[Any]) -> Iterator[Action]:
    """Yield the actions that a screen offers now, then the app's."""
    scope = SCOPES.get(getattr(screen, "SCOPE", ""))
    for action in scope.actions if scope else ():
        _, name, parameters = parse(action.command)
        check = ("run", (action.id,)) if scope and scope.by_id else (name, parameters)
        if not action.moves and method_of(screen, name) is not None and screen.check_action(*check):
            yield action
    for action in SCOPES["app"].actions:
        if action.id not in _KEYS_ONLY:
            yield action


class ActionCommands(Provider):
    """Textual's provider of the palette: every available action with its key, then the themes."""

    async def discover(self) -> Hits:
        for command in self._commands():
            yield command

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for command in self._commands():
            score = matcher.match(f"{command.display} {command.help}")
            if score > 0:
                yield Hit(
                    score,
                    matcher.highlight(f"{command.display}"),
                    command.command,
                    text=command.text,
                    help=command.help,
                )

    def _commands(self) -> Iterator[DiscoveryHit]:
        app = cast("VlmtuiApp", self.app)
        for action in available_actions(self.screen):
            key = shown_keys(self.app, action)
            help = f"{action.help}  ({key})" if key else action.help
            yield DiscoveryHit(action.title, partial(app.run_action_id, action.id), help=help)
        for theme, title in ((DARK, "Dark theme"), (LIGHT, "Light theme")):
            yield DiscoveryHit(title, partial(setattr, app, "theme", theme.name), help="Switch the colour theme.")
