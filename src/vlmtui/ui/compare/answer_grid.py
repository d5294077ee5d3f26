"""Several answers to one turn, side by side."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Grid, Vertical
from textual.content import Content
from textual.widgets import Static

from vlmtui.domain.attachment import Attachment
from vlmtui.inspection.answer_diff import AnswerDiff
from vlmtui.session.answer_line import answer_line
from vlmtui.session.generation import Answer
from vlmtui.text import one_line, visible
from vlmtui.ui.actions import bindings
from vlmtui.ui.compare.picture_strip import PictureStrip
from vlmtui.ui.compare.plain_text import PlainText
from vlmtui.ui.widgets.line_scroll import LineScroll

NARROWEST = 36
"""Least width of a pane, in cells."""
LOWEST = 8
"""Least height of a pane, in cells."""
COLUMNS_MAX = 4
_COUNT_EVERY_S = 0.5
"""Interval in seconds between updates of the number of tokens."""
_ABOUT = 16
"""A pane shows pictures like a screen with this many more rows."""
DIFFERS_STYLE = "bold underline $warning"
GONE_STYLE = "strike $muted"
_SHOWN = {" ": "·", "\n": "↵\n", "\t": "⇥"}


class AnswerTile(Vertical, can_focus=True):
    """One answer, with its label above and its statistics below."""

    DEFAULT_CSS = """
    AnswerTile {
        height: 100%;
        border: round $border-blurred;
        padding: 0 1;
        &:focus { border: round $accent; }
        .label { height: 1; width: 100%; text-wrap: nowrap; text-overflow: ellipsis; }
        .text { height: 1fr; scrollbar-size-vertical: 1; }
        .facts { height: auto; max-height: 3; color: $muted; }
    }
    """
    BINDINGS = bindings("answer_tile")

    def __init__(
        self, label: str, answer: Answer, *, pictures: Sequence[Attachment] = (), cache: Path | None = None
    ) -> None:
        """`pictures`: those of its prompt, if it has its own; `cache`: the folder of the thumbnails."""
        super().__init__()
        self._pictures = PictureStrip(pictures, cache=cache) if pictures and cache else None
        self.answer = answer
        self._label = label
        self._engine = ""
        self._said = ""
        self._shown = (-1, "")
        """Number of the answer's pieces shown, -1: none yet; and what it waits for."""
        self._ended = False
        self._text, self._view = PlainText(), LineScroll(classes="text", can_focus=False)
        self._told = ""
        self._told_s = 0.0
        """When its number of tokens was shown last."""

    def compose(self) -> ComposeResult:
        yield Static(classes="label", markup=False)
        if self._pictures is not None:
            yield self._pictures
        with self._view:
            yield self._text
        yield Static(classes="facts", markup=False)

    def on_mount(self) -> None:
        self.tell("")
        self.grow()

    async def on_resize(self) -> None:
        if self._pictures is not None:
            await self._pictures.fit(self.size.height + _ABOUT)

    def name_engine(self, facts: str) -> None:
        """Show what answers, beside the label."""
        self._engine = facts
        self._tell()

    def grow(self, waits_for: str = "") -> None:
        """Show the new text; `waits_for`: what the answer waits for before it is sent."""
        now = (len(self.answer.pieces), waits_for)
        if self._ended or (now == self._shown and self.answer.outcome is None):
            return
        self._shown, self._ended = now, self.answer.outcome is not None
        failure = self.answer.failure
        said = visible(self.answer.text)
        if failure is not None:
            between = "\n" if self.answer.text else ""
            self._text.show_styled(Content.assemble(said, between, (one_line(failure.message), "$error")))
        else:
            self._text.show(said if self._ended else said or "…", grows=not self._ended)
        self._view.follows_end = not self._ended
        if self._ended:
            self._view.scroll_home(animate=False)
        self._count(waits_for)

    def _count(self, waits_for: str) -> None:
        """Show the number of tokens so far; at the end how the answer was made."""
        facts = self.query_one(".facts", Static)
        if self._ended:
            facts.update(answer_line(self.answer))
            return
        waits = f"waits for {one_line(waits_for)} …" if waits_for else "waiting …"
        told = f"{self.answer.tokens:,} tokens …" if self.answer.tokens else waits
        is_wider = len(told) != len(self._told)
        if is_wider or time.monotonic() >= self._told_s + _COUNT_EVERY_S:
            facts.update(told, layout=is_wider)
            self._told, self._told_s = told, time.monotonic()

    def tell(self, said: str, *, is_base: bool = False) -> None:
        """Show how it compares with the base."""
        self._said = "the base" if is_base else said
        self._tell()

    def _tell(self) -> None:
        about = " · ".join(filter(None, (self._said, self._engine)))
        line = Content.assemble((one_line(self._label), "bold $accent"), (f"  {about}" if about else "", "$muted"))
        self.query_one(".label", Static).update(line)

    def mark(self, difference: AnswerDiff | None) -> None:
        """Highlight the words that the base lacks; None: no highlight."""
        failure = self.answer.failure
        if failure is None:
            if difference is None:
                self._text.show(visible(self.answer.text))
            else:
                self._text.show_styled(_marked(difference))

    def action_page(self, way: str) -> None:
        getattr(self._view, f"scroll_page_{way}")(animate=False)


class AnswerGrid(LineScroll, can_focus=False):
    """The panes, in as many columns as fit."""

    DEFAULT_CSS = """
    AnswerGrid {
        height: 1fr;
        scrollbar-size-vertical: 1;
        & > Grid { height: auto; width: 100%; grid-gutter: 0 1; }
    }
    """

    def __init__(self, panes: Sequence[AnswerTile], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.panes = list(panes)
        self.columns = 1

    def compose(self) -> ComposeResult:
        with Grid():
            yield from self.panes

    @property
    def current(self) -> int:
        """Index of the focused pane."""
        return next((number for number, pane in enumerate(self.panes) if pane.has_focus), 0)

    def move(self, across: int, down: int) -> None:
        """Focus the pane beside, above or below, if there is one."""
        at = self.current
        row, column = divmod(at, self.columns)
        target = (row + down) * self.columns + column + across
        if 0 <= column + across < self.columns and 0 <= target < len(self.panes):
            self.panes[target].focus()

    @on(events.Resize)
    def _resized(self) -> None:
        width, height = self.content_size
        if not width or not height:
            return
        count = len(self.panes)
        most = max(1, min(COLUMNS_MAX, width // NARROWEST, count))
        rows = -(-count // most)
        self.columns = -(-count // rows)
        grid = self.query_one(Grid)
        grid.styles.grid_size_columns = self.columns
        grid.styles.grid_rows = (max(LOWEST, height // rows),)


def difference_in_words(difference: AnswerDiff) -> str:
    """Describe how an answer differs from the base."""
    if difference.identical and difference.first_divergence is None:
        return "same as the base"
    if difference.identical:
        return f"same text, different tokens from {difference.first_divergence:,} on"
    at = difference.first_divergence
    return "differs from the base" if at is None else f"differs at token {at:,}"


def _marked(difference: AnswerDiff) -> Content:
    parts: list[Content | tuple[str, str]] = []
    for span in difference.spans:
        if span.operation == "equal":
            parts.append(Content(visible(span.right)))
        elif span.right:
            text = span.right if span.right.strip() else "".join(_SHOWN.get(char, char) for char in span.right)
            parts.append((visible(text), DIFFERS_STYLE))
        else:
            parts.append((one_line(span.left.strip() or "·"), GONE_STYLE))
    return Content.assemble(*parts)
