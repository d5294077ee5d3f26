"""Handles standard streams that are closed, full or without a reader. Reads a command's input, up to a size limit."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import BinaryIO, TextIO

from vlmtui.errors import ErrorKind, VlmtuiError, bad_input, require_text
from vlmtui.text import human_bytes, one_line

_WRITE_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF, errno.EFBIG})
_STREAMS = ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w"))
TEXT_BYTES_MAX = 16_000_000
"""Most bytes of a question or a raw prompt; also the limit of a message to the engine."""
_CHUNK = 1 << 20


def open_missing() -> None:
    """Open closed standard streams on /dev/null. Otherwise the next opened file, perhaps a database, would get the file
    descriptor of a standard stream, and printed text would be written into that file."""
    for number, name, mode in _STREAMS:
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # opens as the lowest free number: this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def is_output_lost() -> bool:
    """Return whether printed text can't be written to stdout. Unwritten text of stdout and stderr is dropped."""
    if not _flushed(sys.stderr):
        drop(2)
    is_lost = not _flushed(sys.stdout)
    if is_lost:
        drop(1)
    return is_lost


def _flushed(stream: TextIO) -> bool:
    try:
        stream.flush()
    except OSError:
        return False
    return True


def is_of_output(error: OSError) -> bool:
    """Return whether an error comes from writing to stdout. An error with a file name comes from another file."""
    return is_output_lost() or (error.filename is None and error.errno in _WRITE_ERRORS)


def drop(number: int) -> None:
    """Send all further output of a standard stream (its number) to /dev/null."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, number)
    os.close(null)


def is_utf8() -> bool:
    """Return whether stdout can encode every character."""
    return (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "").replace("_", "") == "utf8"


def read_input(name: str, *, bytes_max: int) -> bytes:
    """Return all bytes of the file or pipe `name`; `-` is stdin. Raises VlmtuiError, also for more than `bytes_max`."""
    try:
        if name == "-":
            return _bounded(sys.stdin.buffer, "Standard input", bytes_max)
        with Path(name).open("rb") as file:
            return _bounded(file, one_line(name), bytes_max)
    except (OSError, ValueError) as error:
        raise bad_input(f"{one_line(name)} cannot be read.", detail=str(error)) from error


def read_question(given: str) -> str:
    """Return the question; `-` reads it from stdin. Raises VlmtuiError if it is empty or not valid text."""
    if given == "-":
        given = _read_text("-", "The question on stdin").rstrip("\n")
    require_text(given, "The question is not valid text in this terminal's encoding.")
    if not given.strip():
        raise VlmtuiError(ErrorKind.BAD_USAGE, "The question is empty.")
    return given


def read_raw_prompt(given: str) -> str:
    """Return the text unchanged; `@FILE` reads it from a file, `@-` from stdin. Raises VlmtuiError."""
    text = _read_text(given[1:], f"The raw prompt in {given[1:]}") if given.startswith("@") else given
    if not text.strip():
        raise VlmtuiError(ErrorKind.BAD_USAGE, "The raw prompt is empty.")
    return text


def _read_text(name: str, what: str) -> str:
    try:
        return read_input(name, bytes_max=TEXT_BYTES_MAX).decode()
    except UnicodeDecodeError as error:
        raise bad_input(f"{what} is not UTF-8 text.", detail=str(error)) from error


def _bounded(stream: BinaryIO, name: str, bytes_max: int) -> bytes:
    data = bytearray()
    while chunk := stream.read(_CHUNK):
        data += chunk
        if len(data) > bytes_max:
            raise bad_input(f"{name} is too large: the limit is {human_bytes(bytes_max)}.")
    return bytes(data)
