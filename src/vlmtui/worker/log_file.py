"""Reads the worker's log file, and load progress from its lines."""

from __future__ import annotations

import logging
import os
import re
import time
from collections import deque
from pathlib import Path

from vlmtui.domain.engine import LoadProgress, LoadStage
from vlmtui.log_ring import LogRing
from vlmtui.worker.backends.contract import Backend, LoadStep

RING_LINES = 2000
_LINE_MAX = 4000
_READ_MAX = RING_LINES * _LINE_MAX
"""The most bytes to read at once."""
_RECENT_S = 15.0
"""The age in seconds of lines that may explain the engine's end."""
_MARK_EVERY_S = 1.0
_BREAK = re.compile(rb"\r\n|\n|\r")


class LineFormatter(logging.Formatter):
    """Prefixes every line of a log record, so that the worker's lines can be told from those of the engine."""

    def format(self, record: logging.LogRecord) -> str:
        mark = f"(vlmtui pid={record.process}) "
        return mark + super().format(record).replace("\n", f"\n{mark}")


class LogFile:
    """Reads a growing log file and keeps its newest lines. A carriage return also ends a line, as in progress bars."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._rest = b""
        self.ring = LogRing(RING_LINES)
        self._marks: deque[tuple[float, int]] = deque([(time.monotonic(), 0)], maxlen=64)
        """When the log had how many bytes."""

    def recent(self) -> list[str]:
        """Return the lines of the last 15 seconds, and a few older ones if `read_new` was called less often than every
        second. May be called by any thread."""
        since = time.monotonic() - _RECENT_S
        start = next((size for at, size in reversed(tuple(self._marks)) if at <= since), 0)
        try:
            with self.path.open("rb") as file:
                file.seek(max(start, file.seek(0, os.SEEK_END) - _READ_MAX))
                lines = _BREAK.split(file.read())
        except OSError:
            return []
        return [line.decode(errors="replace")[:_LINE_MAX] for line in lines if line.strip()][-RING_LINES:]

    def read_new(self) -> list[str]:
        """Return the lines written since the last call, and add them to `ring`."""
        try:
            with self.path.open("rb") as file:
                self._skip(file.seek(0, os.SEEK_END))
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return []
        self._offset += len(data)
        if (now := time.monotonic()) - self._marks[-1][0] >= _MARK_EVERY_S:
            self._marks.append((now, self._offset))
        *complete, self._rest = _BREAK.split(self._rest + data)
        if len(self._rest) > _LINE_MAX:
            complete.append(self._rest)
            self._rest = b""
        fresh = [line.decode(errors="replace")[:_LINE_MAX] for line in complete if line.strip()]
        self.ring.extend(fresh)
        return fresh

    def _skip(self, size: int) -> None:
        """Skip all but the newest `_READ_MAX` bytes: `ring` could not keep earlier lines anyway."""
        if size - self._offset > _READ_MAX:
            self._offset, self._rest = size - _READ_MAX, b""


_ORDER = list(LoadStage)


class LoadObserver:
    """Tracks the stage of a load. A report of an earlier stage is ignored."""

    def __init__(self, backend: Backend) -> None:
        self._read = backend.read_progress
        self._started = time.monotonic()
        self.progress = LoadProgress(stage=LoadStage.ENVIRONMENT, elapsed_s=0.0, detail=f"importing {backend.title}")

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._started

    def feed(self, line: str) -> LoadProgress | None:
        step = self._read(line)
        return None if step is None else self.reach(step)

    def reach(self, step: LoadStep) -> LoadProgress | None:
        """Return the progress after a step, or None if the step belongs to an earlier stage."""
        if _ORDER.index(step.stage) < _ORDER.index(self.progress.stage):
            return None
        self.progress = LoadProgress(
            stage=step.stage, elapsed_s=self.elapsed_s, fraction=step.fraction, detail=step.detail
        )
        return self.progress
