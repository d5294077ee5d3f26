"""Two prompts turn by turn: equal earlier turns folded into one line, the text marked that only one prompt has, and
both prompts aligned and scrolled together."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from textual.content import Content
from textual.message import Message

from vlmtui.inspection.prompt_turns import Run, TurnPair, marked_runs
from vlmtui.text import counted, one_line, visible
from vlmtui.ui.compare.answers import LEFT, RIGHT
from vlmtui.ui.compare.raw_prompt import RawEditor
from vlmtui.ui.document.blocks import PromptBlock, TextBlock
from vlmtui.ui.document.document import Block
from vlmtui.ui.document.lines import Line, Lines
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.keys import key_of
from vlmtui.ui.widgets.clicks import clickable

_STYLES = {"text": "", "special": "bold $secondary", "media": "bold $accent on $panel"}
_SPACES = str.maketrans({" ": "·", "\t": "⇥", "\n": "↵\n"})
_FILLER = Content.styled("┊", "$faint")
_FILL_MAX = 2000
"""Maximum number of empty rows inserted before a turn to align it."""


class PromptView(DocumentView, can_focus=True):
    DEFAULT_CSS = "PromptView { height: 1fr; min-height: 3; padding: 0 1; }"

    class Resized(Message):
        """The prompt's width may have changed."""

    def __init__(self, *, id: str, follows: bool = False) -> None:
        super().__init__(follows=follows, from_top=True, id=id)
        self.document.insert([TextBlock("…")], 0)

    @property
    def rows(self) -> int:
        return self.document.height

    def on_resize(self) -> None:
        self.post_message(self.Resized())

    def tell(self, text: str) -> None:
        """Show a text instead of the prompt."""
        self.show(TextBlock(visible(text)))

    def show_runs(self, runs: Sequence[Run]) -> None:
        """Show a prompt that is not divided into turns."""
        self.show(PromptBlock(_lines(runs, ""), by_word=True))


def turn_blocks(
    pairs: Sequence[TurnPair], side: int, *, is_folded: bool, key: str
) -> Iterator[tuple[PromptBlock | TextBlock, TurnPair]]:
    """Yield the turns of one side (0: left, 1: right) as blocks, each with its pair of turns. `is_folded`: one line
    replaces equal turns before the newest user turn; this line is yielded with the pair that follows it. `key`: the key
    that unfolds them, named in this line."""
    newest = newest_turn(pairs)
    is_compared = any(pair.left for pair in pairs) and any(pair.right for pair in pairs)
    folded: list[TurnPair] = []
    number = 0
    for at, pair in enumerate(pairs):
        if is_folded and pair.is_equal and at < newest:
            folded.append(pair)
            number += 1
            continue
        if folded:
            yield TextBlock(_fold_line(folded, number, key)), pair
            folded = []
        number += pair.left is not None
        turn = (pair.left, pair.right)[side]
        if turn is not None:
            lines = _lines(list(marked_runs(turn, pair.changes[side] if is_compared else ())), (LEFT, RIGHT)[side])
            # The empty line after a line break is the next turn's.
            has_end = at < len(pairs) - 1 and len(lines) > 1 and not lines[-1]
            yield PromptBlock(lines[:-1] if has_end else lines, by_word=True), pair


def newest_turn(pairs: Sequence[TurnPair]) -> int:
    """Return the index of the pair with the newest user turn; 0 if there is none."""
    return max((at for at, pair in enumerate(pairs) if pair.left and pair.left.role == "user"), default=0)


def _fold_line(pairs: Sequence[TurnPair], last: int, key: str) -> Content:
    """Return the line that stands for equal turns. `last`: the number of the last of these turns."""
    first = last - len(pairs) + 1
    role = pairs[0].left.role if pairs[0].left else ""
    which = f"turns {first:,}–{last:,}" if first < last else f"turn {last:,} · {role}"
    media = sum(len(pair.left.media_hashes) for pair in pairs if pair.left)
    told = f" · {counted(media, 'attachment')}" if media else ""
    said = f"{which} · equal{told} · {key} unfolds"
    return Content.assemble(clickable("▸ ", "$accent", fold=1), clickable(said, "$muted", fold=1))


def _lines(runs: Sequence[Run], colour: str) -> list[Content]:
    """Return the lines of a prompt. `colour`: of text that the other prompt lacks."""
    return Content.assemble(*(_shown(run, colour) for run in runs)).split("\n", allow_blank=True)


def _shown(run: Run, colour: str) -> tuple[str, str]:
    text = visible(run.text) if run.style == "text" else one_line(run.text)
    if not run.differs:
        return text, _STYLES[run.style]
    return text.replace("\n", "↵\n") if text.strip() else text.translate(_SPACES), f"bold underline {colour}"


class EmptyRows(Block):
    """`count` rows that contain only `sign`, to align the turn after them."""

    def __init__(self, count: int, sign: Content) -> None:
        super().__init__()
        self._rows = [Line.of(sign, joins="", indent=len(sign)) for _ in range(count)]
        self.lines = self._rows

    def lay_out(self, width: int) -> Lines:
        return self._rows


