"""The output file of a batch, one JSON line for each item, and its views: score, CSV, web page, table.

A repeated item's line is appended; `OutputFile.tidy` later removes the older one. Opening the file cuts off an
incomplete last line that a kill or a full disk left."""

from __future__ import annotations

import csv
import fcntl
import io
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import msgspec

from vlmtui.domain.generation import Failure, Usage
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.export.web_page import render_page
from vlmtui.files import new_file, not_written
from vlmtui.inspection.statistics import share_text
from vlmtui.reading import is_file, shown_name, unreadable
from vlmtui.session.batch.items import BadItem, Expectation, Item, MediaSource
from vlmtui.text import one_line, quoted

_T = TypeVar("_T")
LineNumber = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""An item's line in the input, from 1."""
LINE_MAX = 300_000_000
"""Most bytes of a result's line."""
_HEAD = b'{"id":'
"""The beginning of every line."""
_MODE = 0o600
_PAGE_MAX = 1_000
"""Most results on a web page; those that failed or are wrong come first."""
_COLUMNS = ("id", "line", "question", "answer", "expected", "correct", "error")
Name = str | int
"""An item's id; the line number if it has none."""


class MatchedItem(NamedTuple):
    """An item of the input, and its newest line in the output."""

    item: Item
    key: str | None = None
    """The key of that line (`BatchJob.key`); None: it has none, or it failed and is to be retried."""
    failed: bool = False


class LineHead(msgspec.Struct, frozen=True):
    """The fields of a line that a later run needs."""

    id: str | None
    line: LineNumber
    key: str
    error: msgspec.Raw

    @property
    def name(self) -> Name:
        return self.line if self.id is None else self.id


class OutputFile:
    """The output file, locked for this process. Blocking; use it from one thread at a time, and close it."""

    def __init__(self, path: Path, *, retries_failed: bool = False) -> None:
        """Open the file (0600), creating it if it is missing, and read which items have a line.

        retries_failed: treat failed items as if they had no line. Raises VlmtuiError(BAD_INPUT) if another batch is
        writing the file, or if it contains something other than results."""
        self.path = path.resolve()
        self._retries_failed = retries_failed
        self.cut_bytes = 0
        """Bytes of an incomplete last line that were cut off when opening."""
        self.lines = 0
        """Lines in the file, including older lines of repeated items."""
        self._keys: dict[Name, tuple[str, bool]] = {}
        """By item, of its newest line: the key, and whether it failed."""
        self._inputs: dict[Name, LineNumber] = {}
        """By item that was read: its line in the input."""
        self._size = 0
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = _locked(self.path)
        except (OSError, ValueError) as error:
            raise not_written(path.name, path.parent, error) from error
        try:
            self._read()
        except VlmtuiError:
            os.close(self._descriptor)
            raise
        except OSError as error:
            os.close(self._descriptor)
            raise not_written(path.name, path.parent, error) from error

    def append(self, lines: Sequence[bytes]) -> None:
        """Append lines (without line breaks) and flush them to disk. Raises VlmtuiError; the file is then unchanged."""
        data = b"".join(line + b"\n" for line in lines)
        try:
            _write_all(self._descriptor, data, self._size)
            os.fsync(self._descriptor)
        except OSError as error:
            os.ftruncate(self._descriptor, self._size)
            raise not_written(self.path.name, self.path.parent, error) from error
        self._size += len(data)
        for line in lines:
            self._note(msgspec.json.decode(line, type=LineHead))

    def match(self, item: Item) -> MatchedItem:
        """Note that an item was read from the input, and return it with its newest line's key. A second item with the
        same id becomes a bad item."""
        name = item.line if item.id is None else item.id
        if item.id is not None and (line := self._inputs.get(name)) is not None:
            error = bad_input(f"The id {quoted(item.id)} is also used in line {line}.", hint="Give it another id.")
            return self.match(BadItem(line=item.line, failure=Failure.of(error)))
        self._inputs[name] = item.line
        key, failed = self._keys.get(name, (None, False))
        return MatchedItem(item) if failed and self._retries_failed else MatchedItem(item, key, failed)

    def tidy(self) -> None:
        """Replace the file atomically by a file with only the newest line of each item; errors about input lines that
        were corrected since are left out. Call it when the whole input has been read. Raises VlmtuiError."""
        keys = {name: one for name, one in self._keys.items() if isinstance(name, str) or name in self._inputs}
        if len(keys) == self.lines:
            return
        newest = {msgspec.json.decode(data, type=LineHead).name: at for at, data in enumerate(_lines(self.path))}
        kept, size = {newest[name] for name in keys}, 0
        with new_file(self.path.parent, self.path.name, durable=True) as new:
            for at, data in enumerate(_lines(self.path)):
                if at in kept:
                    new.file.write(data)
                    size += len(data)
            new.replace(self.path)
            descriptor = os.dup(new.file.fileno())  # keeps the lock that an unfinished file has
        os.close(self._descriptor)
        self._descriptor, self._size, self.lines, self._keys = descriptor, size, len(kept), keys

    def close(self) -> None:
        os.close(self._descriptor)

    def _note(self, head: LineHead) -> None:
        """Record the next line of the file as its item's newest line."""
        self._keys[head.name] = head.key, bytes(head.error) != b"null"
        self.lines += 1

    def _read(self) -> None:
        """Record the lines of the file, and cut off an incomplete last line."""
        bad, data = b"", b"\n"
        for number, data in enumerate(_lines(self.path), 1):
            head = _decode(data, LineHead) if data.startswith(_HEAD) else None
            if bad or (head is None and not _may_be_torn(data)):
                raise self._foreign(number - bool(bad))
            if head is None:
                bad = data
                continue
            self._note(head)
            self._size += len(data)
        if bad:
            self.cut_bytes = len(bad)
            os.ftruncate(self._descriptor, self._size)
            os.fsync(self._descriptor)
        elif not data.endswith(b"\n"):
            _write_all(self._descriptor, b"\n", self._size)
            self._size += 1

    def _foreign(self, number: int) -> VlmtuiError:
        name = one_line(self.path.name)
        message = f"Can't write to {name}: line {number} is not a result of a batch."
        return bad_input(message, hint="Choose another output file.")


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while data := file.readline(LINE_MAX):
            yield data


