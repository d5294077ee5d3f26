"""The draft's cost in tokens: counted by the engine, or estimated from the model family's TOML record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.timer import Timer

from vlmtui.domain.dials import PROCESSOR
from vlmtui.errors import ErrorKind, Remedy, VlmtuiError
from vlmtui.session.cost import Cost, CostEstimate, Outcome, draft_cost, draft_estimate
from vlmtui.session.engines import EngineState
from vlmtui.text import one_line
from vlmtui.ui.chat.part import ChatPart

if TYPE_CHECKING:
    from vlmtui.ui.chat.screen import ChatScreen

_COUNT_AFTER_S = 0.4
"""Seconds without changes before the engine counts the tokens."""


class PromptCost(ChatPart):
    """Keeps the cost shown in the composer's panel up to date."""

    def __init__(self, screen: ChatScreen) -> None:
        super().__init__(screen)
        self._question: object = None
        """The values that the newest count was made from."""
        self._timer: Timer | None = None
        self.cost: Cost | None = None
        """The cost of the current draft; None: unknown."""

    def check_room(self) -> None:
        """Raise VlmtuiError if the message is known to be too long for the model."""
        if self.cost is not None and self.cost.is_too_much:
            raise VlmtuiError(ErrorKind.CONTEXT_TOO_LONG, self.cost.text, remedy=Remedy.SHRINK_MESSAGE)

    def draft_changed(self) -> None:
        """Show an estimate of the draft's tokens at once, and have the engine count them soon."""
        estimate = draft_estimate(self._chat, self._engines)
        self._screen.panel.bar.tell_tokens(estimate.tokens if estimate else {}, are_estimates=True)
        if not self._chat.draft.text:  # sent, or restored from the queue
            self.show(None)
        self.count_soon()

    def count_soon(self) -> None:
        """Ask the engine to count the prompt's tokens, once nothing has changed for a while."""
        if self._timer is not None:
            self._timer.stop()
        self._timer = self._screen.set_timer(_COUNT_AFTER_S, self._count_if_new)

    def show(self, outcome: Outcome) -> None:
        """Show a cost in the composer's panel."""
        bar = self._screen.panel.bar
        self.cost = outcome if isinstance(outcome, Cost) else None
        match outcome:
            case Cost():
                bar.tell_tokens(outcome.tokens)
                remedy = Remedy.SHRINK_MESSAGE if outcome.is_too_much else None
                bar.tell_cost(outcome.text, remedy, too_much=outcome.is_too_much)
            case CostEstimate():
                bar.tell_cost(outcome.text)
            case VlmtuiError():
                remedy = Remedy.SHRINK_MESSAGE if outcome.kind is ErrorKind.CONTEXT_TOO_LONG else None
                bar.tell_cost(one_line(outcome.message), remedy, too_much=True)
            case None:
                bar.tell_cost("")

    def _count_if_new(self) -> None:
        """Count the prompt's tokens if anything that affects the count has changed. In a draft without attachments,
        typed text counts as a change only every 500 characters."""
        draft, history = self._chat.draft, [(id(item), item.is_left_out) for item in self._chat.exchanges]
        is_ready = self._engines.state is EngineState.READY
        written = draft.words if draft.attachments else len(draft.words) // 500
        processor = self._chat.settings.sampling.extra.get(PROCESSOR)
        question = (draft.attachments, written, history, is_ready, self._chat.running is None, processor)
        if question != self._question and not draft.pending:
            self._question = question
            self._screen.start(self._count, "cost", exclusive=True)

    async def _count(self) -> None:
        counted = self._chat.draft.attachments
        outcome = await draft_cost(self._chat, self._engines)
        if counted == self._chat.draft.attachments:  # otherwise the draft was sent or changed, and is counted again
            self.show(outcome)
