"""The inspector's tab with the answer's tokens, their probabilities, and the likely alternatives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rich.cells import cell_len, chop_cells
from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Region
from textual.message import Message
from textual.reactive import reactive
from textual.widgets import Static

from vlmtui.session.prompt_report import AnswerToken
from vlmtui.text import chance, nats, one_line, token_place
from vlmtui.ui.actions import bindings
from vlmtui.ui.document.blocks import PromptBlock
from vlmtui.ui.document.document import Block
from vlmtui.ui.document.lines import BREAK, Line, Lines, spaces_after
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.inspector.prompt_lines import token_label
from vlmtui.ui.keys import short_keys, with_keys

LIKELY: tuple[tuple[float, str, str], ...] = (
    (0.9, "", "≥ 90 %"),
    (0.5, "$success", "≥ 50 %"),
    (0.1, "$warning underline", "≥ 10 %"),
    (0.0, "bold $error underline", "below"),
)
"""Lower bound of the probability, style, and legend. The styles do not differ by colour alone."""
_CURSOR = "bold reverse"
_NARROWEST = 4
_TOKEN = 20
"""Columns of a likely token's text."""
_BAR = 24
"""Columns of the bar of a token that is certain."""
_FACTS = 8
"""Rows for the selected token and the likely ones."""


class _Cell(NamedTuple):
    """A token, or its part on one row."""

    token: int
    text: str
    column: int


@dataclass
class _Row:
    cells: list[_Cell] = field(default_factory=list)
    has_break: bool = False
    """True if a line break ends the row."""

    def __contains__(self, token: int) -> bool:
        return bool(self.cells) and self.cells[0].token <= token <= self.cells[-1].token


class TokenBlock(Block):
    """Tokens as running text, one of them selected. A line break is shown as ↵ and ends the row."""

    def __init__(self, tokens: Sequence[AnswerToken] = ()) -> None:
        super().__init__()
        self.tokens = tokens
        self.pointed = 0
        self._rows: list[_Row] = []
        self._drawn_selection = 0
        """The token that the last layout shows as selected."""

    def lay_out(self, width: int) -> Lines:
        if width != self.width:
            self._rows = self._break_into_rows(max(width, _NARROWEST))
            lines = [self._line(row) for row in range(len(self._rows))]
        else:
            lines = list(self.lines)
            for row in (
                row for row, cells in enumerate(self._rows) if self._drawn_selection in cells or self.pointed in cells
            ):
                lines[row] = self._line(row)
        self._drawn_selection = self.pointed
        return lines

    def clicked(self, number: int, column: int) -> int | None:
        under = [cell.token for cell in self._rows[number].cells if cell.column <= column]
        return under[-1] if under else None

    @property
    def row(self) -> int:
        """The first row of the selected token."""
        return next((row for row, cells in enumerate(self._rows) if self.pointed in cells), 0)

    def beside(self, step: int) -> int:
        at = self.row
        rows = self._rows[at + 1 :] if step > 0 else self._rows[:at][::-1]
        target = next((row.cells for row in rows if row.cells), None)
        if target is None:
            return self.pointed
        column = next(cell.column for cell in self._rows[at].cells if cell.token == self.pointed)
        return min(target, key=lambda cell: abs(cell.column - column)).token

    def _break_into_rows(self, width: int) -> list[_Row]:
        rows = [_Row()]
        column = 0
        for number, token in enumerate(self.tokens):
            lines = token.text.split("\n")
            for at, line in enumerate(lines):
                is_last = at == len(lines) - 1
                piece = one_line(line) + ("" if is_last else BREAK)
                for part in chop_cells(piece, width) if piece else ():
                    wide = cell_len(part)
                    if column + wide > width:
                        rows.append(_Row())
                        column = 0
                    rows[-1].cells.append(_Cell(number, part, column))
                    column += wide
                if not is_last:
                    rows[-1].has_break = True
                    rows.append(_Row())
                    column = 0
            if not token.text:
                rows[-1].cells.append(_Cell(number, "", column))
        return rows

    def _line(self, at: int) -> Line:
        row = self._rows[at]
        content = Content.assemble(*((cell.text, self._style(cell.token)) for cell in row.cells))
        joins = None
        if at and not (before := self._rows[at - 1]).has_break:
            joins = spaces_after("".join(cell.text for cell in before.cells))
        return Line.of(content, joins, tail=len(BREAK) if row.has_break else 0)

    def _style(self, index: int) -> str:
        probability = self.tokens[index].probability
        style = style_of(probability) if probability is not None else "" if index % 2 else "$secondary"
        return f"{style} {_CURSOR}".strip() if index == self.pointed else style


