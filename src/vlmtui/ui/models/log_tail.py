"""A widget that follows the engine's log."""

from __future__ import annotations

import re

from rich.cells import cell_len, chop_cells
from textual.widgets import Log

from vlmtui.log_ring import LogRing
from vlmtui.session.engine_controller import LOG_LINES
from vlmtui.text import one_line

_INDENT = 4
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def log_line(line: str) -> str:
    """Return a log line to display: without its colours, all other control characters visible."""
    return one_line(_COLOURS.sub("", line))


def wrap_line(line: str, width: int) -> list[str]:
    """Wrap the line into pieces of at most `width` cells, continuations indented; breaks at a space if one is near."""
    pieces: list[str] = []
    indent = ""
    while cell_len(line) > (room := width - len(indent)):
        piece = chop_cells(line, room)[0] or line[0]
        space = piece.rfind(" ")
        if space > len(piece) // 2:
            piece = piece[: space + 1]
        pieces.append(indent + piece)
        line = line[len(piece) :]
        indent = " " * _INDENT
    return [*pieces, indent + line]


class LogTail(Log):
    """Shows a `LogRing`. Follows new lines while its end is in view; scrolling up stops that."""

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

    def __init__(self, *, wrap: bool = False, id: str | None = None) -> None:
        super().__init__(id=id)
        self.max_lines = LOG_LINES
        self._wrap = wrap
        self._shown_log: LogRing | None = None
        self._shown = 0
        self._generation = -1

    def on_mount(self) -> None:
        self.anchor()

    def on_resize(self) -> None:
        if self._wrap and self._shown_log is not None:
            self._generation = -1
            self.show(self._shown_log)

    def show(self, log: LogRing) -> None:
        """Add the new lines of `log`; start over if it was cleared meanwhile."""
        self._shown_log = log
        if log.generation != self._generation:
            self.clear()
            self._shown, self._generation = 0, log.generation
        lines = [log_line(line) for line in log.since(self._shown)]
        self._shown = log.total
        width = self.scrollable_content_region.width
        if self._wrap and width > 2 * _INDENT:
            lines = [part for line in lines for part in wrap_line(line, width)]
        if lines:
            self.write_lines(line or " " for line in lines)
