"""Inspects the prompt and the answer of a message."""

from __future__ import annotations

from functools import partial

from vlmtui.errors import VlmtuiError
from vlmtui.session.conversation import Conversation
from vlmtui.session.engine_controller import EngineController
from vlmtui.session.past_prompt import exchange_numbered, report_of, request_again
from vlmtui.ui.actions import ActionMethods
from vlmtui.ui.chat.view import ChatView
from vlmtui.ui.navigation import Navigator


class Inspections:
    """Opens the inspector."""

    def __init__(
        self, view: ChatView, navigator: Navigator, engine_controller: EngineController, chat: Conversation
    ) -> None:
        self._view = view
        self._navigator = navigator
        self._engine_controller = engine_controller
        self._chat = chat

    @property
    def actions(self) -> ActionMethods:
        return {"inspect": self.inspect}

    def inspect(self, number: str = "") -> None:
        """Inspect the prompt and the answer of message `number`, or else of the selected message or the last."""
        if not number and self._view.marked is not None:
            number = str(self._chat.number_of(self._view.marked.exchange))
        self._view.start_dialog(partial(self._inspect, number))

    async def _inspect(self, number: str) -> None:
        controller = self._engine_controller
        try:
            exchange = exchange_numbered(self._chat, number)
            known = await report_of(self._chat, exchange, controller.info)
        except VlmtuiError as error:
            self._view.tell_error(error)
            return
        model = controller.model
        again = partial(request_again, self._chat, exchange, known, model.family) if model and known.recipe else None
        self._navigator.show_inspector(known, again=again)
