"""A request under way: its events on the way to the client, and the promise of exactly one terminal message."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import assert_never

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


class RunningRequest:
    """Counts tokens and time as the events pass, and forwards each to the client."""

    def __init__(self, request_id: str, owner: object, send: Callable[[EngineEvent], None]) -> None:
        self.request_id = request_id
        self.owner = owner
        """The connection that it belongs to."""
        self.cancelled = False
        self._send = send
        self._started = time.monotonic()
        self._ttft_s: float | None = None
        self._prompt: PromptReady | None = None
        self._tokens = 0
        self._over = False

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
        """Forward an event, unless the terminal message is out already."""
        if self._over:
            return
        match event:
            case PromptReady():
                self._prompt = event
            case Delta(tokens=tokens):
                self._tokens += tokens
                if self._ttft_s is None:
                    self._ttft_s = time.monotonic() - self._started
            case Finished():
                self._over = True
                event = msgspec.structs.replace(event, usage=self.usage, timings=self.timings)
            case Failed() | Cancelled():
                self._over = True
            case _:
                assert_never(event)
        self._send(event)

    def end(self) -> None:
        """Nothing more will come of it: give the client its terminal message if it has none."""
        if self.cancelled:
            self.take(Cancelled(request_id=self.request_id, usage=self.usage, timings=self.timings))
        else:
            self.fail(Failure(kind=ErrorKind.INTERNAL, message="The engine ended the request without a word."))

    def fail(self, failure: Failure) -> None:
        self.take(Failed(request_id=self.request_id, failure=failure))
