"""On a network file system, one machine at a time writes the database: its holder. The others only read it.

SQLite's write-ahead log is memory that processes share, and two machines share none; many network file systems don't
show one machine's locks to another, either. Two writers would lose each other's messages without an error. The holder
is therefore named in a file, which needs neither. The processes of a machine share the database as on a local disk.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from vlmtui.errors import VlmtuiError
from vlmtui.files import new_file, write_private
from vlmtui.paths import is_network
from vlmtui.protocol.endpoint import this_machine
from vlmtui.reading import read_struct
from vlmtui.text import one_line

_SUFFIX = ".machine"
_BYTES_MAX = 10_000


class _Holder(msgspec.Struct, frozen=True, kw_only=True):
    """The machine that writes the database."""

    name: str
    digest: str
    """`Machine.digest`."""
    since: float
    """Seconds since the epoch."""


_UNKNOWN = _Holder(name="another machine", digest="", since=0.0)


def is_on_network(path: Path) -> bool:
    """Return whether other machines may write the file system of the database at `path`, or of the file that it links
    to."""
    return is_network(path.resolve().parent)


def other_holder(path: Path) -> str:
    """Return the name of the other machine that writes the database at `path`, and since when; empty if there is none,
    or if the database is not on a network file system."""
    if is_ours(path) or (holder := _read(path)) is None:
        return ""
    since = time.strftime(" since %-d %b %Y, %H:%M", time.localtime(holder.since)) if holder.since else ""
    return f"{one_line(holder.name)}{since}"


def is_ours(path: Path) -> bool:
    """Return whether this machine may write the database at `path`."""
    if not is_on_network(path):
        return True
    holder = _read(path)
    return holder is not None and holder.digest == this_machine().digest


def hold(path: Path, *, by_force: bool = False) -> bool:
    """Make this machine the holder of the database at `path` if there is none, or `by_force`. Return whether it is the
    holder now. Raises VlmtuiError."""
    if is_ours(path):
        return True
    file, machine = _file(path), this_machine()
    data = msgspec.json.encode(_Holder(name=machine.name, digest=machine.digest, since=time.time()))
    if by_force:
        write_private(file, data, durable=True)
        return True
    with new_file(file.parent, file.name, durable=True) as new:
        new.file.write(data)
        return new.take(file)


def release(path: Path) -> None:
    """Let another machine become the holder, if this one is. Call it when no process here has the database open any
    more."""
    if is_ours(path):
        with suppress(OSError):
            _file(path).unlink()


def _file(path: Path) -> Path:
    path = path.resolve()
    return path.with_name(path.name + _SUFFIX)


def _read(path: Path) -> _Holder | None:
    file = _file(path)
    if not os.path.lexists(file):
        return None
    try:
        return read_struct(file, _Holder, bytes_max=_BYTES_MAX)
    except VlmtuiError:
        return _UNKNOWN
