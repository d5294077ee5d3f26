"""The engine's log, following its end."""

from __future__ import annotations

import re

from textual.widgets import Log

from vlmtui.ui.controllers.engine_log import CAPACITY, EngineLog
from vlmtui.ui.text import one_line

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def log_line(line: str) -> str:
    """A line of the log as it is shown: without its colours, everything else that is not text made visible."""
    return one_line(_COLOURS.sub("", line))


class LogTail(Log):
    """Shows an `EngineLog`. Follows new lines while its end is in view; scrolling up holds it still."""

    DEFAULT_CSS = """
    LogTail {
        background: $background;
        color: $muted;
        scrollbar-size: 0 1;
        overflow-x: auto;
        overflow-y: auto;
        &:focus { background-tint: $foreground 0%; }
    }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, max_lines=CAPACITY)
        self._shown = 0
        self._generation = -1

    def on_mount(self) -> None:
        self.anchor()

    def show(self, log: EngineLog) -> None:
        """Add what is new in `log`; start afresh when it was cleared meanwhile."""
        if log.generation != self._generation:
            self.clear()
            self._shown, self._generation = 0, log.generation
        lines = log.since(self._shown)
        self._shown = log.total
        if lines:
            self.write_lines(log_line(line) or " " for line in lines)
