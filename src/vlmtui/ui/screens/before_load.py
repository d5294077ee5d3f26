"""A question before a load: why a model cannot run, whether its code may, what to do where it does not fit."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from vlmtui.ui.controllers.obstacles import Obstacle, Way


class BeforeLoadScreen(ModalScreen[Way | None]):
    """Shows the obstacle and its ways; the answer is the way taken, None for none of them."""

    DEFAULT_CSS = """
    BeforeLoadScreen {
        align: center middle;
        & > Vertical {
            width: 76;
            max-width: 92%;
            height: auto;
            max-height: 90%;
            padding: 1 2;
            background: $surface;
            border: round $primary;
        }
        & Static { height: auto; }
        & #title { text-style: bold; }
        & #model { color: $text-muted; margin-bottom: 1; }
        & OptionList, & OptionList:focus {
            height: auto;
            margin-top: 1;
            border: none;
            padding: 0;
            background: $surface;
        }
    }
    """
    BINDINGS = [Binding("escape", "back", "Back", id="before_load.back", tooltip="Load nothing.")]

    def __init__(self, model_name: str, obstacle: Obstacle) -> None:
        super().__init__()
        self.model_name = model_name
        self.obstacle = obstacle

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self.obstacle.title, id="title", markup=False)
            yield Static(self.model_name, id="model", markup=False)
            yield Static(self.obstacle.text, id="text", markup=False)
            yield OptionList(*(Option(way.label) for way in self.obstacle.ways), id="ways", markup=False)

    def on_mount(self) -> None:
        ways = self.query_one("#ways", OptionList)
        ways.highlighted = 0
        ways.focus()

    @on(OptionList.OptionSelected)
    def _taken(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self.obstacle.ways[event.option_index])

    def action_back(self) -> None:
        """Load nothing."""
        self.dismiss(None)
