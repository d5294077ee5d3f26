"""Sends requests again with the identifiers of their media alone, to see whether the engine's cache holds them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import msgspec

from vlmtui.domain.capabilities import require_capability
from vlmtui.domain.generation import Finished
from vlmtui.engine.interface import Engine
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.session.batch.runner import ItemResult
from vlmtui.session.generation import Answer, new_request_id, run_turn

_AT_ONCE = 8


async def check_media_cache(engine: Engine, results: Sequence[ItemResult]) -> tuple[list[str], list[str]]:
    """Send answered items again without the content of their media, each with the seed that was drawn for it. Return
    the ids of those whose media the cache did not hold, and of those whose prompt has another length or whose answer is
    another one.

    Raises VlmtuiError if the engine can't do that, or a request fails for another reason."""
    require_capability(engine.info, "media_by_id")
    turn = asyncio.Semaphore(_AT_ONCE)

    async def again(result: ItemResult) -> Answer:
        assert result.request is not None and result.answer is not None, "it was answered"
        sampling, used = result.request.sampling, result.answer.used
        request = msgspec.structs.replace(
            result.request,
            request_id=new_request_id(),
            from_cache=True,
            sampling=sampling if used is None else msgspec.structs.replace(sampling, seed=used.seed),
        )
        answer = Answer(request.request_id)
        async with turn, aclosing(run_turn(engine, request, answer)) as events:
            async for _ in events:
                pass
        return answer

    misses, different = [], []
    for result, now in zip(results, await asyncio.gather(*map(again, results)), strict=True):
        then, name = result.answer, result.item.id or ""
        assert then is not None, "it was answered"
        if now.failure is not None and now.failure.kind is ErrorKind.NOT_KEPT:
            misses.append(name)
        elif now.failure is not None:
            raise now.failure.error()
        elif not isinstance(now.outcome, Finished):
            raise VlmtuiError(ErrorKind.ENGINE_DIED, "The check of the cache was interrupted.")
        elif (now.text, now.usage.prompt_tokens) != (then.text, then.usage.prompt_tokens):
            different.append(name)
    return misses, different
