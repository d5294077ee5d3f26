"""Finds out what the terminal can do, by asking it, and how it can draw images, also through tmux or GNU screen."""

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
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, Literal, Self

import msgspec

from vlmtui.processes import ask_program
from vlmtui.text import is_number

Multiplexer = Literal["", "tmux", "screen"]

_ANSWERS_WITHIN_S: Final = 1.0
_PANE_PLACE: Final = "#{pane_left} #{pane_top} #{status} #{status-position}"

WayName = Literal["kitty", "iterm", "sixel", "sextant", "quadrant", "halfcell"]
WAY_NAMES: Final[tuple[WayName, ...]] = ("kitty", "iterm", "sixel", "sextant", "quadrant", "halfcell")

_SIXEL: Final = 4
"""The device attribute of terminals that draw Sixel."""
_PLACEHOLDERS: Final = ("kitty", "ghostty")
"""Terminals that draw images at kitty's Unicode placeholders. WezTerm and Konsole have kitty's protocol, but no
placeholders."""
_ITERM: Final = ("iterm2", "wezterm", "mintty")
_SEXTANTS: Final = ("kitty", "ghostty", "wezterm", "foot", "contour", "iterm2", "konsole")
"""Terminals that draw sextant characters themselves, whatever the font has."""
_VTE: Final = re.compile(r"VTE\((\d+)\)")
_VTE_SEXTANTS: Final = 6000
"""The first version of VTE that draws sextants, as VTE numbers its versions."""
_DUMB: Final = ("dumb", "unknown")
_PASS_ON: Final = "Let tmux pass images on: `tmux set -g allow-passthrough on` (tmux 3.3 or later)."
_OTHER_TERMINAL: Final = "kitty, Ghostty, iTerm2, WezTerm and foot draw images with pixels."

ANSWER_WITHIN_S = 0.15
"""Most seconds to wait for an answer. Every terminal answers a request for device attributes, usually at once."""

_DEFAULT_CELL = (10, 20)
_READ_BYTES: Final = 4096
_QUIET_TERMS: Final = ("linux", "dumb", "unknown")
"""Values of TERM for terminals that would print the questions."""
_ASK_KITTY: Final = "\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\"
_ASK_NAME, _ASK_CELL, _ASK_ATTRIBUTES = "\x1b[>q", "\x1b[16t", "\x1b[c"
_ATTRIBUTES = re.compile(rb"\x1b\[\?([0-9;]*)c")
_CELL = re.compile(rb"\x1b\[6;(\d+);(\d+)t")
_NAME = re.compile(rb"\x1bP>\|([^\x1b\x07]{1,200})\x1b\\")
_KITTY = b"\x1b_Gi=31;OK\x1b\\"


def multiplexer_of(environment: Mapping[str, str]) -> Multiplexer:
    """Return the multiplexer that this process runs in: `tmux`, `screen` or none.

    Over SSH, TERM is the only hint, because TMUX and STY are not passed on.
    """
    term = environment.get("TERM", "")
    if environment.get("TMUX") or term.startswith("tmux"):
        return "tmux"
    if environment.get("STY") or term.startswith("screen"):
        return "tmux" if environment.get("TERM_PROGRAM") == "tmux" else "screen"
    return ""


def has_true_colour(environment: Mapping[str, str]) -> bool:
    """Return whether COLORTERM announces true colours, and no GNU screen is in between.

    GNU screen 4 mistakes true colours for other attributes, and GNU screen 5 passes them on only if configured to.
    """
    return environment.get("COLORTERM", "") in ("truecolor", "24bit") and multiplexer_of(environment) != "screen"


def passed_on(text: str) -> str:
    """Wrap an escape sequence so that tmux passes it on to the terminal."""
    doubled = text.replace("\x1b", "\x1b\x1b")
    return f"\x1bPtmux;{doubled}\x1b\\"


