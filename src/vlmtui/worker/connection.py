"""A client's connection to the worker."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from contextlib import suppress

from vlmtui.protocol.codec import decode_client_message, encode, read_line
from vlmtui.protocol.messages import ClientMessage, Hello, WorkerMessage

_log = logging.getLogger(__name__)

_BACKLOG_MAX = 32 * 1024 * 1024
"""Bytes buffered for a client that does not read; beyond that it is disconnected."""
_OBSERVERS = frozenset({"ps", "stop"})
"""Clients that do not keep the engine in use."""


class Connection:
    """Sends from any thread, receives in the server's event loop.

    A message goes to the socket in the thread that sends it: to wake the loop for each token would cost more than all
    else that is done to the token. What the client does not take at once is buffered, up to a limit; the loop sends it.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._socket = _own_handle(writer)
        self._sending = threading.Lock()
        self._unsent = bytearray()
        self._is_closed = False
        self._flushed = asyncio.Event()
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
        """Send a message, never waiting. Does nothing when the client has disconnected."""
        line = encode(message)
        with self._sending:
            if self._is_closed:
                return
            if self._unsent:
                self._unsent += line
            elif (taken := self._write(line)) < len(line):
                self._unsent += line[taken:]
                self._loop.call_soon_threadsafe(self._follow_up)
            if len(self._unsent) > _BACKLOG_MAX:
                _log.warning("a client does not read its messages and is disconnected")
                self._loop.call_soon_threadsafe(self._abort)
                self._is_closed = True

    async def flush(self, timeout_s: float) -> None:
        """Wait until all messages are sent, at most `timeout_s` seconds."""
        self._flushed.clear()
        with self._sending:
            is_flushed = self._is_closed or not self._unsent
        if not is_flushed:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._flushed.wait()

    def close(self) -> None:
        """Close the connection; what is not sent by now is dropped. Call it in the loop."""
        with self._sending:
            self._is_closed = True
            if self._socket.fileno() >= 0:
                self._loop.remove_writer(self._socket)
                self._socket.close()
        self._flushed.set()
        self._writer.close()

    def _write(self, data: bytes | bytearray) -> int:
        """Write what the kernel takes; return how many bytes that is."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError:  # the client is gone, as `receive` will tell
            return len(data)

    def _follow_up(self) -> None:
        """Send the rest when the client takes it."""
        with self._sending:
            if not self._is_closed:
                self._loop.add_writer(self._socket, self._send_rest)

    def _send_rest(self) -> None:
        with self._sending:
            if not self._is_closed:
                del self._unsent[: self._write(self._unsent)]
                if not self._unsent:
                    self._loop.remove_writer(self._socket)
                    self._flushed.set()

    def _abort(self) -> None:
        self._writer.transport.abort()
        self.close()


def _own_handle(writer: asyncio.StreamWriter) -> socket.socket:
    """Return a handle of a connection's socket that stays valid while another thread uses it.

    The transport closes its own whenever the client goes, and the kernel gives its number to the next file."""
    found = socket.fromfd(writer.get_extra_info("socket").fileno(), socket.AF_UNIX, socket.SOCK_STREAM)
    found.setblocking(False)
    return found


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
