"""Textual's driver, but for a terminal that stalls."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from textual.drivers.linux_driver import LinuxDriver

from vlmtui.ui.output import Output

_LAST_WORDS_S = 5.0


class PatientDriver(LinuxDriver):
    """A terminal that takes nothing (a connection that hangs, a stopped multiplexer) does not stop the event loop.

    Textual's own waits for room in a short queue: answers would not be stored meanwhile, nor signals heeded.
    """

    _output: Output | None = None

    def start_application_mode(self) -> None:
        loop = asyncio.get_running_loop()

        def draw_anew() -> None:
            if self._app.is_running and self._app.screen_stack:
                self._app.screen.refresh()

        def caught_up() -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(draw_anew)

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
