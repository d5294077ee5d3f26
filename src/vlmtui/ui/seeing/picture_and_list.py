"""What the screens of this feature are made of: a picture, a list beside it, lines above and below."""

from __future__ import annotations

from typing import NamedTuple

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.screen import Screen
from textual.widgets import OptionList, Static

from vlmtui.ui.terminal.graphics import Graphics
from vlmtui.ui.widgets.clicks import is_click
from vlmtui.ui.widgets.footer_bar import FooterBar
from vlmtui.ui.widgets.marked_picture import MarkedDrawing


class ClickedPlace(NamedTuple):
    """A place of the picture, in its pixels."""

    x: float
    y: float
    cell: float
    """The longer side of a cell of the terminal."""


def picture_and_list() -> ComposeResult:
    """Yield the widgets: `#title`, `#count`, `#convention` above; `#stage` with `#reason`; `#marks` with `#span`."""
    with Horizontal(id="top"):
        yield Static(id="title", markup=False)
        yield Static(id="count", markup=False)
    yield Static(id="convention", markup=False)
    with Horizontal(id="body"):
        with Vertical(id="stage"):
            yield Static(id="reason", markup=False)
        with Vertical(id="side"):
            yield OptionList(id="marks", markup=False, compact=True)
            yield Static(id="span", markup=False)
    yield FooterBar()


async def show_drawing(screen: Screen[None], drawing: MarkedDrawing) -> bool:
    """Show a drawing in the place of the one before; False if pictures are off."""
    stage, picture = screen.query_one("#stage"), drawing.widget(Graphics.of(screen.app))
    if picture is None:
        return False
    picture.add_class("picture")
    with screen.app.batch_update():
        await stage.query(".picture").remove()
        await stage.mount(picture)
    return True


def clicked_place(screen: Screen[None], event: events.Click, size: tuple[int, int]) -> ClickedPlace | None:
    """Return the place of the picture, which is `size` pixels large, in the middle of the cell that was clicked; None
    if the click was elsewhere."""
    for picture in screen.query("#stage > .picture"):
        if picture.content_region.contains_point(event.screen_offset) and is_click(screen, event):
            within, room = event.screen_offset - picture.content_region.offset, picture.content_size
            across, down = size[0] / room.width, size[1] / room.height
            return ClickedPlace((within.x + 0.5) * across, (within.y + 0.5) * down, max(across, down))
    return None
