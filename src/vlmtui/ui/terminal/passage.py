"""The way of sequences through a terminal multiplexer to the terminal that draws pictures."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from typing import Final, Literal

from vlmtui.processes import find_program
from vlmtui.text import is_number

Multiplexer = Literal["", "tmux", "screen"]

_ANSWERS_WITHIN_S: Final = 1.0
_PLACE: Final = "#{pane_left} #{pane_top} #{status} #{status-position}"
_SCREEN_MAX: Final = 700
"""Most bytes that screen passes on in one sequence."""


def multiplexer_of(environment: Mapping[str, str]) -> Multiplexer:
    """Return what runs between this process and the terminal, by the environment. In a remote shell only TERM tells."""
    term = environment.get("TERM", "")
    if environment.get("TMUX") or term.startswith("tmux"):
        return "tmux"
    if environment.get("STY") or term.startswith("screen"):
        return "tmux" if environment.get("TERM_PROGRAM") == "tmux" else "screen"
    return ""


def has_true_colour(environment: Mapping[str, str]) -> bool:
    """Whether true colours reach the terminal, of which COLORTERM speaks.

    screen 4 takes such colours for other attributes, and screen 5 passes them on only if it is told to.
    """
    return environment.get("COLORTERM", "") in ("truecolor", "24bit") and multiplexer_of(environment) != "screen"


def wrap(text: str, multiplexer: Multiplexer) -> str:
    """Return a sequence so that the multiplexer passes it on to the terminal."""
    if multiplexer == "tmux":
        doubled = text.replace("\x1b", "\x1b\x1b")
        return f"\x1bPtmux;{doubled}\x1b\\"
    if multiplexer == "screen":
        # An end of string would end screen's own: it goes in two pieces.
        pieces = text.replace("\x1b\\", "\x1b\0\\").split("\0")
        cut = [piece[at : at + _SCREEN_MAX] for piece in pieces for at in range(0, len(piece), _SCREEN_MAX)]
        return "".join(f"\x1bP{piece}\x1b\\" for piece in cut)
    return text


class Passage:
    """How sequences reach the terminal that draws, and where this screen is on it."""

    def __init__(self, multiplexer: Multiplexer = "", environment: Mapping[str, str] = os.environ) -> None:
        self._multiplexer: Multiplexer = multiplexer
        self._environment = environment
        self.origin = (0, 0)
        """Column and line of the terminal at which this screen begins."""

    @property
    def is_through(self) -> bool:
        """Whether there is a multiplexer in between."""
        return bool(self._multiplexer)

    def wrap(self, text: str) -> str:
        return wrap(text, self._multiplexer)

    def wrap_at(self, x: int, y: int, text: str) -> str:
        """Return a sequence that draws at column `x` of line `y` of this screen."""
        left, top = self.origin
        placed = f"\x1b[{top + y + 1};{left + x + 1}H{text}"
        # tmux finds out where it has left the cursor; screen takes it for where it was.
        return self.wrap(f"\x1b7{placed}\x1b8" if self._multiplexer == "screen" else placed)

    def locate(self) -> None:
        """Ask tmux where its pane is. Blocking; another pane, or the status line, may have moved it."""
        pane = self._environment.get("TMUX_PANE")
        tmux = find_program("tmux", self._environment)
        if self._multiplexer != "tmux" or not pane or tmux is None:
            return
        command = [tmux, "display-message", "-p", "-t", pane, _PLACE]
        try:
            asked = subprocess.run(
                command, capture_output=True, text=True, timeout=_ANSWERS_WITHIN_S, check=True, cwd=os.sep
            )
        except (OSError, subprocess.SubprocessError):
            return
        self.origin = parse_place(asked.stdout)


def parse_place(answer: str) -> tuple[int, int]:
    """Return where tmux's pane begins; the terminal's corner when in doubt."""
    words = answer.split()
    if len(words) != 4 or not (is_number(words[0]) and is_number(words[1])):
        return 0, 0
    left, top, status, position = words
    lines = {"off": 0, "on": 1}.get(status, int(status) if is_number(status) else 0)
    return int(left), int(top) + (lines if position == "top" else 0)
