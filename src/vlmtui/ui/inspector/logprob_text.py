"""An answer's tokens, coloured by probability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from rich.cells import cell_len, chop_cells
from textual import events, on
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.visual import Visual

from vlmtui.session.prompt_report import AnswerToken
from vlmtui.text import one_line
from vlmtui.ui.actions import bindings

LIKELY: tuple[tuple[float, str, str], ...] = (
    (0.9, "", "≥ 90 %"),
    (0.5, "$success", "≥ 50 %"),
    (0.1, "$warning underline", "≥ 10 %"),
    (0.0, "bold $error underline", "below"),
)
"""Lower bound of the probability, style, and legend. Styles differ not only in colour."""

_CURSOR = "bold reverse"
_NARROWEST = 4


class _Cell(msgspec.Struct, frozen=True):
    """A token, or the part of it on one row."""

    token: int
    text: str
    column: int


class LogprobText(ScrollView, can_focus=True):
    """The tokens as running text, one of them selected."""

    DEFAULT_CSS = """
    LogprobText {
        scrollbar-size-vertical: 1;
        scrollbar-gutter: stable;
        overflow-x: hidden;
        overflow-y: auto;
    }
    """
    BINDINGS = bindings("logprob_text")

    pointed: reactive[int] = reactive(0)

    @dataclass
    class TokenPointed(Message):
        """Another token is selected: its index in the answer; None if there are no tokens."""

        index: int | None

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.tokens: Sequence[AnswerToken] = ()
        self._rows: list[list[_Cell]] = []
        self._width = 0

    def show(self, tokens: Sequence[AnswerToken]) -> None:
        """Show these, with the first selected."""
        self.tokens = tokens
        self._width = 0
        self._lay_out()
        self.set_reactive(LogprobText.pointed, 0)
        self.refresh()
        self.post_message(self.TokenPointed(0 if tokens else None))

    @on(events.Resize)
    def _resized(self) -> None:
        self._lay_out()

    def validate_pointed(self, index: int) -> int:
        return min(max(index, 0), max(len(self.tokens) - 1, 0))

    def watch_pointed(self, index: int) -> None:
        row = self._row_of(index)
        self.scroll_to_region(Region(0, row, 1, 1), animate=False, force=True)
        self.refresh()
        self.post_message(self.TokenPointed(index if self.tokens else None))

    def on_click(self, event: events.Click) -> None:
        row = event.y + round(self.scroll_y)
        if row < len(self._rows):
            under = [cell.token for cell in self._rows[row] if cell.column <= event.x]
            self.pointed = under[-1] if under else self.pointed

    def render_line(self, y: int) -> Strip:
        row, style, width = y + round(self.scroll_y), self.visual_style, self.size.width
        if row >= len(self._rows) or not self._rows[row]:
            return Strip.blank(width, style.rich_style)
        line = Content.assemble(*((cell.text, self._style(cell.token)) for cell in self._rows[row]))
        return Visual.to_strips(self, line, width, 1, style)[0].extend_cell_length(width, style.rich_style)

    def action_move(self, step: int) -> None:
        """Select a neighbouring token."""
        self.pointed += step

    def action_to(self, index: int) -> None:
        """Select the first token, or the last (-1)."""
        self.pointed = index if index >= 0 else len(self.tokens) - 1

    def action_row(self, step: int) -> None:
        """Select the token above or below."""
        at = self._row_of(self.pointed)
        rows = range(at + step, len(self._rows) if step > 0 else -1, step)
        target = next((row for row in rows if self._rows[row]), None)
        if target is not None:
            column = next(cell.column for cell in self._rows[at] if cell.token == self.pointed)
            self.pointed = min(self._rows[target], key=lambda cell: abs(cell.column - column)).token

    def action_unlikely(self, step: int) -> None:
        """Select the next or previous token with a probability below 0.5."""
        ahead = range(self.pointed + step, len(self.tokens) if step > 0 else -1, step)
        unlikely = (index for index in ahead if (self.tokens[index].probability or 1.0) < LIKELY[1][0])
        self.pointed = next(unlikely, self.pointed)

    def _style(self, index: int) -> str:
        probability = self.tokens[index].probability
        style = style_of(probability) if probability is not None else "" if index % 2 else "$secondary"
        return f"{style} {_CURSOR}".strip() if index == self.pointed else style

    def _row_of(self, index: int) -> int:
        return next((row for row, cells in enumerate(self._rows) if any(cell.token == index for cell in cells)), 0)

    def _lay_out(self) -> None:
        width = self.scrollable_content_region.width
        if width < 1 or width == self._width:
            return
        self._width = width
        self._rows = lay_out_tokens([token.text for token in self.tokens], max(width, _NARROWEST))
        self.virtual_size = Size(width, len(self._rows))
        self.refresh()


def lay_out_tokens(texts: Sequence[str], width: int) -> list[list[_Cell]]:
    """Lay the texts out in rows of `width` cells; a line break is shown as ↵ and ends its row."""
    rows: list[list[_Cell]] = [[]]
    column = 0
    for number, text in enumerate(texts):
        for at, line in enumerate(lines := text.split("\n")):
            is_last = at == len(lines) - 1
            piece = one_line(line) + ("" if is_last else "↵")
            for part in chop_cells(piece, width) if piece else ():
                wide = cell_len(part)
                if column + wide > width:
                    rows.append([])
                    column = 0
                rows[-1].append(_Cell(number, part, column))
                column += wide
            if not is_last:
                rows.append([])
                column = 0
        if not text:
            rows[-1].append(_Cell(number, "", column))
    return rows


def style_of(probability: float) -> str:
    """Return the style for a probability."""
    return next(style for least, style, _ in LIKELY if probability >= least or least == 0.0)
