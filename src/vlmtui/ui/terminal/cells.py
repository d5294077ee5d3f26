"""Lines of the screen as cells."""

from __future__ import annotations

import re
from typing import Final

from rich.cells import split_graphemes
from rich.color import ColorSystem
from rich.style import Style
from textual.strip import Strip

from vlmtui.ui.terminal.pens import PLAIN, Pen, pen_of
from vlmtui.ui.terminal.placeholders import COLOUR, PLACEHOLDER

Chars = list[str]
"""The character of each cell, with what combines with it; "" for the second cell of a wide one."""
Pens = list[Pen]
"""The pen of each cell, that of a blank reduced to what is seen of it."""

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
_ONE_CELL: Final = re.compile(
    "[\x20-\x7e\xa0-\xac\xae-\u02ff\u2010-\u2027\u2030-\u205e\u2190-\u21ff\u2500-\u25fc\u2713\u2717]+"
)
"""Characters of one cell that combine with nothing, in every terminal."""
_PLANE: Final = 0x10000
"""Terminals differ in the width of characters from here on (emoji), and of those that combine."""
_SEXTANTS: Final = re.compile("[\U0001fb00-\U0001fb3b]")
"""Parts of pictures, of one cell."""


class Cells:
    """A strip as cells."""

    __slots__ = ("chars", "has_picture", "is_risky", "pens", "text")

    def __init__(self, chars: Chars, pens: Pens, text: str, *, is_risky: bool, has_picture: bool) -> None:
        self.chars = chars
        self.pens = pens
        self.text = text
        self.is_risky = is_risky
        """Whether a terminal may count its cells differently."""
        self.has_picture = has_picture
        """Whether the terminal draws a part of a picture there."""


def cells_of(strip: Strip, width: int, colours: ColorSystem) -> Cells | None:
    """Return a strip's cells; None if it is not plain text of `width` cells: it holds sequences for the terminal."""
    chars: Chars = []
    pens: Pens = []
    is_risky = has_picture = False
    for text, style, control in strip:
        if control:
            return None
        pen = PLAIN if style is None else _pen_of(style, colours)
        if _ONE_CELL.fullmatch(text):
            chars += text
            blank = pen.blank
            pens += [pen] * len(text) if blank is pen else [blank if char == " " else pen for char in text]
        elif _CONTROL.search(text):
            return None
        else:
            if PLACEHOLDER in text:
                # What tints text, or takes its colour away, does not change which picture it is.
                has_picture, pen = True, pen_of(f"38;5;{COLOUR};{pen.background}".rstrip(";"))
            is_risky = _add_graphemes(text, pen, chars, pens) or is_risky
    if len(chars) != width:
        return None
    return Cells(chars, pens, "".join(chars), is_risky=is_risky, has_picture=has_picture)


def is_doubtful(char: str) -> bool:
    """Return whether terminals differ in how many cells a character takes."""
    if not char or char.startswith(PLACEHOLDER):
        return False
    return len(char) > 1 or (ord(char) >= _PLANE and not _SEXTANTS.match(char))


def _add_graphemes(text: str, pen: Pen, chars: Chars, pens: Pens) -> bool:
    """Append characters of any width. Returns whether one of them is doubtful."""
    is_risky = False
    for start, end, width in split_graphemes(text)[0]:
        char = text[start:end]
        if width:
            chars += (char, *("",) * (width - 1))
            pens += [pen.blank if char == " " else pen] * width
        elif chars:  # it combines with what stands before it
            last = len(chars) - 1
            while last and not chars[last]:
                last -= 1
            chars[last] += char
            char = chars[last]
        is_risky = is_risky or is_doubtful(char)
    return is_risky


def _pen_of(style: Style, colours: ColorSystem) -> Pen:
    sgr = style._ansi
    if sgr is None:
        sgr = Strip.render_ansi(style, colours)
    return pen_of(sgr, f"id={style._link_id};{style._link}" if style._link else "")
