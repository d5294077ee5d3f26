"""What this machine knows of its batches: one record for each output file, written by the process that runs the batch.

A record says how the batch was started and how far it is; the answers are in the output file alone. A batch holds a
lock for as long as it runs, so whether one runs is never guessed from a process id.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path

import msgspec

from vlmtui.errors import VlmtuiError
from vlmtui.files import write_atomically
from vlmtui.paths import Paths, private_dir
from vlmtui.reading import read_struct
from vlmtui.session.batch.tally import Tally

_BYTES_MAX = 1_000_000
_WRITE_EVERY_S = 1.0
_KEPT = 200
"""Records of batches that have ended; older ones are removed."""
_SIGNALLED = 128


class BatchState(StrEnum):
    """What a batch is doing."""

    RUNNING = "running"
    DONE = "done"
    PAUSED = "paused"
    """It was stopped, or killed, before the end of its input; the same command goes on."""
    FAILED = "failed"
    """It ended with an error before the end of its input."""


class BatchCounts(msgspec.Struct, frozen=True):
    """How far a run is."""

    done: int = 0
    """Items that have a line, also of earlier runs."""
    answered: int = 0
    """By this run."""
    failed: int = 0
    media_tokens: int = 0
    share: float | None = None
    """Of the input that is done, 0 to 1; None: unknown."""
    elapsed_s: float = 0.0
    """Since the engine was ready; 0: it is not."""

    @classmethod
    def of(cls, tally: Tally, share: float | None, elapsed_s: float) -> BatchCounts:
        """Return the counts of a run as they are now. `share`: of the input that was read."""
        if share is not None and tally.read:
            share *= tally.done / tally.read
        return cls(tally.done, tally.answered, tally.failed, tally.media_tokens, share, elapsed_s)

    @property
    def left_s(self) -> float | None:
        """Seconds that the rest of the input takes; None: unknown, or there is no rest."""
        now = self.answered + self.failed
        if not self.share or self.share >= 1 or not now:
            return None
        return (self.done / self.share - self.done) * self.elapsed_s / now


class BatchRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A batch of this machine, known by its output file."""

    output: str
    """Absolute, without links."""
    folder: str
    """Where it was started: names on its command line start there."""
    words: tuple[str, ...]
    """Its command line, without `vlmtui`."""
    input: str = ""
    """`-`: stdin, which nobody can read again; empty: no file."""
    pid: int = 0
    started: float = 0.0
    """Seconds since 1970, as `ended`."""
    ended: float | None = None
    exit_code: int | None = None
    progress: BatchCounts = BatchCounts()
    error: str = ""
    """Why it ended before the end of its input."""

    @property
    def name(self) -> str:
        return Path(self.output).name

    def state(self, *, is_running: bool) -> BatchState:
        """Return what the batch is doing; `is_running`: whether its lock is held."""
        if is_running:
            return BatchState.RUNNING
        if self.exit_code in (0, 1):
            return BatchState.DONE
        if self.exit_code is None or self.exit_code > _SIGNALLED:
            return BatchState.PAUSED
        return BatchState.FAILED


