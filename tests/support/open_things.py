"""Files, Unix sockets, TCP and UDP ports that processes have open, as the kernel reports them."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

_PROC = Path("/proc")
_DELETED = " (deleted)"
_INODE_COLUMN = 6
"""The column of the inode in `/proc/net/unix`; a path may follow."""
PortAddress = tuple[socket.AddressFamily, str, int]


class OpenThings(NamedTuple):
    """Open files, sockets and ports of some processes."""

    files: set[Path]
    """Files that are open or mapped into memory, without pseudo-files; deleted files included."""
    listening: set[str]
    """Full paths of named Unix sockets; abstract sockets begin with `@`."""
    ports: set[PortAddress]
    """Listening TCP ports, and UDP ports."""


def opened_by(processes: Iterable[psutil.Process]) -> OpenThings:
    files: set[Path] = set()
    listening: set[str] = set()
    ports: set[PortAddress] = set()
    for process in processes:
        with suppress(psutil.NoSuchProcess, FileNotFoundError):
            names = _descriptors(process.pid)
            files |= {Path(name) for name in names | _mapped(process.pid) if _is_file(name)}
            inodes = {name.removeprefix("socket:[").removesuffix("]") for name in names if name.startswith("socket:[")}
            listening |= _unix_names(inodes, Path(process.cwd()))
            for one in process.net_connections(kind="inet"):
                if one.status == psutil.CONN_LISTEN or one.type is socket.SOCK_DGRAM:
                    ports.add((one.family, one.laddr.ip, one.laddr.port))
    return OpenThings(files, listening, ports)


def _descriptors(pid: int) -> set[str]:
    found = set()
    for link in (_PROC / str(pid) / "fd").iterdir():
        with suppress(FileNotFoundError):
            found.add(str(link.readlink()))
    return found


def _mapped(pid: int) -> set[str]:
    lines = (_PROC / str(pid) / "maps").read_text().splitlines()
    return {line.split(maxsplit=5)[5] for line in lines if len(line.split(maxsplit=5)) == 6}


def _is_file(name: str) -> bool:
    return name.startswith("/") and not name.startswith("/proc/") and not name.endswith(_DELETED)


def _unix_names(inodes: set[str], home: Path) -> set[str]:
    found = set()
    for line in (_PROC / "net" / "unix").read_text().splitlines()[1:]:
        columns = line.split(maxsplit=_INODE_COLUMN + 1)
        if columns[_INODE_COLUMN] in inodes and len(columns) > _INODE_COLUMN + 1:
            name = columns[-1]
            found.add(name if name.startswith("@") else str(home / name))
    return found
