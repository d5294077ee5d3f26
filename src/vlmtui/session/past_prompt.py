"""A past exchange as a report for the inspector."""

from __future__ import annotations

import msgspec

from vlmtui.domain.conversation import Turn, all_attachments
from vlmtui.domain.engine import EngineInfo
from vlmtui.domain.generation import GenerateRequest
from vlmtui.domain.prompt import ChatPrompt, Prompt, RawPrompt
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model
from vlmtui.registry.prompts import raw_prompt
from vlmtui.registry.schema import Family
from vlmtui.session.conversation import Conversation
from vlmtui.session.engines import EngineController
from vlmtui.session.exchange import Exchange, turns_as_sent
from vlmtui.session.generation import make_request
from vlmtui.session.prompt_report import PromptReport
from vlmtui.session.resume import is_of_engine, stored_sampling
from vlmtui.store.records import GenerationRecord
from vlmtui.text import is_number


def exchange_numbered(conversation: Conversation, number: str) -> Exchange:
    """Return exchange `number`, from 1 over the whole conversation; the newest if empty. Raises VlmtuiError."""
    everything = conversation.all_exchanges()
    if not everything:
        raise bad_input("There is no prompt to inspect yet.", hint="Send a message first.")
    wanted = len(everything) if not number else int(number) if is_number(number) else 0
    if not 1 <= wanted <= len(everything):
        raise bad_input(f"There is no message {number}.", hint=f"Messages: 1 to {len(everything)}.")
    return everything[wanted - 1]


async def report_of(conversation: Conversation, exchange: Exchange, now: EngineInfo | None) -> PromptReport:
    """Return everything known of it. `now` is the loaded engine: it supplies what was not recorded in an earlier
    session. Raises VlmtuiError if the store cannot be read."""
    record, turn = exchange.record, exchange.answer_id
    if record is None and turn is not None:
        record = (await conversation.recorder.store.run(lambda store: store.turn(turn))).generation
    info = exchange.info
    if info is None and now is not None and record is not None and is_of_engine(record, now):
        info = now
    return PromptReport.of_answer(
        f"exchange {conversation.number_of(exchange)}",
        exchange.answer,
        request=exchange.request,
        info=info,
        recipe=record,
        attachments=all_attachments(_turns(conversation, exchange, record)),
    )


def made_here(known: PromptReport, family: Family | None) -> PromptReport:
    """Return the report with a prompt made from the family's record, if the engine told none of its own."""
    asked = known.request.prompt if known.request is not None else None
    if known.text or family is None or not isinstance(asked, ChatPrompt):
        return known
    try:
        prompt = raw_prompt(family, asked.turns)
    except VlmtuiError:
        return known
    text = prompt.text if isinstance(prompt, RawPrompt) else ""
    return msgspec.structs.replace(known, made_here=text)


def request_again(
    conversation: Conversation, exchange: Exchange, known: PromptReport, family: Family
) -> GenerateRequest:
    """Return the request that would reproduce the exchange now. Raises VlmtuiError if the family does not accept it."""
    record, sampling = known.recipe, known.sampling
    if record is None or sampling is None:
        raise bad_input("How this answer was generated is unknown.")
    turns = _turns(conversation, exchange, record)
    adapter = "" if record.imported else record.adapter
    return make_request(family, turns, stored_sampling(sampling), mode=record.mode, adapter=adapter)


async def prompt_again(
    conversation: Conversation, exchange: Exchange, controller: EngineController
) -> tuple[PromptReport, Prompt]:
    """Return what is known of an exchange, and its prompt for the loaded model. Raises VlmtuiError."""
    model = controller.require_model()
    known = await report_of(conversation, exchange, controller.info)
    request = known.request or request_again(conversation, exchange, known, model.family)
    return known, request.prompt


def family_of(known: PromptReport, loaded: Model | None, registry: Registry) -> Family | None:
    """Return the record of the model that answered; None if it is neither loaded nor in the registry."""
    if loaded is not None and known.model in (loaded.spec.model, ""):
        return loaded.family
    name = known.recipe.family if known.recipe is not None else None
    return registry.get(name) if name else None


def _turns(conversation: Conversation, exchange: Exchange, record: GenerationRecord | None) -> list[Turn]:
    """Return the turns sent for the exchange's answer."""
    if record is None:
        return conversation.turns_until(exchange)
    return turns_as_sent(exchange, record.system_prompt, record.attachments)
