"""Marks the words in which two answers differ, in place, while they grow."""

from __future__ import annotations

import asyncio
import time

from textual.timer import Timer

from vlmtui.domain.generation import Finished
from vlmtui.inspection.answer_diff import differing_spans
from vlmtui.ui.compare.compare_pane import AnswerPane
from vlmtui.ui.compare.divergence_line import LEFT, RIGHT
from vlmtui.ui.compare.plain_text import PlainText

_AFTER_S = 0.3
"""Seconds after which new text is compared, so that a stream is not compared at every token."""
_TIMES = 4
"""How many times as long as a comparison took is waited for the next one."""


class AnswerMarks:
    """Marks both panes. What one answer has not come to yet is no difference."""

    def __init__(self, left: AnswerPane, right: AnswerPane) -> None:
        self._panes = (left, right)
        self._after_s = _AFTER_S
        self._timer: Timer | None = None
        self._has_grown = False
        self.are_final = False
        """Whether both answers were over when they were compared, and did not grow since."""

    def grown(self) -> None:
        """Compare the answers soon, once for all that comes until then."""
        self._has_grown, self.are_final = True, False
        if self._timer is None:
            self._timer = self._panes[0].set_timer(self._after_s, self._mark)

    def _are_shown(self) -> bool:
        """Whether both panes still have their texts: a screen that is left loses them one by one."""
        return all(pane.query(PlainText) for pane in self._panes)

    async def _mark(self) -> None:
        left, right = self._panes
        if not self._are_shown():
            return
        self._has_grown = False
        answers = (left.answer, right.answer)
        grows = [not (answer and isinstance(answer.outcome, Finished)) for answer in answers]
        started = time.monotonic()
        marks = await asyncio.to_thread(
            differing_spans, left.shown, right.shown, left_grows=grows[0], right_grows=grows[1]
        )
        self._after_s = max(_AFTER_S, _TIMES * (time.monotonic() - started))
        self._timer = None
        if not self._are_shown():
            return
        if all(answers) and left.answer is answers[0] and right.answer is answers[1]:
            left.mark(marks[0], f"underline {LEFT}")
            right.mark(marks[1], f"underline {RIGHT}")
        if self._has_grown:
            self.grown()
        else:
            self.are_final = not any(grows)
