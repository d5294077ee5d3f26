"""Textual's driver for terminals that stall and answer late."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import sys
from codecs import getincrementaldecoder
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rich.color import ColorSystem
from textual import constants, events
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.messages import TerminalSupportsSynchronizedOutput

from vlmtui.terminal import multiplexer_of
from vlmtui.ui.terminal.frames import FrameLayer
from vlmtui.ui.terminal.graphics import Graphics
from vlmtui.ui.terminal.output import Output
from vlmtui.ui.terminal.painter import Painter
from vlmtui.ui.terminal.reports import ReportFilter

if TYPE_CHECKING:
    from textual.app import App
    from textual.message import Message
    from textual.screen import Screen

_LAST_WORDS_S = 5.0
_LONE_S = constants.ESCAPE_DELAY + 0.01
"""After this time without input, a lone Escape was a key."""
_READ_BYTES = 4096
_FRAME_BEGINS = "\x1b[?2026h"
"""Synchronized output: all that follows appears at once, at `_FRAME_ENDS`."""
_FRAME_ENDS = "\x1b[?2026l"
_COLOURS = {"standard": ColorSystem.STANDARD, "256": ColorSystem.EIGHT_BIT, "truecolor": ColorSystem.TRUECOLOR}


class NonBlockingDriver(LinuxDriver):
    """A driver that sends only what differs from what the terminal shows, and whose event loop is not blocked by a
    stalled terminal (a hung connection, a stopped multiplexer).

    Textual's driver waits for room in a short queue; meanwhile answers would not be stored, and signals not handled. It
    also types late terminal reports into the message.
    """

    _output: Output | None = None
    _input_ends: tuple[int, int] | None = None
    """A pipe; what is written to it ends the reading thread, which nothing but keys wakes."""
    _layer: FrameLayer
    _painter: Painter | None = None
    _running_loop: asyncio.AbstractEventLoop | None = None
    _locating: asyncio.Future[None] | None = None
    _is_synchronized = False
    """Whether the terminal shows all between `_FRAME_BEGINS` and `_FRAME_ENDS` at once."""
    _cursor: tuple[int, int] | None = None
    """Where the last frame left the terminal's cursor."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        super().__init__(app, **options)
        self.app = app

    def start_application_mode(self) -> None:
        self._running_loop = loop = asyncio.get_running_loop()
        self._input_ends = os.pipe()
        self._painter = Graphics.of(self.app).painter
        colours = _COLOURS.get(self.app.console.color_system or "", ColorSystem.TRUECOLOR)
        if constants.COLOR_SYSTEM == "auto" and multiplexer_of(os.environ) == "screen":
            colours = min(colours, ColorSystem.EIGHT_BIT)
        self._layer, self._cursor = FrameLayer(colours, self._painter), None

        def redraw() -> None:
            if not (self.app.is_running and self.app.screen_stack):
                return
            if self._layer.knows(self.app.size):
                self._send_frame()
            else:
                self.app.screen.refresh()

        def caught_up() -> None:
            with suppress(RuntimeError):  # the event loop has ended
                loop.call_soon_threadsafe(redraw)

        file = sys.__stderr__
        assert file is not None
        self._output = Output(file.fileno(), encoding=file.encoding, on_caught_up=caught_up)
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def write(self, data: str) -> None:
        assert self._output is not None, "the driver is not in application mode"
        if not self._output.write(data):
            self._layer.forget()
            if self._painter is not None:
                self._painter.forget()

    def show(self, screen: Screen[object], update: object) -> bool:
        """Bring the terminal to what the compositor wants to be seen; while it is behind, that is done once it has
        caught up. False if the update must be written as it is, because it holds more than text."""
        if self._output is None or update is None:
            return False
        if not isinstance(update, LayoutUpdate | ChopsUpdate):
            self._layer.forget()
            return False
        if not self._layer.knows(self.app.size):
            self._locate()
        if not self._layer.knows(self.app.size) and isinstance(update, ChopsUpdate):
            screen.refresh()  # all of it
            return True
        if not self._layer.take(update):
            return False
        if not self._output.is_behind:
            self._send_frame()
        return True

    def process_message(self, message: Message) -> None:
        self._is_synchronized = self._is_synchronized or isinstance(message, TerminalSupportsSynchronizedOutput)
        if isinstance(message, events.AppFocus) and self._draws_through and self._running_loop is not None:
            # A multiplexer that shows this screen again does not show the pictures on it.
            with suppress(RuntimeError):  # the event loop has ended
                self._running_loop.call_soon_threadsafe(self._draw_anew)
        super().process_message(message)

    @property
    def _draws_through(self) -> bool:
        """Whether pictures are drawn over the screen of a multiplexer, which does not know them."""
        return self._painter is not None and self._painter.draws_over and self._painter.passage.is_through

    def _locate(self) -> None:
        """Find out again where this screen is on the terminal, and draw it anew if it has moved."""
        if self._painter is None or not self._draws_through or self._locating is not None or self._running_loop is None:
            return
        passage = self._painter.passage
        before = passage.origin

        def located(_: asyncio.Future[None]) -> None:
            self._locating = None
            if passage.origin != before:
                self._draw_anew()

        self._locating = self._running_loop.run_in_executor(None, passage.locate)
        self._locating.add_done_callback(located)

    def _draw_anew(self) -> None:
        if self.app.is_running and self.app.screen_stack:
            self._layer.forget()
            self.app.screen.refresh()

    def _send_frame(self) -> None:
        app = self.app
        cursor = app.screen.outer_size.clamp_offset(app.cursor_position)
        text = self._layer.send()
        if not text and cursor == self._cursor:
            return
        self._cursor = cursor
        text += f"\x1b[{cursor.y + 1};{cursor.x + 1}H"
        self.write(f"{_FRAME_BEGINS}{text}{_FRAME_ENDS}" if self._is_synchronized else text)

    def close(self) -> None:
        super().close()
        if self._output is not None:
            self._output.close(_LAST_WORDS_S)

    def disable_input(self) -> None:
        ends, self._input_ends = self._input_ends, None
        if ends is not None:
            os.write(ends[1], b"\0")
        super().disable_input()
        for end in ends or ():
            os.close(end)

    def run_input_thread(self) -> None:
        """Read keys, pastes and mouse events until the driver ends or the terminal disappears; drop its reports.

        A disappeared terminal is at end of file forever; Textual's driver may never be told to end, because its writes
        fail first.
        """
        assert self._input_ends is not None, "the driver is not in application mode"
        ended = self._input_ends[0]
        parser = XTermParser()
        decode = getincrementaldecoder("utf-8")("replace").decode
        reports = ReportFilter()
        has_fed = False
        while not self.exit_event.is_set():
            wait_s = reports.patience_s
            if wait_s is None and has_fed:
                wait_s = _LONE_S
            ready, _, _ = select.select([self.fileno, ended], [], [], wait_s)
            if ended in ready:
                return
            if ready:
                data = self._read()
                if not data:
                    return
                text = reports.feed(decode(data))
            else:
                text = reports.flush()
            has_fed = bool(text)
            for message in [*(parser.feed(text) if text else ()), *parser.tick()]:
                self.process_message(message)

    def _read(self) -> bytes:
        """Return input; empty when the terminal has disappeared."""
        try:
            return os.read(self.fileno, _READ_BYTES)
        except OSError as error:
            if error.errno == errno.EIO:
                return b""
            raise
