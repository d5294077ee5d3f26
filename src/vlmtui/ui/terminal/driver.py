"""Textual's driver for terminals that stall and answer late."""

from __future__ import annotations

import asyncio
import errno
import os
import select
from codecs import getincrementaldecoder
from contextlib import suppress

from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver

from vlmtui.ui.terminal.output import Output
from vlmtui.ui.terminal.reports import ReportFilter

_LAST_WORDS_S = 5.0
_TICK_S = 0.1
"""Interval at which the reading thread checks whether to end, and whether a lone Escape was a key."""
_READ_BYTES = 4096


class NonBlockingDriver(LinuxDriver):
    """A driver whose event loop is not blocked by a stalled terminal (a hung connection, a stopped multiplexer).

    Textual's driver waits for room in a short queue; meanwhile answers would not be stored, and signals not handled. It
    also types late terminal reports into the message.
    """

    _output: Output | None = None

    def start_application_mode(self) -> None:
        loop = asyncio.get_running_loop()

        def redraw() -> None:
            if self._app.is_running and self._app.screen_stack:
                self._app.screen.refresh()

        def caught_up() -> None:
            with suppress(RuntimeError):  # the event loop has ended
                loop.call_soon_threadsafe(redraw)

        file = self._file
        assert file is not None
        self._output = Output(file.fileno(), encoding=file.encoding, on_caught_up=caught_up)
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def write(self, data: str) -> None:
        assert self._output is not None, "the driver is not in application mode"
        self._output.write(data)

    def close(self) -> None:
        super().close()
        if self._output is not None:
            self._output.close(_LAST_WORDS_S)

    def run_input_thread(self) -> None:
        """Read keys, pastes and mouse events until the driver ends or the terminal disappears; drop its reports.

        A disappeared terminal is at end of file forever; Textual's driver may never be told to end, because its writes
        fail first.
        """
        parser = XTermParser(self._debug)
        decode = getincrementaldecoder("utf-8")("replace").decode
        reports = ReportFilter()
        while not self.exit_event.is_set():
            patience_s = reports.patience_s
            ready, _, _ = select.select([self.fileno], [], [], _TICK_S if patience_s is None else patience_s)
            if ready:
                data = self._read()
                if not data:
                    return
                text = reports.feed(decode(data))
            else:
                text = reports.flush()
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
