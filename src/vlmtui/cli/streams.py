"""Handles standard streams that are closed, full, or without a reader."""

from __future__ import annotations

import errno
import os
import sys
from typing import TextIO

_WRITE_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF, errno.EFBIG})
_STREAMS = ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w"))


def open_missing() -> None:
    """Open closed standard streams on /dev/null. Otherwise the next file opened, perhaps a database, would get such a
    stream's number and receive printed text."""
    for number, name, mode in _STREAMS:
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def is_output_lost() -> bool:
    """Whether printed text cannot be written. It is then dropped, and unwritten stderr text too, so that the exit does
    not fail on it again."""
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
    """Whether an error comes from writing to stdout: unlike errors of our own files, it has no file name."""
    return is_output_lost() or (error.filename is None and error.errno in _WRITE_ERRORS)


def drop(number: int) -> None:
    """Redirect a standard stream to /dev/null."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, number)
    os.close(null)


def is_utf8() -> bool:
    """Whether stdout can encode every character."""
    return (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "").replace("_", "") == "utf8"
