"""The attachments of a conversation, as large as the screen."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.message import Message
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widgets import Static
from textual.worker import get_current_worker

from vlmtui.domain.attachment import Attachment
from vlmtui.errors import VlmtuiError
from vlmtui.ui.controllers.viewing import Source, View, camera_facts, draw, facts, open_source
from vlmtui.ui.graphics import Graphics
from vlmtui.ui.text import one_line
from vlmtui.ui.widgets.attachment_view import name_line

if TYPE_CHECKING:
    from PIL.Image import Image

_ZOOM_STEP = 1.5
_ZOOM_MAX = 1.5**10
_PAN_STEP = 0.25
"""Of what is seen."""
_SETTLE_S = 0.1
"""A held key passes by attachments; only where it rests one is decoded."""
_SLOW_PX = 4_000_000
"""Decoding more takes long enough for a smaller picture to be worth showing first."""
_QUICK_PX = (320, 320)
_FACTS_WIDTH = 34
"""Cells of the facts, as the style sheet has it: they are wrapped before they are first shown."""


def _move(keys: str, how: str, across: int, down: int) -> Binding:
    tooltip = f"Move {how} in an enlarged picture."
    return Binding(keys, f"pan({across}, {down})", show=False, id=f"viewer.pan_{how}", tooltip=tooltip)


class ViewerScreen(ModalScreen[None]):
    """Full screen. `at` is the index, among at least one, to begin with; `cache` is the folder of the thumbnails."""

    CSS_PATH = "viewer.tcss"
    BINDINGS = [
        Binding("escape,q", "close", "Close", id="viewer.close", tooltip="Back to the conversation."),
        Binding("right,n", "turn(1)", "Next", id="viewer.next", tooltip="The next attachment."),
        Binding("left,p", "turn(-1)", "Previous", id="viewer.previous", tooltip="The previous attachment."),
        Binding("full_stop", "step(1)", "Frame on", id="viewer.frame_on", tooltip="The video's next frame."),
        Binding("comma", "step(-1)", "Frame back", id="viewer.frame_back", tooltip="The video's previous frame."),
        Binding("plus,equals_sign", "zoom(1)", "Larger", id="viewer.larger", tooltip="Enlarge."),
        Binding("minus", "zoom(-1)", "Smaller", id="viewer.smaller", tooltip="Make smaller."),
        Binding("0", "reset", "Whole", id="viewer.whole", tooltip="Show the whole picture."),
        _move("shift+left,h", "left", -1, 0),
        _move("shift+down,j", "down", 0, 1),
        _move("shift+up,k", "up", 0, -1),
        _move("shift+right,l", "right", 1, 0),
        Binding("i", "facts", "Facts", id="viewer.facts", tooltip="Show or hide the facts."),
        Binding("up", "scroll_facts(-1)", show=False, id="viewer.facts_up", tooltip="Scroll the facts up."),
        Binding("down", "scroll_facts(1)", show=False, id="viewer.facts_down", tooltip="Scroll the facts down."),
    ]

    @dataclass
    class Opened(Message):
        """An attachment's pixels, or why there are none; and what the camera wrote."""

        at: int
        outcome: Source | VlmtuiError
        exif: list[tuple[str, str]]

    @dataclass
    class Drawn(Message):
        """A view, scaled for the screen. `room` is what it was made for."""

        view: View
        room: tuple[int, int]
        image: Image

    def __init__(
        self, attachments: list[Attachment], at: int, *, cache: Path, numbers: Sequence[int] | None = None
    ) -> None:
        """`numbers`: what the attachments are called by; from 1 where not given."""
        super().__init__()
        self._numbers = numbers or range(1, len(attachments) + 1)
        self.attachments = list(attachments)
        self.view = View(min(max(at, 0), len(attachments) - 1))
        self.shown: View | None = None
        """What is drawn; None while nothing is."""
        self._source: Source | None = None
        self._exif: list[tuple[str, str]] = []
        self._settling: Timer | None = None
        self._cache = cache

    def compose(self) -> ComposeResult:
        with Horizontal(id="top"):
            yield Static(id="name", markup=False)
            yield Static(id="where", markup=False)
        with Horizontal(id="body"):
            with Vertical(id="stage"):
                yield Static(id="reason", markup=False)
            with VerticalScroll(id="side", can_focus=False):
                yield Static(id="facts", markup=False)
        yield Static(id="keys", markup=False)

    def on_mount(self) -> None:
        self.set_class(self._graphics.mode == "off", "-off")
        self._tell()
        self.call_after_refresh(self._open_current)

    @on(events.Resize)
    def _resized(self) -> None:
        self.call_after_refresh(self._tell)
        self.call_after_refresh(self._redraw)

    @on(Opened)
    async def _opened(self, event: Opened) -> None:
        if event.at != self.view.at:
            return
        self._exif = event.exif
        if isinstance(event.outcome, VlmtuiError):
            await self.query_one("#stage").query(".picture").remove()
            self._say(" ".join(one_line(text) for text in (event.outcome.message, event.outcome.hint) if text), True)
        else:
            self._source = event.outcome
            self._say("")
        self._tell()
        self._redraw()

    @on(Drawn)
    async def _drawn(self, event: Drawn) -> None:
        if event.view != self.view or event.room != self._room:
            return
        stage = self.query_one("#stage")
        size = stage.content_size
        picture = self._graphics.widget_for(event.image, columns=size.width, rows=size.height)
        if picture is None:
            return
        picture.add_class("picture")
        with self.app.batch_update():
            await stage.query(".picture").remove()
            await stage.mount(picture)
        self._say("")
        self.shown = event.view if self._source is not None else None

    def action_close(self) -> None:
        """Back to the screen below."""
        self.dismiss()

    async def action_turn(self, step: int) -> None:
        """To another attachment; beyond the last one comes the first."""
        if len(self.attachments) < 2:
            return
        self.view, self.shown = View((self.view.at + step) % len(self.attachments)), None
        self._source, self._exif = None, []
        await self.query_one("#stage").query(".picture").remove()
        self._say("Opening …")
        self._tell()
        if self._settling is not None:
            self._settling.stop()
        self._settling = self.set_timer(_SETTLE_S, self._open_current)

    def action_step(self, step: int) -> None:
        """To another frame of the video."""
        count = len(self._source.times_s) if self._source else 0
        self._show(msgspec.structs.replace(self.view, frame=min(max(self.view.frame + step, 0), max(count - 1, 0))))

    def action_zoom(self, direction: int) -> None:
        """Enlarge around the centre, or the other way; never smaller than what fits."""
        zoom = self.view.zoom * _ZOOM_STEP**direction
        self._show(msgspec.structs.replace(self.view, zoom=1.0 if zoom < _ZOOM_STEP**0.5 else min(zoom, _ZOOM_MAX)))

    def action_pan(self, across: int, down: int) -> None:
        """Move what is seen of an enlarged picture, up to its edges."""
        if self._source is not None:
            wide, high = self.view.seen(self._source.size, self._room)
            x, y = self.view.x + across * wide * _PAN_STEP, self.view.y + down * high * _PAN_STEP
            self._show(msgspec.structs.replace(self.view, x=x, y=y))

    def action_reset(self) -> None:
        """The whole picture."""
        self._show(View(self.view.at, self.view.frame))

    def action_facts(self) -> None:
        """Show or hide the facts."""
        self.toggle_class("-facts")
        self.call_after_refresh(self._redraw)

    def action_scroll_facts(self, lines: int) -> None:
        """Scroll the facts."""
        self.query_one("#side").scroll_relative(y=lines, animate=False)

    @property
    def _current(self) -> Attachment:
        return self.attachments[self.view.at]

    @property
    def _graphics(self) -> Graphics:
        return Graphics.of(self.app)

    @property
    def _room(self) -> tuple[int, int]:
        """Pixels that a picture may have, each way at least 1."""
        columns, rows = self.query_one("#stage").content_size
        return max(columns, 1) * self._graphics.cell[0], max(rows, 1) * self._graphics.cell[1]

    def _show(self, view: View) -> None:
        if self._source is None:
            return
        view = view.within(self._source.size, self._room)
        if view != self.view:
            self.view = view
            self._tell()
            self._redraw()

    def _redraw(self) -> None:
        if self._source is not None and self._graphics.mode != "off" and self.query("#stage"):
            self.view = self.view.within(self._source.size, self._room)
            self._draw(self._source, self.view, self._room)

    def _say(self, text: str, failed: bool = False) -> None:
        reason = self.query_one("#reason", Static)
        reason.update(text)
        reason.set_class(failed, "-failed")
        reason.display = bool(text)

    def _tell(self) -> None:
        """The lines around the picture, and the facts."""
        if not self.query("#facts"):  # closed meanwhile
            return
        view, current = self.view, self._current
        count, parts = len(self.attachments), [f"{current.width} × {current.height}"]
        if self._source is not None and self._source.times_s:
            times = self._source.times_s
            parts.append(f"frame {view.frame + 1} of {len(times)} · {times[view.frame]:.2f} s")
        if view.zoom > 1:
            parts.append(f"zoom {view.zoom:.1f}×")
        if count > 1:
            parts.append(f"{view.at + 1} of {count}")
        self.query_one("#where", Static).update(" · ".join(parts))
        self.query_one("#name", Static).update(name_line(current, self._numbers[view.at]))
        is_off = self._graphics.mode == "off"
        width = (self.query_one("#side").content_size.width if is_off else 0) or _FACTS_WIDTH
        self.query_one("#facts", Static).update(facts(current, self._exif, width))
        look = "" if is_off else "+ − 0 zoom · hjkl moves · i facts · "
        film = ", . frame · " if current.modality == "video" else ""
        turn = "← → others · " if count > 1 else ""
        self.query_one("#keys", Static).update(f"{turn}{film}{look}esc closes")

    def _open_current(self) -> None:
        if self.query("#stage"):
            self._open(self.view.at, self._room)

    @work(thread=True, group="open", exclusive=True)
    def _open(self, at: int, room: tuple[int, int]) -> None:
        worker, attachment = get_current_worker(), self.attachments[at]
        exif = camera_facts(attachment)
        if self._graphics.mode != "off" and _is_slow(attachment):
            from vlmtui.media.thumbnails import thumbnail

            with suppress(VlmtuiError):
                quick = Source(thumbnail(attachment, self._cache, _QUICK_PX))
                self.post_message(self.Drawn(View(at), room, draw(quick, View(at), room)))
        if worker.is_cancelled:
            return
        try:
            self.post_message(self.Opened(at, open_source(attachment), exif))
        except VlmtuiError as error:
            self.post_message(self.Opened(at, error, exif))

    @work(thread=True, group="draw", exclusive=True)
    def _draw(self, source: Source, view: View, room: tuple[int, int]) -> None:
        worker = get_current_worker()
        if worker.is_cancelled:
            return
        image = draw(source, view, room)
        if not worker.is_cancelled:
            self.post_message(self.Drawn(view, room, image))


def _is_slow(attachment: Attachment) -> bool:
    return attachment.modality == "video" or attachment.width * attachment.height > _SLOW_PX
