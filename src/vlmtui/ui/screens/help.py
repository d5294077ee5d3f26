"""Every key and command, from the action table."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import msgspec
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from vlmtui.ui.actions import ACTIONS, Where
from vlmtui.ui.keys import shown_key
from vlmtui.ui.widgets.key_bar import KeyBar

_GAP = 2
_MIN_TEXT = 20
_WIDTH = 73

_COMPOSER: tuple[tuple[str, str], ...] = (
    ("enter", "Send the message."),
    ("^j", "Break the line; so does Shift+Enter where the terminal tells it apart."),
    ("↑ ↓", "Earlier and later messages, from the first and the last line."),
    ("paste", "A path that is pasted or dropped is attached."),
)


class Row(msgspec.Struct, frozen=True):
    """A line of the help: a heading, or keys, a slash command and what they do. All empty: a blank line."""

    keys: str = ""
    slash: str = ""
    text: str = ""
    heading: str = ""

    def lines(self, keys: int, slash: int, width: int) -> list[Content]:
        """The row in columns of those widths; the text wrapped in its own."""
        if self.heading:
            return [Content.styled(self.heading, "bold $text-accent")]
        indent = keys + slash + 2 * _GAP
        first, *rest = textwrap.wrap(self.text, max(_MIN_TEXT, width - indent), break_on_hyphens=False) or [""]
        columns = (self.keys.ljust(keys + _GAP), "bold"), (self.slash.ljust(slash + _GAP), "$muted")
        return [Content.assemble(*columns, first), *(Content(" " * indent + more) for more in rest)]


class HelpScreen(ModalScreen[None]):
    """A sheet over the screen; scrolls where it does not fit."""

    CSS_PATH = "help.tcss"
    BINDINGS = [
        Binding("escape,f1,q", "close", "Close", id="help.close", tooltip="Close the help."),
        Binding("up,k", "scroll('up')", show=False, id="help.up", tooltip="Scroll up."),
        Binding("down,j", "scroll('down')", show=False, id="help.down", tooltip="Scroll down."),
        Binding("pageup", "scroll('page_up')", show=False, id="help.page_up", tooltip="A page up."),
        Binding("pagedown,space", "scroll('page_down')", show=False, id="help.page_down", tooltip="A page down."),
        Binding("home", "scroll('home')", show=False, id="help.home", tooltip="To the top."),
        Binding("end", "scroll('end')", show=False, id="help.end", tooltip="To the end."),
    ]

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="sheet", can_focus=False):
            with Horizontal(id="head"):
                yield Static("Keys and commands", id="title")
                yield Static("esc closes", id="close")
            yield Static(id="text", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self._show(_WIDTH)

    @on(events.Resize)
    def _resized(self) -> None:
        self._show(self.query_one("#text").content_size.width or _WIDTH)

    def action_close(self) -> None:
        """Back to the screen below."""
        self.dismiss()

    def action_scroll(self, where: str) -> None:
        """Scroll the sheet."""
        getattr(self.query_one("#sheet"), f"scroll_{where}")(animate=False)

    def _show(self, width: int) -> None:
        rows = [*self._rows()]
        keys = max(len(row.keys) for row in rows)
        slash = max(len(row.slash) for row in rows)
        lines = [line for row in rows for line in row.lines(keys, slash, width)]
        self.query_one("#text", Static).update(Content("\n").join(lines))

    def _rows(self) -> Iterator[Row]:
        yield Row(heading="In a chat")
        yield from self._actions("chat")
        yield Row()
        yield Row(heading="Writing a message")
        yield from (Row(keys=keys, text=text) for keys, text in _COMPOSER)
        yield Row()
        yield Row(heading="Everywhere")
        yield from self._actions("app")

    def _actions(self, where: Where) -> Iterator[Row]:
        for action in ACTIONS:
            if action.where == where:
                slash = f"{action.slash} {action.argument}".strip()
                yield Row(keys=shown_key(self.app, action), slash=slash, text=action.help)
