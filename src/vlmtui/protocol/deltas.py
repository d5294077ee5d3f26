"""Merges deltas of an answer."""

from __future__ import annotations

from collections.abc import Sequence

from vlmtui.domain.generation import Delta, Vocabulary


def join_deltas(deltas: Sequence[Delta]) -> Delta:
    """Merge deltas of one request (at least one)."""
    if len(deltas) == 1:
        return deltas[0]
    vocabulary: Vocabulary = {}
    for delta in deltas:
        vocabulary.update(delta.vocabulary)
    return Delta(
        request_id=deltas[0].request_id,
        text="".join(delta.text for delta in deltas),
        tokens=sum(delta.tokens for delta in deltas),
        token_ids=tuple(token for delta in deltas for token in delta.token_ids),
        vocabulary=vocabulary,
        logprobs=tuple(entry for delta in deltas for entry in delta.logprobs),
    )
