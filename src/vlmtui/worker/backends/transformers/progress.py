"""Reads load progress from the progress bars of Transformers and huggingface_hub in the worker's log."""

from __future__ import annotations

import re

from vlmtui.domain.engine import LoadStage
from vlmtui.worker.backends.contract import LoadStep

_MARKS = (
    re.compile(r"(?P<detail>Loading (?:weights|checkpoint shards)):\s*(?P<percent>\d+)%\|"),
    re.compile(r"(?P<detail>\S+\.(?:safetensors|bin|pt)):\s*(?P<percent>\d+)%\|"),
    re.compile(r"(?P<detail>Fetching \d+ files):\s*(?P<percent>\d+)%\|"),
)


def read_progress(line: str) -> LoadStep | None:
    """Return the progress that a log line reports, or None."""
    for pattern in _MARKS:
        if found := pattern.search(line):
            return LoadStep(LoadStage.WEIGHTS, found["detail"], min(100, int(found["percent"])) / 100)
    return None
