"""The output file of a batch: a JSON line an item, appended and flushed to disk in groups.

Each item has exactly one line. A line that replaces another is appended as well, and the replaced one is left out when
the file is tidied: at the end of a run, or of the next one if this was killed. What a kill or a full disk left
behind the last whole line is cut off.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.files import new_file, not_written
from vlmtui.session.batch.answered import AnsweredIndex, AnsweredRow, name_of
from vlmtui.session.batch.results import LineNumber
from vlmtui.text import one_line

_HEAD = b'{"id":'
"""How every line begins."""
_LINE_MAX = 300_000_000
_ROWS_AT_ONCE = 10_000
_MODE = 0o600

Keep = Callable[[AnsweredRow, "LineHead"], bool]
"""Whether an item's newest line stays."""


class LineHead(msgspec.Struct, frozen=True):
    """What is read of a line again."""

    id: str | None
    line: LineNumber
    key: str
    error: msgspec.Raw

    @property
    def has_failed(self) -> bool:
        return bytes(self.error) != b"null"

    @property
    def name(self) -> bytes:
        return name_of(self.id, self.line)


class ResultLine(msgspec.Struct, frozen=True):
    """A line to append: its item, and its JSON without the line break."""

    id: str | None
    line: int
    key: str
    failed: bool
    data: bytes


class OutputFile:
    """The output file, locked for this process. Blocking; use it from one thread at a time, and close it."""

    def __init__(self, path: Path) -> None:
        """Open the file (0600), creating it if it is missing, and read which items have a line.

        Raises VlmtuiError: BAD_INPUT if another batch writes it, or if it holds something else than results."""
        self.path = path.resolve()
        self.index = AnsweredIndex()
        self.replaced = 0
        """Lines that another line replaces."""
        self.cut_bytes = 0
        """Bytes behind the last whole line that were cut off at the start."""
        self.lines = 0
        """Lines in the file, replaced ones among them."""
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

    def append(self, lines: Sequence[ResultLine]) -> None:
        """Append lines and flush them to disk. Raises VlmtuiError; then the file is as it was before."""
        data = b"".join(line.data + b"\n" for line in lines)
        try:
            _write_all(self._descriptor, data, self._size)
            os.fsync(self._descriptor)
        except OSError as error:
            os.ftruncate(self._descriptor, self._size)
            raise not_written(self.path.name, self.path.parent, error) from error
        for line in lines:
            self._note(name_of(line.id, line.line), line.key, failed=line.failed, has_id=line.id is not None)
            self._size += len(line.data) + 1
        self.lines += len(lines)

    def ask_again(self, ids: Iterable[str]) -> None:
        """Count the lines of these items as failed ones of another key, so that they are asked again."""
        for name in (name_of(one, 0) for one in ids):
            if (row := self.index.find(name)) is not None:
                self.index.put(name, row._replace(key="", failed=True))

    def drop_failed(self) -> int:
        """Leave out the lines of failed items, which are to be tried again; return how many there were."""
        before = self.lines - self.replaced
        self._rewrite(lambda row, head: not row.failed)
        return before - self.lines

    def tidy(self, *, is_input_read: bool) -> None:
        """Leave out replaced lines, and if the input was read to its end, the errors of lines that are none any more.
        Raises VlmtuiError; then the file is as it was before."""
        if self.replaced or (is_input_read and self.index.has_stale_lines()):
            self._rewrite(lambda row, head: not (is_input_read and head.id is None and not row.line))

    def close(self) -> None:
        self.index.close()
        os.close(self._descriptor)

    def _note(self, name: bytes, key: str, *, failed: bool, has_id: bool = True) -> None:
        """Note that an item's line begins at the end of the file."""
        known = self.index.find(name)
        if known is not None and known.place >= 0:
            self.replaced += 1
        self.index.put(name, AnsweredRow(key, failed, self._size, known.line if known else 0, has_id))

    def _read(self) -> None:
        """Index the lines, and cut off what is behind the last whole one."""
        number = bad = 0
        bad_data, is_whole = b"", True
        self.index.begin()
        for data in _lines(self.path):
            number += 1
            head = _decoded(data)
            if head is None:
                bad, bad_data = (bad, bad_data) if bad else (number, data)
                self.cut_bytes += len(data)
                continue
            if bad:
                raise _foreign(self.path, bad)
            self._note(head.name, head.key, failed=head.has_failed, has_id=head.id is not None)
            self._size += len(data)
            self.lines += 1
            is_whole = data.endswith(b"\n")
        self.index.end()
        if not is_whole and not bad:
            _write_all(self._descriptor, b"\n", self._size)
            self._size += 1
        if bad and not _is_torn(bad_data):
            raise _foreign(self.path, bad)
        if bad:
            os.ftruncate(self._descriptor, self._size)
            os.fsync(self._descriptor)

    def _rewrite(self, keeps: Keep) -> None:
        """Replace the file, in one step, by one with only the newest line of each item, if `keeps` accepts it."""
        place = lines = size = 0
        moved: list[tuple[int, bytes]] = []
        self.index.begin()
        with new_file(self.path.parent, self.path.name, durable=True) as new:
            for data in _lines(self.path):
                head = _decoded(data)
                assert head is not None, "the file is locked, and was read at the start"
                row = self.index.find(head.name)
                is_newest = row is not None and row.place == place
                place += len(data)
                if row is None or not is_newest:
                    continue
                if not keeps(row, head):
                    self.index.remove(head.name)
                    continue
                new.file.write(data)
                moved.append((size, head.name))
                size += len(data)
                lines += 1
                if len(moved) == _ROWS_AT_ONCE:
                    self.index.move(moved)
                    moved.clear()
            new.replace(self.path)
            descriptor = os.dup(new.file.fileno())  # keeps the lock that an unfinished file has
        self.index.move(moved)
        self.index.end()
        os.close(self._descriptor)
        self._descriptor, self._size, self.lines, self.replaced = descriptor, size, lines, 0


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while data := file.readline(_LINE_MAX):
            yield data


def _decoded(data: bytes) -> LineHead | None:
    if not data.startswith(_HEAD):
        return None
    try:
        return msgspec.json.decode(data, type=LineHead)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


def _is_torn(data: bytes) -> bool:
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


def _foreign(path: Path, number: int) -> VlmtuiError:
    message = f"Line {number} of {one_line(path.name)} is not a result of a batch, so nothing is written to it."
    return bad_input(message, hint="Choose another output file.")
