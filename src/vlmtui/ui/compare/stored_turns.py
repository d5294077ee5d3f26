"""The prompts of a stored comparison turn by turn: earlier equal turns in one line, bars beside those that differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from textual.content import Content

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.prompt import attachments_of
from vlmtui.errors import VlmtuiError
from vlmtui.inspection.prompt_turns import PromptTurn, TurnPair, aligned, prompt_parts, rendered_turns
from vlmtui.inspection.replay import Comparison, Side
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import resolve
from vlmtui.registry.schema import Family
from vlmtui.session.stored_comparisons import answer_of
from vlmtui.ui.compare.compare_pane import PromptPane
from vlmtui.ui.compare.turn_rows import fold_line, lines_of_turn, newest_turn


def stored_pairs(document: Comparison, registry: Registry) -> list[TurnPair]:
    """Return the turns of both prompts in pairs; none where the model is not known any more, or a side has no prompt.
    Slow: reads the model's files."""
    try:
        family = resolve(registry, document.model).family
    except VlmtuiError:
        return []
    first = document.sides[0]
    numbered = attachments_of(first.request) if first.request else ()
    left, right = (_turns(side, numbered, family) for side in document.sides[:2])
    return aligned(left, right) if left and right else []


def _turns(side: Side, numbered: Sequence[Attachment], family: Family) -> list[PromptTurn]:
    ready = answer_of(side).prompt
    own = attachments_of(side.request) if side.request else ()
    return rendered_turns(prompt_parts(ready, own, numbered, family, frozenset()), family) if ready else []


class StoredTurns:
    """Fills both panes."""

    def __init__(self, left: PromptPane, right: PromptPane, pairs: Sequence[TurnPair], key: str) -> None:
        """`key` is the key that unfolds."""
        self._panes = (left, right)
        self._pairs = pairs
        self._key = key
        self._is_folded = True

    def fold(self) -> None:
        """Show equal earlier turns in one line, or whole."""
        self._is_folded = not self._is_folded
        self.show()

    def show(self) -> None:
        """Fill both panes, each from its end, where the newest turn is."""
        for side, pane in enumerate(self._panes):
            lines: list[Content] = []
            barred: set[int] = set()
            for block, differs in self._blocks(side):
                if differs:
                    barred.update(range(len(lines), len(lines) + len(block)))
                lines += block
            pane.show_lines(lines, barred)
            pane.text.call_after_refresh(pane.text.scroll_end, animate=False)

    def _blocks(self, side: int) -> Iterator[tuple[Sequence[Content], bool]]:
        newest, folded, number = newest_turn(self._pairs), list[TurnPair](), 0
        for at, pair in enumerate(self._pairs):
            number += pair.left is not None
            if self._is_folded and pair.is_equal and at < newest:
                folded.append(pair)
                continue
            if folded:
                last = number - (pair.left is not None)
                yield (fold_line(folded, last, self._key),), False
                folded = []
            turn = (pair.left, pair.right)[side]
            if turn is not None:
                yield lines_of_turn(turn, is_last=at == len(self._pairs) - 1), not pair.is_equal
