"""The ways in which a terminal can show pictures: which it has, how that is known, and what would make it better."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, Literal

import msgspec

from vlmtui.ui.terminal.passage import Multiplexer, multiplexer_of

WayName = Literal["kitty", "iterm", "sixel", "sextant", "quadrant", "halfcell"]

_SIXEL: Final = 4
"""The attribute of a terminal that draws Sixel."""
_PLACEHOLDERS: Final = ("kitty", "ghostty")
"""Terminals that draw pictures where kitty's placeholders are. WezTerm and Konsole speak the protocol without them."""
_ITERM: Final = ("iterm2", "wezterm", "mintty")
_SIXEL_NAMES: Final = ("foot", "mlterm", "contour", "wezterm", "yaft")
_SEXTANTS: Final = ("kitty", "ghostty", "wezterm", "foot", "contour", "iterm2", "konsole")
"""Terminals that draw the sextants themselves, whatever the font has."""
_VTE: Final = re.compile(r"VTE\((\d+)\)")
_VTE_SEXTANTS: Final = 6000
"""The version of VTE, as it tells it, that draws sextants."""
_DUMB: Final = ("dumb", "unknown")
_PASS_ON: Final = "Let tmux pass pictures on: `tmux set -g allow-passthrough on` (tmux 3.3 or later)."
_OTHER_TERMINAL: Final = "kitty, Ghostty, iTerm2, WezTerm and foot draw pictures with pixels."


class Answers(msgspec.Struct, frozen=True):
    """What a terminal said when it was asked. Behind a multiplexer: the terminal that draws, if it could be asked."""

    name: str = ""
    """Name and version; empty: it did not say."""
    attributes: frozenset[int] | None = None
    """Its device attributes; None: it did not answer."""
    own_attributes: frozenset[int] | None = None
    """Those of the multiplexer."""
    speaks_kitty: bool = False
    """Whether it takes pictures by kitty's protocol."""
    cell: tuple[int, int] | None = None
    """Width and height of a cell, in pixels."""


class PictureWay(msgspec.Struct, frozen=True):
    """A way of showing pictures."""

    name: WayName
    is_possible: bool
    reason: str
    """How that was found out."""
    hint: str = ""
    """What would make it possible; empty: nothing that is known."""
    is_passed_on: bool = False
    """Whether the multiplexer must be told to pass the sequences on."""


def picture_ways(environment: Mapping[str, str], answers: Answers) -> list[PictureWay]:
    """Return all ways, the best first. None is possible on a terminal that is only printed to."""
    if environment.get("TERM", "") in _DUMB:
        reason = f"TERM={environment['TERM']}: it only prints"
        return [PictureWay(name, False, reason, "Set TERM to the terminal's type.") for name in WAY_NAMES]
    multiplexer = multiplexer_of(environment)
    pixels = _behind(multiplexer, environment, answers) if multiplexer else _direct(environment, answers)
    return [*pixels, *_symbols(environment, answers)]


WAY_NAMES: Final[tuple[WayName, ...]] = ("kitty", "iterm", "sixel", "sextant", "quadrant", "halfcell")


def best_way(ways: list[PictureWay]) -> PictureWay | None:
    """Return the first possible way."""
    return next((way for way in ways if way.is_possible), None)


def _direct(environment: Mapping[str, str], answers: Answers) -> Iterator[PictureWay]:
    term, program = environment.get("TERM", ""), environment.get("TERM_PROGRAM", "")
    by_term, by_program = f"TERM={term}", f"TERM_PROGRAM={program}"
    if term.removeprefix("xterm-").startswith(_PLACEHOLDERS):
        yield PictureWay("kitty", True, by_term)
    elif environment.get("KITTY_WINDOW_ID"):
        yield PictureWay("kitty", True, "KITTY_WINDOW_ID is set")
    else:
        yield _kitty(answers)
    if program in ("iTerm.app", "WezTerm", "mintty"):
        yield PictureWay("iterm", True, by_program)
    elif environment.get("LC_TERMINAL") == "iTerm2":
        yield PictureWay("iterm", True, "LC_TERMINAL=iTerm2")
    else:
        yield _iterm(answers)
    if term.startswith(_SIXEL_NAMES):
        yield PictureWay("sixel", True, by_term)
    else:
        yield _sixel(answers)


