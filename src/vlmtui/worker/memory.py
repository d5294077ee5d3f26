"""Memory used by the worker's processes."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import psutil


class Memory(msgspec.Struct, frozen=True):
    rss_bytes: int
    gpu_bytes: int | None
    """None without the driver of an NVIDIA GPU."""


def memory_of(pid: int) -> Memory:
    """Return the resident and GPU memory of a process and all its descendants. Blocks for some milliseconds."""
    rss = 0
    pids: set[int] = set()
    with suppress(psutil.Error):
        root = psutil.Process(pid)
        for process in [root, *root.children(recursive=True)]:
            with suppress(psutil.Error):
                rss += process.memory_info().rss
                pids.add(process.pid)
    return Memory(rss, _nvidia_bytes(pids))


def _nvidia_bytes(pids: set[int]) -> int | None:
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    total = 0
    try:
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
                if process.pid in pids:
                    total += process.usedGpuMemory or 0
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()
    return total
