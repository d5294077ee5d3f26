"""Two small dialogs: choose a line, or type a name."""

from __future__ import annotations

from collections.abc import Sequence

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static

from vlmtui.ui.actions import bindings
from vlmtui.ui.keys import with_keys
from vlmtui.ui.widgets.line_editing import LineInput

_CSS = """
    align: center middle;
    background: $background 60%;
    & .title { text-style: bold; }
    & .hint { margin-top: 1; color: $muted; }
    & OptionList { max-height: 20; }
    & Input, & Input:focus { height: 1; margin-top: 1; border: none; padding: 0 1; background: $panel; }
"""


class DialogPanel(Vertical):
    """The centred box of a dialog, as high as its content."""

    DEFAULT_CSS = """
    DialogPanel {
        width: 76;
        max-width: 92%;
        height: auto;
        max-height: 90%;
        padding: 1 2;
        background: $surface;
        border: round $primary;
        & Static { height: auto; }
        & OptionList, & OptionList:focus {
            height: auto;
            margin-top: 1;
            border: none;
            padding: 0;
            background: $surface;
        }
    }
    """


class ChoiceScreen(ModalScreen[int | None]):
    """A dialog that returns the index of the chosen line; None for Escape."""

    DEFAULT_CSS = f"ChoiceScreen {{ {_CSS} }}"
    SCOPE = "choice"
    BINDINGS = bindings(SCOPE)

    def __init__(self, title: str, lines: Sequence[str | Content], *, text: str = "") -> None:
        """`text`: shown below the title."""
        super().__init__()
        self._title = title
        self._lines = lines
        self._text = text

    def compose(self) -> ComposeResult:
        with DialogPanel():
            yield Static(self._title, classes="title", markup=False)
            if self._text:
                yield Static(self._text, classes="text", markup=False)
            yield OptionList(*self._lines, markup=False)

    def on_mount(self) -> None:
        lines = self.query_one(OptionList)
        lines.highlighted = 0
        lines.focus()

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_index)

    def action_refuse(self) -> None:
        self.dismiss(None)


class NameScreen(ModalScreen[str | None]):
    """A dialog that returns the typed text; None for Escape or an empty line. `hint`: a text in which `{id}` stands for
    the key of an action."""

    DEFAULT_CSS = f"NameScreen {{ {_CSS} }}"
    SCOPE = "name"
    BINDINGS = bindings(SCOPE)

    def __init__(self, title: str, *, value: str = "", hint: str = "") -> None:
        super().__init__()
        self._title = title
        self._value = value
        self._hint = hint

    def compose(self) -> ComposeResult:
        with DialogPanel():
            yield Static(self._title, classes="title", markup=False)
            yield LineInput(self._value, compact=True)
            yield Static(with_keys(self.app, self._hint), classes="hint", markup=False)

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    @on(Input.Submitted)
    def _given(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip() or None)

    def action_refuse(self) -> None:
        self.dismiss(None)