class AlignedTurns:
    """Fills the left prompt, aligns its turns with those in the raw prompt's editor, and scrolls both together."""

    def __init__(self, view: PromptView, editor: RawEditor) -> None:
        self._view = view
        self._editor = editor
        self._pairs: Sequence[TurnPair] = ()
        self._text = ""
        """The raw prompt that the pairs were found in."""
        self._beside = [(0, 0)]
        """Pairs of a row of the left prompt and the row of the right prompt beside it, both ascending."""
        self._height = 0
        """The number of rows of the left prompt."""
        self._starts: list[int] = []
        """Offsets of the raw prompt's lines."""
        self._laid_out_for: tuple[object, ...] = ()
        """The sizes for which the rows were computed last."""
        self._is_folded = True
        self._is_new = True
        self._is_scrolling = False
        view.watch(editor, "scroll_y", self._right_scrolled, init=False)
        view.watch(view, "scroll_y", self._left_scrolled, init=False)

    def show(self, pairs: Sequence[TurnPair], text: str) -> None:
        """Show pairs of turns. `text`: the raw prompt that they were found in."""
        self._pairs, self._text = pairs, text
        self.lay_out()

    def fold(self) -> None:
        self._is_folded = not self._is_folded
        self.lay_out()

    def resized(self) -> None:
        """Lay out again if sizes have changed, e.g. because a growing answer takes rows."""
        if self._measures != self._laid_out_for:
            self.lay_out()

    def lay_out(self) -> None:
        if self._text != self._editor.text:
            return
        self._starts = self._editor.line_starts()
        self._mark_right()
        if not self._pairs or not self._view.size:
            return
        # Both sides have the same width, so that equal text has equal rows.
        self._view.styles.padding = (0, 1, 0, self._editor.gutter_width if self._is_beside else 1)
        view, at = self._view, self._view.scroll_y
        with self._scrolling():
            view.show(*self._blocks(view.text_width))
            if not self._is_beside:
                view.scroll_to(y=view.max_scroll_y if self._is_new else at, animate=False)
        self._laid_out_for = self._measures
        if self._is_beside:
            self._begin()
            view.call_after_refresh(self._right_scrolled)
        self._is_new = False

    @property
    def _measures(self) -> tuple[object, ...]:
        return self._view.size.width, self._editor.size.width, self._is_beside, self._below

    @property
    def _is_beside(self) -> bool:
        """True if both prompts are on the screen."""
        return bool(self._view.region and self._editor.region)

    def _blocks(self, width: int) -> list[Block]:
        """Return the left turns as blocks. Empty rows between them make each turn begin beside its counterpart, unless
        the turns above it need that room."""
        found: list[Block] = []
        self._beside, row = [(0, 0)], 0
        key = key_of(self._view.app, "comparison.fold")
        for block, pair in turn_blocks(self._pairs, 0, is_folded=self._is_folded, key=key):
            beside = self._row(pair)
            if beside is not None:
                beside = max(0, beside - 1) if isinstance(block, TextBlock) else beside
                gap = min(max(beside - row, 0), _FILL_MAX)
                if gap:
                    found.append(EmptyRows(gap, _FILLER))
                row += gap
                if beside >= self._beside[-1][1]:
                    self._beside.append((row, beside))
            found.append(block)
            block.fit(width)
            row += len(block.lines)
        self._height = row
        if self._below:
            found.append(EmptyRows(self._below, Content()))
        return found

    def _row(self, pair: TurnPair) -> int | None:
        return self._editor.row_of(pair.right.start, self._starts) if pair.right and self._is_beside else None

    def _mark_right(self) -> None:
        """Mark the text that only the right prompt has, and put a bar beside the rows where the prompts differ."""
        editor = self._editor
        is_compared = any(pair.left for pair in self._pairs)
        ranges = [
            (pair.right.start + start, pair.right.start + end)
            for pair in self._pairs
            if pair.right is not None and is_compared
            for start, end in pair.changes[1]
        ]
        editor.mark_changes(ranges)
        barred: set[int] = set()
        for start, end in ranges if editor.size else ():
            first, last = (
                editor.row_of(min(at, len(self._text) - 1), self._starts) for at in (start, max(start, end - 1))
            )
            barred.update(range(first, last + 1))
        editor.bar(barred)

    @property
    def _below(self) -> int:
        """The number of empty rows to add at the end, so that the left prompt can be scrolled as far as the right
        one."""
        if not self._is_beside or not self._editor.max_scroll_y:
            return 0
        bottom = self._left_of(self._editor.max_scroll_y) + self._view.size.height
        return max(round(bottom) - self._height, 0)

    def _begin(self) -> None:
        """When the prompts are shown for the first time, scroll to the first differing turn, or else to the newest user
        turn. Do nothing if the raw prompt fits into its pane."""
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
                to = self._left_of(self._editor.scroll_y)
                self._view.scroll_to(y=to, animate=False, force=True, immediate=True)

    def _left_scrolled(self) -> None:
        view = self._view
        if not self._is_scrolling and self._is_beside and (view.has_focus or view.mouse_hover):
            with self._scrolling():
                to = _across(self._beside, view.scroll_y)
                self._editor.scroll_to(y=to, animate=False, force=True, immediate=True)

    def _left_of(self, right: float) -> float:
        """Return the row of the left prompt that is beside the row `right` of the right prompt."""
        return _across([(other, one) for one, other in self._beside], right)

    @contextmanager
    def _scrolling(self) -> Iterator[None]:
        """Within the `with` block, scrolling one side does not scroll the other."""
        self._is_scrolling = True
        try:
            yield
        finally:
            self._is_scrolling = False


def _across(pairs: Sequence[tuple[int, int]], here: float) -> float:
    """Return the row on the other side that is beside the row `here`. It has the same distance from the start of its
    turn, but is not beyond the start of the next turn. `pairs`: rows on both sides that are beside each other."""
    at = max(bisect_right([row for row, _ in pairs], here) - 1, 0)
    there = pairs[at][1] + here - pairs[at][0]
    return min(there, pairs[at + 1][1]) if at + 1 < len(pairs) else there
