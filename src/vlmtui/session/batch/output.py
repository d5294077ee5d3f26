"""The output file of a batch: a JSON line an item, appended and flushed to disk in groups.

Each item has exactly one line. A line that replaces another is appended as well, and the replaced one is left out when
the file is tidied: at the end of a run, or of the next one if this was killed. What a kill or a full disk left
behind the last whole line is cut off.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from vlmtui.domain.failure import Failure
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.files import new_file, not_written
from vlmtui.session.batch.item import BadItem, Item
from vlmtui.text import one_line, quoted

LineNumber = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""The place of an item in its input."""
LINE_MAX = 300_000_000
"""Most bytes of a result's line."""
_HEAD = b'{"id":'
"""How every line begins."""
_MODE = 0o600

Name = str | int
"""An item's id, or where a line of the input has none, the line's number."""


class _Row(msgspec.Struct, gc=False):
    """An item in the output file, and in the input."""

    key: str
    failed: bool
    number: int
    """The newest line that it has in the output, from 0; -1: none."""
    line: int
    """The line of the input that this run has met it at; 0: not yet."""


class MetItem(NamedTuple):
    """An item of the input, and the newest line that the output had of it."""

    item: Item
    key: str | None = None
    """None: there is none."""
    failed: bool = False


class LineHead(msgspec.Struct, frozen=True):
    """What is read of a line again."""

    id: str | None
    line: LineNumber
    key: str
    error: msgspec.Raw


class OutputFile:
    """The output file, locked for this process. Blocking; use it from one thread at a time, and close it."""

    def __init__(self, path: Path) -> None:
        """Open the file (0600), creating it if it is missing, and read which items have a line.

        Raises VlmtuiError: BAD_INPUT if another batch writes it, or if it holds something else than results."""
        self.path = path.resolve()
        self.cut_bytes = 0
        """Bytes behind the last whole line that were cut off at the start."""
        self.lines = 0
        """Lines in the file, replaced ones among them."""
        self._rows: dict[Name, _Row] = {}
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
        """Append lines, without their line breaks, and flush them to disk. Raises VlmtuiError; then the
        file is as it was before."""
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

    def meet(self, item: Item) -> MetItem:
        """Note that an item was read, and return it with what the file has of it. The second item with an id is
        none."""
        row = self._rows.setdefault(item.line if item.id is None else item.id, _Row("", False, -1, 0))
        if row.line and item.id is not None:
            error = bad_input(f"The id {quoted(item.id)} is that of line {row.line}, too.", hint="Give it another id.")
            return self.meet(BadItem(line=item.line, failure=Failure.of(error)))
        row.line = item.line
        return MetItem(item, row.key, row.failed) if row.number >= 0 else MetItem(item)

    def drop_failed(self) -> None:
        """Leave out the lines of failed items, which are to be tried again."""
        self._rewrite(lambda name, row: not row.failed)

    def tidy(self) -> None:
        """Leave out replaced lines, and once the input was read, the errors of lines that are none any
        more. Raises VlmtuiError; then the file is as it was before."""
        self._rewrite(lambda name, row: isinstance(name, str) or bool(row.line))

    def close(self) -> None:
        os.close(self._descriptor)

    def _note(self, head: LineHead) -> None:
        """Note that an item's newest line is the next one of the file."""
        name = head.line if head.id is None else head.id
        known = self._rows.get(name)
        has_failed = bytes(head.error) != b"null"
        self._rows[name] = _Row(head.key, has_failed, self.lines, known.line if known else 0)
        self.lines += 1

    def _read(self) -> None:
        """Note the lines, and cut off what is behind the last whole one."""
        bad, data = b"", b"\n"
        for number, data in enumerate(_lines(self.path), 1):
            head = _decoded(data)
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

    def _rewrite(self, keeps: Callable[[Name, _Row], bool]) -> None:
        """Replace the file, in one step, by one with only the newest line of each item, if `keeps` accepts it. Nothing
        is done if that is all of them."""
        written = {name: row for name, row in self._rows.items() if row.number >= 0}
        kept = {row.number: row for name, row in written.items() if keeps(name, row)}
        if len(kept) == self.lines:
            return
        size = 0
        with new_file(self.path.parent, self.path.name, durable=True) as new:
            for number, data in enumerate(_lines(self.path)):
                if number in kept:
                    new.file.write(data)
                    size += len(data)
            new.replace(self.path)
            descriptor = os.dup(new.file.fileno())  # keeps the lock that an unfinished file has
        os.close(self._descriptor)
        self._descriptor, self._size, self.lines = descriptor, size, len(kept)
        for name, row in written.items():
            if row.number not in kept:
                self._rows[name] = _Row("", False, -1, row.line)
        for number, row in enumerate(kept[at] for at in sorted(kept)):
            row.number = number

    def _foreign(self, number: int) -> VlmtuiError:
        name = one_line(self.path.name)
        message = f"Line {number} of {name} is not a result of a batch, so nothing is written to it."
        return bad_input(message, hint="Choose another output file.")


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while data := file.readline(LINE_MAX):
            yield data


def _decoded(data: bytes) -> LineHead | None:
    if not data.startswith(_HEAD):
        return None
    try:
        return msgspec.json.decode(data, type=LineHead)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


def _may_be_torn(data: bytes) -> bool:
    """Whether a line that is no result is the rest of one: cut off, or zeros after a power failure."""
    if b"\0" in data:
        return True
    if data.endswith(b"\n") or not (_HEAD.startswith(data) or data.startswith(_HEAD)):
        return False
    try:
        msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return True
    return False


def _locked(path: Path) -> int:
    """Open and lock the file. Raises VlmtuiError if another process has, and OSError."""
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
