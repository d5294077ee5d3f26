"""A driver for Textual that never waits for a slow terminal, sends only changed cells, and drops late reports.

A report is input that the user has not typed: the terminal's answer to a question, for example about its version.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import select
import sys
import threading
from codecs import getincrementaldecoder
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import textual
from rich.color import ColorSystem
from textual import constants, events
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.messages import TerminalSupportsSynchronizedOutput

from vlmtui.terminal import multiplexer_of
from vlmtui.ui.terminal.frames import FrameLayer
from vlmtui.ui.terminal.graphics import Graphics
from vlmtui.ui.terminal.painter import Painter

if TYPE_CHECKING:
    from textual.app import App
    from textual.message import Message
    from textual.screen import Screen

WAITING_MAX = 256 * 1024
"""Most bytes that wait for the terminal. While more wait, frames are dropped."""
_CONTROL_MAX = 32
"""Characters up to which a sequence counts as a mode switch of the terminal, which is never dropped."""
_FRAME_BEGINS = "\x1b[?2026h"
"""Begins synchronized output: everything up to `_FRAME_ENDS` appears at once."""
_FRAME_ENDS = "\x1b[?2026l"
_PASTE_BEGIN, _PASTE_END = "\x1b[200~", "\x1b[201~"
_REPORT = re.compile(
    r"\x1b\[[?>=][0-9;:]*c"  # device attributes, primary to tertiary
    r"|\x1b\[(?!48;)[0-9]+(?:;[0-9]+)+t"  # sizes in cells or pixels; 48 is a resize, which Textual takes
    r"|\x1b\[\?[0-9;]*[un]"  # keyboard protocol, colour scheme
    r"|\x1b\[[03]n"  # status
    r"|\x1b\](?:[0-9]+;|[lL])[^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: colours, titles, the clipboard
    r"|\x1bP[0-9;]*[$+>|!][^\x1b]*\x1b\\"  # DCS: version, capabilities, settings
    r"|\x1b_G[^\x1b]*\x1b\\"  # APC: kitty's pictures
)
_REPORT_BEGINNING = re.compile(
    r"\x1b(?:"
    r"\[[?>=]?[0-9;:]*"
    r"|\](?:[0-9]*|(?:[0-9]+;|[lL])[^\x07\x1b]*\x1b?)"
    r"|P(?:[0-9;]*|[0-9;]*[$+>|!][^\x1b]*\x1b?)"
    r"|_(?:G[^\x1b]*\x1b?)?"
    r")?\Z"
)
"""What may be the beginning of a report at the end of the input."""
_KEYS_LIKE_REPORTS = frozenset({"\x1b", "\x1b[", "\x1b]", "\x1bP", "\x1b_"})
"""Such beginnings that are also keys: Escape, and Alt with a character."""
_KEY_WAIT_S, _REPORT_WAIT_S = 0.03, 0.5
_REPORT_MAX = 64 * 1024
"""Most characters of a report."""
_CLOSE_S = 5.0
_LONE_ESCAPE_S = constants.ESCAPE_DELAY + 0.01
"""Seconds without input after which a single Escape is a key."""
_READ_BYTES = 4096
_KNOWN = "8.2."
"""The version of Textual whose compositor `frames` can read."""
_COLOURS = {"standard": ColorSystem.STANDARD, "256": ColorSystem.EIGHT_BIT, "truecolor": ColorSystem.TRUECOLOR}


def sends_frames(environment: Mapping[str, str], version: str | None = None) -> bool:
    """Return whether vlmtui's own driver writes to the terminal, which sends only changed cells. With
    `VLMTUI_OUTPUT=plain` or an untested version of Textual, Textual's driver writes, and images are drawn with
    characters. `version`: the version of Textual; None: the installed one."""
    if environment.get("VLMTUI_OUTPUT") == "plain":
        return False
    return (_installed_version() if version is None else version).startswith(_KNOWN)


def _installed_version() -> str:
    """Return Textual's version, from the name of its metadata folder; empty if there is no such folder.
    `textual.__version__` reads the metadata with an e-mail parser, which takes 15 ms of the start."""
    folder = Path(textual.__file__).parent.parent
    return next((found.name.split("-")[1] for found in folder.glob("textual-*.dist-info")), "")


class Output:
    """Writes to a descriptor. `write` never waits and never fails.

    A thread writes what the terminal does not accept at once. While too much waits, frames are dropped. When everything
    is written again, `on_caught_up` is called in the thread, to redraw the screen.
    """

    def __init__(self, descriptor: int, *, encoding: str = "utf-8", on_caught_up: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._direct = _open_without_waiting(descriptor)
        self._encoding = encoding
        self._on_caught_up = on_caught_up
        self._waiting: list[bytes] = []
        self._size = 0
        self._is_writing = False
        """True while the thread is writing."""
        self._left_out = False
        self._closing = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        """Started when the terminal is slow for the first time."""

    @property
    def is_behind(self) -> bool:
        """True if the terminal has not accepted everything yet. Once it has, `on_caught_up` is called."""
        with self._changed:
            if self._is_writing or self._waiting:
                self._left_out = True
                return True
            return False

    def write(self, text: str) -> bool:
        """Write or queue the text; return False if it was dropped. Characters that the encoding lacks become `?`."""
        with self._changed:
            is_behind = self._size > WAITING_MAX or (self._left_out and self._is_slow)
            if is_behind and (len(text) > _CONTROL_MAX or text in (_FRAME_BEGINS, _FRAME_ENDS)):
                self._left_out = True
                return False
            data = text.encode(self._encoding, errors="replace")
            if not self._is_slow:
                data = self._write_now(data)
            if data:
                self._waiting.append(data)
                self._size += len(data)
                self._wake_thread()
            return True

    def close(self, timeout_s: float) -> bool:
        """Wait until everything is written, at most `timeout_s` seconds; return whether everything was written. Do not
        write afterwards."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                return False
        if self._direct is not None:
            os.close(self._direct)
            self._direct = None
        return True

    @property
    def _is_slow(self) -> bool:
        return self._is_writing or bool(self._waiting)

    def _write_now(self, data: bytes) -> bytes:
        """Write what the terminal accepts at once; return the rest."""
        if self._direct is None:
            return data
        try:
            return data[os.write(self._direct, data) :]
        except BlockingIOError:
            return data
        except OSError:  # the terminal has disappeared
            return b""

    def _wake_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="terminal-output", daemon=True)
            self._thread.start()
        self._changed.notify()

    def _run(self) -> None:
        while (data := self._take()) is not None:
            self._put(data)
            with self._changed:
                self._is_writing = False
                is_caught_up = self._left_out and not self._waiting
                self._left_out = self._left_out and not is_caught_up
            if is_caught_up:
                self._on_caught_up()

    def _take(self) -> bytes | None:
        with self._changed:
            while not self._waiting:
                if self._closing:
                    return None
                self._changed.wait()
            data = b"".join(self._waiting)
            self._waiting.clear()
            self._size = 0
            self._is_writing = True
            return data

    def _put(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except OSError:  # the terminal has disappeared
                return


def _open_without_waiting(descriptor: int) -> int | None:
    """Open the terminal a second time in non-blocking mode: making the given descriptor non-blocking would change it
    for the other processes that share it."""
    try:
        return os.open(os.ttyname(descriptor), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return None


class ReportFilter:
    """Removes terminal reports from the input, even if they are split across reads. Pasted text stays as it is.

    Characters that may begin a report are kept until the next call. If no input follows within `patience_s`, they were
    a key; the caller then gets them with `flush`.
    """

    def __init__(self) -> None:
        self._held = ""
        self._pasting = False

    @property
    def patience_s(self) -> float | None:
        """Seconds to wait for more input before `flush`; None if no input is kept."""
        if not self._held:
            return None
        return _KEY_WAIT_S if self._held in _KEYS_LIKE_REPORTS else _REPORT_WAIT_S

    def feed(self, text: str) -> str:
        """Return the input without reports, for the app."""
        text, self._held = self._held + text, ""
        passed: list[str] = []
        while text:
            before, mark, after = text.partition(_PASTE_END if self._pasting else _PASTE_BEGIN)
            if not self._pasting:
                before = _REPORT.sub("", before)
            if not mark:
                at = self._unfinished_from(before)
                before, self._held = before[:at], before[at:]
            passed += [before, mark]
            self._pasting ^= bool(mark)
            text = after
        return "".join(passed)

    def flush(self) -> str:
        """Return the kept input, which was typed."""
        held, self._held = self._held, ""
        return held

    def _unfinished_from(self, text: str) -> int:
        """Return the index from which the text may be an unfinished report, or an unfinished end mark of a paste; the
        length of the text if there is neither."""
        if self._pasting:
            cuts = (len(text) - size for size in range(len(_PASTE_END) - 1, 0, -1))
            return next((cut for cut in cuts if cut >= 0 and _PASTE_END.startswith(text[cut:])), len(text))
        starts = (found.start() for found in re.finditer("\x1b", text))
        at = next((start for start in starts if _REPORT_BEGINNING.match(text, start)), len(text))
        return at if len(text) - at <= _REPORT_MAX else len(text)


def typed_before(app: App[Any]) -> bytes:
    """Return what was typed before the app's driver read the terminal, once."""
    typed: bytes = getattr(app, "typed_before", b"")
    setattr(app, "typed_before", b"")  # noqa: B010 - not every app has it
    return typed


class PlainDriver(LinuxDriver):
    """Textual's own driver, which also gets what was typed before it read the terminal."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        super().__init__(app, **options)
        self.app = app

    def run_input_thread(self) -> None:
        reports = ReportFilter()
        text = reports.feed(typed_before(self.app).decode(errors="replace")) + reports.flush()
        for message in XTermParser().feed(text) if text else ():
            self.process_message(message)
        super().run_input_thread()


class NonBlockingDriver(LinuxDriver):
    """Sends only cells that differ from what the terminal shows. A terminal that accepts nothing (a hung connection, a
    stopped multiplexer) does not block the event loop.

    With such a terminal, Textual's own driver would wait for room in a short queue; meanwhile, answers would not be
    stored and signals not handled. It would also type late reports into the message.
    """

    _output: Output | None = None
    _input_ends: tuple[int, int] | None = None
    """A pipe. A byte in it ends the thread that reads keys."""
    _layer: FrameLayer
    _painter: Painter | None = None
    _running_loop: asyncio.AbstractEventLoop | None = None
    _locating: asyncio.Future[None] | None = None
    _is_synchronized = False
    """True if the terminal shows everything between `_FRAME_BEGINS` and `_FRAME_ENDS` at once."""
    _cursor: tuple[int, int] | None = None
    """The terminal's cursor after the last frame: column and line."""

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
        """Send an update of Textual's compositor; if the terminal is behind, it is sent later. Return False if the
        update contains more than text, so that Textual must write it."""
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
            # A multiplexer that shows this screen again has lost the images on it.
            with suppress(RuntimeError):  # the event loop has ended
                self._running_loop.call_soon_threadsafe(self._redraw_all)
        super().process_message(message)

    @property
    def _draws_through(self) -> bool:
        """True if sequences that draw images pass through a multiplexer (tmux), so that the terminal draws over the
        multiplexer's screen."""
        return self._painter is not None and self._painter.draws_over and self._painter.passage.is_through

    def _locate(self) -> None:
        """Find out, in a thread, at which place of the terminal the multiplexer shows this screen. If that has changed,
        draw everything again."""
        if self._painter is None or not self._draws_through or self._locating is not None or self._running_loop is None:
            return
        passage = self._painter.passage
        before = passage.origin

        def located(_: asyncio.Future[None]) -> None:
            self._locating = None
            if passage.origin != before:
                self._redraw_all()

        self._locating = self._running_loop.run_in_executor(None, passage.locate)
        self._locating.add_done_callback(located)

    def _redraw_all(self) -> None:
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
            self._output.close(_CLOSE_S)

    def disable_input(self) -> None:
        ends, self._input_ends = self._input_ends, None
        if ends is not None:
            os.write(ends[1], b"\0")
        super().disable_input()
        for end in ends or ():
            os.close(end)

    def run_input_thread(self) -> None:
        """Read keys, pastes and mouse events, without reports, until the driver ends or the terminal disappears.

        A terminal that has disappeared returns the end of the file forever; Textual's own thread would then never end.
        """
        assert self._input_ends is not None, "the driver is not in application mode"
        ended = self._input_ends[0]
        parser = XTermParser()
        decode = getincrementaldecoder("utf-8")("replace").decode
        reports = ReportFilter()
        text = reports.feed(decode(typed_before(self.app)))
        while not self.exit_event.is_set():
            for message in [*(parser.feed(text) if text else ()), *parser.tick()]:
                self.process_message(message)
            wait_s = reports.patience_s
            if wait_s is None and text:
                wait_s = _LONE_ESCAPE_S
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

    def _read(self) -> bytes:
        """Return input; empty if the terminal has disappeared."""
        try:
            return os.read(self.fileno, _READ_BYTES)
        except OSError as error:
            if error.errno == errno.EIO:
                return b""
            raise
