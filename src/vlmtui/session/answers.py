"""Running answers: received, stored while they arrive, stopped, taken over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any

from vlmtui.domain.generation import Cancelled, EngineEvent, Failed, Failure, Timings
from vlmtui.domain.thinking import COMMON_TAGS
from vlmtui.engine.interface import Engine, EngineHost
from vlmtui.errors import ErrorKind
from vlmtui.session.exchange import AnswerEnded, AnswerReplaced, ConversationEvent, Exchange, RequestSent
from vlmtui.session.generation import Answer, ThoughtMeter, broken_off, check_end
from vlmtui.session.persistence import LiveConversation, PendingAnswer, Recorder
from vlmtui.store.records import GenerationRecord

_STOP_WITHIN_S = 3.0


@dataclass(eq=False, slots=True)
class _RunningAnswer:
    """An answer without an outcome."""

    pending: PendingAnswer
    before: Answer | None = None
    """The partial answer before the takeover; it stays if the engine has less."""
    sent: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)


class LiveAnswers:
    """The running answers. Reports every change; each exchange that was begun gets an outcome."""

    def __init__(self, recorder: Recorder, notify: Callable[[ConversationEvent], None] = lambda event: None) -> None:
        self._recorder = recorder
        self._notify = notify
        self._running_answers: dict[Exchange, _RunningAnswer] = {}
        self._stopped: dict[str, str] = {}
        """Requests that were stopped, maybe before they were sent: request id → reason, empty if the user asked for
        it."""
        self._is_detached = False

    def begin(self, conversation: LiveConversation, exchange: Exchange, record: GenerationRecord) -> None:
        """Start a new answer for the exchange; `answer` stores and requests it."""
        self._running_answers[exchange] = _RunningAnswer(self._recorder.begin(conversation, exchange, record))

    async def answer(self, engine: Engine, exchange: Exchange) -> None:
        """Store the turn, if possible now, send its request, and receive the answer. Cancelling the caller does not
        stop it; `stop` does."""
        await self._run(self._send(engine, exchange))

    async def take_over(self, conversation: LiveConversation, exchange: Exchange) -> bool:
        """Start continuing an interrupted answer: the exchange gets a new one, which `resume` or `restore` receives
        from the beginning. False if another process was first. Raises VlmtuiError."""
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
        """Receive what the engine has kept of a taken-over answer. False, with the previous answer restored, if the
        engine has less of it."""
        answer = exchange.answer
        await self._run(self._follow(engine, exchange, engine.resume(answer.request_id)))
        return exchange.answer is answer

    def restore(self, host: EngineHost, exchange: Exchange, events: Iterable[EngineEvent]) -> None:
        """Receive what an engine that has ended spooled of a taken-over answer."""
        for event in events:
            exchange.answer.take(event)
        if exchange.is_running:
            exchange.answer.take(broken_off(exchange.answer.request_id))
        self._end(host, exchange)

    async def cancel(self, engine: Engine | None, exchange: Exchange, why: str = "") -> None:
        """Request the end of an answer; keep the partial answer. `why`: the cause if the user did not ask for it."""
        self._stopped.setdefault(exchange.answer.request_id, why)
        if engine is not None:
            await engine.cancel(exchange.answer.request_id)

    async def stop(self, engine: Engine | None, exchange: Exchange) -> None:
        """Cancel the answer, and wait a limited time for the end."""
        await self.cancel(engine, exchange)
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_WITHIN_S):
                await self.wait_until_over(exchange)

    def detach(self) -> None:
        """Stop receiving because the app exits while the engine continues; the rest is fetched later."""
        self._is_detached = True

    async def wait_until_sent(self, exchange: Exchange) -> None:
        """Wait until its turn is stored, if possible, and its request is being sent."""
        if exchange in self._running_answers:
            await self._running_answers[exchange].sent.wait()

    async def wait_until_over(self, exchange: Exchange) -> None:
        """Wait until its answer has an outcome."""
        if exchange in self._running_answers:
            await self._running_answers[exchange].over.wait()

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run to completion even if the caller is cancelled; the recorder's `settle` waits for it."""
        task = asyncio.ensure_future(work)
        self._recorder.spawn(_wait(task))
        await asyncio.shield(task)

    async def _send(self, engine: Engine, exchange: Exchange) -> None:
        assert exchange.request is not None
        await self._recorder.flush()
        running = self._running_answers.get(exchange)
        if running is not None:
            running.sent.set()
        if exchange.request.request_id in self._stopped:
            exchange.answer.take(self._with_cause(_stopped(exchange.answer)))
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
        """Turn the end of an engine that we stopped ourselves into Cancelled."""
        if isinstance(event, Cancelled):
            return self._with_cause(event)
        if not isinstance(event, Failed) or event.failure.kind is not ErrorKind.ENGINE_DIED:
            return event
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_WITHIN_S):
                if await engine.closed() is None:
                    return self._with_cause(_stopped(exchange.answer))
        return event

    def _with_cause(self, event: Cancelled) -> Cancelled | Failed:
        """Turn a stop that the user did not ask for into Failed with its cause."""
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
        """Store the outcome, then let the engine drop its copy of the answer."""
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
    """Return whether a kept answer ended with less than there was before."""
    if not isinstance(event, Failed):
        return False
    kind = event.failure.kind
    return kind is ErrorKind.NOT_KEPT or (kind is ErrorKind.ENGINE_DIED and len(answer.text) <= len(before.text))


async def _wait(task: asyncio.Task[None]) -> None:
    await asyncio.wait([task])


def _stopped(answer: Answer) -> Cancelled:
    return Cancelled(request_id=answer.request_id, usage=answer.usage, timings=Timings())
