"""The widgets of the next message and its answer, mounted before the message is written."""

from __future__ import annotations

from textual.widget import Widget

from vlmtui.domain.conversation import Turn
from vlmtui.session.exchange import Exchange
from vlmtui.session.generation import Answer
from vlmtui.ui.chat.assistant_turn import AssistantTurn
from vlmtui.ui.chat.shown_exchange import ShownExchange, marks_later
from vlmtui.ui.chat.user_turn import UserText


class NextTurn:
    """Two widgets, hidden at the end of a view. Mounting them takes a third of the time from a request to the first
    token on the screen."""

    def __init__(self, view: Widget) -> None:
        self._view = view
        self._widgets: tuple[UserText, AssistantTurn] | None = None

    @property
    def first(self) -> Widget | None:
        """Mount other widgets before this one."""
        return None if self._widgets is None else self._widgets[0]

    async def prepare(self) -> None:
        """Mount them, unless they are mounted."""
        if self._widgets is None:
            user, answer = UserText(Turn("user", ()), first_number=None), AssistantTurn(Answer(""))
            user.display = answer.display = False
            await self._view.mount(user, answer)
            self._widgets = user, answer

    def begin(self, exchange: Exchange) -> ShownExchange | None:
        """Show an exchange in them. None: it has attachments, or they are not mounted."""
        if self._widgets is None or exchange.user.attachments:
            return None
        (user, answer), self._widgets = self._widgets, None
        user.begin(exchange.user)
        answer.begin(exchange.answer, marks_later(exchange))
        return ShownExchange(exchange, None, user, answer)
