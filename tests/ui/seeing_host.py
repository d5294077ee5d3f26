"""An app with one of the screens that show what a model saw."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from textual.app import App
from textual.pilot import Pilot

from tests.support.waiting import until
from vlmtui.ui.seeing.seeing_screen import SeeingScreen
from vlmtui.ui.terminal.graphics import Graphics, GraphicsMode
from vlmtui.ui.terminal.themes import DARK, VARIABLES

S = TypeVar("S", bound=SeeingScreen[Any])


class Host(App[None], Generic[S]):
    """Opens the screen `seen`."""

    def __init__(self, seen: S, mode: GraphicsMode = "halfcell") -> None:
        super().__init__()
        self.graphics = Graphics(mode)
        self.seen = seen

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return dict(VARIABLES)

    def on_mount(self) -> None:
        self.register_theme(DARK)
        self.theme = DARK.name
        self.push_screen(self.seen)

    @property
    def is_closed(self) -> bool:
        return self.screen is not self.seen

    def text(self) -> str:
        return "\n".join(strip.text.rstrip() for strip in self.screen._compositor.render_strips())

    async def drawn(self, pilot: Pilot[None], said: str = "") -> None:
        """Wait until the screen shows its picture, and the text."""
        seen = self.seen
        await until(pilot, lambda: self.screen is seen and seen.is_current)
        await until(pilot, lambda: seen.shown is not None and seen.shown == seen._wanted)
        await pilot.pause()
        await until(pilot, lambda: said in self.text())
