"""The standard streams: closed ones, full ones, and those whose reader has gone."""

from __future__ import annotations

import errno
import os
import sys
from typing import TextIO

_WRITE_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EBADF, errno.EFBIG})
_STREAMS = ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w"))


def open_missing() -> None:
    """Open the standard streams that are closed on /dev/null. Else the next file that is opened, a database perhaps,
    would get the number of one of them, and what is printed would go there."""
    for number, name, mode in _STREAMS:
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def is_output_lost() -> bool:
    """Whether what was printed cannot be written. That, and what stderr does not take, is dropped then, so that the end
    of the program does not fail on it once more."""
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
    """Whether an error comes from writing to stdout: it names no file, as those of our own files do."""
    return is_output_lost() or (error.filename is None and error.errno in _WRITE_ERRORS)


def drop(number: int) -> None:
    """Let a standard stream end in /dev/null."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, number)
    os.close(null)


def is_utf8() -> bool:
    """Whether stdout takes every character."""
    return (getattr(sys.stdout, "encoding", None) or "").lower().replace("-", "").replace("_", "") == "utf8"
