"""Coming back: which conversation to go on with, and answers that went on while nobody was there. No widgets here."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vlmtui.domain.engine import EngineEvent, EngineReady, LoadFailed, LoadSpec
from vlmtui.engine.interface import EngineHost
from vlmtui.errors import VlmtuiError
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, resolve
from vlmtui.store.records import ConversationId, StoredTurn
from vlmtui.ui.controllers.chat import ChatController
from vlmtui.ui.controllers.chat_settings import ChatSettings
from vlmtui.ui.controllers.keeper import Keeper
from vlmtui.ui.controllers.recording import Recorder

if TYPE_CHECKING:
    from vlmtui.store.store import Store

_ASKED_MAX = 5
_ASKED_WITHIN_S = 7 * 24 * 3600.0
"""An older answer is not asked for: no engine keeps one so long."""


class Resumed(msgspec.Struct, frozen=True):
    """A conversation to go on with, and the model that was asked last in it."""

    conversation: ConversationId
    model: str
    """What the user called it; may be empty."""
    spec: LoadSpec | None


def to_resume(store: Store, conversation: ConversationId) -> Resumed:
    """Raises VlmtuiError where there is none of that id."""
    found = store.conversation(conversation)
    recipes = [turn.recipe for turn in store.turns(conversation, limit=4) if turn.recipe is not None]
    return Resumed(conversation, found.model, recipes[-1].spec if recipes else None)


def stored_model(registry: Registry, spec: LoadSpec | None, name: str) -> Model:
    """The model that a conversation was led with, as it was loaded then; what it may do on this machine is decided
    anew. Raises VlmtuiError where it is not known any more."""
    path = Path(spec.model if spec else "")
    if spec is None or spec.family is None or spec.family not in registry or (path.is_absolute() and not path.exists()):
        return resolve(registry, name)
    return Model(registry[spec.family], msgspec.structs.replace(spec, trust_remote_code=False))


def held_model(registry: Registry, spec: LoadSpec) -> Model:
    """The model of an engine that runs. Raises VlmtuiError where its family is not known any more."""
    return Model(stored_model(registry, spec, spec.name).family, spec)


class Held(msgspec.Struct, frozen=True):
    """An answer that somebody has more of than the store."""

    turn: StoredTurn
    title: str
    spec: LoadSpec | None
    """Of the running engine that keeps it."""
    events: tuple[EngineEvent, ...] = ()
    """What an engine that has ended wrote down of it."""


async def interrupted(keeper: Keeper) -> list[tuple[StoredTurn, str]]:
    """The newest answers that were interrupted and can be asked for, the newest first, and the titles of their
    conversations. Raises VlmtuiError."""
    return await keeper.run(_interrupted)


async def find_held(turn: StoredTurn, title: str, host: EngineHost) -> Held | None:
    """An interrupted answer as somebody has kept it; None where nobody has."""
    assert turn.recipe is not None
    request_id = turn.recipe.request_id
    spec = await host.holder(request_id)
    events = None if spec is not None else await host.kept_answer(request_id)
    return Held(turn, title, spec, tuple(events or ())) if spec is not None or events else None


async def fetch(held: Held, host: EngineHost, recorder: Recorder) -> bool:
    """Complete an answer in the store, without a screen. False where that did not succeed."""
    chat = ChatController(ChatSettings(), recorder)
    exchange = await chat.lone_exchange(held.turn)
    if exchange is None:
        return False
    if held.events:
        old = await chat.take_over(exchange)
        if old is not None:
            chat.restore(host, exchange, held.events)
        return old is not None
    assert held.spec is not None
    try:
        engine = await host.open(held.spec, client="app", keep_alive_s=None)
    except VlmtuiError:
        return False
    try:
        async for event in engine.load():
            if isinstance(event, LoadFailed):
                return False
            if isinstance(event, EngineReady):
                break
        old = await chat.take_over(exchange)
        if old is None:
            return False
        await chat.resume(engine, exchange, old)
        await recorder.settle(2.0)
        return exchange.answer is not old
    finally:
        await engine.close()


def _interrupted(store: Store) -> list[tuple[StoredTurn, str]]:
    """The newest of them that can be asked for, and the titles of their conversations."""
    since = (time.time() - _ASKED_WITHIN_S) * 1000
    return [
        (turn, store.conversation(turn.conversation).title)
        for turn in store.interrupted(_ASKED_MAX)
        if turn.recipe is not None and turn.recipe.request_id and (turn.ended_ms or 0) >= since
    ]
