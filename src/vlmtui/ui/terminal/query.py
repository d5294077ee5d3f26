"""Asks the terminal for its name, its cell size, and how it draws pictures. No Textual here, no heavy imports."""

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
from typing import Any, Final, Self

import msgspec

from vlmtui.ui.terminal.passage import Multiplexer, multiplexer_of, wrap
from vlmtui.ui.terminal.picture_ways import Answers, PictureWay, best_way, picture_ways

ANSWER_WITHIN_S = 0.15
"""Most seconds to wait for an answer. Every terminal answers a device attributes request, most at once."""

_DEFAULT_CELL = (10, 20)
_QUIET_TERMS: Final = ("linux", "dumb", "unknown")
"""Terminals that would show some of the questions."""
_ASK_KITTY: Final = "\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\"
_ASK_NAME, _ASK_CELL, _ASK_ATTRIBUTES = "\x1b[>q", "\x1b[16t", "\x1b[c"
_ATTRIBUTES = re.compile(rb"\x1b\[\?([0-9;]*)c")
_CELL = re.compile(rb"\x1b\[6;(\d+);(\d+)t")
_NAME = re.compile(rb"\x1bP>\|([^\x1b\x07]{1,200})\x1b\\")
_KITTY = b"\x1b_Gi=31;OK\x1b\\"


class Terminal(msgspec.Struct, frozen=True):
    """What is known of the terminal. `mode`: how to draw pictures: the name of a way, or off."""

    mode: str
    cell: tuple[int, int] = _DEFAULT_CELL
    """Width and height of a cell, in pixels."""
    ways: tuple[PictureWay, ...] = ()
    """All ways of showing pictures, the best first."""
    answers: Answers = Answers()

    def through(self, mode: str, environment: Mapping[str, str] = os.environ) -> Multiplexer:
        """Return which multiplexer is to pass pictures on that are drawn this way."""
        is_passed_on = any(way.name == mode and way.is_passed_on for way in self.ways)
        return multiplexer_of(environment) if is_passed_on else ""


class TerminalQuestion:
    """Queries the terminal. Send it early, do other work, then read the answer.

    Do both before the app runs: then Textual reads the terminal's answers. (It drops one that arrives too late.) As a
    context manager it restores the terminal's settings.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ, *, within_s: float = ANSWER_WITHIN_S) -> None:
        self._within_s = within_s
        self._environment = environment
        self._multiplexer = multiplexer_of(environment)
        self._before: list[Any] | None = None
        self._asked_at = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._restore()

    def ask(self) -> Self:
        """Send the query, if there is a terminal that can be asked."""
        if self._environment.get("TERM", "") in _QUIET_TERMS or not _is_terminal():
            return self
        descriptor = _input()
        with suppress(OSError, termios.error):
            self._before = termios.tcgetattr(descriptor)
            tty.setcbreak(descriptor, termios.TCSANOW)
            os.write(descriptor, questions(self._environment).encode())
            self._asked_at = time.monotonic()
        return self

    def answer(self) -> Terminal:
        """Return what is known at most `within_s` after the query; symbols when in doubt."""
        try:
            read = self._read() if self._before is not None else b""
        finally:
            self._restore()
        answers = parse_answers(read, is_behind=bool(self._multiplexer))
        ways = picture_ways(self._environment, answers)
        best = best_way(ways)
        # Of its own cells tmux tells the kernel a size that it makes up.
        cell = (None if self._multiplexer else _cell_by_ioctl()) or answers.cell or _DEFAULT_CELL
        return Terminal(best.name if best else "off", cell, tuple(ways), answers)

    def _read(self) -> bytes:
        answer = b""
        deadline = self._asked_at + self._within_s
        awaited = 2 if self._multiplexer else 1  # the multiplexer's attributes and the terminal's
        with suppress(OSError):
            while len(_ATTRIBUTES.findall(answer)) < awaited:
                if not select.select([_input()], [], [], max(0.0, deadline - time.monotonic()))[0]:
                    break
                read = os.read(_input(), 4096)
                if not read:
                    break
                answer += read
        return answer

    def _restore(self) -> None:
        before, self._before = self._before, None
        if before is not None:
            with suppress(OSError, termios.error):
                termios.tcsetattr(_input(), termios.TCSANOW, before)


def questions(environment: Mapping[str, str]) -> str:
    """Return what to send to a terminal with this environment; its attributes, which all tell, are asked last."""
    multiplexer = multiplexer_of(environment)
    asked = _ASK_NAME + _ASK_CELL + _ASK_ATTRIBUTES
    if environment.get("TERM_PROGRAM") != "Apple_Terminal":  # it would show the question
        asked = _ASK_KITTY + asked
    if not multiplexer:
        return asked
    return _ASK_ATTRIBUTES + wrap(asked, multiplexer)


def parse_answers(answer: bytes, *, is_behind: bool) -> Answers:
    """Return what a terminal answered. `is_behind`: behind a multiplexer, which answers first."""
    found = [_numbers(match) for match in _ATTRIBUTES.findall(answer)]
    cell, name = _CELL.search(answer), _NAME.search(answer)
    size = (int(cell[2]), int(cell[1])) if cell else (0, 0)
    own = found.pop(0) if is_behind and found else None
    return Answers(
        name=name[1].decode("ascii", "replace") if name else "",
        attributes=found[0] if found else None,
        own_attributes=own,
        speaks_kitty=_KITTY in answer,
        cell=size if all(size) else None,
    )


def _numbers(text: bytes) -> frozenset[int]:
    """Return the attributes of an answer; the first number, the terminal's class, is none."""
    return frozenset(int(one) for one in text.split(b";")[1:] if one)


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
