"""Answers that are under way: taken in, stored as they come, stopped, taken over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any

from vlmtui.domain.failure import Failure
from vlmtui.domain.generation import Cancelled, EngineEvent, Failed, Timings
from vlmtui.engine.interface import Engine, EngineHost
from vlmtui.errors import ErrorKind
from vlmtui.session.death_counts import DeathCounts
from vlmtui.session.events import AnswerEnded, AnswerReplaced, ConversationEvent, RequestSent
from vlmtui.session.exchange import Exchange
from vlmtui.session.generation import Answer, broken_off
from vlmtui.session.persistence import Recorder
from vlmtui.session.stored_answer import LiveConversation, PendingAnswer
from vlmtui.store.records import GenerationRecord

_STOP_WITHIN_S = 3.0


@dataclass(eq=False, slots=True)
class _RunningAnswer:
    """An answer that has no outcome yet."""

    pending: PendingAnswer
    before: Answer | None = None
    """What was there before it was taken over; it stays where the engine has less of it."""
    sent: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)


class LiveAnswers:
    """What is being answered. Every change is told; each exchange that was begun has an outcome in the end."""

    def __init__(
        self, recorder: Recorder, deaths: DeathCounts, tell: Callable[[ConversationEvent], None] = lambda event: None
    ) -> None:
        self._recorder = recorder
        self._deaths = deaths
        self._tell = tell
        self._under_way: dict[Exchange, _RunningAnswer] = {}
        self._stopped: dict[str, str] = {}
        """Requests that were stopped, by their ids, maybe before they were sent; and why, where the user did not ask
        for that."""
        self._is_detached = False

    def begin(self, conversation: LiveConversation, exchange: Exchange, record: GenerationRecord) -> None:
        """The exchange has a new answer, which is still to be asked for."""
        self._under_way[exchange] = _RunningAnswer(self._recorder.begin(conversation, exchange, record))

    async def answer(self, engine: Engine, exchange: Exchange) -> None:
        """Store the turn, where that is possible now, send its request, and take the answer in. A caller that is
        cancelled does not stop it: `stop` does."""
        await self._run(self._send(engine, exchange))

    async def take_over(self, conversation: LiveConversation, exchange: Exchange) -> bool:
        """Begin to go on with an answer that was interrupted: the exchange has a new one, that comes anew from its
        beginning by `resume` or `restore`. False where somebody else was quicker. Raises VlmtuiError."""
        turn, record = exchange.answer_id, exchange.record
        if turn is None or record is None or not await self._recorder.store.run(lambda store: store.take_over(turn)):
            return False
        before = exchange.answer
        exchange.show_answer(Answer(record.request_id))
        pending = self._recorder.go_on(conversation, exchange, record)
        self._under_way[exchange] = _RunningAnswer(pending, before)
        self._tell(AnswerReplaced(exchange))
        return True

    async def resume(self, engine: Engine, exchange: Exchange) -> bool:
        """Take in what the engine has kept of an answer that was taken over. False where that is less than was there
        before, which is then back."""
        answer = exchange.answer
        await self._run(self._follow(engine, exchange, engine.resume(answer.request_id)))
        return exchange.answer is answer

    def restore(self, host: EngineHost, exchange: Exchange, events: Iterable[EngineEvent]) -> None:
        """Take in what an engine that has ended wrote down of an answer that was taken over."""
        for event in events:
            exchange.answer.take(event)
        if exchange.is_running:
            exchange.answer.take(broken_off(exchange.answer.request_id))
        self._end(host, exchange)

    async def cancel(self, engine: Engine | None, exchange: Exchange, why: str = "") -> None:
        """Ask for the end of an answer; what has come stays. `why`: the cause where it is not the user's wish."""
        self._stopped.setdefault(exchange.answer.request_id, why)
        if engine is not None:
            await engine.cancel(exchange.answer.request_id)

    async def stop(self, engine: Engine | None, exchange: Exchange) -> None:
        """The same, and wait a while for it."""
        await self.cancel(engine, exchange)
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_WITHIN_S):
                await self.wait_until_over(exchange)

    def detach(self) -> None:
        """The app goes, the engine goes on: what comes from now on is fetched another time."""
        self._is_detached = True

    async def wait_until_sent(self, exchange: Exchange) -> None:
        """Wait until its turn is stored, where that is possible, and its request goes out."""
        if exchange in self._under_way:
            await self._under_way[exchange].sent.wait()

    async def wait_until_over(self, exchange: Exchange) -> None:
        """Wait until its answer has an outcome."""
        if exchange in self._under_way:
            await self._under_way[exchange].over.wait()

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run to the end, whatever becomes of the caller; the recorder waits for it when it settles."""
        task = asyncio.ensure_future(work)
        self._recorder.spawn(_wait(task))
        await asyncio.shield(task)

    async def _send(self, engine: Engine, exchange: Exchange) -> None:
        assert exchange.request is not None
        await self._recorder.flush()
        under_way = self._under_way.get(exchange)
        if under_way is not None:
            under_way.sent.set()
        if exchange.request.request_id in self._stopped:
            exchange.answer.take(self._as_caused(_stopped(exchange.answer)))
            self._end(engine, exchange)
            return
        self._tell(RequestSent(exchange))
        await self._follow(engine, exchange, engine.generate(exchange.request))

    async def _follow(self, engine: Engine, exchange: Exchange, events: AsyncGenerator[EngineEvent, None]) -> None:
        answer, before = exchange.answer, self._under_way[exchange].before
        try:
            async with aclosing(events):
                async for event in events:
                    if self._is_detached:
                        # Whoever stops listening before the connection is closed cancels the request.
                        continue
                    if before is not None and _is_less(event, answer, before):
                        self._leave_as_it_was(exchange, before)
                        return
                    answer.take(await self._as_meant(engine, exchange, event))
                    self._recorder.touch()
        finally:
            if exchange.is_running and not self._is_detached:
                answer.take(broken_off(answer.request_id))
            if not exchange.is_running:
                self._end(engine, exchange)

    async def _as_meant(self, engine: Engine, exchange: Exchange, event: EngineEvent) -> EngineEvent:
        """The end of an engine that we ended ourselves is a stop; its death is counted."""
        if isinstance(event, Cancelled):
            return self._as_caused(event)
        if not isinstance(event, Failed) or event.failure.kind is not ErrorKind.ENGINE_DIED:
            return event
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_WITHIN_S):
                if await engine.closed() is None:
                    return self._as_caused(_stopped(exchange.answer))
        self._deaths.add(exchange.user)
        return event

    def _as_caused(self, event: Cancelled) -> Cancelled | Failed:
        """A stop that the user did not ask for says why it came."""
        why = self._stopped.get(event.request_id)
        if not why:
            return event
        return Failed(request_id=event.request_id, failure=Failure(kind=ErrorKind.INTERNAL, message=why))

    def _leave_as_it_was(self, exchange: Exchange, before: Answer) -> None:
        """The answer that was taken over stays as it is stored."""
        exchange.show_answer(before)
        under_way, turn = self._under_way.pop(exchange), exchange.answer_id
        self._recorder.give_up(under_way.pending)
        under_way.over.set()
        if turn is not None:
            self._recorder.spawn(self._recorder.store.run(lambda store: store.give_back(turn)))
        self._tell(AnswerReplaced(exchange))

    def _end(self, holder: Engine | EngineHost, exchange: Exchange) -> None:
        """Store the end, then let whoever keeps the answer forget it."""
        under_way = self._under_way.pop(exchange, None)
        if under_way is None:
            return
        pending = under_way.pending

        async def store() -> None:
            await self._recorder.flush()
            if pending.is_over:
                await holder.forget(pending.answer.request_id)

        self._recorder.spawn(store())
        under_way.sent.set()
        under_way.over.set()
        self._tell(AnswerEnded(exchange))


def _is_less(event: EngineEvent, answer: Answer, before: Answer) -> bool:
    """Whether an engine's last word on an answer that it had kept leaves less of it than was there before."""
    if not isinstance(event, Failed):
        return False
    kind = event.failure.kind
    return kind is ErrorKind.NOT_KEPT or (kind is ErrorKind.ENGINE_DIED and len(answer.text) <= len(before.text))


async def _wait(task: asyncio.Task[None]) -> None:
    await asyncio.wait([task])


def _stopped(answer: Answer) -> Cancelled:
    return Cancelled(request_id=answer.request_id, usage=answer.usage, timings=Timings())
