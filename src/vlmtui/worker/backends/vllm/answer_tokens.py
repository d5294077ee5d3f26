"""The tokens of an answer as they come: gathered between two deltas, and told. Needs no vLLM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vlmtui.domain.generation import Candidate, Delta, TokenLogprob
from vlmtui.worker.backends.vllm.vocabulary import Entries

_LOGPROB_MIN = -9999.0
"""Stands for minus infinity, which JSON has no number for."""


class AnswerTokens:
    """What has come since the last delta. `told` are the tokens that the prompt has told already."""

    def __init__(self, request_id: str, entries: Entries, told: Iterable[int], logprobs: int | None) -> None:
        self._request_id = request_id
        self._entries = entries
        self._told = set(told)
        self._wanted = logprobs
        self._text = ""
        self._ids: list[int] = []
        self._logprobs: list[TokenLogprob] = []
        self.last: int | None = None
        """The newest token of the answer."""

    def __bool__(self) -> bool:
        return bool(self._text or self._ids)

    def take(self, output: Any) -> None:
        """A CompletionOutput of vLLM's with what is new."""
        self._text += output.text
        self._ids += output.token_ids
        if self._ids:
            self.last = self._ids[-1]
        if self._wanted is not None and output.logprobs:
            for token, found in zip(output.token_ids, output.logprobs, strict=False):
                self._logprobs.append(token_logprob(token, found, self._wanted))

    def delta(self) -> Delta:
        """All of it; what comes after is for the next one."""
        named = [*self._ids, *(other.token_id for one in self._logprobs for other in one.top)]
        new = [token for token in dict.fromkeys(named) if token not in self._told]
        self._told.update(new)
        delta = Delta(
            request_id=self._request_id,
            text=self._text,
            tokens=len(self._ids),
            token_ids=tuple(self._ids),
            vocabulary=self._entries.of(new),
            logprobs=tuple(self._logprobs),
        )
        self._text, self._ids, self._logprobs = "", [], []
        return delta


def token_logprob(token: int, found: Mapping[int, Any], count: int) -> TokenLogprob:
    """vLLM gives the chosen token and the `count` likeliest together, as objects with a `logprob`, by token id."""
    values = {one: max(float(entry.logprob), _LOGPROB_MIN) for one, entry in found.items()}
    best = sorted(values, key=lambda one: (-values[one], one != token))[:count]
    return TokenLogprob(
        token_id=token,
        logprob=values[token],
        top=tuple(Candidate(token_id=one, logprob=values[one]) for one in best),
    )
