"""The worker's log: everything that any of its processes prints, followed from the file it goes to."""

from __future__ import annotations

import logging
import re
from collections import deque
from pathlib import Path

RING_LINES = 2000
_LINE_MAX = 4000
_BREAK = re.compile(rb"\r\n|\n|\r")


class LineFormatter(logging.Formatter):
    """Marks every line of a record as vLLM marks its own, so that ours are told from the engine's, tracebacks too."""

    def format(self, record: logging.LogRecord) -> str:
        mark = f"(vlmtui pid={record.process}) "
        return mark + super().format(record).replace("\n", f"\n{mark}")


class Logbook:
    """The newest lines of a growing log file.

    A carriage return ends a line too: progress bars redraw themselves with it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""
        self.lines: deque[str] = deque(maxlen=RING_LINES)

    def read_new(self) -> list[str]:
        """The lines written since the last call; they are kept in `lines` as well."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return []
        self._offset += len(data)
        *complete, self._rest = _BREAK.split(self._rest + data)
        if len(self._rest) > _LINE_MAX:
            complete.append(self._rest)
            self._rest = b""
        fresh = [line.decode(errors="replace")[:_LINE_MAX] for line in complete if line.strip()]
        self.lines.extend(fresh)
        return fresh
