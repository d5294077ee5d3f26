"""The cells that terminal emulators show: pyte, and tmux."""

from __future__ import annotations

import os
import select
import subprocess
import unicodedata
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Self
from unittest.mock import patch

import pyte
from ptyprocess import PtyProcess
from wcwidth import wcwidth

_BLOCKED_S = 0.3
"""Seconds; longer than tmux pauses for a terminal to which it has written much."""
_PIECE = 2000
"""Number of characters to write at a time; fits into a pipe."""
_TITLE_S = 2.0
"""Seconds to wait for a title."""
_TRIES = 30
Cell = tuple[str, ...]
"""The visible parts of a cell: its character, colours and attributes."""


class Pyte:
    """A terminal emulator in this process."""

    def __init__(self, size: tuple[int, int], *, width_of: Callable[[str], int] = wcwidth) -> None:
        """`width_of` returns how many cells the terminal takes for a character."""
        self._screen = pyte.Screen(*size)
        self._stream = pyte.Stream(self._screen)
        self._width_of = width_of

    def feed(self, text: str) -> None:
        # pyte drops what follows a sign without a cell that is no combining mark, such as a joiner.
        signs = SimpleNamespace(combining=lambda char: True, normalize=unicodedata.normalize)
        with patch.object(pyte.screens, "wcwidth", self._width_of), patch.object(pyte.screens, "unicodedata", signs):
            self._stream.feed(text)

    def cells(self) -> list[list[Cell]]:
        """Return every line of the screen."""
        return _cells(self._screen)


class Tmux:
    """A pane in its own tmux server, as an attached terminal shows it. A context manager."""

    def __init__(self, size: tuple[int, int], folder: Path) -> None:
        self._size = size
        self._server = ["tmux", "-S", str(folder / "tmux")]
        self._pipe = folder / "screen"
        self._screen = pyte.Screen(*size)
        self._stream = pyte.ByteStream(self._screen)

    def __enter__(self) -> Self:
        os.mkfifo(self._pipe)
        columns, rows = self._size
        options = [("status", "off"), ("set-titles", "on"), ("set-titles-string", "#T")]
        lines = [f"set -g {name} '{value}'" for name, value in options]
        source = self._pipe.with_suffix(".conf")
        # pyte lacks `indn` and `rin`, and moves the cursor wrongly below a scroll region
        source.write_text("\n".join([*lines, "set -ga terminal-overrides ',*:RGB:indn@:rin@:csr@'"]))
        show = f"stty raw -echo; exec cat '{self._pipe}'"
        command = [*self._server, "-f", str(source), "new-session", show]
        env = {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        self._client = PtyProcess.spawn(command, env=env, dimensions=(rows, columns))
        self._file = self._pipe.open("w", encoding="utf-8")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        subprocess.run([*self._server, "kill-server"], check=False, capture_output=True)
        self._client.close(force=True)

    def feed(self, text: str) -> None:
        """Write a text, and wait until the attached terminal shows it.

        tmux passes on a new title before it redraws, so a second title marks the end. After much text it pauses before
        it redraws the screen, and forgets a title.
        """
        for start in range(0, len(text), _PIECE):
            self._write(text[start : start + _PIECE])
            self._read(0.0)
        self._wait_for_a_title()
        self._wait_for_a_title()
        columns, rows = self._size
        while len(text) > columns * rows and self._read(_BLOCKED_S):
            pass

    def text(self) -> list[str]:
        """Return the lines that tmux itself holds, without blanks at their ends."""
        command = [*self._server, "capture-pane", "-p"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n")[: self._size[1]]

    def _wait_for_a_title(self) -> None:
        for _ in range(_TRIES):
            name = uuid.uuid4().hex
            self._write(f"\x1b]2;{name}\x07")
            while self._read(_TITLE_S):
                if self._screen.title == name:
                    return
        raise AssertionError("tmux does not hand over what it was given")

    def _write(self, text: str) -> None:
        self._file.write(text)
        self._file.flush()

    def _read(self, wait_s: float) -> bool:
        """Read tmux's output; return False if none comes within this time."""
        is_there = bool(select.select([self._client.fd], [], [], wait_s)[0])
        if is_there:
            self._stream.feed(self._client.read(65536))
        return is_there

    def cells(self) -> list[list[Cell]]:
        """Return every line of the screen."""
        return _cells(self._screen)


def _cells(screen: pyte.Screen) -> list[list[Cell]]:
    return [[_seen(screen.buffer[y][x]) for x in range(screen.columns)] for y in range(screen.lines)]


def _seen(char: pyte.screens.Char) -> Cell:
    """Return a cell without the invisible attributes of a blank: text colour, weight and slant."""
    seen = (char.bg, str(char.underscore), str(char.strikethrough), str(char.reverse))
    if char.data == " " and not char.reverse:
        return (" ", *seen)
    return (char.data, char.fg, str(char.bold), str(char.italics), *seen)


def differences(one: Sequence[Sequence[Cell]], other: Sequence[Sequence[Cell]]) -> list[str]:
    """Return the differing cells as text, for a message."""
    return [
        f"{x},{y}: {a} {b}"
        for y, (left, right) in enumerate(zip(one, other, strict=True))
        for x, (a, b) in enumerate(zip(left, right, strict=True))
        if a != b
    ]
