"""What the reasoning of a running answer takes: tokens and seconds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from vlmtui.domain.generation import Vocabulary
from vlmtui.domain.thinking import COMMON_TAGS, ThinkingTags, Thought


@dataclass(slots=True)
class ThoughtMeter:
    """Measures until the closing tag has come."""

    tags: ThinkingTags = COMMON_TAGS
    is_timed: bool = True
    """False where text comes that was generated before."""
    ended: Thought | None = None
    """Set once the closing tag has come."""
    _began_s: float | None = None
    _tail: str = ""
    """The end of the text so far, which may be the beginning of the closing tag."""

    @property
    def seconds(self) -> float | None:
        """Seconds since the first token; None before it, and where text comes that was generated before."""
        return None if self._began_s is None or not self.is_timed else time.monotonic() - self._began_s

    def take(self, text: str, token_ids: Sequence[int], vocabulary: Vocabulary) -> None:
        """Note new text. `token_ids` are all of the answer so far."""
        if self.ended is not None:
            return
        if self._began_s is None:
            self._began_s = time.monotonic()
        close, found = self.tags.close, self._tail + text
        if close not in found:
            self._tail = found[-len(close) :]
            return
        tokens = tokens_through(close, token_ids, vocabulary)
        self.ended = Thought(tags=self.tags, tokens=tokens, seconds=self.seconds)


def tokens_through(text: str, token_ids: Sequence[int], vocabulary: Vocabulary) -> int | None:
    """Return how many tokens end with the first `text`; None if they do not spell it."""
    wanted, spelled = text.encode(), bytearray()
    ends: list[int] = []
    for token in token_ids:
        known = vocabulary.get(token)
        if known is None:
            return None
        spelled += known.data if known.data is not None else known.text.encode(errors="replace")
        ends.append(len(spelled))
    at = spelled.find(wanted)
    return None if at < 0 else sum(end < at + len(wanted) for end in ends) + 1
