"""Checks which user is at the other end of a Unix socket, before anything is sent."""

from __future__ import annotations

import asyncio
import os
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
    if not hasattr(socket, "SO_PEERCRED"):
        return
    peer: socket.socket = end.get_extra_info("socket")
    found = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(_CREDENTIALS))
    _, uid, _ = struct.unpack(_CREDENTIALS, found)
    if uid not in (os.getuid(), 0):
        message = f"Another user of this machine (uid {uid}) owns the other end of {place}."
        raise VlmtuiError(ErrorKind.FOREIGN_PEER, message, hint=hint)