class Passage:
    """Sends escape sequences to the terminal, directly or through tmux, and knows where tmux's pane is on the
    terminal."""

    def __init__(self, *, is_through: bool = False, environment: Mapping[str, str] = os.environ) -> None:
        self.is_through: Final = is_through
        """True if sequences go through tmux."""
        self._environment = environment
        self.origin = (0, 0)
        """Column and line of the terminal where this screen begins."""

    def wrap(self, text: str) -> str:
        return passed_on(text) if self.is_through else text

    def wrap_at(self, x: int, y: int, text: str) -> str:
        """Return a sequence that moves the cursor to column `x` of line `y` of this screen and writes `text` there."""
        left, top = self.origin
        return self.wrap(f"\x1b[{top + y + 1};{left + x + 1}H{text}")

    def locate(self) -> None:
        """Ask tmux where its pane is on the terminal: other panes or the status line may have moved it. Blocking."""
        pane = self._environment.get("TMUX_PANE")
        if not self.is_through or not pane:
            return
        words = ("display-message", "-p", "-t", pane, _PANE_PLACE)
        asked = ask_program("tmux", *words, within_s=_ANSWERS_WITHIN_S, environment=self._environment)
        if asked is not None:
            self.origin = parse_place(asked)


def parse_place(answer: str) -> tuple[int, int]:
    """Return the column and line at which tmux's pane begins. `answer`: the output of `tmux display-message`. Returns
    (0, 0) if it is malformed."""
    words = answer.split()
    if len(words) != 4 or not (is_number(words[0]) and is_number(words[1])):
        return 0, 0
    left, top, status, position = words
    lines = {"off": 0, "on": 1}.get(status, int(status) if is_number(status) else 0)
    return int(left), int(top) + (lines if position == "top" else 0)


class Answers(msgspec.Struct, frozen=True):
    """The terminal's answers to our questions. Inside tmux or GNU screen, the answers of the outer terminal, if the
    questions reach it."""

    name: str = ""
    """Name and version; empty: no answer."""
    attributes: frozenset[int] | None = None
    """The terminal's device attributes; None: no answer."""
    own_attributes: frozenset[int] | None = None
    """The multiplexer's device attributes."""
    speaks_kitty: bool = False
    """True if it accepts images by kitty's protocol."""
    cell: tuple[int, int] | None = None
    """Width and height of a cell, in pixels."""


class PictureWay(msgspec.Struct, frozen=True):
    name: WayName
    is_possible: bool
    reason: str
    """The evidence for `is_possible`."""
    hint: str = ""
    """What would make it possible; empty: nothing known."""
    is_passed_on: bool = False
    """True if its sequences must be wrapped for tmux to pass on."""


def picture_ways(environment: Mapping[str, str], answers: Answers) -> list[PictureWay]:
    """Return all ways to draw images, the best first. On a dumb terminal none is possible."""
    if environment.get("TERM", "") in _DUMB:
        reason = f"TERM={environment['TERM']}: it only prints"
        return [PictureWay(name, False, reason, "Set TERM to the terminal's type.") for name in WAY_NAMES]
    pixels = _pixel_ways_behind(environment, answers) if multiplexer_of(environment) else _pixel_ways(answers)
    return [*pixels, *_character_ways(environment, answers)]


def best_way(ways: list[PictureWay]) -> PictureWay | None:
    return next((way for way in ways if way.is_possible), None)


def _pixel_ways(answers: Answers) -> list[PictureWay]:
    return [_kitty_way(answers), _iterm_way(answers), _sixel_way(answers)]


def _pixel_ways_behind(environment: Mapping[str, str], answers: Answers) -> list[PictureWay]:
    """Return the ways to draw pixels inside a multiplexer, which may draw Sixel itself or pass sequences on."""
    multiplexer = multiplexer_of(environment)
    if answers.attributes is None:
        reason = f"{multiplexer} does not pass questions on to the terminal"
        hint = _PASS_ON if multiplexer == "tmux" else "Use tmux, which can pass images on; or leave screen."
        ways = [PictureWay(way.name, False, reason, hint) for way in _pixel_ways(answers)]
    else:
        is_placed = bool(environment.get("TMUX_PANE"))
        ways = [_passed_on_way(way, is_placed=is_placed or way.name == "kitty") for way in _pixel_ways(answers)]
    if answers.own_attributes and _SIXEL in answers.own_attributes:
        ways[-1] = PictureWay("sixel", True, f"{multiplexer} draws it itself (device attribute 4)")
    return ways