def _decode(data: bytes, type: type[_T]) -> _T | None:
    """Return a line's JSON as a value of this type; None if the line is not such JSON."""
    try:
        return msgspec.json.decode(data, type=type)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


def _may_be_torn(data: bytes) -> bool:
    """Return True if a line may be an incompletely written result: cut off, or zeros after a power failure."""
    if b"\0" in data:
        return True
    if data.endswith(b"\n") or not (_HEAD.startswith(data) or data.startswith(_HEAD)):
        return False
    return _decode(data, dict) is None


def _locked(path: Path) -> int:
    """Open and lock the file; return its descriptor. Raises OSError, and VlmtuiError if another process locks it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, _MODE)
        try:
            if not path.is_file():
                raise bad_input(f"{one_line(path.name)} is not a regular file.", hint="Give the name of a file.")
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_ino == path.stat().st_ino:
                return descriptor
        except BlockingIOError as error:
            os.close(descriptor)
            message = f"Another batch is writing {one_line(path.name)}."
            raise VlmtuiError(ErrorKind.BAD_INPUT, message, hint="Wait for it, or choose another file.") from error
        except (OSError, VlmtuiError):
            os.close(descriptor)
            raise
        os.close(descriptor)  # it was replaced in between


def _write_all(descriptor: int, data: bytes, place: int) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(descriptor, view, place)
        view, place = view[count:], place + count


class StoredResult(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the output file, without its tokens."""

    id: str | None
    line: LineNumber
    key: str
    model: str = ""
    """The model's name; empty if there is no answer."""
    question: str = ""
    media: tuple[str, ...] = ()
    """The SHA-256 of each medium; empty if the item failed before it was sent."""
    sources: tuple[MediaSource, ...] = ()
    """Where the media were."""
    prompt: str | None = None
    """The prompt as the model got it; None without `--include-prompt`."""
    answer: str = ""
    usage: Usage = Usage()
    expect: Expectation | None = None
    correct: bool | None = None
    error: Failure | None = None

    @property
    def state(self) -> str:
        """The state of the result: `failed`, `right`, `wrong`, or empty if the item has no expected answer."""
        if self.error is not None:
            return "failed"
        return "" if self.correct is None else "right" if self.correct else "wrong"

    @property
    def title(self) -> str:
        """The item's id, or `line 7`."""
        return self.id if self.id is not None else f"line {self.line:,}"


