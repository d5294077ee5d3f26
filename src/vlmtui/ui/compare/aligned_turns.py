"""Shows the left prompt turn by turn beside the editor: earlier turns that are equal in one line, the others on the
rows of the right prompt, scrolled together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from textual.content import Content

from vlmtui.inspection.prompt_turns import TurnPair
from vlmtui.ui.compare.compare_pane import PromptPane
from vlmtui.ui.compare.raw_editor import RawEditor
from vlmtui.ui.compare.turn_rows import (
    TurnBlock,
    TurnRows,
    fold_line,
    left_of,
    lines_of_turn,
    newest_turn,
    right_of,
    turn_rows,
)
from vlmtui.ui.keys import key_of


class AlignedTurns:
    """Fills the left pane. Made once both widgets are mounted."""

    def __init__(self, pane: PromptPane, editor: RawEditor) -> None:
        self._pane = pane
        self._editor = editor
        self._pairs: Sequence[TurnPair] = ()
        self._text = ""
        """The raw prompt that the pairs are of."""
        self._rows = TurnRows([], frozenset(), [(0, 0)], 0)
        self._starts: list[int] = []
        """Offsets of the raw prompt's lines."""
        self._laid_out_for: tuple[object, ...] = ()
        """The measures on which they depend."""
        self._is_folded = True
        self._is_new = True
        self._is_scrolling = False
        pane.watch(editor, "scroll_y", self._right_scrolled, init=False)
        pane.watch(pane.text, "scroll_y", self._left_scrolled, init=False)

    def show(self, pairs: Sequence[TurnPair], text: str) -> None:
        """Show these turns; `text` is the raw prompt they were found in."""
        self._pairs, self._text = pairs, text
        self.lay_out()

    def fold(self) -> None:
        """Show equal earlier turns in one line, or whole."""
        self._is_folded = not self._is_folded
        self.lay_out()

    def resized(self) -> None:
        """Fill the rows again if they depend on what has changed: an answer that grows makes both prompts shorter."""
        if self._measures != self._laid_out_for:
            self.lay_out()

    def lay_out(self) -> None:
        """Fill the rows, for the sizes of both prompts."""
        if self._text != self._editor.text:
            return
        self._starts = self._editor.line_starts()
        self._editor.bar(frozenset(self._differing_rows()))
        if not self._pairs or not self._pane.size:
            return
        text, at = self._pane.text, self._pane.text.scroll_y
        with self._scrolling():
            # The first time, so that the width without the bar is known.
            self._pane.show_lines((), ())
            self._rows = turn_rows(list(self._blocks()), text.text_width)
            lines = [*self._rows.lines, *[Content()] * self._below()]
            self._pane.show_lines(lines, self._rows.barred)
        self._laid_out_for = self._measures
        if self._is_beside:
            self._begin()
            text.call_after_refresh(self._right_scrolled)
        elif self._is_new:
            text.call_after_refresh(text.scroll_end, animate=False)
        else:
            text.call_after_refresh(text.scroll_to, y=at, animate=False)
        self._is_new = False

    @property
    def _measures(self) -> tuple[object, ...]:
        return self._pane.size.width, self._editor.size.width, self._is_beside, self._below()

    @property
    def _is_beside(self) -> bool:
        """Whether both prompts are on the screen."""
        return bool(self._pane.size and self._editor.size)

    def _blocks(self) -> Iterator[TurnBlock]:
        newest, has_right = newest_turn(self._pairs), any(pair.right for pair in self._pairs)
        folded: list[TurnPair] = []
        number = 0
        for at, pair in enumerate(self._pairs):
            row = self._row(pair)
            if self._is_folded and pair.is_equal and at < newest:
                folded.append(pair)
                number += 1
                continue
            if folded:
                yield self._fold_line(folded, number, None if row is None else max(row - 1, 0))
                folded = []
            if pair.left is None:
                continue
            number += 1
            lines = lines_of_turn(pair.left, is_last=at == len(self._pairs) - 1)
            yield TurnBlock(lines, has_right and not pair.is_equal, row)

    def _fold_line(self, pairs: Sequence[TurnPair], last: int, row: int | None) -> TurnBlock:
        line = fold_line(pairs, last, key_of(self._pane.app, "comparison.fold"))
        return TurnBlock((line,), row=row, is_fold=True)

    def _row(self, pair: TurnPair) -> int | None:
        return self._editor.row_of(pair.right.start, self._starts) if pair.right and self._is_beside else None

    def _differing_rows(self) -> Iterator[int]:
        """The rows of the right prompt that have a bar."""
        for pair in self._pairs:
            if pair.right is not None and not pair.is_equal and self._editor.size:
                end = pair.right.start + len(pair.right.text)
                yield from range(
                    self._editor.row_of(pair.right.start, self._starts), self._editor.row_of(end - 1, self._starts) + 1
                )

    def _below(self) -> int:
        """Empty rows to add, so that the left prompt can be scrolled as far as the right one."""
        if not self._is_beside or not self._editor.max_scroll_y:
            return 0
        bottom = left_of(self._rows.beside, self._editor.max_scroll_y) + self._pane.text.size.height
        return max(round(bottom) - self._rows.height, 0)

    def _begin(self) -> None:
        """At first, go to the first turn that differs, or to the newest one, in a prompt longer than its pane."""
        editor = self._editor
        if not self._is_new or not editor.max_scroll_y or editor.cursor_location != (0, 0):
            return
        at = newest_turn(self._pairs)
        newest = self._pairs[at : at + 1]
        pair = next((one for one in self._pairs if one.right and not one.is_equal), *newest)
        if pair.right is not None and pair.right.start:
            editor.go_to(pair.right.start, pair.right.start)
            editor.scroll_to(y=max(editor.row_of(pair.right.start, self._starts) - 1, 0), animate=False, immediate=True)

    def _right_scrolled(self) -> None:
        if not self._is_scrolling and self._is_beside:
            with self._scrolling():
                to = left_of(self._rows.beside, self._editor.scroll_y)
                self._pane.text.scroll_to(y=to, animate=False, force=True, immediate=True)

    def _left_scrolled(self) -> None:
        text = self._pane.text
        if not self._is_scrolling and self._is_beside and (text.has_focus or text.mouse_hover):
            with self._scrolling():
                to = right_of(self._rows.beside, text.scroll_y)
                self._editor.scroll_to(y=to, animate=False, force=True, immediate=True)

    @contextmanager
    def _scrolling(self) -> Iterator[None]:
        """Scrolling one side here does not scroll the other in turn."""
        self._is_scrolling = True
        try:
            yield
        finally:
            self._is_scrolling = False
