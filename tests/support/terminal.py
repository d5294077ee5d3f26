"""A real pseudo-terminal with a screen, to drive the application as a user does."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

import pexpect
import pyte

KEYS = {
    "enter": "\r",
    "escape": "\x1b",
    "tab": "\t",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "ctrl+c": "\x03",
    "ctrl+j": "\n",
    "ctrl+l": "\x0c",
    "ctrl+n": "\x0e",
    "ctrl+o": "\x0f",
    "ctrl+p": "\x10",
    "ctrl+q": "\x11",
    "ctrl+r": "\x12",
    "f1": "\x1bOP",
    "f2": "\x1bOQ",
    "f4": "\x1bOS",
    "f5": "\x1b[15~",
    "f6": "\x1b[17~",
    "f8": "\x1b[19~",
    "f10": "\x1b[21~",
    "f12": "\x1b[24~",
}

_FRAMES_ASKED, _FRAMES_YES = b"\x1b[?2026$p", "\x1b[?2026;2$y"
_FRAME_BEGINS, _FRAME_ENDS = b"\x1b[?2026h", b"\x1b[?2026l"
"""Synchronized output: terminals show everything between these at once."""


def search_paths() -> dict[str, str]:
    """Return PATH and PYTHONPATH, for an otherwise empty environment. Without PYTHONPATH the app of another checkout
    could run, with its own copy of the bundled model."""
    return {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}


class _Screen(pyte.Screen):
    """Answers a terminal's queries (device attributes, cursor position)."""

    answer: Callable[[str], object]

    def write_process_input(self, data: str) -> None:
        self.answer(data)


class Terminal:
    """Runs a command in a pseudo-terminal and keeps its screen. `raw` holds the bytes received, `written` counts
    them."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        columns: int = 120,
        rows: int = 40,
        cwd: str | None = None,
    ) -> None:
        self.screen = _Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = bytearray()
        self._text, self._text_of = "", -1
        self.started = time.monotonic()
        self.read_at = self.started
        """When the newest bytes arrived; processing them is slow."""
        self._process: pexpect.spawn[bytes] = pexpect.spawn(
            command[0],
            list(command[1:]),
            env={"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8", **env},
            dimensions=(rows, columns),
            cwd=cwd,
            timeout=None,
        )
        self._process.delaybeforesend = None  # a terminal answers at once; pexpect would wait 50 ms
        self.screen.answer = self.type
        self._is_in_frame = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hang_up()

    @property
    def pid(self) -> int:
        pid = self._process.pid
        assert pid is not None
        return pid

    @property
    def text(self) -> str:
        """The rows of the screen, joined by newlines, without trailing blanks."""
        if self._text_of != len(self.raw):
            # `display` measures every character, which takes ten times as long; after a wide one stands "".
            lines = (self.screen.buffer[row] for row in range(self.screen.lines))
            columns = range(self.screen.columns)
            self._text = "\n".join("".join([line[x].data for x in columns]).rstrip() for line in lines)
            self._text_of = len(self.raw)
        return self._text

    def type(self, text: str | bytes) -> None:
        self._process.send(text)

    def press(self, *keys: str) -> None:
        for key in keys:
            self._process.send(KEYS[key])

    def paste(self, text: str) -> None:
        """Send a bracketed paste, as terminals do for a paste or a dropped file."""
        self._process.send(f"\x1b[200~{text}\x1b[201~")

    def wait_for(self, wanted: str | Callable[[str], bool], *, timeout: float = 180.0) -> str:
        """Read until the screen shows `wanted`; return its text. Raises AssertionError with the screen after a timeout.
        A synchronized frame counts only when it is complete, as in a terminal."""
        found = (lambda text: wanted in text) if isinstance(wanted, str) else wanted
        deadline = time.monotonic() + timeout
        while self._is_in_frame or not found(self.text):
            if time.monotonic() > deadline:
                raise AssertionError(f"the screen never showed {wanted!r}:\n{self.text}")
            if not self._read(0.05) and not self._process.isalive():
                raise AssertionError(
                    f"the program ended with {self._process.exitstatus} before {wanted!r}:\n{self.text}"
                )
        return self.text

    def wait_for_end(self, *, timeout: float = 180.0) -> int:
        """Read until the program has ended; return its exit status, or the negative number of the signal that ended
        it."""
        deadline = time.monotonic() + timeout
        while self._process.isalive():
            if time.monotonic() > deadline:
                raise AssertionError(f"the program does not end:\n{self.text}")
            self._read(0.05)
        while self._read(0.0):
            pass
        status = self._process.exitstatus
        return int(status) if status is not None else -int(self._process.signalstatus or 0)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def read(self, timeout: float) -> None:
        """Read for a while."""
        self._read(timeout)

    def lose(self) -> None:
        """Close the terminal but not the program, as a lost connection does."""
        getattr(self._process, "ptyproc").fileobj.close()  # noqa: B009 - what mypy knows of pexpect lacks it

    def hang_up(self) -> None:
        """Close the terminal, and make sure that the program ends."""
        with suppress(pexpect.ExceptionPexpect):  # a busy machine may need longer than pexpect waits
            self._process.close(force=True)

    def _read(self, timeout: float) -> bool:
        try:
            data = self._process.read_nonblocking(65536, timeout)
        except (pexpect.TIMEOUT, pexpect.EOF):
            return False
        self.read_at = time.monotonic()
        if _FRAMES_ASKED in data:
            self.type(_FRAMES_YES)
        newest = bytes(self.raw[1 - len(_FRAME_ENDS) :]) + data  # a mark may come in two halves
        begun, ended = newest.rfind(_FRAME_BEGINS), newest.rfind(_FRAME_ENDS)
        if begun != ended:  # either of them came
            self._is_in_frame = begun > ended
        self.raw += data
        self._stream.feed(data)
        return bool(data)
