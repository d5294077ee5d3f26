"""Collects generated tokens until the next delta is sent. Does not import vLLM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vlmtui.domain.generation import Candidate, Delta, TokenLogprob
from vlmtui.worker.hf.vocabulary import VocabularyReader

_LOGPROB_MIN = -9999.0
"""Stands for minus infinity, which JSON cannot represent."""


class DeltaBuffer:
    """The output since the last delta. `known`: ids of tokens whose text the client already has from the prompt."""

    def __init__(
        self, request_id: str, vocabulary: VocabularyReader, known: Iterable[int], logprobs: int | None
    ) -> None:
        self._request_id = request_id
        self._vocabulary = vocabulary
        self._known = set(known)
        self._top_logprobs = logprobs
        self._text = ""
        self._ids: list[int] = []
        self._logprobs: list[TokenLogprob] = []
        self.last: int | None = None
        """The newest token of the answer."""

    def __bool__(self) -> bool:
        return bool(self._text or self._ids)

    def add(self, output: Any) -> None:
        """Add one of vLLM's CompletionOutputs (RequestOutputKind.DELTA)."""
        self._text += output.text
        self._ids += output.token_ids
        if self._ids:
            self.last = self._ids[-1]
        if self._top_logprobs is not None and output.logprobs:
            for token, found in zip(output.token_ids, output.logprobs, strict=False):
                self._logprobs.append(token_logprob(token, found, self._top_logprobs))

    def flush(self) -> Delta:
        """Return everything collected as one delta, and start a new one."""
        named = [*self._ids, *(other.token_id for one in self._logprobs for other in one.top)]
        new = [token for token in dict.fromkeys(named) if token not in self._known]
        self._known.update(new)
        delta = Delta(
            request_id=self._request_id,
            text=self._text,
            tokens=len(self._ids),
            token_ids=tuple(self._ids),
            vocabulary=self._vocabulary.entries(new),
            logprobs=tuple(self._logprobs),
        )
        self._text, self._ids, self._logprobs = "", [], []
        return delta


def token_logprob(token: int, found: Mapping[int, Any], count: int) -> TokenLogprob:
    """Convert vLLM's log-probabilities of one position (chosen token and top `count`, by token id, as objects with a
    `logprob`)."""
    values = {one: max(float(entry.logprob), _LOGPROB_MIN) for one, entry in found.items()}
    best = sorted(values, key=lambda one: (-values[one], one != token))[:count]
    return TokenLogprob(
        token_id=token,
        logprob=values[token],
        top=tuple(Candidate(token_id=one, logprob=values[one]) for one in best),
    )
