"""The base class of the screens about images that a model saw: an image with marks, and a list beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, TypeVar

import msgspec
from textual import events, on, work
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import Screen
from textual.widgets import OptionList, Static

from vlmtui.errors import VlmtuiError
from vlmtui.files import write_numbered
from vlmtui.inspection.grounding import PlacedMark
from vlmtui.media.images import as_png
from vlmtui.session.answer_places import Badge
from vlmtui.text import one_line
from vlmtui.ui.keys import error_text
from vlmtui.ui.terminal.graphics import Graphics
from vlmtui.ui.widgets.clicks import is_click, one_frame
from vlmtui.ui.widgets.footer_bar import FooterBar
from vlmtui.ui.widgets.thumbnails import MarkedDrawing, draw_marked

if TYPE_CHECKING:
    from PIL.Image import Image

_O = TypeVar("_O")


class Sight(NamedTuple):
    """An RGB image, the marks to draw on it, and a line of text about it."""

    image: Image
    marks: Sequence[PlacedMark] = ()
    chosen: int | None = None
    """The index of the mark to draw last and with a thicker line."""
    badges: Sequence[Badge] | None = None
    """A number and colour for each mark; None: numbers from 1."""
    said: str = ""


class SeeingScreen(Screen[None], Generic[_O]):
    """Opens an object of type `_O`, such as an image, in a thread. Then draws it in a thread, whenever the highlighted
    line or the terminal's size changes."""

    CSS_PATH = "seeing.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]

    def __init__(self) -> None:
        super().__init__()
        self.opened: _O | None = None
        self.shown: object = None
        """The state (key of `sight`, size) that is drawn on the screen; None while nothing is drawn."""
        self._pixels = (1, 1)
        """Width and height in pixels of the image that is drawn on the screen."""

    def sight(self) -> tuple[object, Callable[[], Sight]]:
        """Return a key, and a function that returns what to draw. The key must differ whenever the drawing differs. The
        function is called in a thread, and may raise VlmtuiError."""
        raise NotImplementedError

    def list_opened(self) -> None:
        """Fill the list, and the texts around the image. Called when `opened` is set."""

    def chosen_changed(self) -> None:
        """Called when another line of the list is highlighted, before the image is drawn again."""

    def clicked(self, x: float, y: float, reach: float) -> None:
        """Called for a click on the image. `x`, `y`: the place in the image's pixels; `reach`: the longer side of a
        terminal cell, in these pixels."""

    def compose(self) -> ComposeResult:
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

    def on_mount(self) -> None:
        self.set_class(Graphics.of(self.app).mode == "off", "-off")
        self.listed.focus()

    @property
    def listed(self) -> OptionList:
        return self.query_one(OptionList)

    def say(self, where: Literal["title", "count", "convention", "span"], text: str | Content) -> None:
        self.query_one(f"#{where}", Static).update(text)

    def open(self, opening: Callable[[], _O]) -> None:
        """Call `opening` in a thread, where it may block and raise VlmtuiError, and draw its result."""
        self.opened, self.shown = None, None
        self._open(opening)

    def redraw(self) -> None:
        """Draw `sight()` unless it is on the screen already."""
        if not self.query("#stage") or self.opened is None:  # the screen may be leaving, with its widgets gone
            return
        wanted = self._wanted
        if wanted != self.shown and all(self._room):
            self._draw(wanted, self.sight()[1], self._room)

    def tell_error(self, error: VlmtuiError) -> None:
        self.notify(error_text(self.app, error), severity="error", markup=False)

    def action_close(self) -> None:
        self.dismiss()

    def action_list(self) -> None:
        self.toggle_class("-alone")
        self.call_after_refresh(self.redraw)

    @property
    def _room(self) -> tuple[int, int]:
        width, height = self.query_one("#stage").content_size
        return width, height

    @property
    def _wanted(self) -> object:
        return None if self.opened is None else (self.sight()[0], self._room)

    @on(events.Resize)
    def _resized(self) -> None:
        self.call_after_refresh(self.redraw)

    @on(OptionList.OptionHighlighted)
    def _highlighted(self) -> None:
        self.chosen_changed()
        self.redraw()

    def on_click(self, event: events.Click) -> None:
        for picture in self.query("#stage > .picture"):
            if picture.content_region.contains_point(event.screen_offset) and is_click(self, event):
                within, room = event.screen_offset - picture.content_region.offset, picture.content_size
                across, down = self._pixels[0] / room.width, self._pixels[1] / room.height
                self.clicked((within.x + 0.5) * across, (within.y + 0.5) * down, max(across, down))

    async def _show_error(self, error: VlmtuiError) -> None:
        """Show an error instead of the image."""
        await self.query("#stage > .picture").remove()
        reason = self.query_one("#reason", Static)
        reason.update(error_text(self.app, error))
        reason.display = True

    @work(group="open", exclusive=True)
    async def _open(self, opening: Callable[[], _O]) -> None:
        try:
            self.opened = await asyncio.to_thread(opening)
        except VlmtuiError as error:
            await self._show_error(error)
            return
        self.list_opened()
        self.redraw()

    @work(group="draw", exclusive=True)
    async def _draw(self, wanted: object, make: Callable[[], Sight], room: tuple[int, int]) -> None:
        graphics = Graphics.of(self.app)

        def drawn() -> tuple[Sight, MarkedDrawing]:
            sight = make()
            return sight, draw_marked(sight.image, sight.marks, sight.chosen, graphics, room, sight.badges)

        try:
            sight, drawing = await asyncio.to_thread(drawn)
        except VlmtuiError as error:
            self.shown = wanted
            self.say("span", "")
            await self._show_error(error)
            return
        if wanted != self._wanted:
            return
        self.shown = wanted
        self._pixels = sight.image.size
        if sight.said:
            self.say("span", sight.said)
        picture = drawing.widget(graphics)
        if picture is not None:
            picture.add_class("picture")
            stage = self.query_one("#stage")
            with one_frame(self):
                self.query_one("#reason").display = False
                await stage.query(".picture").remove()
                await stage.mount(picture)

    @work(thread=True, group="export")
    def export(self, folder: Path, name: str, picture: Callable[[], Image], numbers: Callable[[], object]) -> None:
        """Write an image (`vlmtui-NAME.png`) and its data (`vlmtui-NAME.json`) into a folder, and notify the user.
        `picture` returns the image and `numbers` the data; both are called in a thread."""
        data = msgspec.json.format(msgspec.json.encode(numbers()), indent=2) + b"\n"
        try:
            written = write_numbered(folder, f"vlmtui-{name}.png", as_png(picture()))
            also = write_numbered(folder, f"vlmtui-{name}.json", data)
        except VlmtuiError as error:
            self.tell_error(error)
        else:
            self.notify(f"Saved {one_line(str(written))} and {one_line(str(also))}", markup=False)
