"""Detects the terminal's cell size and how it draws pictures. No Textual here, no heavy imports."""

from __future__ import annotations

import fcntl
import os
import re
import select
import stat
import struct
import sys
import termios
import time
import tty
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Self

import msgspec

ANSWER_WITHIN_S = 0.15
"""Most seconds to wait for an answer. Every terminal answers a device attributes request, most at once."""

_DEFAULT_CELL = (10, 20)
_KITTY_TERMS = ("xterm-kitty", "xterm-ghostty")
"""Terminals that draw kitty's Unicode placeholders. WezTerm and Konsole speak the protocol, but without these."""
_SIXEL_TERMS = ("foot", "mlterm", "contour", "wezterm", "yaft")
_NO_GRAPHICS_TERMS = ("dumb", "unknown")
_MULTIPLEXERS = ("screen", "tmux")
_ASK_ATTRIBUTES = b"\x1b[c"
_ASK_CELL = b"\x1b[16t"
_ATTRIBUTES = re.compile(rb"\x1b\[\?([0-9;]*)c")
_CELL = re.compile(rb"\x1b\[6;(\d+);(\d+)t")
_SIXEL_ATTRIBUTE = b"4"


class Terminal(msgspec.Struct, frozen=True):
    """What is known of the terminal. `mode`: how to draw pictures: kitty, sixel, halfcell or off."""

    mode: str
    cell: tuple[int, int] = _DEFAULT_CELL
    """Width and height of a cell, in pixels."""


class TerminalQuestion:
    """Queries the terminal for what its name does not say. Send it early, do other work, then read the answer.

    Do both before the app runs: then Textual reads the terminal's answers. (It drops one that arrives too late.) As a
    context manager it restores the terminal's settings.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._mode = mode_by_name(environment)
        self._cell = _cell_by_ioctl()
        self._before: list[Any] | None = None
        self._asked_at = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._restore()

    def ask(self) -> Self:
        """Send the query, if one is needed."""
        if (self._mode and self._cell) or not _is_terminal():
            return self
        descriptor = _input()
        with suppress(OSError, termios.error):
            self._before = termios.tcgetattr(descriptor)
            tty.setcbreak(descriptor, termios.TCSANOW)
            os.write(descriptor, _ASK_CELL + _ASK_ATTRIBUTES)
            self._asked_at = time.monotonic()
        return self

    def answer(self) -> Terminal:
        """Return what is known at most `ANSWER_WITHIN_S` after the query; half cells when in doubt."""
        try:
            sixel, cell = parse_answer(self._read() if self._before is not None else b"")
        finally:
            self._restore()
        return Terminal(self._mode or ("sixel" if sixel else "halfcell"), self._cell or cell or _DEFAULT_CELL)

    def _read(self) -> bytes:
        answer = b""
        deadline = self._asked_at + ANSWER_WITHIN_S
        with suppress(OSError):
            while not _ATTRIBUTES.search(answer):
                if not select.select([_input()], [], [], max(0.0, deadline - time.monotonic()))[0]:
                    break
                read = os.read(_input(), 256)
                if not read:
                    break
                answer += read
        return answer

    def _restore(self) -> None:
        before, self._before = self._before, None
        if before is not None:
            with suppress(OSError, termios.error):
                termios.tcsetattr(_input(), termios.TCSANOW, before)


def mode_by_name(environment: Mapping[str, str]) -> str | None:
    """Return how a terminal with this environment draws pictures; None if its name does not say."""
    term = environment.get("TERM", "")
    if term in _NO_GRAPHICS_TERMS:
        return "off"
    if environment.get("TMUX") or environment.get("STY") or term.startswith(_MULTIPLEXERS):
        return "halfcell"
    if term in _KITTY_TERMS or environment.get("KITTY_WINDOW_ID"):
        return "kitty"
    if term.startswith(_SIXEL_TERMS) or environment.get("TERM_PROGRAM") == "WezTerm":
        return "sixel"
    if term == "linux":
        return "halfcell"
    return None


def parse_answer(answer: bytes) -> tuple[bool, tuple[int, int] | None]:
    """Return whether the terminal draws Sixel, and its cell size in pixels if reported."""
    attributes = _ATTRIBUTES.search(answer)
    cell = _CELL.search(answer)
    sixel = attributes is not None and _SIXEL_ATTRIBUTE in attributes[1].split(b";")[1:]
    size = (int(cell[2]), int(cell[1])) if cell else (0, 0)
    return sixel, size if all(size) else None


def detach() -> None:
    """Prepare for exit without a terminal: let nothing fail or block on it."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (sys.__stdin__, sys.__stdout__, sys.__stderr__):
        with suppress(OSError, ValueError):
            if stream is not None and stat.S_ISCHR(os.fstat(stream.fileno()).st_mode):
                os.dup2(null, stream.fileno())
    os.close(null)


def _is_terminal() -> bool:
    return sys.__stdin__ is not None and sys.__stdin__.isatty() and sys.__stderr__ is not None


def _input() -> int:
    assert sys.__stdin__ is not None
    return sys.__stdin__.fileno()


def _cell_by_ioctl() -> tuple[int, int] | None:
    """Return the cell size in pixels known to the kernel; many terminals, and most connections, do not report it."""
    if not _is_terminal():
        return None
    try:
        size = fcntl.ioctl(_input(), termios.TIOCGWINSZ, b"\0" * 8)
    except OSError:
        return None
    rows, columns, width, height = struct.unpack("HHHH", size)
    if not (rows and columns and width >= columns and height >= rows):
        return None
    return width // columns, height // rows
