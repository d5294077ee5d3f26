"""All requests of a worker: those under way, and kept answers that wait for their client."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from vlmtui.domain.engine import EngineEvent, Failed, Failure, GenerateRequest
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.protocol.kept import forget_kept, prune_kept, write_kept
from vlmtui.worker.hosting import EngineThread
from vlmtui.worker.requests import Owner, RunningRequest

_log = logging.getLogger(__name__)

KEPT_MAX = 32
"""Ended answers that are held; the oldest is let go first."""


class RequestTable:
    """Belongs to the server's event loop. `on_end` is called after each request's end.

    A request to keep goes on when its client is lost, and stays here after its end until it is let go. While it has no
    client it is written to the runtime folder as well (`spool`), so that even a killed worker leaves it behind.
    """

    def __init__(self, engine: EngineThread, runtime: Path, on_end: Callable[[], None]) -> None:
        self.running: dict[str, RunningRequest] = {}
        self.kept: dict[str, RunningRequest] = {}
        """Ended ones."""
        self.idle_since = time.monotonic()
        """When the last request ended."""
        self.heard_at = time.monotonic()
        """When the engine last said something."""
        self._engine = engine
        self._runtime = runtime
        self._on_end = on_end
        self._spooled: dict[str, int] = {}
        """How many changes of a recording are on disk, by request id."""
        self._writing = threading.Lock()
        self._is_over = False

    @property
    def without_client(self) -> tuple[str, ...]:
        """The kept requests, running or ended, that nobody listens to."""
        return tuple(item.request_id for item in self._recorded() if item.owner is None)

    @property
    def is_generating(self) -> bool:
        """Whether the engine core has something to do: a request's prompt is made, and its end has not come."""
        return any(item.is_rendered for item in self.running.values())

    def begin(self, request: GenerateRequest, owner: Owner) -> None:
        """Start a request, and refuse one whose id is taken."""
        request_id = request.request_id
        if request_id in self.running or request_id in self.kept:
            refuse(request_id, owner, ErrorKind.PROTOCOL, "A request of this id is under way already.")
            return
        self.running[request_id] = RunningRequest(request_id, owner, keep=request.keep and not request.only_render)
        self._engine.generate(request, partial(self._take, request_id), partial(self._ended, request_id))

    def cancel(self, request_id: str, owner: Owner | None) -> None:
        """Abort a request, if it belongs to the `owner`."""
        running = self.running.get(request_id)
        if running is not None and running.owner is owner:
            running.cancelled = True
            self._engine.cancel(request_id)

    def resume(self, request_id: str, owner: Owner) -> None:
        """Give a kept request to a client, from its beginning."""
        found = self.running.get(request_id) or self.kept.get(request_id)
        if found is None or found.recording is None:
            refuse(request_id, owner, ErrorKind.NOT_KEPT, "The worker does not hold this answer.")
        else:
            found.give_to(owner)

    def forget(self, request_id: str, owner: Owner) -> None:
        """Let a kept answer go. One that still runs is then like any other: without a client it is aborted."""
        self.kept.pop(request_id, None)
        self._spooled.pop(request_id, None)
        running = self.running.get(request_id)
        if running is not None and running.owner in (None, owner):
            running.recording = None
            if running.owner is None:
                self.cancel(request_id, None)

    def leave(self, owner: Owner) -> None:
        """A client is lost: its requests to keep go on without it, the others are aborted."""
        for running in list(self.running.values()):
            if running.recording is None:
                self.cancel(running.request_id, owner)
        for item in self._recorded():
            if item.owner is owner:
                item.owner = None

    def end(self, failure: Failure | None = None) -> None:
        """The worker ends: every request gets its terminal message, and what is kept stays behind as files.

        The files come first: a client that has the last word may let the answer go, and delete its file.
        """
        with self._writing:
            self._is_over = True
        words: dict[str, EngineEvent] = {}
        for item in self.running.values():
            item.cancelled = True
            if word := item.last_word(failure):
                words[item.request_id] = word
        for item in self._recorded():
            if item.recording is not None:
                last = [words[item.request_id]] if item.request_id in words else []
                self._write([*item.recording.events(), *last])
        for item in self.running.values():
            if item.request_id in words:
                item.take(words[item.request_id])

    async def spool(self) -> None:
        """Write down what is new of every kept request without a client."""
        for item in self._recorded():
            if item.owner is not None or item.recording is None:
                continue
            changes = item.recording.changes
            if changes and self._spooled.get(item.request_id) != changes:
                self._spooled[item.request_id] = changes
                await asyncio.to_thread(self._write_meanwhile, item.recording.events())
                if item.request_id not in self._spooled:
                    await asyncio.to_thread(forget_kept, self._runtime, item.request_id)

    def _write_meanwhile(self, events: list[EngineEvent]) -> None:
        """In a thread, which nobody can stop: not over what `end` has written."""
        with self._writing:
            if not self._is_over:
                self._write(events)

    async def prune(self) -> None:
        """Delete files of old that nobody has come for."""
        await asyncio.to_thread(prune_kept, self._runtime)

    def _take(self, request_id: str, event: EngineEvent) -> None:
        self.heard_at = time.monotonic()
        self.running[request_id].take(event)

    def _ended(self, request_id: str, last: EngineEvent | None) -> None:
        """Nothing of the request is left in the engine. Its id is free before its client hears the last of it."""
        ended = self.running.pop(request_id)
        if ended.recording is not None:
            self.kept[request_id] = ended
            while len(self.kept) > KEPT_MAX:
                self._spooled.pop(next(iter(self.kept)), None)
                del self.kept[next(iter(self.kept))]
        if last is not None:
            ended.take(last)
        ended.end()
        self.heard_at = self.idle_since = time.monotonic()
        self._on_end()

    def _write(self, events: list[EngineEvent]) -> None:
        if events:
            try:
                write_kept(self._runtime, events)
            except (OSError, VlmtuiError) as error:
                _log.warning("the answer %s cannot be written down: %s", events[0].request_id, error)

    def _recorded(self) -> list[RunningRequest]:
        return [*self.kept.values(), *(item for item in self.running.values() if item.recording is not None)]


def refuse(request_id: str, owner: Owner, kind: ErrorKind, message: str) -> None:
    """Tell a client that its request will not be run."""
    owner.send(Failed(request_id=request_id, failure=Failure(kind=kind, message=message)))
