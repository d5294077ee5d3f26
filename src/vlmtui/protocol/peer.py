"""Checks which user is at the other end of a Unix socket, before anything is sent."""

from __future__ import annotations

import asyncio
import os
import pwd
import socket
import struct

from vlmtui.errors import ErrorKind, VlmtuiError

_CREDENTIALS = "3i"
"""The kernel's `struct ucred`: pid, uid, gid."""


def require_own_peer(
    end: asyncio.StreamWriter | asyncio.BaseTransport, *, place: str = "this socket", hint: str = ""
) -> None:
    """Raise VlmtuiError(FOREIGN_PEER) unless the process at the other end belongs to this user or root.

    Linux only; elsewhere the permissions of the socket and its folder are the only protection.
    """
    uid = peer_uid(end.get_extra_info("socket"))
    if uid is not None and uid not in (os.getuid(), 0):
        message = f"Another user of this machine (uid {uid}) owns the other end of {place}."
        raise VlmtuiError(ErrorKind.FOREIGN_PEER, message, hint=hint)


def peer_uid(peer: socket.socket) -> int | None:
    """Return the user of the process at the other end of a Unix socket. None: the system does not report it."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    found = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(_CREDENTIALS))
    _, uid, _ = struct.unpack(_CREDENTIALS, found)
    return int(uid)


class ForeignSocket(VlmtuiError):
    """A Unix socket of an engine belongs to another user, whom nobody has allowed."""

    def __init__(self, shown: str, owner: str) -> None:
        message = f"{shown} belongs to another user of this machine: {owner}. Nothing was sent."
        hint = f'If you trust this user, name the engine in config.toml, with allow_owner = "{owner}".'
        super().__init__(ErrorKind.FOREIGN_PEER, message, hint=hint)
        self.owner = owner


def require_owner(uid: int, shown: str, *, allowed: str | None) -> None:
    """Raise ForeignSocket unless a socket's owner is this user, root, or the one that is allowed by name or number."""
    owner = _user_name(uid)
    if uid not in (os.getuid(), 0) and allowed not in (owner, str(uid)):
        raise ForeignSocket(shown, owner)


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
