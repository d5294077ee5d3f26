"""Encodes messages as JSON, one object per line, for asyncio streams."""

from __future__ import annotations

import asyncio

import msgspec

from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.protocol.messages import MAX_MESSAGE_BYTES, ClientMessage, WorkerMessage

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_encoder = msgspec.json.Encoder()
_client_decoder: msgspec.json.Decoder[ClientMessage] = msgspec.json.Decoder(ClientMessage)
_worker_decoder: msgspec.json.Decoder[WorkerMessage] = msgspec.json.Decoder(WorkerMessage)


def encode(message: ClientMessage | WorkerMessage) -> bytes:
    """Return the message as one line including the newline. JSON escapes newlines, so each line is one message."""
    return _encoder.encode(message) + b"\n"


def decode_client_message(line: bytes) -> ClientMessage:
    """Decode a client's message. Raises VlmtuiError(PROTOCOL) for anything else."""
    try:
        return _client_decoder.decode(line)
    except _UNREADABLE as error:
        raise _malformed(error) from error


def decode_worker_message(line: bytes) -> WorkerMessage:
    """Decode a worker's message. Raises VlmtuiError(PROTOCOL) for anything else."""
    try:
        return _worker_decoder.decode(line)
    except _UNREADABLE as error:
        raise _malformed(error) from error


async def read_line(reader: asyncio.StreamReader) -> bytes | None:
    """Return the next line, or None at the end of the stream. The reader's limit must be MAX_MESSAGE_BYTES.

    Raises VlmtuiError(PROTOCOL) for a longer line; the connection is unusable after that.
    """
    try:
        line = await reader.readuntil(b"\n")
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError as error:
        raise oversized() from error
    except (ConnectionError, TimeoutError):
        return None
    return line


def oversized() -> VlmtuiError:
    """Return the error for a line longer than MAX_MESSAGE_BYTES."""
    message = f"A message exceeds the limit of {MAX_MESSAGE_BYTES // 2**20} MiB."
    return VlmtuiError(ErrorKind.PROTOCOL, message)


def _malformed(error: Exception) -> VlmtuiError:
    return VlmtuiError(
        ErrorKind.PROTOCOL,
        "Can't read a message between vlmtui and its worker.",
        detail=str(error),
        hint="Their versions may differ. `vlmtui stop --all` ends old workers.",
    )
