"""A yes-or-no question."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static

from vlmtui.ui.actions import bindings
from vlmtui.ui.widgets.dialog_panel import DialogPanel


class ConfirmScreen(ModalScreen[bool]):
    """Returns whether `yes` was chosen; Escape means no."""

    DEFAULT_CSS = """
    ConfirmScreen {
        align: center middle;
        & > DialogPanel { width: 60; }
        & Static { text-style: bold; }
    }
    """
    SCOPE = "confirm"
    BINDINGS = bindings(SCOPE)

    def __init__(self, question: str, *, yes: str, no: str = "No", careful: bool = False) -> None:
        """`careful`: `no` is first, so that Enter alone does no harm."""
        super().__init__()
        self._question = question
        self._labels = (no, yes) if careful else (yes, no)
        self._yes_index = 1 if careful else 0

    def compose(self) -> ComposeResult:
        with DialogPanel():
            yield Static(self._question, markup=False)
            yield OptionList(*self._labels, markup=False)

    def on_mount(self) -> None:
        answers = self.query_one(OptionList)
        answers.highlighted = 0
        answers.focus()

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_index == self._yes_index)

    def action_refuse(self) -> None:
        self.dismiss(False)
