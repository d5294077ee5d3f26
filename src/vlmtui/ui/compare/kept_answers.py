"""What stays of a comparison: its document with the message, and the answer that the chat continues with."""

from __future__ import annotations

from typing import Protocol

from vlmtui.errors import VlmtuiError
from vlmtui.session.compared_message import ComparedMessage
from vlmtui.session.comparison import CompareController, ComparedSide
from vlmtui.session.engine_controller import EngineController
from vlmtui.session.kept_comparison import adopt_side, keep_comparison


class KeptAnswersView(Protocol):
    """What it needs from its screen."""

    def tell(self, text: str, error: VlmtuiError | None = None) -> None:
        """Show a line, or an error."""


class KeptAnswers:
    """Stores comparisons, and continues the conversation with an answer."""

    def __init__(
        self, view: KeptAnswersView, message: ComparedMessage, controller: CompareController, engines: EngineController
    ) -> None:
        self._view = view
        self._message = message
        self._controller = controller
        self._engines = engines

    async def store(self) -> None:
        """Store the comparison with its message."""
        try:
            await keep_comparison(self._controller, self._message, self._engines.require_model)
        except VlmtuiError as error:
            self._view.tell("", error)

    async def use(self, side: ComparedSide) -> None:
        """Continue the conversation with a side's answer."""
        exchange = self._message.exchange
        if side.lane is None:
            self._view.tell("There is no answer to use yet.")
            return
        if exchange is not None and exchange.answer is side.lane.answer:
            self._view.tell("This chat already continues with that answer.")
            return
        try:
            await adopt_side(self._controller, self._message, side, self._engines.require_model)
        except VlmtuiError as error:
            self._view.tell("", error)
            return
        exchange = self._message.exchange
        if exchange is not None:
            number, count = exchange.answer_siblings.position, exchange.answer_siblings.count
            self._view.tell(f"{side.mode.capitalize()} answer is now answer {number}/{count} of this chat.")
