"""Several answers to one turn, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Grid, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from vlmtui.domain.attachment import Attachment
from vlmtui.inspection.answer_diff import AnswerDiff
from vlmtui.session.generation import Answer
from vlmtui.text import one_line, visible
from vlmtui.ui.actions import bindings
from vlmtui.ui.compare.answers import AnswerPanel
from vlmtui.ui.compare.picture_strip import PictureStrip

NARROWEST = 36
"""Least width of a pane, in cells."""
LOWEST = 8
"""Least height of a pane, in cells."""
COLUMNS_MAX = 4
_ABOUT = 16
"""A pane shows pictures like a screen with this many more rows."""
DIFFERS_STYLE = "bold underline $warning"
GONE_STYLE = "strike $muted"
_SHOWN = {" ": "·", "\n": "↵\n", "\t": "⇥"}


class AnswerTile(AnswerPanel, can_focus=True):
    """One answer, with its label above and its statistics below."""

    DEFAULT_CSS = """
    AnswerTile {
        height: 100%;
        border: round $border-blurred;
        padding: 0 1;
        &:focus { border: round $accent; }
        .label { height: 1; width: 100%; text-wrap: nowrap; text-overflow: ellipsis; }
        & > DocumentView { height: 1fr; }
        .facts { height: auto; max-height: 3; color: $muted; }
    }
    """
    BINDINGS = bindings("answer_tile")

    def __init__(
        self, label: str, answer: Answer, *, pictures: Sequence[Attachment] = (), cache: Path | None = None
    ) -> None:
        """`pictures`: those of its prompt, if it has its own; `cache`: the folder of the thumbnails."""
        super().__init__(has_edge=False)
        self.show_answer(answer)
        self._pictures = PictureStrip(pictures, cache=cache) if pictures and cache else None
        self._label = Static(classes="label", markup=False)
        self._heading = label
        self._said = ""
        self._engine = ""
        self._tell()

    def compose(self) -> ComposeResult:
        yield self._label
        if self._pictures is not None:
            yield self._pictures
        yield self.view
        yield self.facts

    async def on_resize(self) -> None:
        if self._pictures is not None:
            await self._pictures.fit(self.size.height + _ABOUT)

    def name_engine(self, facts: str) -> None:
        """Show what answers, beside the label."""
        if facts != self._engine:
            self._engine = facts
            self._tell()

    def grow(self, waits_for: str = "", stop: str = "") -> bool:
        """As of every answer; one that is over is shown from its beginning, unless the user has scrolled."""
        has_grown = super().grow(waits_for, stop)
        if has_grown and self.is_over and self.view.is_following:
            self.view.is_following = False
            self.view.scroll_to(y=0, animate=False)
        return has_grown

    def tell(self, said: str, *, is_base: bool = False) -> None:
        """Show how it compares with the base."""
        self._said = "the base" if is_base else said
        self._tell()

    def _tell(self) -> None:
        about = " · ".join(filter(None, (self._said, self._engine)))
        name = (one_line(self._heading), "bold $accent")
        self._label.update(Content.assemble(name, (f"  {about}" if about else "", "$muted")))

    def mark(self, difference: AnswerDiff | None) -> None:
        """Highlight the words that the base lacks; None: no highlight."""
        if self.answer is not None and self.answer.failure is None:
            shown = Content(visible(self.answer.text)) if difference is None else _marked(difference)
            self.text.show(shown.plain)
            self.text.mark(shown.spans)
            self.view.changed(self.text)

    def action_page(self, pages: int) -> None:
        self.view.page(pages)


class AnswerGrid(VerticalScroll, can_focus=False):
    """The panes, in as many columns as fit."""

    DEFAULT_CSS = """
    AnswerGrid {
        height: 1fr;
        scrollbar-size-vertical: 1;
        & > Grid { height: auto; width: 100%; grid-gutter: 0 1; }
        &.-low .facts { max-height: 2; }
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
        self.set_class(height // rows <= LOWEST, "-low")


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
