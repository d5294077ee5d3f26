"""Sends requests again with the identifiers of their media alone, and compares the answers: whether the engine's cache
holds what it was sent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import msgspec

from vlmtui.domain.capabilities import require_capability
from vlmtui.domain.generation import Finished, GenerateRequest
from vlmtui.engine.interface import Engine
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.session.batch.item import BatchItem
from vlmtui.session.batch.work import ItemResult
from vlmtui.session.generation import Answer, new_request_id, run_turn

_AT_ONCE = 8


class SentItem(msgspec.Struct, frozen=True):
    """A request that was answered, with the seed that was drawn for it."""

    id: str
    request: GenerateRequest
    text: str
    prompt_tokens: int


class CacheCheck(msgspec.Struct, frozen=True):
    """What became of the requests. misses, different: the ids of items."""

    sent: int
    misses: tuple[str, ...]
    """The cache did not hold their media."""
    different: tuple[str, ...]
    """Their prompt has another length, or the answer is another one."""

    @property
    def is_passed(self) -> bool:
        return self.sent > 0 and not self.misses and not self.different


def sent_item(result: ItemResult) -> SentItem | None:
    """Return an answered item with media as it was sent, or None if it is none."""
    work, answer = result.work, result.answer
    if work is None or not work.attachments or answer is None or not isinstance(answer.outcome, Finished):
        return None
    assert isinstance(result.item, BatchItem)
    sampling = work.request.sampling
    if answer.used is not None:
        sampling = msgspec.structs.replace(sampling, seed=answer.used.seed)
    request = msgspec.structs.replace(work.request, sampling=sampling)
    return SentItem(result.item.id, request, answer.text, answer.usage.prompt_tokens)


async def check_media_cache(engine: Engine, items: Sequence[SentItem]) -> CacheCheck:
    """Send the items again without the content of their media. Raises VlmtuiError if the engine cannot do that, or a
    request fails for another reason than a cache that does not hold them."""
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
    return CacheCheck(len(items), tuple(misses), tuple(different))
