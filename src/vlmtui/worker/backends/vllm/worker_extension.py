"""What is added to vLLM's own worker, the process that computes (`worker_extension_cls`). Runs there."""

from __future__ import annotations

import ctypes
import ipaddress
import os
import socket
import struct
import sys
from contextlib import suppress

import psutil

WORKER_EXTENSION = f"{__name__}.WorkerExtension"
SHUT_OUT = "shut_strangers_out"
"""The method's name."""
_SO_ATTACH_FILTER = 26
_LOOPBACK = "lo"
_RETURN = 0x06
"""BPF_RET | BPF_K: the verdict on a packet, here of no byte of it."""


class WorkerExtension:
    """Methods that vLLM calls in each of its workers."""

    def shut_strangers_out(self) -> int:
        """Have the kernel refuse whatever comes to the TCP ports that this process listens on; how many there are.

        torch's gloo opens one for each group of processes, also for a group of one, and lets everyone of the machine
        connect. Only for where nobody has a reason to. Raises nothing: an engine that cannot close them works, too.
        """
        closed = 0
        if sys.platform.startswith("linux"):
            with suppress(psutil.Error):
                for one in psutil.Process(os.getpid()).net_connections(kind="tcp"):
                    if one.status == psutil.CONN_LISTEN and one.fd >= 0:
                        closed += _close(one.fd)
        return closed


def _close(descriptor: int) -> bool:
    """Close a listening socket to all that comes from now on; whether the kernel lets this process do that. What is
    connected already goes on."""
    for close in (bind_elsewhere, drop_all):
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as listener:
            close(listener)
            return True
    return False


def bind_elsewhere(listener: socket.socket) -> None:
    """Have a socket of the loopback interface listen on another one, where nothing for its address ever comes. Any user
    may do that since Linux 5.7. Raises OSError."""
    others = [name for _, name in socket.if_nameindex() if name != _LOOPBACK]
    if not others or not ipaddress.ip_address(listener.getsockname()[0]).is_loopback:
        raise OSError("there is no other interface, or the socket is not of the loopback one")
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, others[0].encode() + b"\0")


def drop_all(listener: socket.socket) -> None:
    """Attach a filter to a socket that passes nothing. Some kernels only let root do that. Raises OSError."""
    code = ctypes.create_string_buffer(struct.pack("HBBI", _RETURN, 0, 0, 0))
    program = struct.pack("HP", 1, ctypes.addressof(code))
    listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
