"""The client's end of a worker's socket, line by line."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import cast

from vlmtui.errors import VlmtuiError
from vlmtui.protocol.codec import oversized
from vlmtui.protocol.messages import MAX_MESSAGE_BYTES

_REST_S = 0.05
"""Seconds: as the engine's thread, which sends 20 times a second what came until then."""

_MUCH = 16_384
"""Bytes read at once, from which on the other side is ahead: there is nothing to wait for."""

OnLine = Callable[[bytes], None]
"""Receives a line without its newline. May raise VlmtuiError, which ends the connection."""
OnEnd = Callable[[VlmtuiError | None], None]
"""Called once, when the connection has ended; with the cause if it is not the other side's leaving."""


class LineSocket(asyncio.Protocol):
    """Gives each line to a function as it arrives, in the loop's own callback: an answer comes in many short lines, and
    waking a task for each costs more than reading it. Lines that arrive before `listen` are kept for it."""

    def __init__(self) -> None:
        self._begun: list[bytes] = []
        """The pieces of the line that has not ended."""
        self._early: deque[bytes] = deque()
        self._on_line: OnLine = self._early.append
        self._on_end: OnEnd = lambda cause: None
        self._cause: VlmtuiError | None = None
        self._has_ended = False
        self._rests = False
        self._read_bytes = 0
        """How many were read last."""
        self._changed = asyncio.Event()
        """Set when a line or the end arrives before `listen`."""
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._closed = asyncio.Event()

    @classmethod
    async def open(cls, path: Path) -> LineSocket:
        """Connect. Raises OSError if nothing listens."""
        _, opened = await asyncio.get_running_loop().create_unix_connection(cls, str(path))
        return opened

    async def first_line(self) -> bytes | None:
        """Return the first line, before `listen`; None if the connection ends without one. Raises VlmtuiError."""
        while not self._early and not self._has_ended:
            self._changed.clear()
            await self._changed.wait()
        if self._cause is not None:
            raise self._cause
        return self._early.popleft() if self._early else None

    def listen(self, on_line: OnLine, on_end: OnEnd) -> None:
        """Have these functions called from now on, for what has arrived already at once."""
        early, self._on_line = self._early, on_line
        for line in early:
            self._give(line)
        self._on_end = on_end
        if self._has_ended:
            on_end(self._cause)

    async def write(self, line: bytes) -> None:
        """Write a line; wait while the other side is far behind."""
        self.transport.write(line)
        await self._can_write.wait()

    def post(self, line: bytes) -> None:
        """Write a line without waiting."""
        self.transport.write(line)

    def rest(self) -> None:
        """Read nothing for a moment, so that the short lines of a stream that goes on arrive together. While they come
        faster than they are read, it has no effect."""
        if self._read_bytes < _MUCH and not self._rests and not self._has_ended:
            self._rests = True
            self.transport.pause_reading()
            asyncio.get_running_loop().call_later(_REST_S, self._read_again)

    def _read_again(self) -> None:
        self._rests = False
        if not self._has_ended:
            self.transport.resume_reading()

    def close(self) -> None:
        """Close when what was written is sent."""
        self.transport.close()

    async def wait_closed(self) -> None:
        await self._closed.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are none: Ray installs it where it finds it

    def data_received(self, data: bytes) -> None:
        self._read_bytes = len(data)
        piece, *further = data.split(b"\n")
        self._begun.append(piece)
        for piece in further:
            line, self._begun = b"".join(self._begun), [piece]
            self._give(line)
        if sum(map(len, self._begun)) > MAX_MESSAGE_BYTES:
            self._end(oversized())

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(None)
        self._can_write.set()
        self._closed.set()

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()

    def _give(self, line: bytes) -> None:
        if self._cause is not None:
            return
        try:
            if len(line) > MAX_MESSAGE_BYTES:
                raise oversized()
            self._on_line(line)
        except VlmtuiError as error:
            self._end(error)
        self._changed.set()

    def _end(self, cause: VlmtuiError | None) -> None:
        self._cause = self._cause or cause
        if self._has_ended:
            return
        self._has_ended = True
        self._begun = []
        self.transport.close()
        self._changed.set()
        self._on_end(cause)
