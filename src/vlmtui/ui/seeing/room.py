"""The image room: one of the conversation's images in one of several modes, beside a list of facts, words or boxes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from textual import events, on, work
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import OptionList, Static
from textual.worker import Worker

from vlmtui.domain.conversation import Attachment, Prompt
from vlmtui.engine.interface import Engine
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.files import write_numbered
from vlmtui.media.images import as_png
from vlmtui.media.thumbnails import Viewport
from vlmtui.registry.schema import Family
from vlmtui.session.prompt_report import PromptReport
from vlmtui.session.seeing import RoomImage, RoomMode
from vlmtui.text import one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.keys import error_text, short_keys, with_keys
from vlmtui.ui.seeing.marks import MarkedDrawing, draw_marked
from vlmtui.ui.seeing.modes import MODES, Exported, ImageMode, ScoringMode
from vlmtui.ui.terminal.graphics import Graphics
from vlmtui.ui.widgets.attachment_view import attachment_details
from vlmtui.ui.widgets.clicks import clickable, is_click, one_frame
from vlmtui.ui.widgets.footer_bar import FooterBar
from vlmtui.ui.widgets.thumbnails import name_line

if TYPE_CHECKING:
    from PIL.Image import Image

_ZOOM_STEP = 1.5
_ZOOM_MAX = 1.5**10
_PAN_STEP = 0.25
"""Share of the visible area."""
SETTLE_S = 0.1
"""Seconds that an image must be shown before it is opened, so that a held key skips it."""
_Text = Literal["title", "place", "modes", "state", "about", "told", "reason"]


class _Stage(Vertical):
    """The place for the image. If its size changes, the room draws the image again."""

    @dataclass
    class Resized(Message):
        """The size changed."""

    def on_resize(self) -> None:
        self.post_message(self.Resized())


class ImageRoom(Screen[None]):
    """Shows one of the conversation's images in one of the modes, which digits choose."""

    CSS_PATH = "room.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]
    SCOPE = "image_room"
    BINDINGS = bindings(SCOPE)

    def __init__(
        self,
        images: Sequence[RoomImage],
        at: int = 0,
        mode: RoomMode = "sent",
        *,
        engine: Callable[[], Engine],
        family: Callable[[PromptReport], Family | None],
        store: Path,
        folder: Path,
        settle_s: float = SETTLE_S,
    ) -> None:
        """`at`: the index of the first image to show. `engine` returns the engine or raises VlmtuiError; `family`
        returns the family of the model that answered. `store`: the folder for images made here; `folder`: the folder
        for exports; `settle_s`: as SETTLE_S."""
        super().__init__()
        self.images = list(images)
        self.engine, self.family, self.store = engine, family, store
        self.view = Viewport(min(max(at, 0), len(self.images) - 1))
        """The image's index, and its visible part."""
        self.patch: tuple[int, int] | None = None
        """Row and column of the chosen patch."""
        self.has_grid = False
        self.shown: object = None
        """The state that is drawn on the screen; None while nothing is drawn."""
        self.measured = ""
        """The number of prompts scored so far; empty while nothing is measured."""
        self._modes: dict[Hashable, ImageMode] = {}
        self._mode: RoomMode = mode
        self._reports: dict[Callable[[], Awaitable[PromptReport]], PromptReport] = {}
        self._base: tuple[object, Image | None] = (None, None)
        """The mode's image, and the key that it was made for."""
        self._drawn: MarkedDrawing | None = None
        self._rows: list[Content] = []
        self._measuring: Worker[None] | None = None
        self._settling: Timer | None = None
        self._folder = folder
        self._settle_s = settle_s

    def compose(self) -> ComposeResult:
        for left, right in (("title", "place"), ("modes", "state")):
            with Horizontal(classes="top"):
                yield Static(id=left, markup=False)
                yield Static(id=right, markup=False)
        yield Static(id="about", markup=False)
        with Horizontal(id="body"):
            with _Stage(id="stage"):
                yield Static(id="reason", markup=False)
            with Vertical(id="side"):
                yield OptionList(id="rows", markup=False, compact=True)
                yield Static(id="told", markup=False)
                yield DocumentView(has_edge=False, can_focus=True, id="facts")
        yield FooterBar()

    def on_mount(self) -> None:
        self.set_class(self.graphics.mode == "off", "-off")
        self._enter()

    # -- what modes use

    @property
    def mode(self) -> ImageMode:
        key = self._mode, self.image.report if self._mode == "boxes" else self.view.at
        if key not in self._modes:
            self._modes[key] = MODES[self._mode](self)
        return self._modes[key]

    @property
    def graphics(self) -> Graphics:
        return Graphics.of(self.app)

    @property
    def image(self) -> RoomImage:
        return self.images[self.view.at]

    @property
    def attachment(self) -> Attachment:
        return self.image.attachment

    @property
    def report(self) -> PromptReport | None:
        """The image's prompt and answer; None if they are not loaded, or it was not sent."""
        return self._reports.get(self.image.report) if self.image.report is not None else None

    def require_report(self) -> PromptReport:
        if self.report is None:
            raise bad_input("This image was not sent yet.", hint="Send the message first.")
        return self.report

    def require_prompt(self) -> Prompt:
        request = self.require_report().request
        if request is None:
            raise bad_input("The prompt of this answer is unknown.", hint="Load the model that answered.")
        return request.prompt

    @property
    def chosen(self) -> int | None:
        """The index of the highlighted row."""
        return self.query_one(OptionList).highlighted

    @chosen.setter
    def chosen(self, row: int | None) -> None:
        self.query_one(OptionList).highlighted = row

    def turn_to(self, attachment: Attachment) -> None:
        """Show another image of the same prompt, in the same mode."""
        at = next((at for at, one in enumerate(self.images) if one.attachment == attachment), self.view.at)
        if attachment != self.attachment and self.images[at].report == self.image.report:
            self.view = Viewport(at)
            self._enter()

    # -- actions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        match action:
            case "turn":
                return len(self.images) > 1
            case "zoom" | "fit" | "pan" | "side":
                return self.graphics.mode != "off"
            case "patch" | "grid":
                return self.mode.has_patches
            case "mode" if parameters[0] == "frame":
                return hasattr(self.mode, "frame") and self.attachment.modality == "video"
            case "mode" | "measure" | "exported":
                return hasattr(self.mode, str(parameters[0]) if parameters else action)
            case _:
                return True

    def action_close(self) -> None:
        """Stop measuring; if nothing is being measured, close."""
        if self._measuring is None:
            self.dismiss()
            return
        self._measuring.cancel()
        self._measuring, self.measured = None, ""
        self._tell()

    def action_show(self, name: RoomMode) -> None:
        if name != self._mode:
            before, self._mode = self.mode.patches(), name
            self._enter(patch=self.patch if self.mode.patches() == before else None)

    async def action_turn(self, step: int) -> None:
        self.view = Viewport((self.view.at + step) % len(self.images))
        await self._clear()
        self._enter(settle_s=self._settle_s)

    def action_mode(self, name: str, *given: int) -> None:
        """Run a key of the mode alone."""
        if self.mode.is_loaded:
            getattr(self.mode, name)(*given)
            self._refresh()

    def action_patch(self, down: int, across: int) -> None:
        """Choose the patch beside the chosen one; the first time, the patch in the middle."""
        if (size := self.mode.patches()) is None:
            self._say("told", "The patches of this image are unknown.")
            return
        row, column = self.patch or (size[0] // 2 - down, size[1] // 2 - across)
        self.patch = min(max(row + down, 0), size[0] - 1), min(max(column + across, 0), size[1] - 1)
        self._refresh()

    def action_grid(self) -> None:
        """Show or hide the grid. Without it, no patch is chosen."""
        self.has_grid, self.patch = not self.has_grid, None
        self._refresh()

    def action_zoom(self, direction: int) -> None:
        """Zoom around the centre; the smallest zoom shows the whole image."""
        zoom = self.view.zoom * _ZOOM_STEP**direction
        self._look(msgspec.structs.replace(self.view, zoom=1.0 if zoom < _ZOOM_STEP**0.5 else min(zoom, _ZOOM_MAX)))

    def action_pan(self, across: int, down: int) -> None:
        """Move within a zoomed image, up to its edges."""
        if (image := self._base[1]) is not None:
            wide, high = self.view.seen(image.size, self._room)
            x, y = self.view.x + across * wide * _PAN_STEP, self.view.y + down * high * _PAN_STEP
            self._look(msgspec.structs.replace(self.view, x=x, y=y))

    def action_fit(self) -> None:
        self._look(Viewport(self.view.at))

    def action_side(self) -> None:
        self.toggle_class("-alone")

    def action_measure(self) -> None:
        mode = self.mode
        if isinstance(mode, ScoringMode) and mode.is_loaded and self._measuring is None:
            mode.found, self.measured = None, "0"
            self._measuring = self._measure(mode)
            self._refresh()

    def action_exported(self) -> None:
        mode = self.mode
        if mode.is_loaded and hasattr(mode, "exported"):
            try:
                self._export(mode.exported())
            except VlmtuiError as error:
                self.tell_error(error)

    def tell_error(self, error: VlmtuiError) -> None:
        self.notify(error_text(self.app, error), severity="error", markup=False)

    # -- events

    @on(OptionList.OptionHighlighted)
    def _highlighted(self, event: OptionList.OptionHighlighted) -> None:
        if self.mode.is_loaded and event.option_index == self.chosen:
            self.mode.row_chosen()
            self._refresh()

    @on(OptionList.OptionSelected)
    def _selected(self) -> None:
        self.action_measure()

    def on_click(self, event: events.Click) -> None:
        """Show the clicked mode; on the image, choose the clicked patch or mark."""
        if (name := event.style.meta.get("mode")) in MODES:
            self.action_show(name)
        for picture in self.query("#stage > .picture"):
            region, image, mode = picture.content_region, self._base[1], self.mode
            if self._drawn is None or image is None or not region.contains_point(event.screen_offset):
                continue
            if not is_click(self, event):
                continue
            within, (left, top, right, bottom) = event.screen_offset - region.offset, self._drawn.box
            across, down = (right - left) / region.width, (bottom - top) / region.height
            x, y = left + (within.x + 0.5) * across, top + (within.y + 0.5) * down
            if (size := mode.patches()) is not None:
                self.patch = int(y / image.height * size[0]), int(x / image.width * size[1])
            elif hasattr(mode, "clicked"):
                mode.clicked(x, y, max(across, down))
            self._refresh()

    # -- drawing

    @property
    def _cells(self) -> tuple[int, int]:
        width, height = self.query_one("#stage").content_size
        return width, height

    @property
    def _room(self) -> tuple[int, int]:
        """Width and height available for the image, in pixels, at least 1."""
        columns, rows = self._cells
        return max(columns, 1) * self.graphics.cell[0], max(rows, 1) * self.graphics.cell[1]

    @property
    def wanted(self) -> object:
        """The state to draw; None while the mode loads."""
        mode = self.mode
        if not mode.is_loaded:
            return None
        return mode.key(), mode.marks_key(), self.view, self.patch, self.has_grid, self.chosen, self._cells

    def _look(self, view: Viewport) -> None:
        if (image := self._base[1]) is not None:
            self.view = view.within(image.size, self._room)
            self._refresh()

    def _enter(self, *, patch: tuple[int, int] | None = None, settle_s: float = 0) -> None:
        """Show the image in the mode, once that is loaded."""
        self.shown, self.patch, self._base = None, patch, (None, None)
        self._refresh()
        self.query_one("#rows" if self.mode.lists else "#facts").focus()
        if not self.query("#stage > .picture"):
            self._say("reason", "Opening …")
        if self._settling is not None:
            self._settling.stop()
        self._settling = self.set_timer(settle_s, self._load) if settle_s else None
        if not settle_s:
            self._load()

    @work(group="load", exclusive=True)
    async def _load(self) -> None:
        mode = self.mode
        source = self.image.report
        try:
            if source is not None and source not in self._reports:
                self._reports[source] = await source()
            if not mode.is_loaded:
                await mode.load()
                mode.is_loaded = True
        except VlmtuiError as error:
            await self._show_error(error)
            return
        self._refresh()
        mode.entered()
        self._refresh()

    async def _clear(self) -> None:
        self._drawn = None
        await self.query("#stage > .picture").remove()

    async def _show_error(self, error: VlmtuiError) -> None:
        """Show an error instead of the image."""
        await self._clear()
        self._say("reason", error_text(self.app, error))
        self.query_one("#reason").add_class("-failed")

    def _refresh(self) -> None:
        """Show the mode's rows and texts as they are now, and draw the image."""
        if not self.query("#facts"):  # the room was closed meanwhile
            return
        before, self._rows = self._rows, self.mode.rows() if self.mode.is_loaded else []
        listed = self.query_one(OptionList)
        if len(before) != len(self._rows):
            listed.clear_options()
            listed.add_options(self._rows)
            listed.highlighted = 0 if self._rows else None
        elif before != self._rows:
            for at, row in enumerate(self._rows):
                listed.replace_option_prompt_at_index(at, row)
        self._tell()
        self._redraw()

    @on(_Stage.Resized)
    def _redraw(self) -> None:
        if self.query("#stage") and self.mode.is_loaded and self.wanted != self.shown:
            self._draw(self.mode)

    @work(group="draw", exclusive=True)
    async def _draw(self, mode: ImageMode) -> None:
        key, cells = mode.key(), self._cells
        try:
            if key != self._base[0]:
                self._base = (key, await asyncio.to_thread(mode.maker()))
        except VlmtuiError as error:
            await self._show_error(error)
            self.shown = self.wanted
            return
        image, drawing = self._base[1], None
        assert image is not None
        self.view = self.view.within(image.size, self._room)
        wanted = self.wanted
        if all(cells) and self.graphics.mode != "off":
            marks = mode.marks(image.size)
            drawing = await asyncio.to_thread(draw_marked, image, marks, self.graphics, cells, self.view)
        picture = drawing.widget(self.graphics) if drawing is not None else None
        with one_frame(self):
            await self._clear()
            if picture is not None:
                picture.add_class("picture")
                await self.query_one("#stage").mount(picture)
            self._say("reason", "")
        self._drawn, self.shown = drawing, wanted

    @work(group="measure", exclusive=True)
    async def _measure(self, mode: ScoringMode) -> None:
        def progressed(done: int) -> None:
            if self._measuring is not None:
                self.measured = f"{done:,}"
                self._tell()

        try:
            await mode.measure(progressed)
        except VlmtuiError as error:
            self.tell_error(error)
        self._measuring, self.measured = None, ""
        self._refresh()

    # -- texts

    def _say(self, where: _Text, text: str | Content) -> None:
        line = self.query_one(f"#{where}", Static)
        line.update(text)
        if where in ("reason", "told"):
            line.display = bool(text)
            line.remove_class("-failed")

    def _tell(self) -> None:
        """Update all texts around the image."""
        if not self.query("#facts"):
            return
        item, mode = self.attachment, self.mode
        sizes = [f"{item.width}×{item.height}", *mode.sizes()] if item.width else []
        self._say("title", " · ".join([name_line(item, self.image.number), *sizes]))
        zoom = f"zoom {self.view.zoom:.1f}×" if self.view.zoom > 1 else ""
        place = f"{self.view.at + 1} of {len(self.images)}" if len(self.images) > 1 else ""
        self._say("place", " · ".join(filter(None, (zoom, place))))
        chosen = {self._mode: "bold reverse"}
        digits = {name: short_keys(self.app, f"image_room.{name}") for name in MODES}
        titles = [
            clickable(f" {digits[name]} {kind.title} ", chosen.get(name, "$muted"), mode=name)
            for name, kind in MODES.items()
        ]
        self._say("modes", Content("").join(titles))
        stops = with_keys(self.app, f"{self.measured} scored · {{image_room.close}} stops") if self.measured else ""
        self._say("state", stops or (mode.state() if mode.is_loaded else ""))
        self._say("about", mode.about() if mode.is_loaded else "")
        self._say("told", mode.told() if mode.is_loaded else "")
        self.query_one(OptionList).display = mode.lists
        facts = self.query_one("#facts", DocumentView)
        facts.display = not mode.lists
        if facts.display:
            facts.show(*attachment_details(item))
        self.refresh_bindings()

    @work(thread=True, group="export")
    def _export(self, exported: Exported) -> None:
        """Write an image (`vlmtui-NAME.png`) and its data (`vlmtui-NAME.json`), and notify the user."""
        name, picture, numbers = exported
        data = msgspec.json.format(msgspec.json.encode(numbers()), indent=2) + b"\n"
        try:
            written = write_numbered(self._folder, f"vlmtui-{name}.png", as_png(picture()))
            also = write_numbered(self._folder, f"vlmtui-{name}.json", data)
        except VlmtuiError as error:
            self.tell_error(error)
        else:
            self.notify(f"Saved {one_line(str(written))} and {one_line(str(also))}", markup=False)
