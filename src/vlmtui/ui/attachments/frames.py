"""The screen for choosing the frames of a video."""

from __future__ import annotations

import asyncio

import msgspec
from textual import events, on, work
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input, RadioButton, RadioSet, Static

from vlmtui.domain.conversation import Attachment, VideoSampling
from vlmtui.errors import VlmtuiError
from vlmtui.media.contact_sheet import Rgb, Room, Sheet, make_sheet
from vlmtui.media.describe import clock
from vlmtui.media.sampling import FIELDS, most_frames, read_fields, time_text
from vlmtui.text import counted, one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.keys import hint, short_keys
from vlmtui.ui.terminal.graphics import Graphics
from vlmtui.ui.widgets.clicks import one_frame
from vlmtui.ui.widgets.line_editing import LineInput

SETTLE_S = 0.35
"""Seconds from the last edit to reading the frames."""
_LABELS = {"frames": "Frames", "fps": "or fps", "start": "From", "end": "to"}
_HINTS = {"frames": "8", "fps": "frames per second", "start": "the start", "end": "the end"}


class FramesChoice(msgspec.Struct, frozen=True):
    """Which frames of a video to send, and whether to send them as separate images."""

    sampling: VideoSampling
    as_images: bool


class FramesScreen(ModalScreen[FramesChoice | None]):
    """Shows exactly the frames that will be sent. Returns the user's choice, or None if cancelled.

    `takes_video`: whether the model accepts videos. `most_images`: the model's limit of images in one message.
    """

    CSS_PATH = "frames.tcss"
    SCOPE = "frame_picker"
    BINDINGS = bindings(SCOPE)

    def __init__(
        self,
        attachment: Attachment,
        *,
        takes_video: bool,
        most_images: int,
        settle_s: float = SETTLE_S,
    ) -> None:
        """`settle_s`: seconds to wait after the last edit before reading the frames."""
        super().__init__()
        self.sheet: Sheet | None = None
        """The frames shown; None while others are being read."""
        self._attachment = attachment
        self._settle_s = settle_s
        self._takes_video = takes_video
        self._most_images = most_images
        self._wanted: tuple[VideoSampling, Size] | None = None
        """The sampling and screen size requested last; other results are outdated."""
        self._failed = False
        self._settling: Timer | None = None

    def compose(self) -> ComposeResult:
        sampling = self._attachment.sampling or VideoSampling()
        values = {
            "frames": f"{sampling.num_frames}",
            "fps": "" if sampling.fps is None else f"{sampling.fps:g}",
            "start": time_text(sampling.start_s) if sampling.start_s else "",
            "end": "" if sampling.end_s is None else time_text(sampling.end_s),
        }
        with Vertical(id="panel"):
            yield Static(self._title, id="title", markup=False)
            for pair in (FIELDS[:2], FIELDS[2:]):
                with Horizontal(classes="row"):
                    for name in pair:
                        with Vertical(classes="field"):
                            with Horizontal(classes="line"):
                                yield Static(_LABELS[name], classes="label")
                                yield LineInput(values[name], placeholder=_HINTS[name], id=name, compact=True)
                            yield Static(id=f"problem-{name}", classes="problem", markup=False)
            with Horizontal(id="send"):
                yield Static("Send as", classes="label")
                if self._takes_video:
                    yield RadioSet(RadioButton("one video", value=True), RadioButton("images"), id="as", compact=True)
                else:
                    yield Static(id="send-fixed", markup=False)
            yield Static(id="problem-as", classes="problem", markup=False)
            yield Static(id="state", markup=False)
            yield VerticalScroll(id="sheet")
            yield Static(self._keys, id="keys", markup=False)

    def on_mount(self) -> None:
        self.query_one("#frames", Input).focus()
        self.call_after_refresh(self._request_frames)

    @on(events.Resize)
    def _resized(self) -> None:
        self.call_after_refresh(self._edited)

    @on(Input.Changed)
    @on(RadioSet.Changed)
    def _edited(self) -> None:
        if self._is_gone():
            return
        self._read()
        if self._settling is not None:
            self._settling.stop()
        self._settling = self.set_timer(self._settle_s, self._request_frames)

    def action_save(self) -> None:
        """Return the choice if it is valid; otherwise focus the first invalid field."""
        sampling = self._read()
        wrong = [name for name in (*FIELDS, "as") if self.query_one(f"#problem-{name}").display]
        failed = self._failed and self._wanted == (sampling, self.size)
        if sampling is not None and not wrong and not failed:
            self.dismiss(FramesChoice(sampling, self._as_images))
        elif wrong:
            field = wrong[0] if wrong[0] != "as" else "fps" if sampling and sampling.fps else "frames"
            self.query_one(f"#{field}", Input).focus()

    def action_cancel(self) -> None:
        self.dismiss(None)

    def action_scroll(self, way: str) -> None:
        getattr(self.query_one("#sheet"), f"scroll_page_{way}")(animate=False)

    @property
    def _keys(self) -> str:
        scroll = short_keys(self.app, "frame_picker.up", "frame_picker.down")
        return f"{hint(self.app, 'frame_picker.save', 'frame_picker.cancel')} · Tab Next field · {scroll} Scroll"

    @property
    def _title(self) -> str:
        video = self._attachment
        length = "" if video.duration_s is None else f" · {clock(video.duration_s)}"
        rate = "" if video.fps is None else f" · {video.fps:g} fps"
        return f"{one_line(video.name)}{length}{rate} · {video.width} × {video.height}"

    @property
    def _graphics(self) -> Graphics:
        return Graphics.of(self.app)

    def _is_gone(self) -> bool:
        """True if the dialog was closed. Delayed callbacks may run even after that."""
        return self not in self.app.screen_stack

    @property
    def _as_images(self) -> bool:
        return not self._takes_video or self.query_one("#as", RadioSet).pressed_index == 1

    @property
    def _room(self) -> Room | None:
        """The space for frames; None if images are off."""
        sheet, graphics = self.query_one("#sheet"), self._graphics
        if graphics.mode == "off":
            return None
        return Room(max(1, sheet.size.width), sheet.size.height, graphics.cell, graphics.pixels)

    def _request_frames(self) -> None:
        """Read the frames that the fields describe, unless these frames are shown or being read."""
        if self._is_gone():
            return
        sampling = self._read()
        wanted = None if sampling is None else (sampling, self.size)
        if wanted == self._wanted:
            return
        self._wanted, self.sheet, self._failed = wanted, None, False
        self.query_one("#sheet").add_class("-stale")
        if wanted is not None:
            self._say("Reading the frames …", failed=False)
            red, green, blue = self.query_one("#sheet").background_colors[1].rgb
            self._make(wanted[0], self._room, (red, green, blue))
        else:
            self.workers.cancel_group(self, "sheet")
            self._say("", failed=False)

    def _read(self) -> VideoSampling | None:
        """Return the fields' values. If one of them is invalid, show the problem below its field and return None."""
        typed = {name: self.query_one(f"#{name}", Input).value for name in FIELDS}
        entered = read_fields(typed, self._attachment.duration_s)
        for name in FIELDS:
            self._tell_problem(name, entered.problems.get(name, ""))
        self.query_one("#frames").set_class(bool(typed["fps"].strip()), "-unused")
        count = self._count(entered.sampling)
        images = "images" if count is None else counted(count, "image")
        if self._takes_video:
            self.query_one("#as", RadioSet).query(RadioButton).last().label = images
        else:
            self.query_one("#send-fixed", Static).update(f"{images}: the model does not accept videos")
        too_many = self._as_images and count is not None and count > self._most_images
        self._tell_problem("as", f"the model's limit is {self._most_images} images" if too_many else "")
        return entered.sampling

    def _count(self, sampling: VideoSampling | None) -> int | None:
        if sampling is None:
            return None
        if self.sheet is not None and self._wanted is not None and self._wanted[0] == sampling:
            return len(self.sheet.times_s)
        return most_frames(sampling, self._attachment.duration_s or 0.0)

    def _say(self, text: str, failed: bool = True) -> None:
        state = self.query_one("#state", Static)
        state.set_class(failed, "-failed")
        state.update(text)

    def _tell_problem(self, name: str, problem: str) -> None:
        told = self.query_one(f"#problem-{name}", Static)
        told.update(problem)
        told.display = bool(problem)

    def _rows(self, sheet: Sheet) -> list[Widget]:
        """Return the widgets for the rows of frames: for each row, an image and a line of times. If images are off,
        only the times."""
        if not sheet.rows:
            times = [f"{number:>4}  {clock(time)}" for number, time in enumerate(sheet.times_s, 1)]
            return [Static("\n".join(times), classes="list", markup=False)]
        rows: list[Widget] = []
        for number, image in enumerate(sheet.rows):
            size = sheet.grid.per_row * sheet.grid.column, sheet.grid.high
            rows.append(self._graphics.draw(image, size).widget(self._graphics))
            rows.append(Static(sheet.times_of(number), classes="times", markup=False))
        left = [sheet.times_of(number) for number in range(len(sheet.rows), sheet.lines)]
        if left:
            rows.append(Static("\n".join(left), classes="list", markup=False))
        return rows

    @work(group="sheet", exclusive=True)
    async def _make(self, sampling: VideoSampling, room: Room | None, gap: Rgb) -> None:
        try:
            self.sheet = await asyncio.to_thread(make_sheet, self._attachment, sampling, room, gap)
            told = _summary(self.sheet, sampling)
        except VlmtuiError as error:
            told, self._failed = one_line(str(error)), True
        if self._is_gone():
            return
        place = self.query_one("#sheet")
        with one_frame(self):
            await place.remove_children()
            if self.sheet is not None:
                await place.mount(*self._rows(self.sheet))
        if self._is_gone():
            return
        place.remove_class("-stale")
        self._say(told, failed=self._failed)
        self._read()


def _summary(sheet: Sheet, sampling: VideoSampling) -> str:
    count, times = len(sheet.times_s), sheet.times_s
    told = f"{counted(count, 'frame')}, {clock(times[0])} to {clock(times[-1])}"
    fewer = sampling.fps is None and count < sampling.num_frames
    return told + " · all frames of the video" if fewer else told