def _behind(multiplexer: Multiplexer, environment: Mapping[str, str], answers: Answers) -> Iterator[PictureWay]:
    """Behind a multiplexer what counts is the terminal's own answer: the environment may be another terminal's."""
    is_placed = multiplexer == "screen" or bool(environment.get("TMUX_PANE"))
    if answers.attributes is None:
        reason = f"{multiplexer} does not pass on what the terminal is asked"
        hint = _PASS_ON if multiplexer == "tmux" else "tmux passes pictures on, if it may; or leave screen."
        yield PictureWay("kitty", False, reason, hint)
        yield PictureWay("iterm", False, reason, hint)
    else:
        kitty = _kitty(answers)
        if multiplexer == "screen" and kitty.is_possible:
            reason = "screen keeps the marks of a few hundred of its placeholders, then mixes them up"
            kitty = PictureWay("kitty", False, reason, "tmux keeps them all.")
        yield _passed(kitty, is_placed=True)
        yield _passed(_iterm(answers), is_placed=is_placed)
    if answers.own_attributes and _SIXEL in answers.own_attributes:
        yield PictureWay("sixel", True, f"{multiplexer} draws it itself (device attribute 4)")
    elif answers.attributes is None:
        yield PictureWay("sixel", False, reason, hint)
    else:
        yield _passed(_sixel(answers), is_placed=is_placed)


def _passed(way: PictureWay, *, is_placed: bool) -> PictureWay:
    if way.is_possible and not is_placed:
        reason = "where tmux's pane is on the terminal is not known here (no TMUX_PANE)"
        return msgspec.structs.replace(way, is_possible=False, reason=reason, hint="Run vlmtui where tmux runs.")
    return msgspec.structs.replace(way, is_passed_on=True)


def _kitty(answers: Answers) -> PictureWay:
    name = answers.name
    if name.lower().startswith(_PLACEHOLDERS):
        return PictureWay("kitty", answers.speaks_kitty, _called(name, answers.speaks_kitty))
    if answers.speaks_kitty:
        reason = f"it takes kitty's pictures, but {name or 'a terminal without a name'} is not known for placeholders"
        return PictureWay("kitty", False, reason, "VLMTUI_GRAPHICS=kitty tries it.")
    return PictureWay("kitty", False, "it does not answer a question of kitty's protocol", _OTHER_TERMINAL)


def _called(name: str, speaks: bool) -> str:
    return f"it is {name}{'' if speaks else ', but takes no pictures now'}"


def _iterm(answers: Answers) -> PictureWay:
    if answers.name.lower().startswith(_ITERM):
        return PictureWay("iterm", True, _called(answers.name, True))
    reason = f"it is {answers.name}" if answers.name else "it does not tell its name"
    return PictureWay("iterm", False, reason, _OTHER_TERMINAL)


def _sixel(answers: Answers) -> PictureWay:
    if answers.attributes is None:
        return PictureWay("sixel", False, "it does not tell its attributes", "VLMTUI_GRAPHICS=sixel tries it.")
    if _SIXEL in answers.attributes:
        return PictureWay("sixel", True, "device attribute 4")
    hint = "Start it as `xterm -ti 340`." if answers.name.lower().startswith("xterm") else _OTHER_TERMINAL
    return PictureWay("sixel", False, "device attribute 4 is not among its attributes", hint)


def _symbols(environment: Mapping[str, str], answers: Answers) -> Iterator[PictureWay]:
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
        known = f"{name or 'a terminal without a name'} is not known to draw them"
        hint = "" if draws else "VLMTUI_GRAPHICS=sextant, if its font has them."
        yield PictureWay("sextant", draws, f"{name} draws them" if draws else known, hint)
        yield PictureWay("quadrant", True, f"the locale {locale}" if locale else "no locale says otherwise")
    yield PictureWay("halfcell", True, "every terminal with colours has them")
