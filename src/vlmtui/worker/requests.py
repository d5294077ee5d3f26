"""The requests of a worker: those that run, and those that have ended but whose answer no client has fetched."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

import msgspec

from vlmtui.domain.generation import (
    Cancelled,
    Delta,
    EngineEvent,
    Failed,
    Failure,
    Finished,
    GenerateRequest,
    PromptReady,
    Request,
    Timings,
    Usage,
    Waiting,
    usage_of,
)
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.protocol.spool import join_deltas, remove_spooled, write_spooled
from vlmtui.worker.engine_thread import EngineThread

if TYPE_CHECKING:
    from vlmtui.worker.server import Connection

_MERGED_EVERY = 1024
"""The recorded events are merged whenever so many have been added."""
_TOKENS_MAX = 8192
"""The tokens after which a merged delta ends. With log-probabilities, a longer one could exceed a message's limit."""


def merged(events: Sequence[EngineEvent]) -> list[EngineEvent]:
    """Return a request's events with the deltas joined into one delta, or a few for a very long answer."""
    joined: list[Delta] = []
    together: list[Delta] = []
    tokens = 0
    for delta in events:
        if not isinstance(delta, Delta):
            continue
        together.append(delta)
        tokens += delta.tokens
        if tokens >= _TOKENS_MAX:
            joined.append(join_deltas(together))
            together, tokens = [], 0
    if together:
        joined.append(join_deltas(together))
    prompt = [event for event in events if isinstance(event, PromptReady)]
    end = [event for event in events if isinstance(event, Finished | Failed | Cancelled)]
    return [*prompt, *joined, *end]


class TrackedRequest:
    """A request: counts its tokens and time, sends its events to its client (`owner`), and records them if `keep` is
    set."""

    def __init__(self, request_id: str, owner: Connection | None, *, keep: bool = False) -> None:
        self.request_id = request_id
        self.owner = owner
        """The client that gets the events; None after it has disconnected."""
        self.cancelled = False
        self.record: list[EngineEvent] | None = [] if keep else None
        """The events so far, if `keep` is set."""
        self.changes = 0
        """The number of events that were recorded."""
        self._started = time.monotonic()
        self._ttft_s: float | None = None
        self._prompt: PromptReady | None = None
        self._tokens = 0
        self._has_ended = False

    @property
    def is_rendered(self) -> bool:
        """True after the prompt has been rendered: the engine now generates."""
        return self._prompt is not None

    @property
    def usage(self) -> Usage:
        return usage_of(self._prompt, self._tokens)

    @property
    def timings(self) -> Timings:
        return Timings(ttft_s=self._ttft_s, total_s=time.monotonic() - self._started)

    def add(self, event: EngineEvent) -> None:
        """Record an event and send it, unless the terminal event has already been sent."""
        if not self._has_ended:
            self.send(self._recorded(event))

    def hand_over(self, owner: Connection) -> None:
        """Make a client the owner and send it the recorded events. The former owner gets Failed(NOT_KEPT)."""
        if self.owner not in (None, owner):
            message = "This answer was taken over by another vlmtui."
            failure = Failure(kind=ErrorKind.NOT_KEPT, message=message)
            self.send(Failed(request_id=self.request_id, failure=failure))
        self.owner = owner
        for event in self.events():
            self.send(event)

    def events(self) -> list[EngineEvent]:
        """Return the recorded events so far, merged; empty without `keep`."""
        return merged(self.record or ())

    def conclude(self, failure: Failure | None = None) -> EngineEvent | None:
        """Record Failed or Cancelled as the terminal event and return it for sending, or None if the request already
        has a terminal event. Later events are ignored."""
        return None if self._has_ended else self._recorded(self._terminal(failure))

    def end(self) -> None:
        """Send a terminal event, if the engine has finished the request without sending one."""
        if event := self.conclude():
            self.send(event)

    def _terminal(self, failure: Failure | None) -> EngineEvent:
        if failure is None and self.cancelled:
            return Cancelled(request_id=self.request_id, usage=self.usage, timings=self.timings)
        unexplained = Failure(kind=ErrorKind.INTERNAL, message="The engine ended the request without a reason.")
        return Failed(request_id=self.request_id, failure=failure or unexplained)

    def _recorded(self, event: EngineEvent) -> EngineEvent:
        event = self._counted(event)
        if self.record is not None and not isinstance(event, Waiting):
            self.record.append(event)
            self.changes += 1
            if self.changes % _MERGED_EVERY == 0:
                self.record = merged(self.record)
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
            case Waiting():
                pass
            case _:
                assert_never(event)
        return event

    def _whole(self, told: Usage) -> Usage:
        """Return the engine's token counts (`told`); if they are missing, those counted here. A server counts no tokens
        of media."""
        own = self.usage
        is_told = bool(told.prompt_tokens or told.completion_tokens)
        if is_told and told.media_tokens:
            return told
        if is_told and not (own.prompt_tokens and not told.prompt_tokens):
            counts = {"prompt_tokens": told.prompt_tokens, "completion_tokens": told.completion_tokens}
            return msgspec.structs.replace(own, **counts, cached_tokens=told.cached_tokens)
        return msgspec.structs.replace(own, cached_tokens=told.cached_tokens)

    def send(self, event: EngineEvent) -> None:
        if self.owner is not None:
            self.owner.send(event)


_log = logging.getLogger(__name__)


