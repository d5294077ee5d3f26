"""Turns the tokens of an answer into text as they come, and finds where it ends. Does not import torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from vlmtui.domain.generation import FinishReason
from vlmtui.worker.backends.transformers.sampling import Logprobs, SamplingPlan

_PRIMED = 6
"""Tokens of the prompt before the answer: SentencePiece drops a space at the beginning of a text."""
_UNFINISHED = "\ufffd"


class AnswerPiece(msgspec.Struct, frozen=True):
    """New tokens of an answer; the text may lag behind while it could be part of a stop string."""

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[Logprobs, ...]


class AnswerReader:
    """Reads one answer. `before`: the prompt's tokens, if the answer continues them (not for encoder-decoders)."""

    def __init__(self, plan: SamplingPlan, tokenizer: Any, before: Sequence[int] = ()) -> None:
        self._plan = plan
        self._tokenizer = tokenizer
        self._ids = list(before[-_PRIMED:])
        self._from, self._shown = 0, len(self._ids)
        self._held = ""
        self._count = 0
        self.reason: FinishReason | None = None
        self.stop: str | None = None
        """The stop string that ended it."""
        self.stop_token: int | None = None

    def take(self, token: int, logprobs: Logprobs | None) -> AnswerPiece:
        """Read the next token. Sets `reason` if it is the last one."""
        self._count += 1
        found = (logprobs,) if logprobs is not None else ()
        is_late = self._count > self._plan.further.min_tokens
        if token in self._plan.stop_ids and is_late:
            self.reason, self.stop_token = "stop", token
            more = self._decoded(token) if self._plan.further.include_stop_str_in_output else ""
            return AnswerPiece(self._release(more), (token,), found)
        self._held += self._decoded(token)
        if is_late and self._found_stop():
            self.reason = "stop"
            return AnswerPiece(self._release(""), (token,), found)
        if self._count >= (self._plan.used.max_tokens or 0):
            self.reason = "length"
            return AnswerPiece(self._release(self._rest()), (token,), found)
        hold = max((len(one) for one in self._plan.used.stop), default=1) - 1
        ready = self._held[: max(0, len(self._held) - hold)]
        self._held = self._held[len(ready) :]
        return AnswerPiece(ready, (token,), found)

    def _release(self, more: str) -> str:
        text, self._held = self._held + more, ""
        return text

    def _found_stop(self) -> bool:
        """Whether a stop string is in the text; cuts the text there."""
        places = [(at, one) for one in self._plan.used.stop if (at := self._held.find(one)) >= 0]
        if not places:
            return False
        at, self.stop = min(places)
        self._held = self._held[: at + len(self.stop) if self._plan.further.include_stop_str_in_output else at]
        return True

    def _decoded(self, token: int) -> str:
        """Return the text that the token completes: none while a character is unfinished."""
        self._ids.append(token)
        before, now = self._text(self._shown), self._text(len(self._ids))
        if len(now) <= len(before) or now.endswith(_UNFINISHED):
            return ""
        self._from, self._shown = self._shown, len(self._ids)
        return now[len(before) :]

    def _rest(self) -> str:
        return self._text(len(self._ids))[len(self._text(self._shown)) :]

    def _text(self, end: int) -> str:
        ids = self._ids[self._from : end]
        return str(self._tokenizer.decode(ids, skip_special_tokens=self._plan.used.skip_special_tokens))