class LogprobText(DocumentView):
    """Shows an answer's tokens; keys and clicks select one."""

    BINDINGS = bindings("logprob_text")

    pointed: reactive[int] = reactive(0)

    @dataclass
    class TokenPointed(Message):
        """Another token is selected: its index in the answer; None if there are no tokens."""

        index: int | None

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(has_edge=False, can_focus=True, id=id)
        self._block = TokenBlock()

    @property
    def tokens(self) -> Sequence[AnswerToken]:
        return self._block.tokens

    def show_tokens(self, tokens: Sequence[AnswerToken]) -> None:
        self._block = TokenBlock(tokens)
        self.set_reactive(LogprobText.pointed, 0)
        self.show(self._block)
        self.post_message(self.TokenPointed(0 if tokens else None))

    def validate_pointed(self, index: int) -> int:
        return min(max(index, 0), max(len(self.tokens) - 1, 0))

    def watch_pointed(self, index: int) -> None:
        self._block.pointed = index
        self.changed(self._block)
        self.scroll_to_region(Region(0, self._block.row, 1, 1), animate=False, force=True)
        self.post_message(self.TokenPointed(index if self.tokens else None))

    @on(DocumentView.Clicked)
    def _clicked(self, event: DocumentView.Clicked) -> None:
        event.stop()
        if isinstance(event.what, int):
            self.pointed = event.what

    def action_move(self, step: int) -> None:
        self.pointed += step

    def action_to(self, index: int) -> None:
        """Select the first token, or the last (-1)."""
        self.pointed = index if index >= 0 else len(self.tokens) - 1

    def action_row(self, step: int) -> None:
        self.pointed = self._block.beside(step)

    def action_unlikely(self, step: int) -> None:
        """Select the next or previous token with a probability below 0.5."""
        ahead = range(self.pointed + step, len(self.tokens) if step > 0 else -1, step)
        unlikely = (index for index in ahead if (self.tokens[index].probability or 1.0) < LIKELY[1][0])
        self.pointed = next(unlikely, self.pointed)


def style_of(probability: float) -> str:
    return next(style for least, style, _ in LIKELY if probability >= least or least == 0.0)


class AnswerTokensPanel(Vertical):
    """The answer's tokens, and below them the alternatives of the selected one. Without tokens: the answer's text."""

    DEFAULT_CSS = """
    AnswerTokensPanel {
        #legend { height: 1; color: $muted; text-wrap: nowrap; text-overflow: ellipsis; }
        #answer-tokens, #answer-text { height: 1fr; margin-top: 1; }
        #answer-tokens { height: 3; }
        #pointed { height: 8; padding: 0 1; border-top: solid $border-blurred; }
    }
    """

    def compose(self) -> ComposeResult:
        yield Static(id="legend", markup=False)
        yield DocumentView(has_edge=False, can_focus=True, id="answer-text")
        yield LogprobText(id="answer-tokens")
        yield Static(id="pointed", markup=False)

    def on_mount(self) -> None:
        self.watch(self.query_one(LogprobText), "virtual_size", self._fit, init=False)

    def on_resize(self) -> None:
        self._fit()

    def _fit(self) -> None:
        """Give the tokens the rows that they need, so that the likely tokens are right below them."""
        text = self.query_one(LogprobText)
        text.styles.height = max(3, min(text.document.height, self.size.height - _FACTS - 2))

    def show(self, tokens: Sequence[AnswerToken], text: Sequence[Content]) -> None:
        self.query_one("#answer-text", DocumentView).show(PromptBlock(text))
        self.query_one(LogprobText).show_tokens(tokens)
        self.query_one("#answer-text").display = not tokens
        self.query_one(LogprobText).display = self.query_one("#pointed").display = bool(tokens)
        self.query_one("#legend", Static).update(self._legend(tokens))

    @property
    def document_view(self) -> DocumentView:
        """The view that is shown: the tokens, or the text."""
        tokens = self.query_one(LogprobText)
        return tokens if tokens.display else self.query_one("#answer-text", DocumentView)

    def _legend(self, tokens: Sequence[AnswerToken]) -> Content:
        turn = f"{short_keys(self.app, 'logprob_text.left', 'logprob_text.right')} Token · "
        if not any(token.probability is not None for token in tokens):
            return Content(turn + with_keys(self.app, "{inspector.logprobs} Probability of each token"))
        jump = short_keys(self.app, "logprob_text.next_unlikely", "logprob_text.previous_unlikely")
        told: list[Content | tuple[str, str]] = [Content(f"{turn}{jump} Next/previous unlikely token · ")]
        for _, style, name in LIKELY:
            told += [(name, style), Content("  ")]
        return Content.assemble(*told)

    @on(LogprobText.TokenPointed)
    def _token_pointed(self, event: LogprobText.TokenPointed) -> None:
        event.stop()
        tokens = self.query_one(LogprobText).tokens
        known = event.index is not None and event.index < len(tokens)
        told = _token_facts(tokens[event.index or 0], event.index or 0, len(tokens)) if known else Content("")
        self.query_one("#pointed", Static).update(told)


def _token_facts(token: AnswerToken, index: int, count: int) -> Content:
    """Return the selected token's place and text, and below it the likely tokens: log-probability, probability, bar."""
    place = Content.assemble(
        (f"{token_place(index)} of {count:,}  ", "$muted"),
        f"id {token.id}  ",
        (one_line(token_label(token.text)), "bold"),
        (f"  {one_line(token.label)}" if token.label else "", "$muted"),
    )
    rows = list(token.alternatives)
    if token.logprob is not None and token.id not in (number for _, number, _ in rows):
        rows.append((token.text, token.id, token.logprob))
    return Content("\n").join([place, *(_likely_line(row, is_chosen=row[1] == token.id) for row in rows)])


def _likely_line(row: tuple[str, int, float], *, is_chosen: bool) -> Content:
    text, number, logprob = row
    probability = math.exp(logprob)
    shown = Content(one_line(token_label(text))).truncate(_TOKEN, ellipsis=True)
    return Content.assemble(
        "● " if is_chosen else "  ",
        shown.pad_right(_TOKEN - shown.cell_length).stylize("bold" if is_chosen else ""),
        f" {nats(logprob):>8} {chance(probability):>8} ",
        ("█" * round(_BAR * probability) or "▏", "$accent" if is_chosen else "$muted"),
        (f"  id {number}", "$muted"),
    )
