"""The class that vLLM mixes into its worker processes (`worker_extension_cls`), and repairs of two faults of vLLM 0.32
and 0.33.

The faults' reports, not sent yet: docs/upstream/vllm-onednn-contiguous.md and
docs/upstream/vllm-internvl-video-arguments.md. Check with vLLM 0.34 whether the repairs are still needed.
"""

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
    """Make the inputs of vLLM's linear layers for CPUs contiguous in memory. Does nothing in a process that has not
    imported these layers.

    oneDNN rejects a transposed view, which kills the engine. The audio encoder of Gemma 4, HunyuanOCR and Step-VL pass
    transposed views.
    """
    operators: Any = sys.modules.get("vllm._custom_ops")
    real = getattr(operators, "onednn_mm", None)
    if real is not None:
        operators.onednn_mm = lambda handler, x, bias: real(handler, x.contiguous(), bias)


def keep_arguments_apart() -> None:
    """Keep arguments that InternVL's video processor does not know away from it.

    vLLM passes the image processor's arguments to the video processor too, such as `max_dynamic_patch` of the record
    internvl_chat, and the video processor rejects them. Call this after vLLM has loaded the model's class; does nothing
    for other models.
    """
    module = sys.modules.get("vllm.model_executor.models.internvl")
    info = getattr(module, "InternVLProcessingInfo", None)
    if info is None or hasattr(info.get_video_processor, "__wrapped__"):
        return
    real = info.get_video_processor

    @wraps(real)
    def get_video_processor(self: Any, **given: object) -> Any:
        made = real(self)  # its class has another name in each release
        accepted = inspect.signature(type(made)).parameters
        takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in accepted.values())
        known = {name: value for name, value in given.items() if takes_any or name in accepted}
        return real(self, **known) if known else made

    info.get_video_processor = get_video_processor


WORKER_EXTENSION = f"{__name__}.WorkerExtension"
"""The import path of the class below, for vLLM's argument `worker_extension_cls`."""
CLOSE_LISTENERS = "close_listeners"
"""The method's name, for `collective_rpc`."""
OWN_NORMALISATION = "own_normalisation"
"""The method's name, for `collective_rpc`."""
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

    def own_normalisation(self) -> list[tuple[list[float], list[float]]]:
        """Return by channel the factors and the offsets that the loaded model's own modules apply to levels of 0 to
        255; those of a module that leaves them as they are: 1 and 0. Empty if the model has no such module."""
        found: list[tuple[list[float], list[float]]] = []
        try:
            from vllm.model_executor.layers.fusion.mm_input_norm import FusedMMInputNorm, IdentityInputNorm
        except ImportError:  # a version that names them otherwise
            return found
        for one in self.get_model().modules():  # type: ignore[attr-defined]  # vLLM's worker has it
            if isinstance(one, FusedMMInputNorm):
                found.append((one.weight.tolist(), one.bias.tolist()))
            elif isinstance(one, IdentityInputNorm):
                found.append(([1.0], [0.0]))
        return found


def _close(descriptor: int) -> bool:
    """Refuse new connections to a listening socket; existing ones continue. Return False if the kernel forbids it."""
    for close in (bind_elsewhere, drop_all):
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as listener:
            close(listener)
            return True
    return False


def bind_elsewhere(listener: socket.socket) -> None:
    """Make a listener on the loopback interface unreachable: bind it to another interface, where packets for its
    address never arrive.

    Every user may do this since Linux 5.7. Raises OSError.
    """
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
