"""A program that shows one image among lines of text, through the app's driver. Keys: j and k scroll, c covers a part
of the image, r removes it, q quits."""

from __future__ import annotations

import sys
from typing import Any, cast

from PIL import Image, ImageDraw
from rich.console import RenderableType
from textual._compositor import CompositorUpdate
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.driver import Driver
from textual.screen import Screen
from textual.widgets import Static

from vlmtui.terminal import TerminalQuestion
from vlmtui.ui.terminal.driver import NonBlockingDriver
from vlmtui.ui.terminal.graphics import Graphics

ABOVE, COLUMNS, ROWS = 4, 16, 8
"""Number of lines above the image, and its size in cells."""


def make_picture() -> Image.Image:
    """Return an image in which all cells differ from each other."""
    image = Image.new("RGB", (COLUMNS * 10, ROWS * 20))
    draw = ImageDraw.Draw(image)
    for y in range(ROWS):
        for x in range(COLUMNS):
            colour = (x * 16, y * 32, (x * 7 + y * 40) % 256)
            draw.rectangle((x * 10, y * 20, x * 10 + 9, y * 20 + 19), fill=colour)
    return image


class PictureApp(App[None]):
    CSS = """
    Screen { layers: below above; }
    VerticalScroll { scrollbar-size: 0 0; layer: below; }
    #cover { layer: above; offset: 3 5; width: 4; height: 2; }
    """
    BINDINGS = [("j", "move(1)"), ("k", "move(-1)"), ("c", "cover"), ("r", "remove"), ("q", "quit")]

    def __init__(self, answers_within_s: float) -> None:
        super().__init__()
        self.graphics = Graphics.detect("auto", TerminalQuestion(within_s=answers_within_s).ask())

    def get_driver_class(self) -> type[Driver]:
        return NonBlockingDriver

    def compose(self) -> ComposeResult:
        picture = self.graphics.widget_for(make_picture(), columns=COLUMNS, rows=ROWS)
        assert picture is not None
        picture.add_class("picture")
        with VerticalScroll():
            yield Static("\n".join(f"above {number}" for number in range(ABOVE)))
            yield picture
            yield Static("\n".join(f"below {number}" for number in range(60)))

    def action_move(self, lines: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=lines, animate=False, immediate=True)

    async def action_cover(self) -> None:
        await self.screen.mount(Static("OVER\nOVER", id="cover"))

    async def action_remove(self) -> None:
        await self.query("#cover, .picture").remove()

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        update = cast(object, renderable)
        shows = getattr(self._driver, "show", None)
        if shows is None or not isinstance(update, CompositorUpdate) or not self._running or not shows(screen, update):
            super()._display(screen, renderable)


if __name__ == "__main__":
    PictureApp(float(sys.argv[1])).run()
