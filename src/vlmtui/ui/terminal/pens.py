"""Pens: colours, attributes and hyperlink of a terminal's cell, and the shortest sequence from one pen to another."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from rich.color import ColorSystem
from rich.style import Style
from textual.strip import Strip

_OFF: Final = {
    "1": "22",
    "2": "22",
    "3": "23",
    "4": "24",
    "5": "25",
    "6": "25",
    "7": "27",
    "8": "28",
    "9": "29",
    "21": "24",
    "51": "54",
    "52": "54",
    "53": "55",
}
"""SGR parameters of attributes, each with the parameter that ends it."""
_SHOWN_ON_BLANKS: Final = frozenset({"4", "5", "6", "7", "8", "9", "21", "51", "52", "53"})
"""Attributes that are visible on blanks too."""


class Pen:
    """Colours, attributes and hyperlink of a cell. Made by `pen_of`: equal pens are the same object."""

    __slots__ = ("attributes", "background", "blank", "foreground", "full", "link")

    def __init__(self, attributes: frozenset[str], foreground: str, background: str, link: str) -> None:
        """All but `link` are SGR parameters; an empty colour is the terminal's default. `link`: the body of OSC 8."""
        self.attributes = attributes
        self.foreground = foreground
        self.background = background
        self.link = link
        self.full = ";".join(filter(None, [*sorted(attributes, key=int), foreground, background]))
        """All SGR parameters, to follow a reset."""
        is_seen = bool(link) or not attributes.isdisjoint(_SHOWN_ON_BLANKS)
        is_blank = not attributes and not foreground and not link
        self.blank: Pen = self if is_seen or is_blank else _pen(frozenset(), "", background, "")
        """The simplest pen that draws a blank with the same look."""

    @property
    def erases(self) -> bool:
        """True if an erased cell looks the same as a blank that is written with this pen."""
        return self.blank is self and not self.attributes and not self.link


@lru_cache(maxsize=4096)
def pen_of(sgr: str, link: str = "") -> Pen:
    """Return the pen for SGR parameters (`1;38;2;255;0;0`) after a reset, and for a hyperlink."""
    attributes: set[str] = set()
    colours = {"3": "", "4": ""}
    parts = iter(sgr.split(";") if sgr else ())
    for part in parts:
        if part in ("38", "48"):
            kind = next(parts, "5")
            values = [next(parts, "0") for _ in range(3 if kind == "2" else 1)]
            colours[part[0]] = ";".join([part, kind, *values])
        elif part in _OFF:
            attributes.add(part)
        elif part in ("39", "49"):
            colours[part[0]] = ""
        else:
            colours["4" if len(part) == 3 or part[0] == "4" else "3"] = part
    return _pen(frozenset(attributes), colours["3"], colours["4"], link)


@lru_cache(maxsize=4096)
def _pen(attributes: frozenset[str], foreground: str, background: str, link: str) -> Pen:
    return Pen(attributes, foreground, background, link)


@lru_cache(maxsize=4096)
def pen_of_style(style: Style, colours: ColorSystem) -> Pen:
    """Return the pen that draws a style."""
    return pen_of(Strip.render_ansi(style, colours), f"id={style.link_id};{style.link}" if style.link else "")


PLAIN: Final = pen_of("")
"""The terminal's default pen."""


@lru_cache(maxsize=4096)
def change_of(before: Pen, now: Pen) -> str:
    """Return the shortest sequence that changes one pen to another."""
    linked = "" if before.link == now.link else f"\x1b]8;{now.link or ';'}\x1b\\"
    gone, come = before.attributes - now.attributes, set(now.attributes - before.attributes)
    off = {_OFF[attribute] for attribute in gone}
    come |= {attribute for attribute in now.attributes if _OFF[attribute] in off}  # 22 ends bold and dim
    steps = [*sorted(off), *sorted(come, key=int)]
    if before.foreground != now.foreground:
        steps.append(now.foreground or "39")
    if before.background != now.background:
        steps.append(now.background or "49")
    if not steps:
        return linked
    one_by_one, afresh = ";".join(steps), f"0;{now.full}" if now.full else ""
    return f"{linked}\x1b[{min(one_by_one, afresh, key=len)}m"
