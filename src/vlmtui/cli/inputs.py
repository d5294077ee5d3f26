"""Reads a command's input, with a size limit: a file, a pipe, or standard input for `-`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import BinaryIO

from vlmtui.errors import bad_input
from vlmtui.text import human_bytes, one_line

TEXT_BYTES_MAX = 16_000_000
"""Most bytes of a question or a raw prompt; the limit for messages to the engine."""
DOCUMENT_BYTES_MAX = 1_000_000_000
"""Most bytes of an exported conversation or comparison, including its media."""
_CHUNK = 1 << 20


def read_input(name: str, *, bytes_max: int) -> bytes:
    """Return all bytes of the file or pipe `name`, or of standard input for `-`. Raises VlmtuiError (BAD_INPUT) if it
    cannot be read or is larger than `bytes_max`."""
    try:
        if name == "-":
            return _bounded(sys.stdin.buffer, "Standard input", bytes_max)
        with Path(name).open("rb") as file:
            return _bounded(file, one_line(name), bytes_max)
    except (OSError, ValueError) as error:
        raise bad_input(f"{one_line(name)} cannot be read.", detail=str(error)) from error


def _bounded(stream: BinaryIO, name: str, bytes_max: int) -> bytes:
    data = bytearray()
    while chunk := stream.read(_CHUNK):
        data += chunk
        if len(data) > bytes_max:
            raise bad_input(f"{name} is too large: the limit is {human_bytes(bytes_max)}.")
    return bytes(data)
