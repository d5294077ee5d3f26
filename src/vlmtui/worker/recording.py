"""What has come of a request to keep, so that a client that comes later gets all of it."""

from __future__ import annotations

from vlmtui.domain.engine import Cancelled, Delta, EngineEvent, Failed, Finished, PromptReady
from vlmtui.protocol.deltas import join_deltas

_JOINED_AT = 1024
"""Deltas that are held apart before they are joined."""
_TOKENS_AT_ONCE = 8192
"""A longer answer is told in several deltas: with log-probabilities one could outgrow what a message may hold."""


class Recording:
    """A request's events, the deltas joined."""

    def __init__(self) -> None:
        self.outcome: Finished | Failed | Cancelled | None = None
        self.changes = 0
        """How often something was added."""
        self._prompt: PromptReady | None = None
        self._closed: list[Delta] = []
        self._open: list[Delta] = []

    def take(self, event: EngineEvent) -> None:
        self.changes += 1
        match event:
            case PromptReady():
                self._prompt = event
            case Delta():
                self._open.append(event)
                if len(self._open) >= _JOINED_AT:
                    self._join()
            case Finished() | Failed() | Cancelled():
                self.outcome = event

    def events(self) -> list[EngineEvent]:
        """All that has come: the prompt, the answer so far as one delta (a very long one: several), the end."""
        prompt = [self._prompt] if self._prompt else []
        rest = [join_deltas(self._open)] if self._open else []
        end = [self.outcome] if self.outcome else []
        return [*prompt, *self._closed, *rest, *end]

    def _join(self) -> None:
        joined = join_deltas(self._open)
        if joined.tokens >= _TOKENS_AT_ONCE:
            self._closed.append(joined)
            self._open = []
        else:
            self._open = [joined]
