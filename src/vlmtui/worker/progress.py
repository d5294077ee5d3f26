"""How far a load is, read off vLLM's own log lines."""

from __future__ import annotations

import re
import time

from vlmtui.domain.engine import LoadProgress, LoadStage

_ORDER = list(LoadStage)
_PREFIX = re.compile(r"^(?:\([^)]*pid=\d+\)\s*)?(?:(?:INFO|WARNING|ERROR|DEBUG) [\d-]+ [\d:]+ \[[^\]]*\]\s*)?")

_MARKS: tuple[tuple[LoadStage, re.Pattern[str]], ...] = (
    (LoadStage.CONFIG, re.compile(r"Resolved architecture: (?P<detail>\S+)")),
    (LoadStage.CONFIG, re.compile(r"(?P<detail>Initializing a V1 LLM engine)")),
    (LoadStage.WEIGHTS, re.compile(r"(?P<detail>Starting to load model)")),
    (
        LoadStage.WEIGHTS,
        re.compile(r"Loading .*checkpoint shards:\s*(?P<percent>\d+)% Completed \| (?P<detail>\d+/\d+)"),
    ),
    (LoadStage.WEIGHTS, re.compile(r"(?P<detail>\S+\.(?:safetensors|bin|pt)):\s*(?P<percent>\d+)%\|")),
    (LoadStage.WEIGHTS, re.compile(r"Fetching (?P<detail>\d+ files):\s*(?P<percent>\d+)%\|")),
    (LoadStage.MEMORY, re.compile(r"(?P<detail>(?:Loading weights|Model loading) took [^;]*)")),
    (LoadStage.MEMORY, re.compile(r"(?P<detail>Available KV cache memory: [\d.]+ \w+)")),
    (LoadStage.MEMORY, re.compile(r"(?P<detail>KV cache size: [\d,]+ tokens)")),
    (LoadStage.COMPILE, re.compile(r"(?P<detail>Dynamo bytecode transform|Compiling a graph|torch\.compile takes)")),
    (LoadStage.COMPILE, re.compile(r"(?P<detail>Capturing CUDA graphs?)[^:]*:\s*(?P<percent>\d+)%")),
    (LoadStage.COMPILE, re.compile(r"(?P<detail>Graph capturing finished in \d+ secs)")),
    (LoadStage.WARMUP, re.compile(r"(?P<detail>init engine \(.*\) took [\d.]+ s)")),
)


class LoadObserver:
    """Turns log lines into progress. Stages only ever go forward, whatever order vLLM prints in."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self.progress = LoadProgress(stage=LoadStage.ENVIRONMENT, elapsed_s=0.0, detail="importing vLLM")

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._started

    def feed(self, line: str) -> LoadProgress | None:
        """The progress after a line of the log, or None where the line says nothing about it."""
        text = _PREFIX.sub("", line)
        for stage, pattern in _MARKS:
            found = pattern.search(text)
            if found:
                groups = found.groupdict()
                percent = groups.get("percent")
                fraction = None if percent is None else min(100, int(percent)) / 100
                return self.reach(stage, detail=(groups.get("detail") or "").strip(), fraction=fraction)
        return None

    def reach(self, stage: LoadStage, *, detail: str = "", fraction: float | None = None) -> LoadProgress | None:
        """Enter a stage, or note something new about the present one; None for a stage that is past."""
        if _ORDER.index(stage) < _ORDER.index(self.progress.stage):
            return None
        self.progress = LoadProgress(stage=stage, elapsed_s=self.elapsed_s, fraction=fraction, detail=detail)
        return self.progress
