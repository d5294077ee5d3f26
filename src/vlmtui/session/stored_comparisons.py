"""Reads comparisons from the store, with their answers as if they had just ended."""

from __future__ import annotations

import msgspec

from vlmtui.domain.failure import Failure
from vlmtui.domain.generation import Cancelled, Failed, Finished, PromptReady, Token
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.inspection.replay import Comparison, Side, from_json
from vlmtui.session.async_store import AsyncStore
from vlmtui.session.generation import Answer
from vlmtui.store.records import TurnId


class LoadedComparison(msgspec.Struct, frozen=True):
    """A comparison from the store."""

    created_ms: int
    """Milliseconds since 1970, UTC."""
    document: Comparison


async def read_comparisons(store: AsyncStore, turn: TurnId) -> list[LoadedComparison]:
    """Return the comparisons of a user's turn, newest first; unreadable ones are left out. Raises VlmtuiError."""
    found: list[LoadedComparison] = []
    for one in reversed(await store.run(lambda store: store.comparisons(turn))):
        try:
            document = from_json(msgspec.json.encode(one.document))
        except VlmtuiError:
            continue
        found.append(LoadedComparison(one.created_ms, document))
    return found


def answer_of(side: Side) -> Answer:
    """Return the answer of a document's side, with its prompt if that has its tokens."""
    special = frozenset(side.special_token_ids)
    pairs = (
        *zip(side.prompt_token_ids, side.prompt_token_texts, strict=False),
        *zip(side.answer_token_ids, side.answer_token_texts, strict=False),
    )
    vocabulary = {id: Token(text=text, special=id in special, data=side.token_bytes.get(id)) for id, text in pairs}
    ready = PromptReady(
        request_id="",
        prompt=side.prompt,
        token_ids=side.prompt_token_ids,
        media=side.media,
        vocabulary=vocabulary,
        used=side.used,
    )
    answer = Answer(
        "", [side.answer], ready if side.prompt_token_ids else None, tokens=len(side.answer_token_ids), used=side.used
    )
    answer.vocabulary = vocabulary
    answer.token_ids = list(side.answer_token_ids)
    answer.outcome = _outcome(side)
    return answer


def _outcome(side: Side) -> Finished | Failed | Cancelled:
    if side.finish_reason is not None:
        return Finished(
            request_id="", finish_reason=side.finish_reason, usage=side.usage, timings=side.timings, stop=side.stop
        )
    if side.timings.total_s:
        return Cancelled(request_id="", usage=side.usage, timings=side.timings)
    return Failed(request_id="", failure=Failure(kind=ErrorKind.INTERNAL, message=side.failure))