class Requests:
    """The worker's requests. `on_end` is called after the end of each request.

    A request with `keep` set continues when its client disconnects, and its answer stays here until a client sends
    Forget. While it has no client it is also written to the spool (`vlmtui.protocol.spool`), so that it survives a
    killed worker.
    """

    def __init__(self, engine: EngineThread, runtime: Path, on_end: Callable[[], None], *, ended_answers: int) -> None:
        """`ended_answers`: the maximum number of finished answers to keep; the oldest is dropped first."""
        self.running: dict[str, TrackedRequest] = {}
        self.ended: dict[str, TrackedRequest] = {}
        """The ended requests with `keep` set for which no client has sent Forget."""
        self.idle_since = time.monotonic()
        """The end of the last request."""
        self.last_event_at = time.monotonic()
        """The time of the engine's last event."""
        self._engine = engine
        self._runtime = runtime
        self._on_end = on_end
        self._ended_answers = ended_answers
        self._spooled: dict[str, int] = {}
        """By request id, `TrackedRequest.changes` when it was last written to the spool."""
        self._writing = threading.Lock()
        self._is_over = False

    @property
    def unattended(self) -> tuple[str, ...]:
        return tuple(item.request_id for item in self._recorded() if item.owner is None)

    @property
    def is_generating(self) -> bool:
        return any(item.is_rendered for item in self.running.values())

    def begin(self, request: Request, owner: Connection) -> None:
        """Start a request, or send Failed if its id is already in use."""
        request_id = request.request_id
        if request_id in self.running or request_id in self.ended:
            refuse(request_id, owner, ErrorKind.PROTOCOL, "A request with this id is already running.")
            return
        item = TrackedRequest(request_id, owner, keep=isinstance(request, GenerateRequest) and request.keep)
        self.running[request_id] = item
        self._engine.generate(request, partial(self._add, item), partial(self._end, request_id))

    def cancel(self, request_id: str, owner: Connection | None) -> None:
        """Abort a request of `owner`. Does nothing for another client's request."""
        running = self.running.get(request_id)
        if running is not None and running.owner is owner:
            running.cancelled = True
            self._engine.cancel(request_id)

    def resume(self, request_id: str, owner: Connection) -> None:
        """Make a client the owner of a recorded request and send it all its events."""
        found = self.running.get(request_id) or self.ended.get(request_id)
        if found is None or found.record is None:
            refuse(request_id, owner, ErrorKind.NOT_KEPT, "The worker does not hold this answer.")
        else:
            found.hand_over(owner)

    def forget(self, request_id: str, owner: Connection) -> None:
        """Stop keeping an answer. Abort it if it still runs and has no client."""
        self.ended.pop(request_id, None)
        self._spooled.pop(request_id, None)
        running = self.running.get(request_id)
        if running is not None and running.owner in (None, owner):
            running.record = None
            if running.owner is None:
                self.cancel(request_id, None)

    def leave(self, owner: Connection) -> None:
        """Handle a client's disconnect: recorded requests continue without it, others are aborted."""
        for running in list(self.running.values()):
            if running.record is None:
                self.cancel(running.request_id, owner)
        for item in self._recorded():
            if item.owner is owner:
                item.owner = None

    def end_all(self, failure: Failure | None = None) -> None:
        """End all requests, because the worker stops: write the recorded ones to the spool, then send terminal events.

        In this order, because a client may delete the file after it has received the terminal event.
        """
        with self._writing:
            self._is_over = True
        for item in self.running.values():
            item.cancelled = True
        concluded = [(item, item.conclude(failure)) for item in self.running.values()]
        for item in self._recorded():
            self._write(item.events())
        for item, event in concluded:
            if event is not None:
                item.send(event)

    async def spool(self) -> None:
        """Write to the spool the recorded requests that have no client and have changed."""
        for item in self._recorded():
            if item.owner is not None or item.record is None:
                continue
            changes = item.changes
            if changes and self._spooled.get(item.request_id) != changes:
                self._spooled[item.request_id] = changes
                await asyncio.to_thread(self._write_unless_over, item.events())
                if item.request_id not in self._spooled:
                    await asyncio.to_thread(remove_spooled, self._runtime, item.request_id)

    def _write_unless_over(self, events: list[EngineEvent]) -> None:
        """Write events to the spool, unless `end_all` has written them. Runs in a thread, which cannot be cancelled."""
        with self._writing:
            if not self._is_over:
                self._write(events)

    def _add(self, item: TrackedRequest, event: EngineEvent) -> None:
        self.last_event_at = time.monotonic()
        item.add(event)

    def _end(self, request_id: str, last: EngineEvent | None) -> None:
        """Handle a request that the engine has finished with. The request's id may be reused before its client gets the
        terminal event."""
        item = self.running.pop(request_id)
        if item.record is not None:
            self.ended[request_id] = item
            while len(self.ended) > self._ended_answers:
                self._spooled.pop(next(iter(self.ended)), None)
                del self.ended[next(iter(self.ended))]
        if last is not None:
            item.add(last)
        item.end()
        self.last_event_at = self.idle_since = time.monotonic()
        self._on_end()

    def _write(self, events: list[EngineEvent]) -> None:
        if events:
            try:
                write_spooled(self._runtime, events)
            except (OSError, VlmtuiError) as error:
                _log.warning("cannot write the answer %s to the spool: %s", events[0].request_id, error)

    def _recorded(self) -> list[TrackedRequest]:
        return [*self.ended.values(), *(item for item in self.running.values() if item.record is not None)]


def refuse(request_id: str, owner: Connection, kind: ErrorKind, message: str) -> None:
    owner.send(Failed(request_id=request_id, failure=Failure(kind=kind, message=message)))
