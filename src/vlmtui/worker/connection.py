"""A client's connection to the worker."""

from __future__ import annotations

import asyncio
import logging
import os
import socket

from vlmtui.protocol.codec import decode_client_message, encode, read_line
from vlmtui.protocol.messages import ClientMessage, Hello, WorkerMessage

_log = logging.getLogger(__name__)

_BACKLOG_MAX = 32 * 1024 * 1024
"""Bytes buffered for a client that does not read; beyond that it is disconnected."""
_OBSERVERS = frozenset({"ps", "stop"})
"""Clients that do not keep the engine in use."""


class Connection:
    """Sending never blocks: messages that the client does not read at once are buffered, up to a limit."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.hello: Hello | None = None
        self.follows_log = False
        self.follows_metrics = False

    @property
    def is_user(self) -> bool:
        """Whether this client keeps the engine in use. `ps` and `stop` do not."""
        return self.hello is not None and self.hello.client not in _OBSERVERS

    async def receive(self) -> ClientMessage | None:
        """Return the next message, or None when the client has disconnected. Raises VlmtuiError(PROTOCOL)."""
        line = await read_line(self._reader)
        return None if line is None else decode_client_message(line)

    def send(self, message: WorkerMessage) -> None:
        """Queue a message. Does nothing when the client has disconnected."""
        if self._writer.is_closing():
            return
        self._writer.write(encode(message))
        if self._writer.transport.get_write_buffer_size() > _BACKLOG_MAX:
            _log.warning("a client does not read its messages and is disconnected")
            self._writer.transport.abort()

    async def flush(self, timeout_s: float) -> None:
        """Wait until all queued messages are sent, at most `timeout_s` seconds."""
        try:
            async with asyncio.timeout(timeout_s):
                self._writer.transport.set_write_buffer_limits(high=0)
                await self._writer.drain()
        except (OSError, TimeoutError):
            return

    def close(self) -> None:
        self._writer.close()


def listen(path: str) -> socket.socket:
    """Return a listening Unix socket at `path`, mode 0600. Its folder must already be private."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(path)
    finally:
        os.umask(before)
    listener.listen(16)
    listener.setblocking(False)
    return listener
