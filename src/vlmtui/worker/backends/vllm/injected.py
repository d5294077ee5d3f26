"""The module that vLLM's worker processes import before they build a model: the extension, and a change for CPUs.

The report to send is docs/upstream/vllm-onednn-contiguous.md; look at vLLM 0.34.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from vlmtui.worker.backends.vllm.worker_extension import WorkerExtension

__all__ = ["WorkerExtension", "keep_contiguous"]


def keep_contiguous() -> None:
    """Give vLLM's linear layers for CPUs inputs that are contiguous in memory, in this process.

    oneDNN refuses a transposed view, which ends the engine: the ears of Gemma 4, HunyuanOCR and Step-VL hand one over.
    """
    import vllm._custom_ops

    real = getattr(vllm._custom_ops, "onednn_mm", None)
    if real is None or hasattr(real, "__wrapped__"):
        return

    @wraps(real)
    def onednn_mm(handler: Any, x: Any, bias: Any) -> Any:
        return real(handler, x.contiguous(), bias)

    vllm._custom_ops.onednn_mm = onednn_mm


keep_contiguous()
