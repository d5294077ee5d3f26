"""Records a request's events so that a client that connects later gets all of them."""

from __future__ import annotations

from vlmtui.domain.generation import Cancelled, Delta, EngineEvent, Failed, Finished, PromptReady
from vlmtui.protocol.deltas import join_deltas

_JOINED_AT = 1024
"""Number of deltas collected before they are merged into one."""
_TOKENS_MAX = 8192
"""Most tokens in a merged delta. With log-probabilities, a longer one could exceed the message size limit."""


class EventRecord:
    """Holds the prompt, the answer so far (merged into few deltas), and the terminal event."""

    def __init__(self) -> None:
        self.outcome: Finished | Failed | Cancelled | None = None
        self.changes = 0
        """Number of events added."""
        self._prompt: PromptReady | None = None
        self._closed: list[Delta] = []
        self._open: list[Delta] = []

    def add(self, event: EngineEvent) -> None:
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
        """Return the prompt, the answer so far as one delta (several if very long), and the terminal event."""
        prompt = [self._prompt] if self._prompt else []
        rest = [join_deltas(self._open)] if self._open else []
        end = [self.outcome] if self.outcome else []
        return [*prompt, *self._closed, *rest, *end]

    def _join(self) -> None:
        joined = join_deltas(self._open)
        if joined.tokens >= _TOKENS_MAX:
            self._closed.append(joined)
            self._open = []
        else:
            self._open = [joined]
