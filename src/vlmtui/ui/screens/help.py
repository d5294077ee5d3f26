"""Every key and command, from the action table."""

from __future__ import annotations

from collections.abc import Iterator

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Footer, Static

from vlmtui.ui.actions import ACTIONS, Action
from vlmtui.ui.keys import shown_key

_KEYS, _SLASH = 10, 14

_COMPOSER: tuple[tuple[str, str], ...] = (
    ("enter", "Send the message."),
    ("shift+enter, ctrl+j", "Break the line."),
    ("up, down", "Earlier and later messages, from an empty line."),
    ("paste or drop a path", "Attach that image or video."),
)


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
            yield Static(self._text(), id="text", markup=False)
        yield Footer(show_command_palette=False)

    def action_close(self) -> None:
        """Back to the screen below."""
        self.dismiss()

    def action_scroll(self, where: str) -> None:
        """Scroll the sheet."""
        getattr(self.query_one("#sheet"), f"scroll_{where}")(animate=False)

    def _text(self) -> Content:
        chat = [action for action in ACTIONS if action.where == "chat"]
        anywhere = [action for action in ACTIONS if action.where == "app"]
        lines = [
            _heading("In a chat"),
            *self._lines(chat),
            Content(""),
            _heading("Writing a message"),
            *(_row(keys.ljust(_KEYS + _SLASH), "", text) for keys, text in _COMPOSER),
            Content(""),
            _heading("Everywhere"),
            *self._lines(anywhere),
        ]
        return Content("\n").join(lines)

    def _lines(self, actions: list[Action]) -> Iterator[Content]:
        for action in actions:
            slash = f"{action.slash} {action.argument}".strip()
            yield _row(shown_key(self.app, action).ljust(_KEYS), slash.ljust(_SLASH), action.help)


def _heading(text: str) -> Content:
    return Content.styled(text, "bold $text-accent")


def _row(keys: str, slash: str, text: str) -> Content:
    return Content.assemble((keys, "bold"), (slash, "$muted"), text)
