"""The question before a load: what to do if a model cannot run or does not fit, and whether its code may run."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from vlmtui.session.models import LoadCheck, LoadOption
from vlmtui.ui.actions import bindings
from vlmtui.ui.widgets.dialog_panel import DialogPanel


class BeforeLoadScreen(ModalScreen[LoadOption | None]):
    """Shows a load check. Returns the chosen option; None: load nothing."""

    DEFAULT_CSS = """
    BeforeLoadScreen {
        align: center middle;
        & #model { color: $text-muted; margin-bottom: 1; }
    }
    """
    SCOPE = "before_load"
    BINDINGS = bindings(SCOPE)

    def __init__(self, model_name: str, check: LoadCheck) -> None:
        super().__init__()
        self.model_name = model_name
        self.check = check

    def compose(self) -> ComposeResult:
        with DialogPanel():
            yield Static(self.check.title, id="title", markup=False)
            yield Static(self.model_name, id="model", markup=False)
            yield Static(self.check.text, id="text", markup=False)
            yield OptionList(*(Option(option.label) for option in self.check.options), id="options", markup=False)

    def on_mount(self) -> None:
        options = self.query_one("#options", OptionList)
        options.highlighted = 0
        options.focus()

    @on(OptionList.OptionSelected)
    def _taken(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self.check.options[event.option_index])

    def action_back(self) -> None:
        self.dismiss(None)
