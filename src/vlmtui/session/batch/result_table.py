"""The results of a batch as a table: where each line is, and which of them are shown in which order.

Of a line only a few numbers are held, so that a hundred thousand take some megabytes; what a row shows is read again.
"""

from __future__ import annotations

import os
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

import msgspec

from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.reading import is_file, shown_name, unreadable
from vlmtui.session.batch.results import LineNumber, StoredResult, StoredTimings, decode_result

_LINE_MAX = 300_000_000
_CACHED = 512
_FAILED, _WRONG, _RIGHT, _REPLACED = 1, 2, 4, 8


class ResultFilter(Enum):
    """Which results are shown."""

    ALL = "all"
    ERRORS = "errors"
    WRONG = "wrong"


class ResultOrder(Enum):
    """In which order."""

    ENDED = "as they ended"
    LINE = "as in the input"
    LONGEST = "longest answer first"
    SLOWEST = "slowest first"


class Counts(msgspec.Struct, frozen=True):
    """How many items have a result."""

    items: int = 0
    errors: int = 0
    wrong: int = 0
    expected: int = 0


class _Line(msgspec.Struct, frozen=True):
    """What is held of a line."""

    id: str | None
    line: LineNumber
    key: str
    answer: str = ""
    correct: bool | None = None
    timings: StoredTimings = StoredTimings()
    error: msgspec.Raw = msgspec.Raw(b"null")


class _Lines:
    """The lines of one file, as far as it was read. Further ones are added in one thread, known ones read in others."""

    def __init__(self, path: Path) -> None:
        try:
            self.file = path.open("rb")
        except OSError as error:
            raise unreadable(path, error) from error
        self.path = path
        self.end = 0
        """Bytes that were read."""
        self.places, self.inputs, self.sizes = array("q"), array("q"), array("q")
        self.seconds, self.flags = array("d"), bytearray()
        self.cache: OrderedDict[int, StoredResult] = OrderedDict()
        self._newest: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.flags)

    def add(self, data: bytes) -> None:
        """Note the next line. Raises VlmtuiError if it is no result."""
        try:
            line = msgspec.json.decode(data, type=_Line)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise _foreign(self.path, len(self) + 1) from error
        name = f"line {line.line}" if line.id is None else f"id {line.id}"
        before = self._newest.get(name)
        if before is not None:
            self.flags[before] = _REPLACED
        self._newest[name] = len(self)
        self.places.append(self.end)
        self.end += len(data)
        self.inputs.append(line.line)
        self.sizes.append(len(line.answer))
        self.seconds.append(line.timings.total_s or 0.0)
        failed = _FAILED if bytes(line.error) != b"null" else 0
        self.flags.append(failed | {None: 0, True: _RIGHT, False: _WRONG}[line.correct])

    def read(self, number: int) -> StoredResult:
        """Return the result of a line. Raises VlmtuiError if it cannot be read again."""
        place = self.places[number]
        end = self.places[number + 1] if number + 1 < len(self.places) else self.end
        try:
            data = os.pread(self.file.fileno(), end - place, place)
        except OSError as error:
            raise unreadable(self.path, error) from error
        if (found := decode_result(data)) is None:
            raise _foreign(self.path, number + 1)
        return found


class TableLook(msgspec.Struct, frozen=True):
    """What of a table is looked at, so that it can be shown again as it was."""

    shown: ResultFilter
    order: ResultOrder
    text: str
    row: int
    """The one that is highlighted."""


class ResultTable:
    """The results in a file that a batch may be appending to. `close` it.

    `read_more` and `arrange` block, and run in one thread at a time; rows may be read in another meanwhile."""

    def __init__(self, path: Path) -> None:
        """Raises VlmtuiError if the file cannot be read."""
        if not is_file(path):
            raise bad_input(f"{shown_name(path)} is not a file.", hint="Name the file that a batch writes (-o).")
        self.path = path
        self.shown, self.order, self.text = ResultFilter.ALL, ResultOrder.ENDED, ""
        self._lines = _Lines(path)
        self._view: tuple[_Lines, Sequence[int], int] = (self._lines, (), 0)
        """The rows: of which lines, their numbers, and how many lines there were."""
        self._former: list[_Lines] = []
        """Of files that were replaced; somebody may still read a row."""

    def __len__(self) -> int:
        """Number of rows that are shown."""
        return len(self._view[1])

    def __getitem__(self, row: int) -> StoredResult:
        """Return the result in a row. Raises VlmtuiError if it cannot be read again."""
        lines, rows, _ = self._view
        number = rows[row]
        found = lines.cache.get(number)
        if found is None:
            found = lines.cache[number] = lines.read(number)
            if len(lines.cache) > _CACHED:
                lines.cache.popitem(last=False)
        return found

    @property
    def is_current(self) -> bool:
        """Whether the rows are those of all lines that were read."""
        return self._view[0] is self._lines and self._view[2] == len(self._lines)

    def counts(self) -> Counts:
        """Count all items, shown or not; each once."""
        count = [self._lines.flags.count(flags) for flags in range(_REPLACED)]

        def having(mask: int) -> int:
            return sum(number for flags, number in enumerate(count) if flags & mask)

        wrong = having(_WRONG)
        return Counts(sum(count), having(_FAILED), wrong, wrong + having(_RIGHT))

    def read_more(self) -> None:
        """Read lines that are new. A file that was replaced, as a batch does at its end, is read anew. Raises
        VlmtuiError if the file holds something else."""
        try:
            if self._is_replaced():
                self._former.append(self._lines)
                self._lines = _Lines(self.path)
            file = self._lines.file
            file.seek(self._lines.end)
            while (data := file.readline(_LINE_MAX)).endswith(b"\n"):  # the last one may be being written
                self._lines.add(data)
        except OSError as error:
            raise unreadable(self.path, error) from error

    def arrange(self) -> None:
        """Choose and order the rows by `shown`, `order` and `text`. With a text, every line is read."""
        lines, words = self._lines, self.text.casefold()
        mask = {ResultFilter.ALL: 0, ResultFilter.ERRORS: _FAILED, ResultFilter.WRONG: _WRONG}[self.shown]
        count = len(lines)
        rows = [n for n, one in enumerate(lines.flags) if not one & _REPLACED and (not mask or one & mask)]
        if words:
            rows = [n for n in rows if _says(lines.read(n), words)]
        match self.order:
            case ResultOrder.ENDED:
                pass
            case ResultOrder.LINE:
                rows.sort(key=lines.inputs.__getitem__)
            case ResultOrder.LONGEST:
                rows.sort(key=lines.sizes.__getitem__, reverse=True)
            case ResultOrder.SLOWEST:
                rows.sort(key=lines.seconds.__getitem__, reverse=True)
        self._view = (lines, array("q", rows), count)

    def close(self) -> None:
        for lines in (*self._former, self._lines):
            lines.file.close()

    def _is_replaced(self) -> bool:
        there, lines = self.path.stat(), self._lines
        return there.st_ino != os.fstat(lines.file.fileno()).st_ino or there.st_size < lines.end


def _says(result: StoredResult, words: str) -> bool:
    """Whether an item has the words: in its id, question, answer or error."""
    error = result.error.message if result.error is not None else ""
    return any(words in text.casefold() for text in (result.id or "", result.question, result.answer, error))


def _foreign(path: Path, number: int) -> VlmtuiError:
    message = f"Line {number} of {shown_name(path)} is not a result of a batch."
    return bad_input(message, hint="Name the file that a batch writes (-o).")
