"""A question with two answers."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static


class ConfirmScreen(ModalScreen[bool]):
    """The answer is whether `yes` was chosen; Escape says no."""

    DEFAULT_CSS = """
    ConfirmScreen {
        align: center middle;
        & > Vertical {
            width: 60;
            max-width: 92%;
            height: auto;
            padding: 1 2;
            background: $surface;
            border: round $primary;
        }
        & Static { height: auto; text-style: bold; }
        & OptionList, & OptionList:focus {
            height: auto;
            margin-top: 1;
            border: none;
            padding: 0;
            background: $surface;
        }
    }
    """
    BINDINGS = [Binding("escape", "refuse", "No", id="confirm.no", tooltip="Change nothing.")]

    def __init__(self, question: str, *, yes: str, no: str = "No") -> None:
        super().__init__()
        self._question = question
        self._labels = (yes, no)

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self._question, markup=False)
            yield OptionList(*self._labels, markup=False)

    def on_mount(self) -> None:
        answers = self.query_one(OptionList)
        answers.highlighted = 0
        answers.focus()

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_index == 0)

    def action_refuse(self) -> None:
        self.dismiss(False)
