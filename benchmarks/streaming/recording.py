"""Records a program in a pseudo-terminal with times. The output is decoded afterwards, so that decoding does not slow
the program."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import psutil
import pyte
from ptyprocess import PtyProcess

_FRAMES_ASKED, _FRAMES_YES = b"\x1b[?2026$p", b"\x1b[?2026;2$y"
_SWITCH_S = 0.0002
"""Maximum delay of the reading thread by decoding; five milliseconds by default."""
_DEVICE_ASKED, _DEVICE_IS = b"\x1b[c", b"\x1b[?62;c"


class Link(NamedTuple):
    """A slow connection between program and terminal."""

    bytes_per_s: float
    delay_s: float
    """Seconds in one direction."""


class Chunk(NamedTuple):
    """A piece of the program's output, and when it arrived."""

    at: float
    data: bytes


class Recording:
    """A running program. A thread reads its output; times are `time.monotonic`."""

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        *,
        size: tuple[int, int] = (120, 40),
        link: Link | None = None,
    ) -> None:
        sys.setswitchinterval(_SWITCH_S)
        columns, rows = size
        self.chunks: list[Chunk] = []
        self.started = time.monotonic()
        self._link = link
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._reads = threading.Event()
        self._reads.set()
        self._decoded = 0
        self._rows: list[str] = [""] * rows
        environment = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8", **env}
        self._process = PtyProcess.spawn(list(command), env=environment, dimensions=(rows, columns))
        self.pid: int = self._process.pid
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reads.set()
        if self._process.isalive():
            self._process.kill(signal.SIGTERM)
            self._thread.join(5)
        self._process.close(force=True)

    def resize(self, columns: int, rows: int) -> None:
        """Tell the program a new terminal size; decoding keeps the first size."""
        self._process.setwinsize(rows, columns)

    def stop_reading(self) -> None:
        """Stop reading the program's output, as a hung connection does."""
        self._reads.clear()

    def read_again(self) -> None:
        self._reads.set()

    @property
    def written(self) -> int:
        """Bytes so far."""
        return sum(len(chunk.data) for chunk in self.chunks)

    @property
    def cpu_s(self) -> float:
        """Seconds of processor time so far, read from the process's clock as glibc's `clock_getcpuclockid` does."""
        return time.clock_gettime(~self.pid << 3 | 2)

    @property
    def wakeups(self) -> int:
        """How often its threads have slept and woken so far."""
        return sum(_switches(task) for task in Path(f"/proc/{self.pid}/task").iterdir())

    @property
    def memory(self) -> int:
        """Proportional set size in bytes."""
        return int(psutil.Process(self.pid).memory_full_info().pss)

    def type(self, text: str) -> float:
        """Type a text; return the time."""
        at = time.monotonic()
        if self._link is not None:
            time.sleep(self._link.delay_s)
        os.write(self._process.fd, text.encode())
        return at

    def wait_for(self, needle: str, *, timeout_s: float = 60.0) -> float:
        """Wait until the screen shows the text; return the time. Raises TimeoutError with the screen."""
        seen: dict[str, float] = {}
        self.until(lambda: needle in self.watch([needle], seen), f"{needle!r}", timeout_s=timeout_s)
        return seen[needle]

    def until(self, condition: Callable[[], object], what: str, *, timeout_s: float = 60.0) -> None:
        """Wait until the condition holds. Raises TimeoutError with the screen."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline or not self._process.isalive():
                self.watch([], {})
                raise TimeoutError(f"never seen: {what}\n{self.text}")
            time.sleep(0.005)

    def watch(self, needles: Iterable[str], seen: dict[str, float]) -> dict[str, float]:
        """Decode the new output; record in `seen` when each text first appeared on the screen."""
        missing = [needle for needle in needles if needle not in seen]
        while True:
            text = self.text if missing else ""
            at = self.chunks[self._decoded - 1].at if self._decoded else self.started
            for needle in [needle for needle in missing if needle in text]:
                seen[needle] = at
                missing.remove(needle)
            if self._decoded >= len(self.chunks):
                return seen
            self._stream.feed(self.chunks[self._decoded].data)
            self._decoded += 1

    @property
    def text(self) -> str:
        """The decoded screen."""
        columns = range(self._screen.columns)
        for row in self._screen.dirty:
            line = self._screen.buffer[row]
            self._rows[row] = "".join([line[x].data for x in columns])
        self._screen.dirty.clear()
        return "\n".join(self._rows)

    def wait_for_end(self) -> float:
        """Wait until the program has ended; return the time."""
        deadline = time.monotonic() + 30
        while self._process.isalive():
            if time.monotonic() > deadline:
                raise TimeoutError("the program does not end")
            time.sleep(0.002)
        return time.monotonic()

    def _read(self) -> None:
        piece = 65536 if self._link is None else max(1, int(self._link.bytes_per_s / 100))
        while True:
            try:
                if not select.select([self._process.fd], [], [], 1.0)[0]:
                    continue
                self._reads.wait()
                data = os.read(self._process.fd, piece)
            except (OSError, ValueError):
                return
            if not data:
                return
            delay_s = 0.0
            if self._link is not None:
                time.sleep(len(data) / self._link.bytes_per_s)
                delay_s = self._link.delay_s
            self.chunks.append(Chunk(time.monotonic() + delay_s, data))
            for asked, answer in ((_FRAMES_ASKED, _FRAMES_YES), (_DEVICE_ASKED, _DEVICE_IS)):
                if asked in data:
                    os.write(self._process.fd, answer)


def _switches(task: Path) -> int:
    try:
        lines = (task / "status").read_text().splitlines()
    except OSError:  # the thread has ended
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt"))
