"""One JSON object a line, over an asyncio stream."""

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
    """The message as one line, newline included. JSON escapes newlines, so a line is a message."""
    return _encoder.encode(message) + b"\n"


def decode_client_message(line: bytes) -> ClientMessage:
    """What a client sent. Raises VlmtuiError(PROTOCOL) for anything else."""
    try:
        return _client_decoder.decode(line)
    except _UNREADABLE as error:
        raise _malformed(error) from error


def decode_worker_message(line: bytes) -> WorkerMessage:
    """What a worker sent. Raises VlmtuiError(PROTOCOL) for anything else."""
    try:
        return _worker_decoder.decode(line)
    except _UNREADABLE as error:
        raise _malformed(error) from error


async def read_line(reader: asyncio.StreamReader) -> bytes | None:
    """The next line, or None at the end of the stream. The reader's limit must be MAX_MESSAGE_BYTES.

    Raises VlmtuiError(PROTOCOL) for a line beyond the limit; the connection cannot go on after that.
    """
    try:
        line = await reader.readuntil(b"\n")
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError as error:
        message = f"a message of more than {MAX_MESSAGE_BYTES // 2**20} MiB was refused"
        raise VlmtuiError(ErrorKind.PROTOCOL, message) from error
    except (ConnectionError, TimeoutError):
        return None
    return line


def _malformed(error: Exception) -> VlmtuiError:
    return VlmtuiError(
        ErrorKind.PROTOCOL,
        "A message could not be understood.",
        detail=str(error),
        hint="Are vlmtui and its worker of the same version? `vlmtui stop --all` ends old workers.",
    )
