"""Sends requests again with the identifiers of their media alone, to see whether the engine's cache holds them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import msgspec

from vlmtui.domain.capabilities import require_capability
from vlmtui.domain.generation import Finished, GenerateRequest
from vlmtui.engine.interface import Engine
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.session.batch.runner import ItemResult
from vlmtui.session.generation import Answer, new_request_id, run_turn

_AT_ONCE = 8


class SentItem(msgspec.Struct, frozen=True):
    """A request that was answered, with the seed that was drawn for it."""

    id: str
    request: GenerateRequest
    text: str
    prompt_tokens: int


def sent_item(result: ItemResult) -> SentItem | None:
    """Return an answered item with media as it was sent, or None if it is none."""
    request, answer, item_id = result.request, result.answer, result.item.id
    if request is None or not result.attachments or answer is None or not isinstance(answer.outcome, Finished):
        return None
    assert item_id is not None, "what was sent has an id"
    if answer.used is not None:
        sampling = msgspec.structs.replace(request.sampling, seed=answer.used.seed)
        request = msgspec.structs.replace(request, sampling=sampling)
    return SentItem(item_id, request, answer.text, answer.usage.prompt_tokens)


async def check_media_cache(engine: Engine, items: Sequence[SentItem]) -> tuple[list[str], list[str]]:
    """Send the items again without the content of their media. Return the ids of those whose media the cache did not
    hold, and of those whose prompt has another length or whose answer is another one.

    Raises VlmtuiError if the engine can't do that, or a request fails for another reason."""
    require_capability(engine.info, "media_by_id")
    turn = asyncio.Semaphore(_AT_ONCE)

    async def again(item: SentItem) -> Answer:
        request = msgspec.structs.replace(item.request, request_id=new_request_id(), from_cache=True)
        answer = Answer(request.request_id)
        async with turn, aclosing(run_turn(engine, request, answer)) as events:
            async for _ in events:
                pass
        return answer

    answers = await asyncio.gather(*map(again, items))
    misses, different = [], []
    for item, answer in zip(items, answers, strict=True):
        if answer.failure is not None and answer.failure.kind is ErrorKind.NOT_KEPT:
            misses.append(item.id)
        elif answer.failure is not None:
            raise answer.failure.error()
        elif not isinstance(answer.outcome, Finished):
            raise VlmtuiError(ErrorKind.ENGINE_DIED, "The check of the cache was interrupted.")
        elif (answer.text, answer.usage.prompt_tokens) != (item.text, item.prompt_tokens):
            different.append(item.id)
    return misses, different
