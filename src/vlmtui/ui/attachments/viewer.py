"""The full-screen viewer of a conversation's attachments."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from textual import events, on, work
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widgets import Static
from textual.worker import get_current_worker

from vlmtui.domain.conversation import Attachment
from vlmtui.errors import VlmtuiError
from vlmtui.media.thumbnails import StoredPixels, Viewport, draw, open_pixels
from vlmtui.text import one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.terminal.graphics import Graphics
from vlmtui.ui.widgets.attachment_view import attachment_details
from vlmtui.ui.widgets.clicks import one_frame
from vlmtui.ui.widgets.footer_bar import FooterBar
from vlmtui.ui.widgets.thumbnails import name_line

if TYPE_CHECKING:
    from PIL.Image import Image

_ZOOM_STEP = 1.5
_ZOOM_MAX = 1.5**10
_PAN_STEP = 0.25
"""Share of the visible area."""
SETTLE_S = 0.1
"""Seconds that an attachment must be shown before it is decoded, so that a held key skips it."""
_SLOW_PX = 4_000_000
"""Pixels above which a thumbnail is shown first, because decoding takes long."""
_QUICK_PX = (320, 320)


class ViewerScreen(ModalScreen[None]):
    """The viewer. `at`: the index of the first attachment to show; `cache`: the folder of the thumbnails."""

    CSS_PATH = "viewer.tcss"
    SCOPE = "viewer"
    BINDINGS = bindings(SCOPE)

    @dataclass
    class PixelsRead(Message):
        """An attachment's pixels, or the error."""

        at: int
        outcome: StoredPixels | VlmtuiError

    @dataclass
    class Drawn(Message):
        """A part of the attachment was scaled for the screen. `room`: the width and height that were available, in
        pixels."""

        view: Viewport
        room: tuple[int, int]
        image: Image

    def __init__(
        self,
        attachments: list[Attachment],
        at: int,
        *,
        cache: Path,
        numbers: Sequence[int] | None = None,
        settle_s: float = SETTLE_S,
    ) -> None:
        """`numbers`: the attachments' numbers; None: from 1. `settle_s`: seconds that an attachment must be shown
        before it is decoded."""
        super().__init__()
        self._settle_s = settle_s
        self._numbers = numbers or range(1, len(attachments) + 1)
        self.attachments = list(attachments)
        self.view = Viewport(min(max(at, 0), len(attachments) - 1))
        self.shown: Viewport | None = None
        """The drawn view; None while nothing is drawn."""
        self._source: StoredPixels | None = None
        self._settling: Timer | None = None
        self._cache = cache

    def compose(self) -> ComposeResult:
        with Horizontal(id="top"):
            yield Static(id="name", markup=False)
            yield Static(id="where", markup=False)
        with Horizontal(id="body"):
            with Vertical(id="stage"):
                yield Static(id="reason", markup=False)
            yield DocumentView(has_edge=False, id="side")
        yield FooterBar()

    def on_mount(self) -> None:
        self.set_class(self._graphics.mode == "off", "-off")
        self._tell()
        self.call_after_refresh(self._open_current)

    @on(events.Resize)
    def _resized(self) -> None:
        self.call_after_refresh(self._tell)
        self.call_after_refresh(self._redraw)

    @on(PixelsRead)
    async def _opened(self, event: PixelsRead) -> None:
        if event.at != self.view.at:
            return
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
        with one_frame(self):
            await stage.query(".picture").remove()
            await stage.mount(picture)
        self._say("")
        self.shown = event.view if self._source is not None else None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        match action:
            case "turn":
                return len(self.attachments) > 1
            case "step":
                return self._current.modality == "video"
            case "zoom" | "reset" | "pan" | "facts":
                return self._graphics.mode != "off"
            case _:
                return True

    def action_close(self) -> None:
        self.dismiss()

    async def action_turn(self, step: int) -> None:
        self.view, self.shown = Viewport((self.view.at + step) % len(self.attachments)), None
        self._source = None
        await self.query_one("#stage").query(".picture").remove()
        self._say("Opening …")
        self._tell()
        if self._settling is not None:
            self._settling.stop()
        self._settling = self.set_timer(self._settle_s, self._open_current)

    def action_step(self, step: int) -> None:
        count = len(self._source.times_s) if self._source else 0
        self._show(msgspec.structs.replace(self.view, frame=min(max(self.view.frame + step, 0), max(count - 1, 0))))

    def action_zoom(self, direction: int) -> None:
        """Zoom around the centre; the smallest zoom shows the whole image."""
        zoom = self.view.zoom * _ZOOM_STEP**direction
        self._show(msgspec.structs.replace(self.view, zoom=1.0 if zoom < _ZOOM_STEP**0.5 else min(zoom, _ZOOM_MAX)))

    def action_pan(self, across: int, down: int) -> None:
        """Move within a zoomed image, up to its edges."""
        if self._source is not None:
            wide, high = self.view.seen(self._source.size, self._room)
            x, y = self.view.x + across * wide * _PAN_STEP, self.view.y + down * high * _PAN_STEP
            self._show(msgspec.structs.replace(self.view, x=x, y=y))

    def action_reset(self) -> None:
        self._show(Viewport(self.view.at, self.view.frame))

    def action_facts(self) -> None:
        self.toggle_class("-facts")
        self.call_after_refresh(self._redraw)

    def action_scroll_facts(self, lines: int) -> None:
        self.query_one("#side").scroll_relative(y=lines, animate=False)

    @property
    def _current(self) -> Attachment:
        return self.attachments[self.view.at]

    @property
    def _graphics(self) -> Graphics:
        return Graphics.of(self.app)

    @property
    def _room(self) -> tuple[int, int]:
        """Width and height available for the image, in pixels, at least 1."""
        columns, rows = self.query_one("#stage").content_size
        return max(columns, 1) * self._graphics.cell[0], max(rows, 1) * self._graphics.cell[1]

    def _show(self, view: Viewport) -> None:
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
        """Update the title and hints around the image, and the facts beside it."""
        if not self.query("#side"):  # the viewer was closed meanwhile
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
        self.query_one("#side", DocumentView).show(*attachment_details(current))
        self.refresh_bindings()

    def _open_current(self) -> None:
        if self.query("#stage"):
            self._open(self.view.at, self._room)

    @work(thread=True, group="open", exclusive=True)
    def _open(self, at: int, room: tuple[int, int]) -> None:
        worker, attachment = get_current_worker(), self.attachments[at]
        if self._graphics.mode != "off" and _is_slow(attachment):
            from vlmtui.media.thumbnails import thumbnail

            with suppress(VlmtuiError):
                quick = StoredPixels(thumbnail(attachment, self._cache, _QUICK_PX))
                self.post_message(self.Drawn(Viewport(at), room, draw(quick, Viewport(at), room)))
        if worker.is_cancelled:
            return
        try:
            self.post_message(self.PixelsRead(at, open_pixels(attachment)))
        except VlmtuiError as error:
            self.post_message(self.PixelsRead(at, error))

    @work(thread=True, group="draw", exclusive=True)
    def _draw(self, source: StoredPixels, view: Viewport, room: tuple[int, int]) -> None:
        worker = get_current_worker()
        if worker.is_cancelled:
            return
        image = draw(source, view, room)
        if not worker.is_cancelled:
            self.post_message(self.Drawn(view, room, image))


def _is_slow(attachment: Attachment) -> bool:
    return attachment.modality == "video" or attachment.width * attachment.height > _SLOW_PX
