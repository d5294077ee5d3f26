"""A past exchange as a report for the inspector."""

from __future__ import annotations

from vlmtui.domain.conversation import Turn, all_attachments
from vlmtui.domain.engine import EngineInfo
from vlmtui.domain.generation import GenerateRequest
from vlmtui.errors import bad_input
from vlmtui.registry.schema import Family
from vlmtui.session.branch import turns_as_sent
from vlmtui.session.conversation import Conversation
from vlmtui.session.exchange import Exchange
from vlmtui.session.generation import make_request
from vlmtui.session.prompt_report import PromptReport
from vlmtui.store.records import GenerationRecord


def exchange_numbered(conversation: Conversation, number: str) -> Exchange:
    """The exchange of that number, from 1 over the whole conversation; without one, the newest. Raises VlmtuiError."""
    everything = conversation.all_exchanges()
    if not everything:
        raise bad_input("There is no prompt to look into yet.", hint="Send a message first.")
    wanted = len(everything) if not number else int(number) if number.isdecimal() else 0
    if not 1 <= wanted <= len(everything):
        raise bad_input(f"There is no message {number}.", hint=f"They are 1 to {len(everything)}.")
    return everything[wanted - 1]


async def report_of(conversation: Conversation, exchange: Exchange, now: EngineInfo | None) -> PromptReport:
    """All that is known of it. `now` is the engine that is loaded: it tells what an earlier session has forgotten.
    Raises VlmtuiError where the store cannot be read."""
    record, turn = exchange.record, exchange.answer_id
    if record is None and turn is not None:
        record = (await conversation.recorder.store.run(lambda store: store.turn(turn))).generation
    info = exchange.info
    if info is None and now is not None and record is not None and record.spec == now.spec:
        info = now
    return PromptReport.of_answer(
        f"exchange {conversation.number_of(exchange)}",
        exchange.answer,
        request=exchange.request,
        info=info,
        recipe=record,
        attachments=all_attachments(_turns(conversation, exchange, record)),
    )


def request_again(
    conversation: Conversation, exchange: Exchange, known: PromptReport, family: Family
) -> GenerateRequest:
    """The request that the exchange would be made with now. Raises VlmtuiError where the family cannot take it."""
    record, sampling = known.recipe, known.sampling
    if record is None or sampling is None:
        raise bad_input("Nothing is known of how this answer was made.")
    return make_request(family, _turns(conversation, exchange, record), sampling, mode=record.mode)


def _turns(conversation: Conversation, exchange: Exchange, record: GenerationRecord | None) -> list[Turn]:
    """What was sent for the exchange's answer."""
    if record is None:
        return conversation.turns_until(exchange)
    return turns_as_sent(exchange, record.system_prompt, record.attachments)
