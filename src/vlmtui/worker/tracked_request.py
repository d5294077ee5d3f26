"""One request of a client: its events on the way there, counted, and exactly one terminal message."""

from __future__ import annotations

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
    """Whom a request belongs to: a client's connection."""

    def send(self, message: EngineEvent) -> None: ...


class TrackedRequest:
    """Counts tokens and time as the events pass, and sends each to the owner; records them if it is to be kept."""

    def __init__(self, request_id: str, owner: Owner | None, *, keep: bool = False) -> None:
        self.request_id = request_id
        self.owner = owner
        """None once its client is lost."""
        self.cancelled = False
        self.record = EventRecord() if keep else None
        self._started = time.monotonic()
        self._ttft_s: float | None = None
        self._prompt: PromptReady | None = None
        self._tokens = 0
        self._has_ended = False

    @property
    def is_rendered(self) -> bool:
        """Whether its prompt has gone to the engine."""
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
        if self._has_ended:
            return
        event = self._counted(event)
        if self.record is not None:
            self.record.add(event)
        self._send(event)

    def hand_over(self, owner: Owner) -> None:
        """Send a recorded request to a new owner, from its beginning; the former one is told that it is gone."""
        assert self.record is not None
        if self.owner not in (None, owner):
            message = "This answer was taken over by another vlmtui."
            self._send(Failed(request_id=self.request_id, failure=Failure(kind=ErrorKind.NOT_KEPT, message=message)))
        self.owner = owner
        for event in self.record.events():
            self._send(event)

    def terminal(self, failure: Failure | None = None) -> EngineEvent | None:
        """The terminal message where the engine will give none: a failure, or that it was cancelled or just ended.
        None when it has been sent already."""
        if self._has_ended:
            return None
        if failure is None and self.cancelled:
            return Cancelled(request_id=self.request_id, usage=self.usage, timings=self.timings)
        unexplained = Failure(kind=ErrorKind.INTERNAL, message="The engine ended the request without a reason.")
        return Failed(request_id=self.request_id, failure=failure or unexplained)

    def end(self) -> None:
        """Send the terminal message, if that has not been done: the engine is through with the request."""
        if event := self.terminal():
            self.add(event)

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
                usage = self.usage if event.usage == Usage() else event.usage
                return msgspec.structs.replace(event, usage=usage, timings=self.timings)
            case Failed() | Cancelled():
                self._has_ended = True
            case _:
                assert_never(event)
        return event

    def _send(self, event: EngineEvent) -> None:
        if self.owner is not None:
            self.owner.send(event)
