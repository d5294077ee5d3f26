"""A request under way: its events on the way to the client, and the promise of exactly one terminal message."""

from __future__ import annotations

import time
from typing import Protocol, assert_never

import msgspec

from vlmtui.domain.engine import (
    Cancelled,
    Delta,
    EngineEvent,
    Failed,
    Failure,
    Finished,
    PromptReady,
    Timings,
    Usage,
)
from vlmtui.errors import ErrorKind
from vlmtui.worker.recording import Recording


class Owner(Protocol):
    """Whom a request belongs to: a client's connection."""

    def send(self, message: EngineEvent) -> None: ...


class RunningRequest:
    """Counts tokens and time as the events pass, and forwards each to the client; records them if it is to be kept."""

    def __init__(self, request_id: str, owner: Owner | None, *, keep: bool = False) -> None:
        self.request_id = request_id
        self.owner = owner
        """None once its client is lost."""
        self.cancelled = False
        self.recording = Recording() if keep else None
        self._started = time.monotonic()
        self._ttft_s: float | None = None
        self._prompt: PromptReady | None = None
        self._tokens = 0
        self._over = False

    @property
    def is_rendered(self) -> bool:
        """Whether its prompt has gone to the engine core."""
        return self._prompt is not None

    @property
    def usage(self) -> Usage:
        """Tokens so far."""
        spans = self._prompt.media if self._prompt else ()
        return Usage(
            prompt_tokens=len(self._prompt.token_ids) if self._prompt else 0,
            completion_tokens=self._tokens,
            image_tokens=sum(span.tokens for span in spans),
        )

    @property
    def timings(self) -> Timings:
        """Seconds so far."""
        return Timings(ttft_s=self._ttft_s, total_s=time.monotonic() - self._started)

    def take(self, event: EngineEvent) -> None:
        """Record and forward an event, unless the terminal message is out already."""
        if self._over:
            return
        event = self._counted(event)
        if self.recording is not None:
            self.recording.take(event)
        self._tell(event)

    def give_to(self, owner: Owner) -> None:
        """Hand a recorded request over, from its beginning; the client that had it is told that it is gone."""
        assert self.recording is not None
        if self.owner not in (None, owner):
            message = "This answer was taken over by another vlmtui."
            self._tell(Failed(request_id=self.request_id, failure=Failure(kind=ErrorKind.NOT_KEPT, message=message)))
        self.owner = owner
        for event in self.recording.events():
            self._tell(event)

    def last_word(self, failure: Failure | None = None) -> EngineEvent | None:
        """The terminal message where nothing more will come of it: a failure, or else that it was cancelled or ended
        without a word. None when it has its terminal message."""
        if self._over:
            return None
        if failure is None and self.cancelled:
            return Cancelled(request_id=self.request_id, usage=self.usage, timings=self.timings)
        unsaid = Failure(kind=ErrorKind.INTERNAL, message="The engine ended the request without a word.")
        return Failed(request_id=self.request_id, failure=failure or unsaid)

    def end(self) -> None:
        """Nothing more will come of it: give the client its terminal message if it has none."""
        if word := self.last_word():
            self.take(word)

    def _counted(self, event: EngineEvent) -> EngineEvent:
        match event:
            case PromptReady():
                self._prompt = event
            case Delta(tokens=tokens):
                self._tokens += tokens
                if self._ttft_s is None:
                    self._ttft_s = time.monotonic() - self._started
            case Finished():
                self._over = True
                return msgspec.structs.replace(event, usage=self.usage, timings=self.timings)
            case Failed() | Cancelled():
                self._over = True
            case _:
                assert_never(event)
        return event

    def _tell(self, event: EngineEvent) -> None:
        if self.owner is not None:
            self.owner.send(event)
