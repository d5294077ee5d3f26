"""A table as styled lines."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from textual.content import Content

_CELL_MIN = 2
"""Smallest width of a column, in cells: that of the widest character."""


def table_lines(rows: Sequence[Sequence[Content]], width: int) -> list[Content]:
    """Return a frame around rows of the same length; the first is the heading. Wider than `width` only where the
    columns can't shrink any more."""
    if not rows:
        return []
    heading = [cell.stylize("bold $accent") for cell in rows[0]]
    rows = [heading, *rows[1:]]
    widths = _columns([[_longest(cell) for cell in row] for row in rows], width)
    bar = Content.styled("│", "$foreground 20%")
    lines = [_rule("┌", "┬", "┐", widths)]
    for number, row in enumerate(rows):
        if number:
            lines.append(_rule("├", "┼", "┤", widths))
        cells = [cell.wrap(column) for cell, column in zip(row, widths, strict=True)]
        for pieces in zip_longest(*cells, fillvalue=Content()):
            padded = [
                filled(piece, column).pad_left(1).pad_right(1) for piece, column in zip(pieces, widths, strict=True)
            ]
            lines.append(Content.assemble(bar, bar.join(padded), bar))
    return [*lines, _rule("└", "┴", "┘", widths)]


def filled(line: Content, width: int, style: str = "") -> Content:
    """Return the line with spaces up to `width` cells, in the style."""
    padded = line.pad_right(max(0, width - line.cell_length))
    return padded.stylize_before(style) if style else padded


def _longest(cell: Content) -> int:
    return max((line.cell_length for line in cell.split("\n")), default=0)


def _columns(lengths: list[list[int]], width: int) -> list[int]:
    """Return column widths: as wide as the widest cell; the widest columns shrink if the table would not fit."""
    room = width - 3 * len(lengths[0]) - 1
    widths = [min(max(1, *column), max(room, _CELL_MIN)) for column in zip(*lengths, strict=True)]
    while sum(widths) > room and max(widths) > _CELL_MIN:
        widths[widths.index(max(widths))] -= 1
    return widths


def _rule(left: str, middle: str, right: str, widths: Sequence[int]) -> Content:
    return Content.styled(left + middle.join("─" * (width + 2) for width in widths) + right, "$foreground 20%")
