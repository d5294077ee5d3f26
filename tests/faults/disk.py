"""A disk that keeps what was flushed, may lose or tear the rest in a power failure, and fails when it is told to."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import NamedTuple

from vlmtui.store.opening import FILE

_SECTOR = 512
FULL = sqlite3.SQLITE_FULL
IOERR_WRITE = sqlite3.SQLITE_IOERR | (3 << 8)
IOERR_FSYNC = sqlite3.SQLITE_IOERR | (4 << 8)
OK = sqlite3.SQLITE_OK


class Fault(StrEnum):
    """What goes wrong in a history."""

    POWER = "power loss"
    """Of what was not flushed, any part is lost, in any order."""
    TORN = "torn sectors"
    """The same, and single sectors of a write are lost."""
    KILL = "killed process"
    """What was written is there; the rest is not."""
    SHORT_WRITE = "short write"
    FULL = "full disk"
    FSYNC = "failing fsync"
    """What was to be flushed counts as flushed afterwards, and is lost in a power failure, as on Linux."""
    BITS = "flipped bits"
    STALE = "stale or zeroed page"
    """A page that the disk says it wrote, and did not."""
    LOG = "damaged log"
    """A killed process leaves its log, in which bits flip before the next start."""


class Change(NamedTuple):
    """A write, or, without data, a truncation."""

    at: int
    data: bytes | None


@dataclass
class _File:
    durable: bytearray | None = None
    """The content after a power failure that loses all that may be lost; None: no file."""
    pending: list[Change] = field(default_factory=list)
    ghost: bytes | None = None
    """What the file of this name held, whose deletion is not flushed."""


class Disk:
    """What is below the files of one history.

    `at`: the number of the call, of those that change a file, at which the fault happens.
    """

    def __init__(self, folder: Path, fault: Fault, at: int, random: Random) -> None:
        self._folder = folder
        self.fault = fault
        self._at = at
        self._random = random
        self.calls = 0
        self.is_dead = False
        """The machine is off, or the process is killed: nothing more happens."""
        self.hits = 0
        """How often something went wrong."""
        self._files: dict[str, _File] = {}
        for name in (FILE,):
            self._files[name] = _File(durable=bytearray((folder / name).read_bytes()))

    # -- what SQLite asks

    def watches(self, path: str) -> bool:
        found = Path(path)
        return found.parent == self._folder and found.name in (FILE, f"{FILE}-wal", f"{FILE}-journal")

    def opened(self, path: str) -> None:
        self._files.setdefault(Path(path).name, _File())

    def write(self, path: str, at: int, data: bytes) -> tuple[int, bytes]:
        if self._strikes():
            code, reaching = self._failing_write(data)
        else:
            code, reaching = (OK, data) if not self.is_dead else (IOERR_WRITE, b"")
        if reaching:
            self._file(path).pending.append(Change(at, reaching))
        return code, reaching

    def truncate(self, path: str, size: int) -> int:
        self._strikes()
        if self.is_dead:
            return IOERR_WRITE
        self._file(path).pending.append(Change(size, None))
        return OK

    def sync(self, path: str) -> int:
        is_struck = self._strikes()
        if self.is_dead:
            return IOERR_FSYNC
        file = self._file(path)
        if is_struck and self.fault is Fault.FSYNC:
            file.pending.clear()
            file.durable = file.durable if file.durable is not None else bytearray()
            return IOERR_FSYNC
        file.durable = _applied(file.durable, file.pending)
        file.pending.clear()
        file.ghost = None
        return OK

    def delete(self, path: str) -> int:
        self._strikes()
        if self.is_dead:
            return IOERR_WRITE
        file = self._file(path)
        self._files[Path(path).name] = _File(ghost=bytes(file.durable) if file.durable is not None else file.ghost)
        return OK

    # -- what is there afterwards

    def crash_state(self) -> dict[str, bytes]:
        """Return what the disk holds when the power comes back, or the process was killed, by file name."""
        found: dict[str, bytes] = {}
        for name, file in self._files.items():
            pending = self._surviving(file.pending)
            if file.durable is None and not pending:
                if file.ghost is not None and self.fault not in (Fault.KILL, Fault.LOG) and self._random.random() < 0.5:
                    found[name] = file.ghost
                continue
            found[name] = bytes(_applied(bytearray(file.durable or b""), pending))
        return found

    def _surviving(self, pending: list[Change]) -> list[Change]:
        if self.fault in (Fault.KILL, Fault.LOG):
            return pending
        keeps = self._random.choice((0.0, 0.5, 0.9, 1.0))
        surviving = [change for change in pending if self._random.random() < keeps]
        if self.fault is not Fault.TORN:
            return surviving
        return [torn for change in surviving for torn in self._torn(change)]

    def _torn(self, change: Change) -> list[Change]:
        if change.data is None or len(change.data) <= _SECTOR or self._random.random() < 0.5:
            return [change]
        starts = range(0, len(change.data), _SECTOR)
        kept = [start for start in starts if self._random.random() < 0.6]
        return [Change(change.at + start, change.data[start : start + _SECTOR]) for start in kept]

    def _file(self, path: str) -> _File:
        return self._files.setdefault(Path(path).name, _File())

    def _strikes(self) -> bool:
        """Count a call, and tell whether something goes wrong with it."""
        self.calls += 1
        match self.fault:
            case Fault.POWER | Fault.TORN | Fault.KILL | Fault.LOG:
                is_struck = self.calls >= self._at
                self.is_dead = self.is_dead or is_struck
            case Fault.SHORT_WRITE | Fault.FSYNC:
                is_struck = self.calls >= self._at and (self.calls - self._at) % 7 == 0
            case Fault.FULL:
                is_struck = self._at <= self.calls < self._at + 12
            case _:
                is_struck = False
        self.hits += is_struck
        return is_struck

    def _failing_write(self, data: bytes) -> tuple[int, bytes]:
        match self.fault:
            case Fault.KILL | Fault.POWER | Fault.TORN | Fault.LOG if self.calls == self._at:
                return IOERR_WRITE, data[: self._random.randrange(len(data) + 1)]  # the last moment
            case Fault.SHORT_WRITE:
                return IOERR_WRITE, data[: self._random.randrange(len(data))]
            case Fault.FULL:
                return FULL, b""
            case Fault.FSYNC:
                return OK, data
            case _:
                return IOERR_WRITE, b""


def _applied(content: bytearray | None, changes: list[Change]) -> bytearray:
    content = bytearray() if content is None else content
    for at, data in changes:
        if data is None:
            del content[at:]
            continue
        if len(content) < at:
            content.extend(bytes(at - len(content)))
        content[at : at + len(data)] = data
    return content
