"""Methods added to vLLM's worker processes (`worker_extension_cls`), where they run, and two faults of vLLM 0.32 that
are mended there.

Reports to send: docs/upstream/vllm-onednn-contiguous.md and docs/upstream/vllm-internvl-video-arguments.md; look at
vLLM 0.34."""

from __future__ import annotations

import ctypes
import inspect
import ipaddress
import os
import socket
import struct
import sys
from contextlib import suppress
from functools import wraps
from typing import Any

import psutil


def keep_contiguous() -> None:
    """Give vLLM's linear layers for CPUs inputs that are contiguous in memory, in a process that has imported them.

    oneDNN refuses a transposed view, which ends the engine: the ears of Gemma 4, HunyuanOCR and Step-VL hand one over.
    """
    operators: Any = sys.modules.get("vllm._custom_ops")
    real = getattr(operators, "onednn_mm", None)
    if real is not None:
        operators.onednn_mm = lambda handler, x, bias: real(handler, x.contiguous(), bias)


def keep_arguments_apart() -> None:
    """Have InternVL's video processor made with arguments of its own alone: vLLM hands it those of the images, such as
    the `max_dynamic_patch` that internvl_chat's record sends with several of them, and it refuses them.

    Call it after the model's class was loaded; does nothing for other models."""
    module = sys.modules.get("vllm.model_executor.models.internvl")
    info, made = (getattr(module, name, None) for name in ("InternVLProcessingInfo", "InternVLVideoProcessor"))
    if info is None or made is None or hasattr(info.get_video_processor, "__wrapped__"):
        return
    accepted = inspect.signature(made).parameters
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in accepted.values()):
        return  # a vLLM in which it takes them
    real = info.get_video_processor

    @wraps(real)
    def get_video_processor(self: Any, **given: object) -> Any:
        return real(self, **{name: value for name, value in given.items() if name in accepted})

    info.get_video_processor = get_video_processor


WORKER_EXTENSION = f"{__name__}.WorkerExtension"
"""Where vLLM's worker processes find the class below."""
CLOSE_LISTENERS = "close_listeners"
"""Name of the method, for `collective_rpc`."""
_SO_ATTACH_FILTER = 26
_LOOPBACK = "lo"
_RETURN = 0x06
"""BPF_RET | BPF_K: accept 0 bytes of the packet, that is, drop it."""


class WorkerExtension:
    """Methods that vLLM calls in each of its workers."""

    def close_listeners(self) -> int:
        """Have the kernel refuse new connections to this process's TCP ports. Return how many were closed.

        torch's gloo opens a port for each process group, even a group of one, and any user of the machine can connect.
        Use it only if no peer needs to connect. Raises nothing: the engine also works with open ports.
        """
        closed = 0
        if sys.platform.startswith("linux"):
            with suppress(psutil.Error):
                for one in psutil.Process(os.getpid()).net_connections(kind="tcp"):
                    if one.status == psutil.CONN_LISTEN and one.fd >= 0:
                        closed += _close(one.fd)
        return closed


def _close(descriptor: int) -> bool:
    """Close a listening socket to new connections; existing ones continue. Return whether the kernel permits it."""
    for close in (bind_elsewhere, drop_all):
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as listener:
            close(listener)
            return True
    return False


def bind_elsewhere(listener: socket.socket) -> None:
    """Bind a loopback listener to another interface, where no packet for its address ever arrives. Allowed for any user
    since Linux 5.7. Raises OSError."""
    others = [name for _, name in socket.if_nameindex() if name != _LOOPBACK]
    if not others or not ipaddress.ip_address(listener.getsockname()[0]).is_loopback:
        raise OSError("no other interface, or the socket is not on the loopback interface")
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, others[0].encode() + b"\0")


def drop_all(listener: socket.socket) -> None:
    """Attach a filter that drops everything to a socket. Some kernels allow this only to root. Raises OSError."""
    code = ctypes.create_string_buffer(struct.pack("HBBI", _RETURN, 0, 0, 0))
    program = struct.pack("HP", 1, ctypes.addressof(code))
    listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)


keep_contiguous()
