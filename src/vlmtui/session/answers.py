"""Answers that are being generated: receives, stores and stops them, and continues those of an earlier session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import aclosing, suppress
from typing import Any

import msgspec

from vlmtui.domain.generation import Cancelled, EngineEvent, Failed, Failure, Timings
from vlmtui.domain.thinking import COMMON_TAGS
from vlmtui.engine.interface import Engine, EngineHost
from vlmtui.errors import ErrorKind
from vlmtui.session.exchange import AnswerEnded, AnswerReplaced, ConversationEvent, Exchange, RequestSent
from vlmtui.session.generation import Answer, ThoughtMeter, broken_off, check_end
from vlmtui.session.persistence import LiveConversation, PendingAnswer, Recorder
from vlmtui.store.records import GenerationRecord

_STOP_WITHIN_S = 3.0


class _RunningAnswer(msgspec.Struct, eq=False):
    pending: PendingAnswer
    before: Answer | None = None
    """The partial answer of an earlier session; it stays if the engine has less of it."""
    sent: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    over: asyncio.Event = msgspec.field(default_factory=asyncio.Event)


class LiveAnswers:
    """The running answers. Each answer that is begun ends with an outcome."""

    def __init__(self, recorder: Recorder, notify: Callable[[ConversationEvent], None] = lambda event: None) -> None:
        self._recorder = recorder
        self._notify = notify
        self._running_answers: dict[Exchange, _RunningAnswer] = {}
        self._stopped: dict[str, str] = {}
        """Stopped requests, perhaps before they were sent: request id → reason; empty: the user stopped it."""
        self._is_detached = False

    def begin(self, conversation: LiveConversation, exchange: Exchange, record: GenerationRecord) -> None:
        """Register a new answer of the exchange; `answer` sends its request."""
        self._running_answers[exchange] = _RunningAnswer(self._recorder.begin(conversation, exchange, record))

    async def answer(self, engine: Engine, exchange: Exchange) -> None:
        """Store the turn if possible, send its request, and receive the answer, even if the caller is cancelled."""
        await self._run(self._send(engine, exchange))

    async def take_over(self, conversation: LiveConversation, exchange: Exchange) -> bool:
        """Take over an answer that another process left interrupted; `resume` or `restore` then completes it. Return
        False if a third process has taken it over already. Raises VlmtuiError."""
        turn, record = exchange.answer_id, exchange.record
        if turn is None or record is None or not await self._recorder.store.run(lambda store: store.take_over(turn)):
            return False
        before = exchange.answer
        thought = ThoughtMeter(record.thinking or COMMON_TAGS, is_timed=False)
        exchange.answer = Answer(record.request_id, thought=thought)
        pending = self._recorder.rewrite(conversation, exchange, record)
        self._running_answers[exchange] = _RunningAnswer(pending, before)
        self._notify(AnswerReplaced(exchange))
        return True

    async def resume(self, engine: Engine, exchange: Exchange) -> bool:
        """Receive the engine's copy of an answer, after `take_over`. If the engine has less text than was stored,
        restore the stored answer and return False."""
        answer = exchange.answer
        await self._run(self._follow(engine, exchange, engine.resume(answer.request_id)))
        return exchange.answer is answer

    def restore(self, host: EngineHost, exchange: Exchange, events: Iterable[EngineEvent]) -> None:
        """Receive the events that a stopped engine left in a file, after `take_over`."""
        for event in events:
            exchange.answer.take(event)
        if exchange.is_running:
            exchange.answer.take(broken_off(exchange.answer.request_id))
        self._end(host, exchange)

    async def cancel(self, engine: Engine | None, exchange: Exchange, why: str = "") -> None:
        """Ask the engine to stop an answer; keep the partial answer. `why`: the reason; empty: the user stopped it."""
        self._stopped.setdefault(exchange.answer.request_id, why)
        if engine is not None:
            await engine.cancel(exchange.answer.request_id)

    async def stop(self, engine: Engine | None, exchange: Exchange) -> None:
        """Cancel the answer, and wait up to 3 seconds for its end."""
        await self.cancel(engine, exchange)
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_WITHIN_S):
                await self.wait_until_over(exchange)

    def detach(self) -> None:
        """Stop receiving: the app exits while the engine continues. The next session fetches the rest."""
        self._is_detached = True

    async def wait_until_sent(self, exchange: Exchange) -> None:
        """Wait until the exchange's turn is stored, if possible, and its request is being sent."""
        if exchange in self._running_answers:
            await self._running_answers[exchange].sent.wait()

    async def wait_until_over(self, exchange: Exchange) -> None:
        """Wait until the exchange's answer has an outcome."""
        if exchange in self._running_answers:
            await self._running_answers[exchange].over.wait()

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` to completion, even if the caller is cancelled. `Recorder.settle` also waits for it."""
        task = asyncio.ensure_future(work)
        self._recorder.spawn(asyncio.wait([task]))
        await asyncio.shield(task)

    async def _send(self, engine: Engine, exchange: Exchange) -> None:
        assert exchange.request is not None
        await self._recorder.flush()
        running = self._running_answers.get(exchange)
        if running is not None:
            running.sent.set()
        if exchange.request.request_id in self._stopped:
            exchange.answer.take(self._with_cause(_cancelled(exchange.answer)))
            self._end(engine, exchange)
            return
        self._notify(RequestSent(exchange))
        await self._follow(engine, exchange, engine.generate(exchange.request))

    async def _follow(self, engine: Engine, exchange: Exchange, events: AsyncGenerator[EngineEvent, None]) -> None:
        answer, running = exchange.answer, self._running_answers[exchange]
        before = running.before
        try:
            async with aclosing(events):
                async for event in events:
                    if self._is_detached:
                        # Leaving this loop before the connection is closed would cancel the request.
                        continue
                    if before is not None and _has_less(event, answer, before):
                        self._restore_previous(exchange, before)
                        return
                    event = await self._interpret(engine, exchange, event)
                    if (record := exchange.record) is not None:
                        await check_end(answer, event, record.sampling)
                    answer.take(event)
                    self._recorder.touch()
        finally:
            if exchange.is_running and not self._is_detached:
                answer.take(broken_off(answer.request_id))
            if not exchange.is_running:
                self._end(engine, exchange)

    async def _interpret(self, engine: Engine, exchange: Exchange, event: EngineEvent) -> EngineEvent:
        """Return the event; if it is a failure because this app stopped the engine, return Cancelled instead."""
        if isinstance(event, Cancelled):
            return self._with_cause(event)
        if not isinstance(event, Failed) or event.failure.kind is not ErrorKind.ENGINE_DIED:
            return event
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_WITHIN_S):
                if await engine.closed() is None:
                    return self._with_cause(_cancelled(exchange.answer))
        return event

    def _with_cause(self, event: Cancelled) -> Cancelled | Failed:
        """Return Failed with the reason if something other than the user stopped the request."""
        why = self._stopped.get(event.request_id)
        if not why:
            return event
        return Failed(request_id=event.request_id, failure=Failure(kind=ErrorKind.INTERNAL, message=why))

    def _restore_previous(self, exchange: Exchange, before: Answer) -> None:
        exchange.answer = before
        running, turn = self._running_answers.pop(exchange), exchange.answer_id
        self._recorder.abandon(running.pending)
        running.over.set()
        if turn is not None:
            self._recorder.spawn(self._recorder.store.run(lambda store: store.give_back(turn)))
        self._notify(AnswerReplaced(exchange))

    def _end(self, holder: Engine | EngineHost, exchange: Exchange) -> None:
        """Store the outcome, then let the engine delete its copy of the answer."""
        running = self._running_answers.pop(exchange, None)
        if running is None:
            return
        pending = running.pending

        async def store() -> None:
            await self._recorder.flush()
            if pending.is_over:
                await holder.forget(pending.answer.request_id)

        self._recorder.spawn(store())
        for event in (running.sent, running.over):
            event.set()
        self._notify(AnswerEnded(exchange))


def _has_less(event: EngineEvent, answer: Answer, before: Answer) -> bool:
    """Return whether the engine's copy of an interrupted answer ended with `event` and has less text than `before`, the
    stored copy."""
    if not isinstance(event, Failed):
        return False
    kind = event.failure.kind
    return kind is ErrorKind.NOT_KEPT or (kind is ErrorKind.ENGINE_DIED and len(answer.text) <= len(before.text))


def _cancelled(answer: Answer) -> Cancelled:
    return Cancelled(request_id=answer.request_id, usage=answer.usage, timings=Timings())
