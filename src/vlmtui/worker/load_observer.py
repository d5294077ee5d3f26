"""Load progress, combined from the backend's reports and its log lines."""

from __future__ import annotations

import time

from vlmtui.domain.engine import LoadProgress, LoadStage
from vlmtui.worker.backends.contract import Backend, LoadStep

_ORDER = list(LoadStage)


class LoadObserver:
    """Tracks the load stage. Stages only move forward, in whatever order they are reported."""

    def __init__(self, backend: Backend) -> None:
        self._read = backend.read_progress
        self._started = time.monotonic()
        self.progress = LoadProgress(stage=LoadStage.ENVIRONMENT, elapsed_s=0.0, detail=f"importing {backend.title}")

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._started

    def feed(self, line: str) -> LoadProgress | None:
        """Return the progress after a log line, or None if the line does not change it."""
        step = self._read(line)
        return None if step is None else self.reach(step)

    def reach(self, step: LoadStep) -> LoadProgress | None:
        """Enter a stage or update the current one. Return None for an earlier stage."""
        if _ORDER.index(step.stage) < _ORDER.index(self.progress.stage):
            return None
        self.progress = LoadProgress(
            stage=step.stage, elapsed_s=self.elapsed_s, fraction=step.fraction, detail=step.detail
        )
        return self.progress
