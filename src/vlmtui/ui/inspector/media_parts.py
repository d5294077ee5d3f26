"""The media of a prompt, as the model was given them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from textual import events, on, work
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList, Static
from textual.worker import get_current_worker

from vlmtui.domain.attachment import VideoSampling
from vlmtui.errors import VlmtuiError
from vlmtui.media.contact_sheet import Rgb, Room, Sheet, make_sheet
from vlmtui.media.sound_picture import sound_rows
from vlmtui.session.media_facts import PromptMedia, media_facts, resized_image
from vlmtui.text import one_line
from vlmtui.ui.terminal.graphics import Graphics
from vlmtui.ui.widgets.one_frame import one_frame
from vlmtui.ui.widgets.thumbnails import name_line

if TYPE_CHECKING:
    from PIL.Image import Image

_LABEL = 16
_LOWEST = 6
"""Fewest rows of a picture."""
_WAVE_ROWS = 8
"""Most rows of a waveform."""


@dataclass(frozen=True)
class Loudness:
    """A sound's loudness over time: its loudest sample in each column, 0 to 1."""

    shares: tuple[float, ...]


class MediaParts(Horizontal):
    """A list of the media; beside it the facts of the highlighted one, and its picture as resized for the model."""

    DEFAULT_CSS = """
    MediaParts {
        #items, #item { height: 100%; scrollbar-size-vertical: 1; }
        #items { width: 26; border: none; padding: 0; background: transparent; }
        #item { width: 1fr; padding: 0 1; border-left: solid $border-blurred; }
        #facts { height: auto; width: 100%; }
        #reason { height: auto; color: $muted; }
        .picture { margin: 1 0 0 0; }
        .wave { height: auto; color: $accent; margin: 1 0 0 0; text-wrap: nowrap; }
        .times { height: 1; color: $muted; text-wrap: nowrap; }
    }
    """

    @dataclass
    class ViewWanted(Message):
        """Show this attachment in full size."""

        item: PromptMedia

    @dataclass
    class Drawn(Message):
        """The picture or frames of an item, or why there are none."""

        number: int
        outcome: Image | Sheet | Loudness | VlmtuiError

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._items: Sequence[PromptMedia] = ()
        self._drawn: Sheet | Image | Loudness | None = None

    def compose(self) -> ComposeResult:
        yield OptionList(id="items", markup=False, compact=True)
        with VerticalScroll(id="item", can_focus=False):
            yield Static(id="facts", markup=False)
            yield Static(id="reason", markup=False)
            yield Vertical(id="picture")

    def show(self, items: Sequence[PromptMedia]) -> None:
        self._items = items
        listed = self.query_one("#items", OptionList)
        listed.clear_options()
        listed.add_options([name_line(item.attachment, item.number) for item in items])
        listed.highlighted = 0 if items else None

    @property
    def current(self) -> PromptMedia | None:
        """The highlighted item."""
        index = self.query_one("#items", OptionList).highlighted
        return self._items[index] if index is not None and index < len(self._items) else None

    def take_focus(self) -> None:
        """Focus the list."""
        self.query_one("#items").focus()

    @on(events.Resize)
    def _resized(self) -> None:
        self.call_after_refresh(self._ask)

    @on(OptionList.OptionHighlighted)
    async def _highlighted(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        self._drawn = None
        await self.query_one("#picture").remove_children()
        self.query_one("#reason", Static).update("")
        self._tell()
        self.call_after_refresh(self._ask)

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if self.current is not None:
            self.post_message(self.ViewWanted(self.current))

    @on(Drawn)
    async def _shown(self, event: Drawn) -> None:
        item = self.current
        if item is None or item.number != event.number:
            return
        place = self.query_one("#picture")
        if isinstance(event.outcome, VlmtuiError):
            await place.remove_children()
            self.query_one("#reason", Static).update(one_line(str(event.outcome)))
            return
        self._drawn = event.outcome
        self._tell()
        with one_frame(self):
            await place.remove_children()
            if isinstance(event.outcome, Loudness):
                rows = sound_rows(event.outcome.shares, min(_WAVE_ROWS, self._room[1]))
                await place.mount(Static("\n".join(rows), classes="wave", markup=False))
                return
            if isinstance(event.outcome, Sheet):
                await self._mount_sheet(event.outcome)
                return
            picture = self._graphics.widget_for(event.outcome, columns=self._room[0], rows=self._room[1])
            if picture is not None:
                picture.add_class("picture")
                await place.mount(picture)

    async def _mount_sheet(self, sheet: Sheet) -> None:
        place = self.query_one("#picture")
        for number, image in enumerate(sheet.rows):
            columns, rows = sheet.grid.per_row * sheet.grid.column, sheet.grid.high
            picture = self._graphics.widget_for(image, columns=columns, rows=rows)
            if picture is not None:
                picture.styles.width, picture.styles.height = columns, rows
                await place.mount(picture)
            await place.mount(Static(sheet.times_of(number), classes="times", markup=False))

    @property
    def _graphics(self) -> Graphics:
        return Graphics.of(self.app)

    @property
    def _room(self) -> tuple[int, int]:
        """Return the cells available for a picture."""
        place = self.query_one("#item")
        known = self.query_one("#facts").size.height
        return max(place.content_size.width, 1), max(place.content_size.height - known - 1, _LOWEST)

    def _tell(self) -> None:
        item = self.current
        if item is None:
            return
        times = self._drawn.times_s if isinstance(self._drawn, Sheet) else ()
        lines = [
            Content.assemble((f"{name:<{_LABEL}}", "$muted"), one_line(value))
            for name, value in media_facts(item, times)
        ]
        self.query_one("#facts", Static).update(Content("\n").join(lines))

    def _ask(self) -> None:
        item, graphics = self.current, self._graphics
        if item is None or not self.is_attached or self.query_one("#item").content_size.width == 0:
            return
        if item.attachment.modality == "image" and graphics.mode == "off":
            return
        columns, rows = self._room
        room = None if graphics.mode == "off" else Room(columns, rows, graphics.cell, graphics.pixels)
        red, green, blue = self.query_one("#item").background_colors[1].rgb
        self._draw(item, room, (red, green, blue))

    @work(thread=True, group="draw", exclusive=True)
    def _draw(self, item: PromptMedia, room: Room | None, gap: Rgb) -> None:
        from vlmtui.media.sound import loudness, read_sound

        if get_current_worker().is_cancelled:
            return
        outcome: Image | Sheet | Loudness | VlmtuiError
        try:
            if item.attachment.modality == "audio":
                samples = read_sound(Path(item.attachment.path))
                outcome = Loudness(tuple(loudness(samples, self._room[0])))
            elif item.attachment.modality == "video":
                outcome = make_sheet(item.attachment, item.attachment.sampling or VideoSampling(), room, gap)
            else:
                outcome = resized_image(item)
                if room is not None:
                    outcome.thumbnail((room.columns * room.cell[0], room.rows * room.cell[1]))
        except VlmtuiError as error:
            outcome = error
        self.post_message(self.Drawn(item.number, outcome))