def _passed_on_way(way: PictureWay, *, is_placed: bool) -> PictureWay:
    if way.is_possible and not is_placed:
        reason = "the place of tmux's pane on the terminal is unknown (no TMUX_PANE)"
        return msgspec.structs.replace(way, is_possible=False, reason=reason, hint="Run vlmtui where tmux runs.")
    return msgspec.structs.replace(way, is_passed_on=True)


def _kitty_way(answers: Answers) -> PictureWay:
    name = answers.name
    if name.lower().startswith(_PLACEHOLDERS):
        return PictureWay("kitty", answers.speaks_kitty, _name_reason(name, answers.speaks_kitty))
    if answers.speaks_kitty:
        reason = f"it accepts kitty's images, but {name or 'an unknown terminal'} is not known to draw placeholders"
        return PictureWay("kitty", False, reason, "VLMTUI_GRAPHICS=kitty tries it.")
    return PictureWay("kitty", False, "it does not answer a question of kitty's protocol", _OTHER_TERMINAL)


def _name_reason(name: str, speaks: bool) -> str:
    return f"it is {name}{'' if speaks else ', but accepts no images now'}"


def _iterm_way(answers: Answers) -> PictureWay:
    if answers.name.lower().startswith(_ITERM):
        return PictureWay("iterm", True, _name_reason(answers.name, True))
    reason = f"it is {answers.name}" if answers.name else "it does not tell its name"
    return PictureWay("iterm", False, reason, _OTHER_TERMINAL)


def _sixel_way(answers: Answers) -> PictureWay:
    if answers.attributes is None:
        return PictureWay("sixel", False, "it does not tell its attributes", "VLMTUI_GRAPHICS=sixel tries it.")
    if _SIXEL in answers.attributes:
        return PictureWay("sixel", True, "device attribute 4")
    hint = "Start it as `xterm -ti 340`." if answers.name.lower().startswith("xterm") else _OTHER_TERMINAL
    return PictureWay("sixel", False, "device attribute 4 is not among its attributes", hint)


def _character_ways(environment: Mapping[str, str], answers: Answers) -> Iterator[PictureWay]:
    term, name = environment.get("TERM", ""), answers.name
    locale = environment.get("LC_ALL") or environment.get("LC_CTYPE") or environment.get("LANG") or ""
    if locale and "utf" not in locale.lower():
        reason = f"the locale {locale} has no such characters"
        yield PictureWay("sextant", False, reason, "Use a UTF-8 locale.")
        yield PictureWay("quadrant", False, reason, "Use a UTF-8 locale.")
    elif term == "linux":
        yield PictureWay("sextant", False, "the console's font lacks them", _OTHER_TERMINAL)
        yield PictureWay("quadrant", False, "the console's font lacks them", _OTHER_TERMINAL)
    else:
        vte = _VTE.match(name)
        draws = name.lower().startswith(_SEXTANTS) or (vte is not None and int(vte[1]) >= _VTE_SEXTANTS)
        known = f"{name} is not known to draw them" if name else "the terminal is unknown"
        hint = "" if draws else "VLMTUI_GRAPHICS=sextant tries it."
        yield PictureWay("sextant", draws, f"{name} draws them" if draws else known, hint)
        yield PictureWay("quadrant", True, f"the locale {locale}" if locale else "no locale says otherwise")
    yield PictureWay("halfcell", True, "every terminal with colours has them")


class Terminal(msgspec.Struct, frozen=True):
    mode: str
    """The name of the best possible way to draw images; `off`: none."""
    cell: tuple[int, int] = _DEFAULT_CELL
    """Width and height of a cell, in pixels."""
    ways: tuple[PictureWay, ...] = ()
    """All ways to draw images, the best first."""
    answers: Answers = Answers()

    def passes_on(self, mode: str) -> bool:
        """Return whether images drawn in this mode must be passed on by tmux."""
        return any(way.name == mode and way.is_passed_on for way in self.ways)


