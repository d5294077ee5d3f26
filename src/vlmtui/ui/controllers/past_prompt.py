"""An exchange of the conversation as the inspector takes it. No widgets here."""

from __future__ import annotations

from vlmtui.domain.conversation import Turn, assistant_turn, system_turn
from vlmtui.domain.engine import EngineInfo, GenerateRequest
from vlmtui.engine.session import make_request
from vlmtui.errors import bad_input
from vlmtui.registry.schema import Family
from vlmtui.ui.controllers.chat import ChatController
from vlmtui.ui.controllers.exchange import Exchange
from vlmtui.ui.controllers.inspecting import Inspected


def numbered(chat: ChatController, number: str) -> tuple[int, Exchange]:
    """The exchange of that number, from 1 over the whole conversation; without one, the newest. Raises VlmtuiError."""
    everything = _up_to(chat.exchanges[-1]) if chat.exchanges else []
    if not everything:
        raise bad_input("There is no prompt to look into yet.", hint="Send a message first.")
    wanted = len(everything) if not number else int(number) if number.isdecimal() else 0
    if not 1 <= wanted <= len(everything):
        raise bad_input(f"There is no message {number}.", hint=f"They are 1 to {len(everything)}.")
    return wanted, everything[wanted - 1]


async def inspected(chat: ChatController, number: int, exchange: Exchange, now: EngineInfo | None) -> Inspected:
    """All that is known of it. `now` is the engine that is loaded: it tells what an earlier session has forgotten."""
    recipe, turn = exchange.recipe, exchange.answer_id
    if recipe is None and turn is not None:
        recipe = (await chat.recorder.keeper.run(lambda store: store.turn(turn))).recipe
    info = exchange.info
    if info is None and now is not None and recipe is not None and recipe.spec == now.spec:
        info = now
    return Inspected.of_answer(
        f"exchange {number}",
        exchange.answer,
        request=exchange.request,
        info=info,
        recipe=recipe,
        attachments=[item for one in _up_to(exchange) for item in one.sent_user.attachments],
    )


def request_again(exchange: Exchange, known: Inspected, family: Family) -> GenerateRequest:
    """The request that the exchange would be made with now. Raises VlmtuiError where the family cannot take it."""
    recipe, sampling = known.recipe, known.sampling
    if recipe is None or sampling is None:
        raise bad_input("Nothing is known of how this answer was made.")
    turns = [system_turn(recipe.system_prompt)] if recipe.system_prompt.strip() else list[Turn]()
    for one in _up_to(exchange)[:-1]:
        if one.is_remembered:
            turns += [one.sent_user, assistant_turn(one.answer.text)]
    return make_request(family, [*turns, exchange.user], sampling, mode=recipe.mode)


def _up_to(exchange: Exchange) -> list[Exchange]:
    """The exchange with all above it, the oldest first."""
    found: list[Exchange] = []
    one: Exchange | None = exchange
    while one is not None:
        found.append(one)
        one = one.above
    return found[::-1]
