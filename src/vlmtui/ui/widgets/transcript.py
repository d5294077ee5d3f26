"""The conversation, oldest first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from textual.containers import VerticalScroll
from textual.message import Message

from vlmtui.ui.controllers.chat import Exchange
from vlmtui.ui.widgets.assistant_turn import AssistantTurn
from vlmtui.ui.widgets.thinking_block import ThinkingBlock
from vlmtui.ui.widgets.user_turn import UserTurn

LIVE_MAX = 20
"""Answers that keep their Markdown widgets; older ones are frozen."""


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
        self._turns: dict[Exchange, AssistantTurn] = {}

    def on_mount(self) -> None:
        self.anchor()

    def watch_scroll_y(self, old: float, new: float) -> None:
        super().watch_scroll_y(old, new)
        seen = self.is_vertical_scroll_end or self.max_scroll_y - new < 1
        if seen != self._end_seen:
            self._end_seen = seen
            self.post_message(self.EndSeen(seen))

    async def add(self, exchange: Exchange) -> None:
        """Show an exchange at the end."""
        turn = AssistantTurn(exchange.answer)
        self._turns[exchange] = turn
        user = UserTurn(exchange.user, first_number=self._media + 1, cache=self._cache)
        self._media += len(exchange.user.attachments)
        await self.mount_all([user, turn])
        live = [turn for turn in self._turns.values() if not turn.is_frozen]
        for old in live[:-LIVE_MAX]:
            await old.freeze()
        self.show_end()

    async def finish(self, exchange: Exchange) -> None:
        """The exchange's answer is over."""
        if exchange in self._turns:
            await self._turns[exchange].finish()

    async def restart(self, exchange: Exchange) -> None:
        """The exchange gets another answer."""
        if exchange in self._turns:
            await self._turns[exchange].restart(exchange.answer)
            self.show_end()

    def toggle_thinking(self) -> bool:
        """Fold or unfold the newest thinking block; False when there is none."""
        blocks = self.query(ThinkingBlock)
        if blocks:
            blocks.last().collapsed = not blocks.last().collapsed
        return bool(blocks)

    async def clear(self) -> None:
        self._turns.clear()
        self._media = 0
        await self.remove_children()

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
