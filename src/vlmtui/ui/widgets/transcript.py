"""The conversation, oldest first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from textual.containers import VerticalScroll
from textual.message import Message
from textual.widget import Widget

from vlmtui.ui.controllers.chat import Exchange
from vlmtui.ui.widgets.assistant_turn import AssistantTurn
from vlmtui.ui.widgets.past_answer import PastAnswer
from vlmtui.ui.widgets.user_turn import user_turn

LIVE_MAX = 20
"""Answers that keep the widgets they were streamed into; older ones get a single one."""


class Transcript(VerticalScroll):
    """Follows the newest text until one scrolls up, and again once one is back at the end."""

    can_focus = False
    DEFAULT_CSS = """
    Transcript {
        height: 1fr;
        padding: 0 2;
        scrollbar-size-vertical: 1;
        background: $background;
        &.-empty { align: center middle; }
    }
    """

    @dataclass
    class EndSeen(Message):
        """Whether the end of the conversation is in view has changed."""

        is_seen: bool

    def __init__(self, *, cache: Path, id: str | None = None) -> None:
        super().__init__(id=id)
        self._cache = cache
        self._media = 0
        self._end_seen = True
        self._answers: dict[Exchange, AssistantTurn | PastAnswer] = {}

    def on_mount(self) -> None:
        self.anchor()

    def watch_scroll_y(self, old: float, new: float) -> None:
        super().watch_scroll_y(old, new)
        seen = self.is_vertical_scroll_end or self.max_scroll_y - new < 1
        if seen != self._end_seen:
            self._end_seen = seen
            self.post_message(self.EndSeen(seen))

    async def add(self, *exchanges: Exchange) -> None:
        """Show exchanges at the end."""
        shown: list[Widget] = []
        for place, exchange in enumerate(exchanges, start=1):
            is_past = place <= len(exchanges) - LIVE_MAX and not exchange.is_running
            answer = PastAnswer(exchange.answer) if is_past else AssistantTurn(exchange.answer)
            self._answers[exchange] = answer
            shown += [user_turn(exchange.user, first_number=self._media + 1, cache=self._cache), answer]
            self._media += len(exchange.user.attachments)
        await self.mount_all(shown)
        await self._freeze_old()
        self.show_end()

    def finish(self, exchange: Exchange) -> None:
        """The exchange's answer is over."""
        turn = self._answers.get(exchange)
        if isinstance(turn, AssistantTurn):
            turn.finish()

    async def restart(self, exchange: Exchange) -> None:
        """The exchange, one of the newest, gets another answer."""
        turn = self._answers.get(exchange)
        if isinstance(turn, AssistantTurn):
            await turn.restart(exchange.answer)
            self.show_end()

    def toggle_thinking(self) -> bool:
        """Fold or unfold the newest thinking; False when there is none."""
        return any(turn.toggle_thinking() for turn in reversed(self._answers.values()))

    async def clear(self) -> None:
        self._answers.clear()
        self._media = 0
        await self.remove_children()

    async def _freeze_old(self) -> None:
        for exchange, turn in list(self._answers.items())[:-LIVE_MAX]:
            is_there = self._answers.get(exchange) is turn
            if is_there and isinstance(turn, AssistantTurn) and not exchange.is_running:
                past = PastAnswer(turn.answer, thinking_open=turn.is_thinking_open)
                self._answers[exchange] = past
                with self.app.batch_update():
                    await self.mount(past, before=turn)
                    await turn.remove()

    def show_empty(self, empty: bool) -> None:
        """Nothing was said yet: what is shown instead stands in the middle."""
        self.set_class(empty, "-empty")
        self.anchor(not empty)
        if empty:
            # An anchored view that is not full is scrolled to above its top.
            self.scroll_home(animate=False, force=True)

    def show_end(self) -> None:
        """Go to the end and follow it."""
        self.anchor()
        self.scroll_end(animate=False)
