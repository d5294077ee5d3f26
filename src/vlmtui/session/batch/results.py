"""Reads the output file of a batch again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from vlmtui.domain.failure import Failure
from vlmtui.domain.generation import Usage
from vlmtui.domain.sampling import Sampling
from vlmtui.session.batch.item import Expectation

_LINE_MAX = 300_000_000


LineNumber = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""The place of an item in its input."""


class StoredTimings(msgspec.Struct, frozen=True):
    """Seconds of an answer."""

    ttft_s: float | None = None
    total_s: float | None = None


class StoredResult(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the output file, without its tokens."""

    id: str | None
    line: LineNumber
    key: str
    question: str = ""
    mode: str = "chat"
    model: str = ""
    prompt: str | None = None
    """As the model got it; None: the batch was not told to include it."""
    answer: str = ""
    finish_reason: str = ""
    sampling: Sampling | None = None
    """As it was sent; None: not said."""
    usage: Usage = Usage()
    timings: StoredTimings = StoredTimings()
    expect: Expectation | None = None
    correct: bool | None = None
    error: Failure | None = None
    ended: float | None = None
    """When it ended, in seconds since 1970."""


class Score(msgspec.Struct, frozen=True):
    """How many of the answers with an expectation are right."""

    correct: int
    expected: int

    @property
    def share(self) -> float:
        return self.correct / self.expected


class _Outcome(msgspec.Struct, frozen=True):
    correct: bool | None = None


def read_results(path: Path) -> Iterator[StoredResult]:
    """Yield the results of a file, also while a batch appends to it. Lines that are no result are left out. Raises
    OSError."""
    with path.open("rb") as file:
        while data := file.readline(_LINE_MAX):
            if (found := decode_result(data)) is not None:
                yield found


def decode_result(data: bytes) -> StoredResult | None:
    """Return the result in a line, or None if there is none."""
    try:
        return msgspec.json.decode(data, type=StoredResult)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


def score_of(path: Path) -> Score | None:
    """Return the score of all lines of a file; None if nothing is expected of any. Lines that are no result are left
    out. Raises OSError."""
    correct = expected = 0
    with path.open("rb") as file:
        while data := file.readline(_LINE_MAX):
            try:
                found = msgspec.json.decode(data, type=_Outcome)
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
                continue
            if found.correct is not None:
                expected += 1
                correct += found.correct
    return Score(correct, expected) if expected else None
