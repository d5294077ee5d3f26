"""The scrolling conversation, oldest message first. In a long one, only exchanges near the view have widgets."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from textual import events
from textual.message import Message
from textual.reactive import var
from textual.timer import Timer
from textual.widget import Widget

from vlmtui.session.exchange import Exchange
from vlmtui.ui.chat import windowing
from vlmtui.ui.chat.anchored_scroll import AnchoredScroll
from vlmtui.ui.chat.assistant_turn import AssistantTurn
from vlmtui.ui.chat.marked import Marked, Part
from vlmtui.ui.chat.next_turn import NextTurn
from vlmtui.ui.chat.past_answer import PastAnswer
from vlmtui.ui.chat.shown_exchange import (
    ShownExchange,
    answer_widget,
    clicked_part,
    media_of,
    weight_of,
    widgets_of,
)
from vlmtui.ui.chat.user_turn import user_turn_widget
from vlmtui.ui.chat.windowing import Window
from vlmtui.ui.widgets.clicks import clicked, is_click

LIVE_MAX = 20
"""Most answers that keep their streaming widgets; older ones get a single widget."""
OLDER = 50
"""Stored exchanges loaded at a time."""
_LOOK_AFTER_S = 0.05
"""Seconds from a scroll to the update of the window."""


class Transcript(AnchoredScroll):
    """Follows the newest text until the user scrolls up, and again once the end is in view.

    Exchanges far from the view have no widgets; they get them when they come near.
    """

    can_focus = False
    DEFAULT_CSS = """
    Transcript {
        height: 1fr;
        padding: 0 2;
        scrollbar-size-vertical: 1;
        background: $background;
        &.-empty { align: center middle; }
        & > .-marked { border-left: thick $accent; background: $boost; }
        & > AssistantTurn.-marked, & > PastAnswer.-marked { padding: 0 1; }
    }
    """
    marked: var[Marked | None] = var(None)
    """The selected message or answer; part of it stays in view."""

    @dataclass
    class EndSeen(Message):
        """The end of the conversation came into view, or left it."""

        is_seen: bool

    @dataclass
    class Clicked(Message):
        """A message or an answer was clicked."""

        marked: Marked
        branch: int
        """-1: the one before is wanted, 1: the next one; else 0."""

    @dataclass
    class OlderWanted(Message):
        """The view is near the oldest loaded exchange. Answer with `add_older`, even if there are no more."""

        limit: int

    def __init__(self, *, cache: Path, id: str | None = None) -> None:
        super().__init__(id=id)
        self._cache = cache
        self._exchanges: list[Exchange] = []
        self._weights: list[int] = []
        self._window = Window(0, 0)
        self._shown: list[ShownExchange] = []
        """One for each exchange of the window."""
        self._media_above = 0
        """Number of attachments that later prompts include from before `_exchanges`."""
        self._thinking_open: dict[Exchange, bool] = {}
        """Whether the reasoning was open, for answers removed from the screen."""
        self._has_older = True
        self._waits_for_older = False
        self._end_seen = True
        self._look_timer: Timer | None = None
        self._next = NextTurn(self)
        self._changing = asyncio.Lock()

    def on_mount(self) -> None:
        self.anchor()

    def watch_scroll_y(self, old: float, new: float) -> None:
        super().watch_scroll_y(old, new)
        self._tell_end()
        self._look_soon()

    def on_click(self, event: events.Click) -> None:
        found = clicked_part(self._shown, clicked(self, event), event.style.meta)
        if found is not None and is_click(self, event):
            self.post_message(self.Clicked(*found))

    def laid_out(self) -> None:
        self.call_later(self._tell_end)

    def _tell_end(self) -> None:
        """Post `EndSeen` if it changed. In an empty conversation the end is in view."""
        is_at_end = self.is_following or self.is_vertical_scroll_end or self.max_scroll_y - self.scroll_y < 1
        seen = not self._exchanges or (self.ends_here and is_at_end)
        if seen != self._end_seen:
            self._end_seen = seen
            self.post_message(self.EndSeen(seen))

    async def add(self, *exchanges: Exchange, media_above: int = 0) -> None:
        """Add exchanges at the end, and scroll there. `media_above`: for the first ones, the number of attachments
        before them."""
        async with self._changing:
            if not self._exchanges:
                self._media_above = media_above
            is_new, before = len(exchanges) == 1, len(self._exchanges)
            self._exchanges += exchanges
            self._weights += map(weight_of, exchanges)
            shows_end, window = self._window.last == before, self._window
            if self.marked is None:
                window = windowing.window_after_adding(window, self._weights)
            elif shows_end:
                window = Window(window.first, len(self._weights))
            await self._show(window, live=is_new)
            await self._freeze_old()
        if self.marked is None:
            self._follow_end()
        self._look_soon()

    async def add_older(self, exchanges: Sequence[Exchange]) -> None:
        """Add older exchanges in front: `exchanges` are all loaded ones, oldest first. Empty: there are no more. The
        visible content stays in place."""
        async with self._changing:
            self._waits_for_older = False
            first = self._exchanges[0] if self._exchanges else None
            if first not in exchanges:
                return
            older = list(takewhile(lambda exchange: exchange is not first, exchanges))
            self._has_older = bool(older)
            self._exchanges[:0] = older
            self._weights[:0] = map(weight_of, older)
            self._window = Window(*(index + len(older) for index in self._window))
            self._media_above -= media_of(older)
        self._look_soon()

    async def renumber(self, media_above: int) -> None:
        """Update attachment numbers, and which ones prompts include. `media_above`: how many attachments prompts
        include from before the loaded exchanges."""
        async with self._changing:
            self._media_above = media_above
            for shown, number in zip(self._shown, self._numbers(self._window), strict=True):
                if number != shown.first_number:
                    before, shown.first_number = shown.user, number
                    shown.user = user_turn_widget(shown.exchange.user, first_number=number, cache=self._cache)
                    with self.app.batch_update():
                        await self.mount(shown.user, before=before)
                        await before.remove()
            self._show_mark(go=False)

    def finish(self, exchange: Exchange) -> None:
        """Note that the exchange's answer has ended."""
        if (turn := self._live(exchange)) is not None:
            turn.finish()
        self._look_soon()

    def show_due(self, exchange: Exchange) -> None:
        """Show now what the exchange's answer would show soon."""
        if (turn := self._live(exchange)) is not None:
            turn.show_due()

    def has(self, exchange: Exchange) -> bool:
        """Return whether the exchange is loaded, with or without widgets."""
        return exchange in self._exchanges

    async def mark(self, marked: Marked) -> None:
        """Select a message or answer of a loaded exchange, and scroll there."""
        async with self._changing:
            if not self.has(marked.exchange):
                return
            self.marked = marked
            place = self._exchanges.index(marked.exchange)
            await self._show(windowing.window_at(self._window, self._weights, place))
            self._show_mark()
        self._look_soon()

    def unmark(self) -> None:
        """End the selection; follow the end again if it is in view."""
        if self.marked is not None:
            self.marked = None
            self._show_mark()
            if self.ends_here and self.is_vertical_scroll_end:
                self._go_to_end()

    def page(self, pages: int) -> bool:
        """Scroll by pages; False at the end."""
        before = self.scroll_y
        self.scroll_to(y=before + pages * max(1, self.scrollable_content_region.height - 1), immediate=True)
        return self.scroll_y != before

    def scrolled(self, by: float) -> None:
        """Keep the selection in view: move it to the nearest visible message."""
        shown = self._find(self.marked.exchange) if self.marked is not None else None
        if self.marked is None or shown is None or self.is_in_view(shown.part(self.marked.part)):
            return
        seen = self.in_view()
        found = [Marked(one.exchange, part) for one in self._shown for part in Part if one.part(part) in seen]
        if found:
            self.marked = found[0 if by > 0 else -1]
            self._show_mark(go=False)

    def _show_mark(self, *, go: bool = True) -> None:
        """Highlight the selected widget only."""
        on: Widget | None = None
        for shown in self._shown:
            for part in Part:
                is_marked = self.marked == Marked(shown.exchange, part)
                shown.part(part).set_class(is_marked, "-marked")
                on = shown.part(part) if is_marked else on
        self.keep_in_view(on, go=go)

    async def restart(self, exchange: Exchange) -> None:
        """Show a new answer for the exchange."""
        async with self._changing:
            if (turn := self._live(exchange)) is not None:
                await turn.restart(exchange.answer)
            elif (shown := self._find(exchange)) is not None:
                await self._replace(shown, answer_widget(exchange, is_live=True))
        if self.marked is None:
            self._follow_end()

    def toggle_thinking(self) -> bool:
        """Show or hide the reasoning of the selected answer, or else the latest; False if there is none."""
        asked = [self._find(self.marked.exchange)] if self.marked is not None else self._shown[::-1]
        return any(shown.answer.toggle_thinking() for shown in asked if shown is not None)

    async def clear(self) -> None:
        async with self._changing:
            self._exchanges, self._weights, self._shown = [], [], []
            self._thinking_open.clear()
            self._window, self._media_above = Window(0, 0), 0
            self._has_older, self._waits_for_older = True, False
            self.ends_here = True
            self._next = NextTurn(self)
            await self.remove_children()

    def show_empty(self, empty: bool) -> None:
        """Centre the welcome panel while the conversation is empty."""
        self.set_class(empty, "-empty")
        self.anchor(not empty)
        if empty:
            # An anchored view that is not full is scrolled to above its top.
            self.scroll_home(animate=False, force=True)
        self._look_soon()

    def show_end(self) -> None:
        """Scroll to the end and follow it; ends the selection."""
        self.unmark()
        self._follow_end()

    def _follow_end(self) -> None:
        if self.ends_here:
            self._go_to_end()
        else:
            self.call_later(self._show_newest)

    def _go_to_end(self) -> None:
        self.let_go()
        self.anchor()
        self.scroll_end(animate=False)

    async def _show_newest(self) -> None:
        async with self._changing:
            await self._show(windowing.newest_window(self._weights))
        self._go_to_end()

    def _look_soon(self) -> None:
        """Check the window soon, once."""
        if self._look_timer is None and self.is_attached:
            self._look_timer = self.set_timer(_LOOK_AFTER_S, self._look)

    async def _look(self) -> None:
        self._look_timer = None
        if not self.is_attached:
            return
        async with self._changing:
            if not any(exchange.is_running for exchange in self._exchanges[-1:]):
                await self._next.prepare()
            view = self._view()
            if view is None:
                return
            if self.marked is not None and self.has(self.marked.exchange):
                place = self._exchanges.index(self.marked.exchange)
                view = Window(min(view.first, place), max(view.last, place + 1))
            await self._show(windowing.window_around(self._window, self._weights, view))
            is_near = windowing.is_near_top(self._weights, view)
        if is_near and self._has_older and not self._waits_for_older:
            self._waits_for_older = True
            self.post_message(self.OlderWanted(OLDER))

    def _view(self) -> Window | None:
        """Return the exchanges in view; None before the first layout."""
        seen = set(self.in_view())
        places = [place for place, shown in enumerate(self._shown) if shown.user in seen or shown.answer in seen]
        return Window(self._window.first + places[0], self._window.first + places[-1] + 1) if places else None

    async def _show(self, window: Window, *, live: bool = False) -> None:
        """Mount widgets that enter the window, and remove those that leave it. `live`: use streaming widgets."""
        if not self.is_attached:
            return
        old, self._window = self._window, window
        self.ends_here = window.last == len(self._exchanges)
        if window == old:
            return
        end = self._next.first
        begun = self._next.begin(self._exchanges[-1]) if live and self.ends_here else None
        rest = window if begun is None else Window(window.first, window.last - 1)
        first, last = max(old.first, rest.first), min(old.last, rest.last)
        if first >= last:
            first = last = rest.last
        kept = [shown for place, shown in enumerate(self._shown, start=old.first) if first <= place < last]
        gone = [shown for place, shown in enumerate(self._shown, start=old.first) if not first <= place < last]
        above = self._made(Window(rest.first, first), live=live)
        below = self._made(Window(last, rest.last), live=live)
        self._shown = [*above, *kept, *below, *filter(None, [begun])]
        with self.app.batch_update():
            await self._remove(gone)
            if above:
                await self.mount_all(widgets_of(above), before=end if not kept else kept[0].user)
            if below:
                await self.mount_all(widgets_of(below), after=kept[-1].answer if kept else None)
        if self.marked is not None:
            self._show_mark(go=False)

    def _made(self, window: Window, *, live: bool) -> list[ShownExchange]:
        """Return widgets for these exchanges."""
        made = []
        exchanges = self._exchanges[window.first : window.last]
        for exchange, number in zip(exchanges, self._numbers(window), strict=True):
            is_live = live or exchange.is_running or exchange is self._exchanges[-1]
            is_open = self._thinking_open.pop(exchange, None)
            answer = answer_widget(exchange, is_live=is_live, thinking_open=is_open)
            user = user_turn_widget(exchange.user, first_number=number, cache=self._cache)
            made.append(ShownExchange(exchange, number, user, answer))
        return made

    def _numbers(self, window: Window) -> list[int | None]:
        """Return the number of the first attachment of each exchange."""
        number = self._media_above + media_of(self._exchanges[: window.first]) + 1
        found: list[int | None] = []
        for exchange in self._exchanges[window.first : window.last]:
            found.append(number if exchange.sent_attachments else None)
            number += len(exchange.sent_attachments)
        return found

    async def _remove(self, gone: Sequence[ShownExchange]) -> None:
        for shown in gone:
            if not shown.exchange.is_running:
                self._thinking_open[shown.exchange] = shown.answer.is_thinking_open
        await self.remove_children(widgets_of(gone))

    async def _freeze_old(self) -> None:
        for shown in self._shown[:-LIVE_MAX]:
            turn = shown.answer
            if isinstance(turn, AssistantTurn) and not shown.exchange.is_running:
                is_open = turn.is_thinking_open
                await self._replace(shown, answer_widget(shown.exchange, is_live=False, thinking_open=is_open))

    async def _replace(self, shown: ShownExchange, answer: AssistantTurn | PastAnswer) -> None:
        before, shown.answer = shown.answer, answer
        with self.app.batch_update():
            await self.mount(answer, before=before)
            await before.remove()
        if self.marked is not None:
            self._show_mark(go=False)

    def _find(self, exchange: Exchange) -> ShownExchange | None:
        return next((shown for shown in reversed(self._shown) if shown.exchange is exchange), None)

    def _live(self, exchange: Exchange) -> AssistantTurn | None:
        shown = self._find(exchange)
        return shown.answer if shown is not None and isinstance(shown.answer, AssistantTurn) else None
