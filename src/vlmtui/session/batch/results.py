"""Reads the output file of a batch again: its score, a CSV file, a web page, and the table in the app."""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import NamedTuple

import msgspec

from vlmtui.domain.failure import Failure
from vlmtui.domain.generation import Usage
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.files import new_file
from vlmtui.reading import is_file, shown_name, unreadable
from vlmtui.session.batch.item import Expectation
from vlmtui.session.batch.output import LINE_MAX, LineNumber, Name
from vlmtui.web_page import render_page

_PAGE_MAX = 1_000
"""Most results on a web page; those that failed or are wrong come first."""
_COLUMNS = ("id", "line", "question", "answer", "expected", "correct", "finish_reason", "error")


class StoredResult(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the output file, without its tokens."""

    id: str | None
    line: LineNumber
    key: str
    question: str = ""
    prompt: str | None = None
    """As the model got it; None: the batch was not told to include it."""
    answer: str = ""
    finish_reason: str = ""
    usage: Usage = Usage()
    expect: Expectation | None = None
    correct: bool | None = None
    error: Failure | None = None

    @property
    def state(self) -> str:
        """`failed`, `right`, `wrong`, or empty where nothing was expected."""
        if self.error is not None:
            return "failed"
        return "" if self.correct is None else "right" if self.correct else "wrong"

    @property
    def title(self) -> str:
        """Its name for people: its id, or `line 7`."""
        return self.id if self.id is not None else f"line {self.line:,}"


def read_results(path: Path) -> Iterator[StoredResult]:
    """Yield the results of a file, also while a batch appends to it. Lines that are no result are left
    out. Raises OSError."""
    with path.open("rb") as file:
        while data := file.readline(LINE_MAX):
            if (found := decode_result(data)) is not None:
                yield found


def decode_result(data: bytes) -> StoredResult | None:
    """Return the result in a line, or None if there is none."""
    try:
        return msgspec.json.decode(data, type=StoredResult)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


def score_of(path: Path) -> tuple[int, int]:
    """Return how many of the results are right, and of how many an answer was expected. Raises OSError."""
    outcomes = [one.correct for one in read_results(path) if one.correct is not None]
    return sum(outcomes), len(outcomes)


def write_csv(output: Path, target: Path) -> None:
    """Write the results of a file as CSV. Blocking. Raises VlmtuiError, and OSError if the output can't
    be read."""
    with new_file(target.parent, target.name, durable=True) as new:
        text = io.TextIOWrapper(new.file, "utf-8", errors="replace", newline="", write_through=True)
        rows = csv.writer(text)
        rows.writerow(_COLUMNS)
        for one in read_results(output):
            expected = one.expect.text if one.expect is not None else ""
            error = one.error.message if one.error is not None else ""
            row = (one.id, one.line, one.question, one.answer, expected, one.correct, one.finish_reason, error)
            rows.writerow(row)
        text.detach()
        new.replace(target)


def batch_page(output: Path, model: str) -> str:
    """Return a self-contained web page of the results in a file: counts, and the results, those that
    failed or are wrong first. Blocking. Raises OSError."""
    states: Counter[str] = Counter()
    bad: list[StoredResult] = []
    good: list[StoredResult] = []
    for result in read_results(output):
        states[result.state] += 1
        shown = bad if result.state in ("failed", "wrong") else good
        if len(shown) < _PAGE_MAX:
            shown.append(result)
    correct, expected = score_of(output)
    return render_page(
        "batch.html",
        title=f"Batch {output.name}",
        facts=[
            ("Model", model),
            ("Items", f"{states.total():,}"),
            ("Failed", f"{states['failed']:,}"),
            ("As expected", f"{correct:,} of {expected:,}" if expected else "nothing is expected"),
        ],
        results=[
            {
                "title": one.title,
                "state": one.state,
                "question": one.question,
                "answer": one.answer if one.error is None else one.error.message,
                "expected": one.expect.text if one.expect is not None else "",
            }
            for one in (*bad, *good)[:_PAGE_MAX]
        ],
        left_out=max(0, states.total() - _PAGE_MAX),
    )


class ResultFilter(Enum):
    """Which results a table shows."""

    ALL = "all"
    FAILED = "failed"
    WRONG = "wrong"
    LONGEST = "longest answer first"


class _Row(NamedTuple):
    """The part of a result that the table holds: its place in the file, its state, and the length of
    its answer."""

    place: int
    size: int
    state: str
    length: int


class ResultTable:
    """The results in a file as rows. Only their places are held; a row is read again. `close` it."""

    def __init__(self, path: Path) -> None:
        """Read the file. Blocking. Raises VlmtuiError if it can't be read, or holds something else."""
        if not is_file(path):
            raise bad_input(f"{shown_name(path)} is not a file.", hint="Name the file that a batch writes (-o).")
        self.path = path
        newest: dict[Name, _Row] = {}
        place = 0
        try:
            self._file = path.open("rb")
            while (data := self._file.readline(LINE_MAX)).endswith(b"\n"):  # the last one may be being written
                found = self._decoded(data)
                name = found.line if found.id is None else found.id
                newest.pop(name, None)
                newest[name] = _Row(place, len(data), found.state, len(found.answer))
                place += len(data)
        except OSError as error:
            raise unreadable(path, error) from error
        except VlmtuiError:
            self._file.close()
            raise
        self._all = list(newest.values())
        self._shown = self._all

    def __len__(self) -> int:
        """Number of rows that are shown."""
        return len(self._shown)

    def __getitem__(self, row: int) -> StoredResult:
        """Return the result in a row. Raises VlmtuiError if it cannot be read again."""
        found = self._shown[row]
        try:
            return self._decoded(os.pread(self._file.fileno(), found.size, found.place))
        except OSError as error:
            raise unreadable(self.path, error) from error

    def show(self, shown: ResultFilter) -> None:
        """Choose the rows."""
        self._shown = self._all
        if shown in (ResultFilter.FAILED, ResultFilter.WRONG):
            self._shown = [row for row in self._all if row.state == shown.value]
        elif shown is ResultFilter.LONGEST:
            self._shown = sorted(self._all, key=lambda row: row.length, reverse=True)

    def counts(self) -> Counter[str]:
        """Return the number of items by their state."""
        return Counter(row.state for row in self._all)

    def close(self) -> None:
        self._file.close()

    def _decoded(self, data: bytes) -> StoredResult:
        if (found := decode_result(data)) is not None:
            return found
        message = f"{shown_name(self.path)} has a line that is not a result of a batch."
        raise bad_input(message, hint="Name the file that a batch writes (-o).")