class BatchRecords:
    """The records in the state folder. Methods block."""

    def __init__(self, paths: Paths) -> None:
        self.folder = paths.state / "batches"

    def log(self, output: Path) -> Path:
        """Return the file that takes what a batch without a terminal says."""
        return self._file(output, "log")

    def find(self, output: Path) -> BatchRecord | None:
        """Return the record of an output file; None if there is none, or if it can't be read."""
        try:
            return read_struct(self._file(output, "json"), BatchRecord, bytes_max=_BYTES_MAX)
        except VlmtuiError:
            return None

    def all(self) -> list[BatchRecord]:
        """Return all records, the newest first."""
        found = []
        for path in self.folder.glob("*.json") if self.folder.is_dir() else ():
            with suppress(VlmtuiError):
                found.append(read_struct(path, BatchRecord, bytes_max=_BYTES_MAX))
        return sorted(found, key=lambda record: record.started, reverse=True)

    def is_running(self, output: Path) -> bool:
        """Whether a process runs the batch that writes this file."""
        try:
            lock = os.open(self._file(output, "lock"), os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def wait(self, output: Path) -> None:
        """Return once no process runs the batch. Not interruptible."""
        with suppress(OSError):
            lock = os.open(self._file(output, "lock"), os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_SH)
            finally:
                os.close(lock)

    def state(self, record: BatchRecord) -> BatchState:
        """Return what a batch is doing."""
        return record.state(is_running=self.is_running(Path(record.output)))

    def is_news(self, record: BatchRecord) -> bool:
        """Whether a batch has ended since `note_seen`."""
        if record.ended is None or self.is_running(Path(record.output)):
            return False
        try:
            return self._file(Path(record.output), "seen").stat().st_mtime < record.ended
        except OSError:
            return True

    def note_seen(self, record: BatchRecord) -> None:
        """Note that the user has seen how a batch is now."""
        with suppress(OSError):
            self._file(Path(record.output), "seen").touch()

    @contextmanager
    def running(self, record: BatchRecord, *, is_part: bool = False) -> Iterator[RunningBatch]:
        """Keep the record of the batch that this process runs. Where it can't be written, the batch runs without.
        is_part: some items are asked again, which changes neither how the batch was started nor how far it is."""
        output = Path(record.output)
        try:
            lock = self._locked(output)
        except (OSError, VlmtuiError):
            yield RunningBatch(record, None)
            return
        try:
            self._remove_old()
            before = self.find(output) if is_part else None
            yield RunningBatch(before or record, self._file(output, "json"), is_part=before is not None)
        finally:
            os.close(lock)

    def _locked(self, output: Path) -> int:
        private_dir(self.folder)
        lock = os.open(self._file(output, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)  # a process that asks whether it runs holds the lock for a moment
        return lock

    def _remove_old(self) -> None:
        for record in self.all()[_KEPT:]:
            output = Path(record.output)
            if not self.is_running(output):
                for kind in ("json", "log", "lock", "seen"):
                    with suppress(OSError):
                        self._file(output, kind).unlink()

    def _file(self, output: Path, kind: str) -> Path:
        digest = hashlib.blake2b(os.fsencode(output.resolve()), digest_size=10).hexdigest()
        return self.folder / f"{digest}.{kind}"


class RunningBatch:
    """Writes the record of the batch that runs. file: None: it can't be written. is_part: of its end and its counts
    nothing is noted."""

    def __init__(self, record: BatchRecord, file: Path | None, *, is_part: bool = False) -> None:
        started = record.started if is_part else time.time()
        self._record = msgspec.structs.replace(record, pid=os.getpid(), started=started)
        self._file = file
        self._is_part = is_part
        self._began: float | None = None
        self._written = time.monotonic()
        self._write()

    def begin(self) -> None:
        """Note that the engine is ready: from now on the time counts."""
        self._began = time.monotonic()

    def tell(self, tally: Tally, share: float | None) -> None:
        """Note how far it is, once a second at most."""
        now = time.monotonic()
        if now - self._written >= _WRITE_EVERY_S:
            self._written = now
            self._note(tally, share)
            self._write()

    def end(self, tally: Tally, share: float | None, *, exit_code: int, error: str = "") -> None:
        """Note how it ended."""
        self._note(tally, share)
        if not self._is_part:
            self._record = msgspec.structs.replace(self._record, ended=time.time(), exit_code=exit_code, error=error)
        self._write()

    def _note(self, tally: Tally, share: float | None) -> None:
        if self._is_part:
            return
        elapsed_s = 0.0 if self._began is None else time.monotonic() - self._began
        progress = BatchCounts.of(tally, share, elapsed_s)
        self._record = msgspec.structs.replace(self._record, progress=progress)

    def _write(self) -> None:
        if self._file is not None:
            with suppress(VlmtuiError):  # the answers are what counts
                write_atomically(self._file, msgspec.json.encode(self._record))


_OWN = {"--detach": 1, "--ready": 2, "--again": 2}
"""Options of one run, which are not of the batch; and how many words each takes."""


def batch_words(words: Sequence[str]) -> tuple[str, ...]:
    """Return a command line of `vlmtui batch` as it is said again: without what was for one run alone."""
    kept: list[str] = []
    place = 0
    while place < len(words):
        word = words[place]
        if word == "--":
            return (*kept, *words[place:])
        step = _OWN.get(word, 0)
        if not step and word.partition("=")[0] in _OWN:
            step = 1
        if not step:
            kept.append(word)
        place += step or 1
    return tuple(kept)