class TerminalQuestion:
    """Takes over the terminal's input from the shell, and asks the terminal about itself.

    `listen` and `ask` come first, `answer` later; `take_typed` returns what was read besides the answers. Call all of
    them before the app runs, when Textual begins to read the input. As a context manager it restores the terminal's
    settings on exit.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ, *, within_s: float = ANSWER_WITHIN_S) -> None:
        self._within_s = within_s
        self._environment = environment
        self._multiplexer = multiplexer_of(environment)
        self._before: list[Any] | None = None
        self._is_asked = False
        self._asked_at = time.monotonic()
        self._typed = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        before, self._before = self._before, None
        if before is not None:
            with suppress(OSError, termios.error):
                termios.tcsetattr(_input(), termios.TCSANOW, before)

    def listen(self) -> Self:
        """Switch off echo and line editing, so that keys arrive as the app gets them, and read what was typed before:
        there the terminal has made Enter a line feed. Ctrl+C still interrupts. Does nothing without a terminal."""
        if self._before is not None or not _is_terminal():
            return self
        descriptor = _input()
        with suppress(OSError, termios.error):
            self._before = termios.tcgetattr(descriptor)
            mode = termios.tcgetattr(descriptor)
            mode[tty.IFLAG] &= ~termios.ICRNL
            mode[tty.LFLAG] &= ~(termios.ECHO | termios.ICANON)
            mode[tty.CC][termios.VMIN], mode[tty.CC][termios.VTIME] = 1, 0
            termios.tcsetattr(descriptor, termios.TCSANOW, mode)
            while select.select([descriptor], [], [], 0)[0] and (read := os.read(descriptor, _READ_BYTES)):
                self._typed += read.replace(b"\n", b"\r")
        return self

    def ask(self) -> Self:
        """Listen, and send the questions, unless TERM names a terminal that would print them as text."""
        self.listen()
        if self._before is not None and self._environment.get("TERM", "") not in _QUIET_TERMS:
            with suppress(OSError):
                os.write(_input(), questions(self._environment).encode())
                self._is_asked, self._asked_at = True, time.monotonic()
        return self

    def answer(self) -> Terminal:
        """Return what the terminal can do. Waits for the terminal's answers until `within_s` seconds after `ask`;
        without an answer, images are drawn with characters."""
        read = self._read() if self._is_asked else b""
        self._typed += read
        answers = parse_answers(read, is_behind=bool(self._multiplexer))
        ways = picture_ways(self._environment, answers)
        best = best_way(ways)
        # The cell size that tmux reports to the kernel is invented.
        cell = (None if self._multiplexer else _cell_by_ioctl()) or answers.cell or _DEFAULT_CELL
        return Terminal(best.name if best else "off", cell, tuple(ways), answers)

    def take_typed(self) -> bytes:
        """Return the input that was read, with the terminal's answers in it, and forget it."""
        typed, self._typed = self._typed, b""
        return typed

    def _read(self) -> bytes:
        answer = b""
        deadline = self._asked_at + self._within_s
        awaited = 2 if self._multiplexer == "tmux" else 1  # tmux's attributes and the terminal's
        with suppress(OSError):
            while len(_ATTRIBUTES.findall(answer)) < awaited:
                if not select.select([_input()], [], [], max(0.0, deadline - time.monotonic()))[0]:
                    break
                read = os.read(_input(), _READ_BYTES)
                if not read:
                    break
                answer += read
        return answer


def questions(environment: Mapping[str, str]) -> str:
    """Return the questions for a terminal. The last one asks for the device attributes, which every terminal
    answers."""
    asked = _ASK_NAME + _ASK_CELL + _ASK_ATTRIBUTES
    if environment.get("TERM_PROGRAM") != "Apple_Terminal":  # Apple's Terminal would print the question
        asked = _ASK_KITTY + asked
    match multiplexer_of(environment):
        case "tmux":
            return _ASK_ATTRIBUTES + passed_on(asked)
        case "screen":
            return _ASK_ATTRIBUTES
        case _:
            return asked


def parse_answers(answer: bytes, *, is_behind: bool) -> Answers:
    """Parse the bytes that a terminal answered. `is_behind`: True inside a multiplexer, whose own device attributes
    come first."""
    found = [_attributes_in(match) for match in _ATTRIBUTES.findall(answer)]
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


def _attributes_in(text: bytes) -> frozenset[int]:
    """Return the device attributes in an answer, without its first number, which is the terminal's class."""
    return frozenset(int(one) for one in text.split(b";")[1:] if one)


def detach() -> None:
    """Redirect the standard streams that are a terminal to /dev/null, so that nothing fails or blocks after the
    terminal has closed."""
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
    """Return the cell size in pixels that the kernel knows; None if the terminal or connection does not report it."""
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
