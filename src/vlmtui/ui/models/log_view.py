"""The engine's log."""

from __future__ import annotations

import re
from collections.abc import Sequence

from vlmtui.log_ring import LogRing
from vlmtui.session.engines import LOG_LINES
from vlmtui.text import one_line
from vlmtui.ui.document.document import Block
from vlmtui.ui.document.lines import Lines, hanging
from vlmtui.ui.document.view import DocumentView

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_TOGETHER = 500
"""Most lines of the log in a block; the oldest go a block at a time."""


def log_line(line: str) -> str:
    """Return a log line to display: without its colours, all other control characters visible."""
    return one_line(_COLOURS.sub("", line))


class LogBlock(Block):
    """Lines of a log, more of which come."""

    def __init__(self, written: Sequence[str]) -> None:
        super().__init__()
        self.written = list(written)
        self._taken = 0
        """The number of those that are laid out."""

    def lay_out(self, width: int) -> Lines:
        known = self.lines if width == self.width else []
        new = self.written[self._taken if known else 0 :]
        self._taken = len(self.written)
        return [*known, *(line for text in new for line in hanging(text, width))]


class LogView(DocumentView):
    """Shows a `LogRing`. Follows new lines while its end is in view."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(follows=True, from_top=True, has_edge=False, can_focus=True, id=id)
        self._shown = 0
        self._generation = -1

    def show_log(self, log: LogRing) -> None:
        """Add the new lines of `log`; start over if it was cleared meanwhile."""
        if log.generation != self._generation:
            self.clear()
            self._shown, self._generation = 0, log.generation
        new = [log_line(line) for line in log.since(self._shown)]
        self._shown = log.total
        blocks = self.document.blocks
        if new and blocks and isinstance(last := blocks[-1], LogBlock):
            room = _TOGETHER - len(last.written)
            last.written += new[:room]
            new = new[room:]
            self.changed(last)
        if new:
            self.add(*(LogBlock(new[at : at + _TOGETHER]) for at in range(0, len(new), _TOGETHER)))
            self.drop(*self.document.blocks[: -(LOG_LINES // _TOGETHER) - 1])
