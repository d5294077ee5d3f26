"""Sends messages, requests other answers, and stops answers."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

from vlmtui.errors import Remedy, VlmtuiError
from vlmtui.session.engines import EngineState
from vlmtui.session.exchange import Exchange
from vlmtui.ui.chat.part import ChatPart, background

_SENT_WITHIN_S = 0.05
"""Maximum seconds to wait for a message to be stored and sent before it is drawn, which delays the store's thread."""


class TurnSender(ChatPart):
    """Sends the draft, and starts its answer. If that fails, nothing changes."""

    def send(self) -> None:
        """Send the draft. Before the model is loaded, queue it."""
        chat, engines = self._chat, self._engines
        written, text, was_editing = chat.draft.words, chat.draft.text, chat.editing is not None
        chat.require_rest()
        if engines.state in (EngineState.LOADING, EngineState.NONE):
            self._queue(written, text)
            return
        engines.require_engine()
        self._screen.prompt_cost.check_room()
        exchange = chat.begin(engines.require_model(), engines.info)
        self.open_exchange(exchange, rebuild=was_editing, sent=(written, text))

    def _queue(self, written: str, text: str) -> None:
        self._chat.queue_draft()
        self._screen.panel.take_text(written, text)
        self._screen.show_editing()
        self._screen.show_queue()

    def send_queued(self) -> None:
        """Send the first queued message if the engine accepts it now."""
        chat, engines = self._chat, self._engines
        self._screen.show_queue()
        if not chat.queue or chat.running is not None or engines.state is not EngineState.READY:
            return
        message = chat.queue.messages[0]
        try:
            exchange = chat.begin_queued(engines.require_model(), engines.info)
        except VlmtuiError as error:
            self.action_take_back()
            self._app.tell_error(error)
            return
        self._screen.show_queue()
        self.open_exchange(exchange, rebuild=message.editing is not None)

    def action_take_back(self) -> None:
        if self._chat.queue:
            self._screen.take_composer_text()
            self._chat.take_back_queue()
            self._screen.show_draft()
            self._screen.show_queue()

    def open_exchange(self, exchange: Exchange, *, rebuild: bool, sent: tuple[str, str] | None = None) -> None:
        """Start the answer of a new exchange, and show the exchange. `rebuild`: the exchange replaces others in the
        transcript, e.g. after an edit. `sent`: the words to add to the history, and the text to remove from the
        composer."""
        self._screen.start(partial(self._answer, exchange), "answer")
        self._screen.start_dialog(partial(self._clear_and_show, exchange, sent, rebuild=rebuild))

    @background("exchange")
    async def action_regenerate(self) -> None:
        """Generate another answer to the selected message, or else to the last one."""
        of = self._screen.marked.exchange if self._screen.marked is not None else None
        engines = self._engines
        is_earlier = of is not None and of is not self._chat.last
        engines.require_engine()
        if is_earlier:
            await self._chat.recorder.flush()
        is_repeated = self._chat.repeats_greedily(engines.info, of)
        exchange = self._chat.answer_again(engines.require_model(), engines.info, of)
        if is_repeated:
            self._app.tell("At temperature 0 the answer is probably the same.", Remedy.SET_TEMPERATURE)
        self._screen.start(partial(self._answer, exchange), "answer")
        if is_earlier:
            await self._screen.show_exchange(exchange, rebuild=True)

    @background("stop")
    async def action_stop(self) -> None:
        """Stop the answer, or else the load."""
        if self._chat.running is not None:
            await self._chat.cancel(self._engines.engine)
        else:
            await self._app.models.abort()

    async def _clear_and_show(self, exchange: Exchange, sent: tuple[str, str] | None, *, rebuild: bool) -> None:
        """Clear the composer, and show a new exchange. Keys typed ahead wait, so that they go into the empty
        composer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_SENT_WITHIN_S):
                await self._chat.answers.wait_until_sent(exchange)
        if self._screen.is_attached:
            if sent is not None:
                self._screen.panel.take_text(*sent)
            self._screen.show_editing()
            await self._screen.show_exchange(exchange, rebuild=rebuild)

    async def _answer(self, exchange: Exchange) -> None:
        engine = self._engines.engine
        assert engine is not None
        await self._chat.answers.answer(engine, exchange)
