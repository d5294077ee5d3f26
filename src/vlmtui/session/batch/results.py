"""Reads the output file of a batch again: its score, a CSV file, a web page, and the table in the app."""

from __future__ import annotations

import csv
import io
import os
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path

import msgspec

from vlmtui.domain.failure import Failure
from vlmtui.domain.generation import Usage
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.files import new_file
from vlmtui.reading import is_file, shown_name, unreadable
from vlmtui.session.batch.item import Expectation
from vlmtui.session.batch.output import LINE_MAX, LineNumber
from vlmtui.web_page import render_page

_PAGE_MAX = 1_000
"""Most results on a web page; those that failed or are wrong come first."""
_COLUMNS = ("id", "line", "question", "answer", "expected", "correct", "finish_reason", "total_s", "error")
_FAILED, _WRONG, _RIGHT, _REPLACED = 1, 2, 4, 8


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
    model: str = ""
    prompt: str | None = None
    """As the model got it; None: the batch was not told to include it."""
    answer: str = ""
    finish_reason: str = ""
    usage: Usage = Usage()
    timings: StoredTimings = StoredTimings()
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
        """What people call it: its id, or `line 7`."""
        return self.id if self.id is not None else f"line {self.line:,}"


class Score(msgspec.Struct, frozen=True):
    """How many of the answers with an expectation are right."""

    correct: int
    expected: int

    @property
    def share(self) -> float:
        return self.correct / self.expected


def read_results(path: Path) -> Iterator[StoredResult]:
    """Yield the results of a file, also while a batch appends to it. Lines that are no result are left out. Raises
    OSError."""
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


def score_of(path: Path) -> Score | None:
    """Return the score of all results of a file; None if nothing is expected of any. Raises OSError."""
    outcomes = [one.correct for one in read_results(path) if one.correct is not None]
    return Score(sum(outcomes), len(outcomes)) if outcomes else None


def write_csv(output: Path, target: Path) -> None:
    """Write the results of a file as CSV. Blocking. Raises VlmtuiError, and OSError if the output can't be read."""
    with new_file(target.parent, target.name, durable=True) as new:
        text = io.TextIOWrapper(new.file, "utf-8", errors="replace", newline="", write_through=True)
        rows = csv.writer(text)
        rows.writerow(_COLUMNS)
        for one in read_results(output):
            expected = one.expect.text if one.expect is not None else ""
            error = one.error.message if one.error is not None else ""
            row = (one.id, one.line, one.question, one.answer, expected, one.correct, one.finish_reason)
            rows.writerow((*row, one.timings.total_s, error))
        text.detach()
        new.replace(target)


def batch_page(output: Path) -> str:
    """Return a self-contained web page of the results in a file: counts, and the results, those that failed or are
    wrong first. Blocking. Raises OSError."""
    states: Counter[str] = Counter()
    models: Counter[str] = Counter()
    prompt_tokens = answer_tokens = correct = expected = 0
    bad: list[StoredResult] = []
    good: list[StoredResult] = []
    for result in read_results(output):
        states[result.state] += 1
        models[result.model] += 1
        if result.correct is not None:
            expected += 1
            correct += result.correct
        prompt_tokens += result.usage.prompt_tokens
        answer_tokens += result.usage.completion_tokens
        shown = bad if result.state in ("failed", "wrong") else good
        if len(shown) < _PAGE_MAX:
            shown.append(result)
    return render_page(
        "batch.html",
        title=f"Batch {output.name}",
        facts=[
            ("Model", ", ".join(name for name, _ in models.most_common(3) if name) or "–"),
            ("Items", f"{states.total():,}"),
            ("Failed", f"{states['failed']:,}"),
            ("As expected", f"{correct:,} of {expected:,}" if expected else "nothing is expected"),
            ("Tokens", f"{prompt_tokens:,} of prompts, {answer_tokens:,} of answers"),
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


class _Line(msgspec.Struct, frozen=True):
    """What is held of a line."""

    id: str | None
    line: LineNumber
    key: str
    answer: str = ""
    correct: bool | None = None
    error: msgspec.Raw = msgspec.Raw(b"null")


class ResultTable:
    """The results in a file as rows. Of a line only a few numbers are held; a row is read again. `close` it."""

    def __init__(self, path: Path) -> None:
        """Read the file. Blocking. Raises VlmtuiError if it can't be read, or holds something else."""
        if not is_file(path):
            raise bad_input(f"{shown_name(path)} is not a file.", hint="Name the file that a batch writes (-o).")
        self.path = path
        self.rows: Sequence[int] = ()
        """The lines that are shown, in their order."""
        self._places, self._sizes, self._flags = array("q", [0]), array("q"), bytearray()
        self._newest: dict[str, int] = {}
        try:
            self._file = path.open("rb")
            while (data := self._file.readline(LINE_MAX)).endswith(b"\n"):  # the last one may be being written
                self._add(data)
        except OSError as error:
            raise unreadable(path, error) from error
        self.show(ResultFilter.ALL)

    def __len__(self) -> int:
        """Number of rows that are shown."""
        return len(self.rows)

    def __getitem__(self, row: int) -> StoredResult:
        """Return the result in a row. Raises VlmtuiError if it cannot be read again."""
        number = self.rows[row]
        place = self._places[number]
        try:
            data = os.pread(self._file.fileno(), self._places[number + 1] - place, place)
        except OSError as error:
            raise unreadable(self.path, error) from error
        if (found := decode_result(data)) is None:
            raise _foreign(self.path, number + 1)
        return found

    def show(self, shown: ResultFilter) -> None:
        """Choose the rows."""
        wanted = {ResultFilter.FAILED: _FAILED, ResultFilter.WRONG: _WRONG}.get(shown, 0)
        rows = [n for n, one in enumerate(self._flags) if one != _REPLACED and one & wanted == wanted]
        if shown is ResultFilter.LONGEST:
            rows.sort(key=self._sizes.__getitem__, reverse=True)
        self.rows = array("q", rows)

    def counts(self) -> tuple[int, int, int, int]:
        """Return how many items there are, how many failed, are wrong, and have an expectation."""
        failed = sum(bool(flags & _FAILED) for flags in self._flags)
        wrong = sum(bool(flags & _WRONG) for flags in self._flags)
        return len(self._newest), failed, wrong, wrong + sum(bool(flags & _RIGHT) for flags in self._flags)

    def close(self) -> None:
        self._file.close()

    def _add(self, data: bytes) -> None:
        number = len(self._flags)
        try:
            line = msgspec.json.decode(data, type=_Line)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            self._file.close()
            raise _foreign(self.path, number + 1) from error
        name = f"line {line.line}" if line.id is None else f"id {line.id}"
        if (before := self._newest.get(name)) is not None:
            self._flags[before] = _REPLACED
        self._newest[name] = number
        self._places.append(self._places[-1] + len(data))
        self._sizes.append(len(line.answer))
        failed = _FAILED if bytes(line.error) != b"null" else 0
        self._flags.append(failed | {None: 0, True: _RIGHT, False: _WRONG}[line.correct])


def _foreign(path: Path, number: int) -> VlmtuiError:
    message = f"Line {number} of {shown_name(path)} is not a result of a batch."
    return bad_input(message, hint="Name the file that a batch writes (-o).")
