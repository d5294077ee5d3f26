"""Reads the items of a batch one after another: a million lines in bounded memory."""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

from vlmtui.domain.failure import Failure
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.reading import decode_json
from vlmtui.session.batch.item import BadItem, BatchItem, at_line
from vlmtui.session.batch.parsing import LineReader, find_id
from vlmtui.session.batch.tables import Columns, read_row
from vlmtui.text import human_bytes, one_line

LINE_MAX = 200_000_000
"""Most bytes of a line; pictures may be in it as base64."""
_CHUNK = 1 << 20


class BatchFormat(StrEnum):
    """How the items are written."""

    JSONL = "jsonl"
    CSV = "csv"
    TSV = "tsv"


def batch_format_of(name: str, given: BatchFormat | None = None) -> BatchFormat:
    """Return the format of a file by its name. Raises VlmtuiError."""
    if given is not None or name == "-":
        return given or BatchFormat.JSONL
    match Path(name).suffix.lower():
        case ".jsonl" | ".ndjson" | ".json":
            return BatchFormat.JSONL
        case ".csv":
            return BatchFormat.CSV
        case ".tsv":
            return BatchFormat.TSV
        case _:
            message = f"{one_line(name)} does not say how it is written: its name must end in .jsonl, .csv or .tsv."
            raise bad_input(message, hint="Or give --input-format.")


class BatchReader:
    """The items of an open file. Iterate once; blocking, and no more than one line is held.

    base: the folder that relative file names start at. size: the file's bytes, 0 if unknown.
    """

    def __init__(
        self, file: BinaryIO, kind: BatchFormat, *, base: Path, size: int = 0, columns: Columns | None = None
    ) -> None:
        self._file = file
        self._kind = kind
        self._reader = LineReader(base)
        self._columns = columns or Columns()
        self.size = size
        self.read = 0
        """Bytes read so far."""

    @property
    def models(self) -> set[str]:
        """The models that the lines name (a few of them)."""
        return self._reader.models

    def __iter__(self) -> Iterator[BatchItem | BadItem]:
        return self._json_items() if self._kind is BatchFormat.JSONL else self._rows()

    def _json_items(self) -> Iterator[BatchItem | BadItem]:
        number = 0
        while data := self._file.readline(LINE_MAX + 1):
            number += 1
            self.read += len(data)
            if len(data) > LINE_MAX:
                self._skip_line(data)
                yield _bad(_too_long(), number, data[:_CHUNK])
            elif data.strip():
                if number == 1:
                    data = data.removeprefix(b"\xef\xbb\xbf")
                yield self._json_item(data, number)

    def _json_item(self, data: bytes, number: int) -> BatchItem | BadItem:
        try:
            fields = decode_json(data, dict[str, object])
        except ValueError as error:
            return _bad(bad_input("Not a JSON object.", detail=str(error)), number, data)
        try:
            return self._reader.read(fields, number)
        except VlmtuiError as error:
            return _bad(error, number, data, find_id(fields))

    def _skip_line(self, data: bytes) -> None:
        while data and not data.endswith(b"\n"):
            data = self._file.readline(_CHUNK)
            self.read += len(data)

    def _rows(self) -> Iterator[BatchItem | BadItem]:
        csv.field_size_limit(LINE_MAX)
        text = io.TextIOWrapper(self._counted(), encoding="utf-8-sig", errors="surrogateescape", newline="")
        rows = csv.reader(text, delimiter="," if self._kind is BatchFormat.CSV else "\t")
        header: list[str] = []
        while True:
            line = rows.line_num + 1
            try:
                row = next(rows, None)
            except csv.Error as error:
                yield _bad(bad_input("Not a row of the table.", detail=str(error)), line, str(error).encode())
                continue
            if row is None:
                return
            if not header:
                header = row
                self._columns.require(header)
            elif row:
                yield self._row(header, row, line)

    def _row(self, header: list[str], row: list[str], line: int) -> BatchItem | BadItem:
        data = "\t".join(row).encode("utf-8", "surrogateescape")
        try:
            if len(row) != len(header):
                raise bad_input(f"The row has {len(row)} columns, not {len(header)}.")
            data.decode()
            return read_row(self._reader, self._columns, dict(zip(header, row, strict=True)), line)
        except UnicodeDecodeError as error:
            return _bad(bad_input("The row is not UTF-8.", detail=str(error)), line, data)
        except VlmtuiError as error:
            return _bad(error, line, data)

    def _counted(self) -> io.BufferedReader:
        return io.BufferedReader(_Counted(self._file, self), _CHUNK)


class _Counted(io.RawIOBase):
    """Counts the bytes that are read through it."""

    def __init__(self, file: BinaryIO, reader: BatchReader) -> None:
        self._file = file
        self._reader = reader

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self._reader.read += len(data)
        return len(data)


def _bad(error: VlmtuiError, line: int, data: bytes, item_id: str | None = None) -> BadItem:
    digest = hashlib.blake2b(data, digest_size=8).hexdigest()
    return BadItem(line=line, failure=Failure.of(at_line(error, line)), digest=digest, id=item_id)


def _too_long() -> VlmtuiError:
    return bad_input(f"The line is too long: the limit is {human_bytes(LINE_MAX)}.")
