"""One request of a client: forwards and counts its events, and sends exactly one terminal message."""

from __future__ import annotations

import threading
import time
from typing import Protocol, assert_never

import msgspec

from vlmtui.domain.failure import Failure
from vlmtui.domain.generation import (
    Cancelled,
    Delta,
    EngineEvent,
    Failed,
    Finished,
    PromptReady,
    Timings,
    Usage,
    usage_of,
)
from vlmtui.errors import ErrorKind
from vlmtui.worker.event_record import EventRecord


class Owner(Protocol):
    """The client connection that a request's events are sent to."""

    def send(self, message: EngineEvent) -> None: ...


class TrackedRequest:
    """Counts tokens and time, sends each event to the owner, and records the events if `keep` is set.

    The engine's thread adds events while the server's does everything else."""

    def __init__(self, request_id: str, owner: Owner | None, *, keep: bool = False) -> None:
        self.request_id = request_id
        self.owner = owner
        """None after its client has disconnected."""
        self.cancelled = False
        self.record = EventRecord() if keep else None
        self._lock = threading.RLock()
        self._started = time.monotonic()
        self._ttft_s: float | None = None
        self._prompt: PromptReady | None = None
        self._tokens = 0
        self._has_ended = False

    @property
    def is_rendered(self) -> bool:
        """Whether its prompt is rendered and in the engine."""
        return self._prompt is not None

    @property
    def usage(self) -> Usage:
        """Tokens so far."""
        return usage_of(self._prompt, self._tokens)

    @property
    def timings(self) -> Timings:
        """Seconds so far."""
        return Timings(ttft_s=self._ttft_s, total_s=time.monotonic() - self._started)

    def add(self, event: EngineEvent) -> None:
        """Record an event and send it, unless the terminal message has been sent already."""
        with self._lock:
            if not self._has_ended:
                self.send(self._recorded(event))

    def hand_over(self, owner: Owner) -> None:
        """Send a recorded request to a new owner, from the beginning. The former owner gets Failed(NOT_KEPT)."""
        with self._lock:
            if self.owner not in (None, owner):
                message = "This answer was taken over by another vlmtui."
                failure = Failure(kind=ErrorKind.NOT_KEPT, message=message)
                self.send(Failed(request_id=self.request_id, failure=failure))
            self.owner = owner
            for event in self.events():
                self.send(event)

    def leave(self, owner: Owner) -> None:
        """Go on without this client, if it is the owner."""
        with self._lock:
            if self.owner is owner:
                self.owner = None

    def events(self) -> list[EngineEvent]:
        """Return the recorded events so far; none if it is not recorded."""
        with self._lock:
            return [] if self.record is None else self.record.events()

    def forget(self) -> None:
        """Stop recording."""
        with self._lock:
            self.record = None

    def conclude(self, failure: Failure | None = None) -> EngineEvent | None:
        """Take no more events. Return the terminal message, recorded but not sent, of a request that got none from the
        engine: Failed or Cancelled. None if one has already been sent."""
        with self._lock:
            return None if self._has_ended else self._recorded(self._terminal(failure))

    def end(self) -> None:
        """Send the terminal message unless one has been sent; the engine has released the request."""
        with self._lock:
            if event := self.conclude():
                self.send(event)

    def _terminal(self, failure: Failure | None) -> EngineEvent:
        if failure is None and self.cancelled:
            return Cancelled(request_id=self.request_id, usage=self.usage, timings=self.timings)
        unexplained = Failure(kind=ErrorKind.INTERNAL, message="The engine ended the request without a reason.")
        return Failed(request_id=self.request_id, failure=failure or unexplained)

    def _recorded(self, event: EngineEvent) -> EngineEvent:
        event = self._counted(event)
        if self.record is not None:
            self.record.add(event)
        return event

    def _counted(self, event: EngineEvent) -> EngineEvent:
        match event:
            case PromptReady():
                self._prompt = event
            case Delta(tokens=tokens):
                self._tokens += tokens
                if self._ttft_s is None:
                    self._ttft_s = time.monotonic() - self._started
            case Finished():
                self._has_ended = True
                told = event.timings
                ttft_s = self._ttft_s if told.ttft_s is None else told.ttft_s
                timings = msgspec.structs.replace(self.timings, ttft_s=ttft_s, queued_s=told.queued_s)
                return msgspec.structs.replace(event, usage=self._whole(event.usage), timings=timings)
            case Failed() | Cancelled():
                self._has_ended = True
            case _:
                assert_never(event)
        return event

    def _whole(self, told: Usage) -> Usage:
        """The counts that the engine tells; those that it leaves out as they were counted here."""
        own = self.usage
        is_told = bool(told.prompt_tokens or told.completion_tokens)
        if is_told and not (own.prompt_tokens and not told.prompt_tokens):
            return told
        return msgspec.structs.replace(own, cached_tokens=told.cached_tokens)

    def send(self, event: EngineEvent) -> None:
        """Send an event without counting or recording it."""
        if self.owner is not None:
            self.owner.send(event)
