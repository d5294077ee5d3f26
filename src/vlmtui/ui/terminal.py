"""What the terminal is: its pixels a cell and how it can draw pictures. No Textual here, nothing heavy."""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import time
import tty
from collections.abc import Mapping
from dataclasses import dataclass

ASK_TIMEOUT_S = 0.15
"""How long an answer may take. Every terminal answers a device attributes request, most at once."""

_DEFAULT_CELL = (10, 20)
_KITTY_TERMS = ("xterm-kitty", "xterm-ghostty")
"""Terminals that draw kitty's Unicode placeholders. WezTerm and Konsole speak the protocol, but not those."""
_SIXEL_TERMS = ("foot", "mlterm", "contour", "wezterm", "yaft")
_NO_GRAPHICS_TERMS = ("dumb", "unknown")
_MULTIPLEXERS = ("screen", "tmux")
_ASK_ATTRIBUTES = b"\x1b[c"
_ASK_CELL = b"\x1b[16t"
_ATTRIBUTES = re.compile(rb"\x1b\[\?([0-9;]*)c")
_CELL = re.compile(rb"\x1b\[6;(\d+);(\d+)t")
_SIXEL_ATTRIBUTE = b"4"


@dataclass(frozen=True, slots=True)
class Terminal:
    """What is known of the terminal. `mode` is a way to draw pictures: kitty, sixel, halfcell or off."""

    mode: str
    cell: tuple[int, int] = _DEFAULT_CELL
    """Width and height of a cell, in pixels."""

    @classmethod
    def look(cls, environment: Mapping[str, str] = os.environ) -> Terminal:
        """Learn what the terminal is: by its name where that says it, else by asking it, for `ASK_TIMEOUT_S` at most.

        Only before the app runs: afterwards Textual reads the terminal's answers. Half cells when in doubt.
        """
        cell = _cell_by_ioctl()
        mode = mode_by_name(environment)
        if (mode and cell) or not _is_terminal():
            return cls(mode or "halfcell", cell or _DEFAULT_CELL)
        sixel, told_cell = parse_answer(_ask())
        return cls(mode or ("sixel" if sixel else "halfcell"), cell or told_cell or _DEFAULT_CELL)


def mode_by_name(environment: Mapping[str, str]) -> str | None:
    """How a terminal of that environment draws pictures; None where its name does not tell."""
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
    """Whether the terminal draws Sixel, and its cell in pixels where it said so."""
    attributes = _ATTRIBUTES.search(answer)
    cell = _CELL.search(answer)
    sixel = attributes is not None and _SIXEL_ATTRIBUTE in attributes[1].split(b";")[1:]
    size = (int(cell[2]), int(cell[1])) if cell else (0, 0)
    return sixel, size if all(size) else None


def _is_terminal() -> bool:
    return sys.__stdin__ is not None and sys.__stdin__.isatty() and sys.__stderr__ is not None


def _cell_by_ioctl() -> tuple[int, int] | None:
    if not _is_terminal() or sys.__stdin__ is None:
        return None
    try:
        rows, columns = termios.tcgetwinsize(sys.__stdin__.fileno())
    except (OSError, termios.error):
        return None
    width, height = _pixels(sys.__stdin__.fileno())
    if not (rows and columns and width >= columns and height >= rows):
        return None
    return width // columns, height // rows


def _pixels(descriptor: int) -> tuple[int, int]:
    import fcntl
    import struct

    try:
        size = fcntl.ioctl(descriptor, termios.TIOCGWINSZ, b"\0" * 8)
    except OSError:
        return 0, 0
    _, _, width, height = struct.unpack("HHHH", size)
    return width, height


def _ask() -> bytes:
    """Send both questions and read until the second one's answer; what had come when the time was up."""
    assert sys.__stdin__ is not None
    descriptor = sys.__stdin__.fileno()
    before = termios.tcgetattr(descriptor)
    answer = b""
    deadline = time.monotonic() + ASK_TIMEOUT_S
    try:
        tty.setcbreak(descriptor, termios.TCSANOW)
        os.write(descriptor, _ASK_CELL + _ASK_ATTRIBUTES)
        while not _ATTRIBUTES.search(answer) and (left := deadline - time.monotonic()) > 0:
            if select.select([descriptor], [], [], left)[0]:
                read = os.read(descriptor, 256)
                if not read:
                    break
                answer += read
    except OSError:
        return answer
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, before)
    return answer