def read_results(path: Path) -> Iterator[StoredResult]:
    """Yield the results of a file, even while a batch appends to it; skip lines without a result. Raises OSError."""
    yield from filter(None, map(decode_result, _lines(path)))


def decode_result(data: bytes) -> StoredResult | None:
    """Return the result in a line; None if the line has no result."""
    return _decode(data, StoredResult)


class Score(NamedTuple):
    """Counts of the results in a file."""

    correct: int
    expected: int
    """Results with an expected answer."""
    errors: Counter[str]
    """Failed items, by the kind of their error (`ErrorKind`)."""


def score_of(path: Path) -> Score:
    """Return the counts of a file's results. Raises OSError."""
    correct = expected = 0
    errors: Counter[str] = Counter()
    for one in read_results(path):
        correct += one.correct or False
        expected += one.correct is not None
        errors.update([one.error.kind.value] if one.error is not None else [])
    return Score(correct, expected, errors)


def write_csv(output: Path, target: Path) -> None:
    """Write the results as CSV. Blocking. Raises VlmtuiError, and OSError if `output` can't be read."""
    with new_file(target.parent, target.name, durable=True) as new:
        text = io.TextIOWrapper(new.file, "utf-8", errors="replace", newline="", write_through=True)
        rows = csv.writer(text)
        rows.writerow(_COLUMNS)
        for one in read_results(output):
            expected = one.expect.text if one.expect is not None else ""
            error = one.error.message if one.error is not None else ""
            row = (one.id, one.line, one.question, one.answer, expected, one.correct, error)
            rows.writerow(row)
        text.detach()
        new.replace(target)


def batch_page(output: Path, model: str) -> str:
    """Return a self-contained web page of counts and results, failed and wrong ones first. Blocking. Raises OSError."""
    states: Counter[str] = Counter()
    bad: list[StoredResult] = []
    good: list[StoredResult] = []
    for result in read_results(output):
        states[result.state] += 1
        shown = bad if result.state in ("failed", "wrong") else good
        if len(shown) < _PAGE_MAX:
            shown.append(result)
    right, expected, _ = score_of(output)
    score = f"{right:,} of {expected:,}: {share_text(right, expected)}" if expected else "no expected answers"
    return render_page(
        "batch.html",
        title=f"Batch {output.name}",
        facts=[
            ("Model", model),
            ("Items", f"{states.total():,}"),
            ("Failed", f"{states['failed']:,}"),
            ("As expected", score),
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
    ALL = "all"
    FAILED = "failed"
    WRONG = "wrong"
    LONGEST = "longest answer first"


class _Place(NamedTuple):
    """A result's offset and size in the file in bytes, its state, and its answer's length in characters."""

    place: int
    size: int
    state: str
    length: int


class ResultTable(Sequence[StoredResult]):
    """The results in a file as rows. Only their offsets are kept; a row is read when needed. `close` it."""

    def __init__(self, path: Path) -> None:
        """Read the file. Blocking. Raises VlmtuiError if it can't be read, or contains something other than results."""
        if not is_file(path):
            raise bad_input(f"{shown_name(path)} is not a file.", hint="Name the file that a batch writes (-o).")
        self.path = path
        newest: dict[Name, _Place] = {}
        place = 0
        try:
            self._file = path.open("rb")
            while (data := self._file.readline(LINE_MAX)).endswith(b"\n"):  # the last one may be being written
                found = self._decoded(data)
                name = found.line if found.id is None else found.id
                newest.pop(name, None)
                newest[name] = _Place(place, len(data), found.state, len(found.answer))
                place += len(data)
        except OSError as error:
            raise unreadable(path, error) from error
        except VlmtuiError:
            self._file.close()
            raise
        self._all = list(newest.values())
        self._shown = self._all

    def __len__(self) -> int:
        return len(self._shown)

    def __getitem__(self, row: int) -> StoredResult:  # type: ignore[override]
        """Return the result in a row. Raises VlmtuiError if it can't be read any more."""
        found = self._shown[row]
        try:
            return self._decoded(os.pread(self._file.fileno(), found.size, found.place))
        except OSError as error:
            raise unreadable(self.path, error) from error

    def show(self, shown: ResultFilter) -> None:
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
