"""Fetches answers that an engine continued while the app was closed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from vlmtui.domain.engine import EngineReady, LoadFailed, LoadSpec
from vlmtui.domain.generation import Cancelled, EngineEvent, Failed, Finished
from vlmtui.engine.interface import Engine, EngineHost, WhenChanged
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.registry.match import Model, family_of_spec
from vlmtui.session.answers import LiveAnswers
from vlmtui.session.conversation_holder import ConversationHolder, Teller
from vlmtui.session.engines import EngineState
from vlmtui.session.exchange import exchanges_of
from vlmtui.session.generation import Answer
from vlmtui.session.persistence import LiveConversation
from vlmtui.store.records import StoredTurn
from vlmtui.text import one_line

if TYPE_CHECKING:
    from vlmtui.registry.loader import Registry
    from vlmtui.store.store import Store

_LOOKS = 3
"""Attempts to fetch an answer: its engine may stop meanwhile, and then leaves it as a file."""
_ANSWERS_MAX = 5
_ANSWERED_WITHIN_S = 7 * 24 * 3600.0
"""Older answers are not fetched: no engine keeps them that long."""
_SETTLE_S = 2.0


def _tell_end(teller: Teller, title: str, answer: Answer) -> None:
    """Tell the user how an interrupted answer ended."""
    match answer.outcome:
        case Finished():
            what = "Finished"
        case Failed(failure=failure) if failure.kind is ErrorKind.ENGINE_DIED:
            what = "The engine died during this answer"
        case Failed():
            what = "This answer failed"
        case Cancelled():
            what = "This answer was stopped"
        case None:
            return
    teller.tell(f"{what}: {one_line(title)}")


class InterruptedAnswers:
    """Fetches interrupted answers at start: shows the newest, and stores the others."""

    def __init__(
        self,
        holder: ConversationHolder,
        *,
        host: EngineHost,
        registry: Registry,
        show: Callable[[bool], Awaitable[None]],
        load: Callable[[Model], None],
        opens_another: bool = False,
    ) -> None:
        """show: shows the conversation that was opened; its argument is True if the conversation was open before, so
        that its draft stays. load: loads a model without asking. opens_another: the user named a conversation to
        continue, so no other is opened."""
        self._holder = holder
        self._host = host
        self._registry = registry
        self._show = show
        self._load = load
        self._opens_another = opens_another
        self._engine_change = asyncio.Event()

    def engine_changed(self) -> None:
        """Wake tasks that wait for a change of the app's engines."""
        self._engine_change.set()
        self._engine_change = asyncio.Event()

    async def bring_back(self) -> None:
        """Complete interrupted answers in the store with the events that engines, or the files of stopped engines,
        have. Then delete copies that are no longer needed. Raises VlmtuiError."""
        host, store = self._host, self._holder.store
        for turn, title in await store.run(_interrupted):
            for _ in range(_LOOKS):
                unfetched = await self._find(turn, title)
                if unfetched is None or await self._complete(unfetched):
                    break
        if kept := await host.unfetched_answers():
            # A killed app leaves copies of answers that are complete in the store.
            for request_id in await store.run(lambda store: store.ended_among(kept)):
                await host.forget(request_id)

    async def _find(self, turn: StoredTurn, title: str) -> UnfetchedAnswer | None:
        assert turn.generation is not None
        request_id = turn.generation.request_id
        spec = await self._host.holder(request_id)
        events = None if spec is not None else await self._host.unfetched_answer(request_id)
        return UnfetchedAnswer(turn, title, spec, tuple(events or ())) if spec is not None or events else None

    async def _complete(self, unfetched: UnfetchedAnswer) -> bool:
        """Complete an answer: on screen if its conversation may be opened, else only in the store. Return False if the
        engine no longer keeps the answer."""
        if self._may_show(unfetched):
            return await self._show_and_resume(unfetched)
        answer = await self._fetch(unfetched)
        if answer is not None:
            _tell_end(self._holder.teller, unfetched.title, answer)
        return answer is not None

    def _may_show(self, unfetched: UnfetchedAnswer) -> bool:
        """Return whether the answer's conversation may be opened: the user has not turned to another conversation or
        model."""
        chat, model = self._holder.chat, self._holder.engines.model
        if chat is not None and chat.running is not None:
            return False
        if chat is not None and chat.id == unfetched.turn.conversation:
            return True
        is_free = chat is None or (chat.id is None and not chat.draft.text)
        return not self._opens_another and is_free and (model is None or unfetched.spec in (None, model.spec))

    async def _show_and_resume(self, unfetched: UnfetchedAnswer) -> bool:
        """Show the answer and receive the rest of it. Return False if its engine no longer keeps it."""
        chat = self._holder.require_chat()
        await self._holder.store.run(lambda store: store.activate(unfetched.turn.id))
        is_open = chat.id == unfetched.turn.conversation
        await chat.open(unfetched.turn.conversation)
        exchange = chat.branch.find(unfetched.turn.id)
        if exchange is None:
            return True
        if unfetched.spec is None:
            if await chat.answers.take_over(chat.live, exchange):
                chat.answers.restore(self._host, exchange, unfetched.events)
                _tell_end(self._holder.teller, unfetched.title, exchange.answer)
            await self._show(is_open)
            return True
        # The engine is one of this user's, so its spec holds as it is.
        self._load(Model(family_of_spec(self._registry, unfetched.spec), unfetched.spec))
        await self._show(is_open)
        engine = await self._engine_of(unfetched.spec)
        if engine is None:
            return False
        if chat.branch.find(unfetched.turn.id) is not exchange or not await chat.answers.take_over(chat.live, exchange):
            return True
        is_more = await chat.answers.resume(engine, exchange)
        if is_more:
            _tell_end(self._holder.teller, unfetched.title, exchange.answer)
        return is_more

    async def _fetch(self, unfetched: UnfetchedAnswer) -> Answer | None:
        """Complete an answer in the store, without showing it; None if that fails."""
        parent, recorder = unfetched.turn.parent, self._holder.recorder()
        if parent is None:
            return None
        question = await recorder.store.run(lambda store: store.turn(parent))
        exchange = next(exchanges_of([question, unfetched.turn]))
        answers, conversation = LiveAnswers(recorder), LiveConversation(unfetched.turn.conversation)
        if unfetched.events:
            if not await answers.take_over(conversation, exchange):
                return None
            answers.restore(self._host, exchange, unfetched.events)
            return exchange.answer
        assert unfetched.spec is not None
        try:
            engine = await self._host.open(
                unfetched.spec, client="app", keep_alive_s=None, when_changed=WhenChanged.KEEP
            )
        except VlmtuiError:
            return None
        try:
            if not await _loaded(engine) or not await answers.take_over(conversation, exchange):
                return None
            is_more = await answers.resume(engine, exchange)
            await recorder.settle(_SETTLE_S)
            return exchange.answer if is_more else None
        finally:
            await engine.close()

    async def _engine_of(self, spec: LoadSpec) -> Engine | None:
        """Return the app's engine with this spec once it is loaded; None if that fails."""
        controller = self._holder.engines
        while controller.model is None or controller.model.spec != spec or controller.state is EngineState.LOADING:
            await self._engine_change.wait()
        return controller.engine if controller.is_loaded else None


class UnfetchedAnswer(msgspec.Struct, frozen=True):
    """An answer that is incomplete in the store. A running engine, or the file of a stopped engine, has more of it."""

    turn: StoredTurn
    title: str
    spec: LoadSpec | None
    """The running engine that keeps it."""
    events: tuple[EngineEvent, ...] = ()
    """Events from the file of an engine that has stopped."""


async def _loaded(engine: Engine) -> bool:
    async for event in engine.load():
        if isinstance(event, EngineReady | LoadFailed):
            return isinstance(event, EngineReady)
    return True


def _interrupted(store: Store) -> list[tuple[StoredTurn, str]]:
    """Mark unfinished answers of ended processes as interrupted. Return the newest answers that can be fetched, newest
    first, each with its conversation's title; none if the store can't be written."""
    if store.database.is_read_only:
        return []
    store.mark_interrupted()
    since = (time.time() - _ANSWERED_WITHIN_S) * 1000
    return [
        (turn, store.conversation(turn.conversation).title)
        for turn in store.interrupted(_ANSWERS_MAX)
        if turn.generation is not None and turn.generation.request_id and (turn.ended_ms or 0) >= since
    ]
