"""Answers that are under way: taken in, stored as they come, stopped, taken over. No widgets here."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing, suppress

import msgspec

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.conversation import Text, Turn
from vlmtui.domain.engine import Cancelled, EngineEvent, Failed, Failure, GenerateRequest, Timings
from vlmtui.engine.interface import Engine, EngineHost
from vlmtui.engine.session import Answer
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.ui.controllers.exchange import Exchange
from vlmtui.ui.controllers.recording import Recorder
from vlmtui.ui.controllers.writing import Entry, LiveConversation

DEATHS_MAX = 2
"""A turn that ended the engine so often is not sent again without a question."""
_STOP_WITHIN_S = 3.0


class Suspect(msgspec.Struct, frozen=True):
    """A turn that the engine died of, more than once."""

    deaths: int
    attachment: Attachment | None
    """Its newest one."""


class Answering:
    """The newest exchanges of a conversation, and what is being answered of them."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.live = LiveConversation()
        self.exchanges: list[Exchange] = []
        """The newest ones; `load_older` puts older ones before them."""
        self._entries: dict[Exchange, Entry] = {}
        """What is being answered."""
        self._deaths: Counter[tuple[object, ...]] = Counter()
        self._stopped: set[str] = set()
        self._is_detached = False
        self._rest = asyncio.Event()
        """Set while no answer is under way."""

    @property
    def running(self) -> Exchange | None:
        """The exchange that is being answered."""
        return self.exchanges[-1] if self.exchanges and self.exchanges[-1].is_running else None

    async def record(self) -> bool:
        """Store what was begun. False where that is not possible now; it is tried again until it is."""
        return await self.recorder.flush()

    async def answer(self, engine: Engine, exchange: Exchange, request: GenerateRequest) -> None:
        """Take the answer in, event by event, and store it as it comes. Whatever happens, the exchange has an outcome
        afterwards. A caller that is cancelled does not stop it: `stop` does."""
        if request.request_id in self._stopped:
            exchange.answer.take(_stopped(exchange.answer))
            self._over(engine, exchange)
            return
        await self._take_in(engine, exchange, engine.generate(request))

    async def take_over(self, exchange: Exchange) -> Answer | None:
        """Begin to go on with an answer that was interrupted: the exchange has a new one, that comes anew from its
        beginning. The old one; None where somebody else was quicker."""
        old, turn, recipe = exchange.answer, exchange.answer_id, exchange.recipe
        if turn is None or recipe is None or not await self.recorder.keeper.run(lambda store: store.take_over(turn)):
            return None
        exchange.answer = Answer(recipe.request_id)
        self._answering(exchange, self.recorder.go_on(self.live, exchange, recipe))
        return old

    async def resume(self, engine: Engine, exchange: Exchange, old: Answer) -> None:
        """What the engine has kept of an answer that was taken over; where that is nothing, the old one is back."""
        await self._take_in(engine, exchange, engine.resume(exchange.answer.request_id), instead_of=old)

    def restore(self, host: EngineHost, exchange: Exchange, events: Iterable[EngineEvent]) -> None:
        """What an engine that has ended wrote down of an answer that was taken over."""
        for event in events:
            exchange.answer.take(event)
        if exchange.is_running:
            exchange.answer.take(_lost(exchange.answer))
        self._over(host, exchange)

    async def cancel(self, engine: Engine | None) -> bool:
        """Ask for the end of the running answer; what has come stays. False where there is none."""
        running = self.running
        if running is None:
            return False
        self._stopped.add(running.answer.request_id)
        if engine is not None:
            await engine.cancel(running.answer.request_id)
        return True

    async def stop(self, engine: Engine | None) -> None:
        """The same, and wait a while for it."""
        if not await self.cancel(engine):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_WITHIN_S):
                await self._rest.wait()

    def detach(self) -> None:
        """The app goes, the engine goes on: what comes from now on is fetched another time."""
        self._is_detached = True

    def suspect(self, turn: Turn) -> Suspect | None:
        """Why a turn is not to be sent without a question: the engine has died of it before, more than once."""
        deaths = self._deaths[_content(turn)]
        if deaths < DEATHS_MAX:
            return None
        return Suspect(deaths, turn.attachments[-1] if turn.attachments else None)

    async def suspect_again(self) -> Suspect | None:
        """The same of the last turn, in earlier sessions too."""
        if not self.exchanges:
            return None
        exchange = self.exchanges[-1]
        user_id = exchange.user_id
        if user_id is not None:
            with suppress(VlmtuiError):
                deaths = await self.recorder.keeper.run(lambda store: store.deaths_below(user_id))
                self._deaths[_content(exchange.user)] = max(deaths, self._deaths[_content(exchange.user)])
        return self.suspect(exchange.user)

    def _answering(self, exchange: Exchange, entry: Entry) -> None:
        self._entries[exchange] = entry
        self._rest.clear()

    async def _take_in(
        self,
        engine: Engine,
        exchange: Exchange,
        events: AsyncGenerator[EngineEvent, None],
        *,
        instead_of: Answer | None = None,
    ) -> None:
        task = asyncio.ensure_future(self._follow(engine, exchange, events, instead_of))
        self.recorder.spawn(_wait(task))
        await asyncio.shield(task)

    async def _follow(
        self,
        engine: Engine,
        exchange: Exchange,
        events: AsyncGenerator[EngineEvent, None],
        instead_of: Answer | None,
    ) -> None:
        """`instead_of` is the answer that stays where the engine has kept nothing, or dies before it has told it."""
        answer = exchange.answer
        try:
            async with aclosing(events):
                async for event in events:
                    if self._is_detached:
                        # Whoever stops listening before the connection is closed cancels the request.
                        continue
                    if instead_of is not None and _is_less(event, answer, instead_of):
                        exchange.answer = instead_of
                        self._leave_as_it_was(exchange)
                        return
                    answer.take(await self._as_meant(engine, exchange, event))
                    self.recorder.touch()
        finally:
            if exchange.is_running and not self._is_detached:
                answer.take(_lost(answer))
            if not exchange.is_running and exchange in self._entries:
                self._over(engine, exchange)

    async def _as_meant(self, engine: Engine, exchange: Exchange, event: EngineEvent) -> EngineEvent:
        """The end of an engine that we ended ourselves is a stop; its death is counted."""
        if not isinstance(event, Failed) or event.failure.kind is not ErrorKind.ENGINE_DIED:
            return event
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_WITHIN_S):
                if await engine.closed() is None:
                    return _stopped(exchange.answer)
        self._deaths[_content(exchange.user)] += 1
        return event

    def _leave_as_it_was(self, exchange: Exchange) -> None:
        entry, turn = self._entries.pop(exchange), exchange.answer_id
        self.recorder.give_up(entry)
        self._rest.set()
        if turn is not None:
            self.recorder.spawn(self.recorder.keeper.run(lambda store: store.give_back(turn)))

    def _over(self, holder: Engine | EngineHost, exchange: Exchange) -> None:
        """Store the end, then let whoever keeps the answer forget it."""
        entry = self._entries.pop(exchange)
        self._rest.set()

        async def store() -> None:
            await self.recorder.flush()
            if entry.is_over:
                await holder.forget(entry.answer.request_id)

        self.recorder.spawn(store())


def _is_less(event: EngineEvent, answer: Answer, old: Answer) -> bool:
    """Whether an engine's last word on an answer that it had kept leaves less of it than was there before."""
    if not isinstance(event, Failed):
        return False
    kind = event.failure.kind
    return kind is ErrorKind.NOT_KEPT or (kind is ErrorKind.ENGINE_DIED and len(answer.text) <= len(old.text))


async def _wait(task: asyncio.Task[None]) -> None:
    await asyncio.wait([task])


def _lost(answer: Answer) -> Failed:
    failure = Failure(kind=ErrorKind.ENGINE_DIED, message="The answer was interrupted.")
    return Failed(request_id=answer.request_id, failure=failure)


def _stopped(answer: Answer) -> Cancelled:
    return Cancelled(request_id=answer.request_id, usage=answer.usage, timings=Timings())


def _content(turn: Turn) -> tuple[object, ...]:
    """What makes two turns the same to an engine."""
    return tuple(part.text if isinstance(part, Text) else part.attachment.sha256 for part in turn.parts)
