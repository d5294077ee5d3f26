"""Small questions over a screen: one of several things, or a name."""

from __future__ import annotations

from collections.abc import Sequence

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static

_CSS = """
    align: center middle;
    background: $background 60%;
    & > Vertical {
        width: 72;
        max-width: 92%;
        height: auto;
        max-height: 80%;
        padding: 1 2;
        background: $surface;
        border: round $primary;
    }
    & .title { height: auto; text-style: bold; }
    & .hint { height: auto; margin-top: 1; color: $muted; }
    & OptionList, & OptionList:focus {
        height: auto;
        max-height: 20;
        margin-top: 1;
        border: none;
        padding: 0;
        background: $surface;
    }
    & Input, & Input:focus { height: 1; margin-top: 1; border: none; padding: 0 1; background: $panel; }
"""


class ChoiceScreen(ModalScreen[int | None]):
    """Gives the number of the line that was chosen, from 0; Escape gives None."""

    DEFAULT_CSS = f"ChoiceScreen {{ {_CSS} }}"
    BINDINGS = [Binding("escape", "refuse", "Back", id="choice.back", tooltip="Choose nothing.")]

    def __init__(self, title: str, lines: Sequence[Content]) -> None:
        super().__init__()
        self._title = title
        self._lines = lines

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self._title, classes="title", markup=False)
            yield OptionList(*self._lines, markup=False)

    def on_mount(self) -> None:
        lines = self.query_one(OptionList)
        lines.highlighted = 0
        lines.focus()

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_index)

    def action_refuse(self) -> None:
        """Choose nothing."""
        self.dismiss(None)


class NameInput(Input):
    """One line."""


class NameScreen(ModalScreen[str | None]):
    """Gives what was typed; Escape and an empty line give None."""

    DEFAULT_CSS = f"NameScreen {{ {_CSS} }}"
    BINDINGS = [Binding("escape", "refuse", "Back", id="name.back", tooltip="Change nothing.")]

    def __init__(self, title: str, *, value: str = "", hint: str = "") -> None:
        super().__init__()
        self._title = title
        self._value = value
        self._hint = hint

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self._title, classes="title", markup=False)
            yield NameInput(self._value, compact=True)
            yield Static(self._hint, classes="hint", markup=False)

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    @on(Input.Submitted)
    def _given(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip() or None)

    def action_refuse(self) -> None:
        """Change nothing."""
        self.dismiss(None)
