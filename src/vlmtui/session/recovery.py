"""Finds answers that an engine finished while the app was closed, and completes them in the store."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from vlmtui.domain.engine import EngineReady, LoadFailed, LoadSpec
from vlmtui.domain.generation import EngineEvent
from vlmtui.engine.interface import Engine, EngineHost
from vlmtui.errors import VlmtuiError
from vlmtui.session.async_store import AsyncStore
from vlmtui.session.death_counts import DeathCounts
from vlmtui.session.exchange import exchanges_of
from vlmtui.session.generation import Answer
from vlmtui.session.live_answers import LiveAnswers
from vlmtui.session.persistence import Recorder
from vlmtui.session.stored_answer import LiveConversation
from vlmtui.store.records import StoredTurn

if TYPE_CHECKING:
    from vlmtui.store.store import Store

_ANSWERS_MAX = 5
_ANSWERED_WITHIN_S = 7 * 24 * 3600.0
"""Older answers are not looked up: no engine keeps them that long."""
_SETTLE_S = 2.0


class UnfetchedAnswer(msgspec.Struct, frozen=True):
    """An answer that an engine or its spool has more of than the store."""

    turn: StoredTurn
    title: str
    spec: LoadSpec | None
    """The running engine that keeps it."""
    events: tuple[EngineEvent, ...] = ()
    """Events from the spool of an engine that has ended."""


async def interrupted_answers(store: AsyncStore) -> list[tuple[StoredTurn, str]]:
    """Return the newest interrupted answers that can be fetched, newest first, with the titles of their
    conversations. Raises VlmtuiError."""
    return await store.run(_interrupted)


async def find_unfetched(turn: StoredTurn, title: str, host: EngineHost) -> UnfetchedAnswer | None:
    """Return an interrupted answer that an engine or a spool has kept; None if none has."""
    assert turn.generation is not None
    request_id = turn.generation.request_id
    spec = await host.holder(request_id)
    events = None if spec is not None else await host.unfetched_answer(request_id)
    return UnfetchedAnswer(turn, title, spec, tuple(events or ())) if spec is not None or events else None


async def forget_ended(store: AsyncStore, host: EngineHost, kept: Sequence[str]) -> None:
    """Drop the kept answers that are complete in the store: the app was killed before it could do so. Raises
    VlmtuiError."""
    for request_id in await store.run(lambda store: store.ended_among(kept)):
        await host.forget(request_id)


async def fetch_answer(
    unfetched: UnfetchedAnswer, host: EngineHost, recorder: Recorder, on_live: Callable[[], None]
) -> Answer | None:
    """Complete an answer in the store, without a screen, and return it; None if that failed. `on_live` as for
    `LiveAnswers.resume`."""
    parent = unfetched.turn.parent
    if parent is None:
        return None
    question = await recorder.store.run(lambda store: store.turn(parent))
    exchange = next(exchanges_of([question, unfetched.turn]))
    answers, conversation = LiveAnswers(recorder, DeathCounts()), LiveConversation(unfetched.turn.conversation)
    if unfetched.events:
        if not await answers.take_over(conversation, exchange):
            return None
        answers.restore(host, exchange, unfetched.events)
        return exchange.answer
    assert unfetched.spec is not None
    try:
        engine = await host.open(unfetched.spec, client="app", keep_alive_s=None)
    except VlmtuiError:
        return None
    try:
        if not await _loaded(engine) or not await answers.take_over(conversation, exchange):
            return None
        is_more = await answers.resume(engine, exchange, on_live)
        await recorder.settle(_SETTLE_S)
        return exchange.answer if is_more else None
    finally:
        await engine.close()


async def _loaded(engine: Engine) -> bool:
    async for event in engine.load():
        if isinstance(event, EngineReady | LoadFailed):
            return isinstance(event, EngineReady)
    return True


def _interrupted(store: Store) -> list[tuple[StoredTurn, str]]:
    since = (time.time() - _ANSWERED_WITHIN_S) * 1000
    return [
        (turn, store.conversation(turn.conversation).title)
        for turn in store.interrupted(_ANSWERS_MAX)
        if turn.generation is not None and turn.generation.request_id and (turn.ended_ms or 0) >= since
    ]
