"""How far a load is, put together from what the backend reports and what its log says."""

from __future__ import annotations

import time

from vlmtui.domain.engine import LoadProgress, LoadStage
from vlmtui.worker.backends.contract import Backend, LoadStep

_ORDER = list(LoadStage)


class LoadObserver:
    """Stages only ever go forward, whatever order they are told in."""

    def __init__(self, backend: Backend) -> None:
        self._read = backend.read_progress
        self._started = time.monotonic()
        self.progress = LoadProgress(stage=LoadStage.ENVIRONMENT, elapsed_s=0.0, detail=f"importing {backend.title}")

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._started

    def feed(self, line: str) -> LoadProgress | None:
        """The progress after a line of the log; None where the line says nothing about it."""
        step = self._read(line)
        return None if step is None else self.reach(step)

    def reach(self, step: LoadStep) -> LoadProgress | None:
        """Enter a stage, or note something new about the present one; None for a stage that is past."""
        if _ORDER.index(step.stage) < _ORDER.index(self.progress.stage):
            return None
        self.progress = LoadProgress(
            stage=step.stage, elapsed_s=self.elapsed_s, fraction=step.fraction, detail=step.detail
        )
        return self.progress
