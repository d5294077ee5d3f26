"""From a LoadSpec to the arguments of vLLM's engine: what the spec says, then what this machine needs."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from vlmtui.domain.engine import LoadSpec
from vlmtui.errors import ErrorKind, VlmtuiError

ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    # The engine lives in a thread, and a forked child of a process with threads can hang.
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
}
"""Set unless the user has set them otherwise."""
CPU_ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1"}
"""GiB; vLLM's own default takes more than a small machine has."""
EAGER_CPU_ENVIRONMENT = {"TORCH_COMPILE_DISABLE": "1"}
"""For a CPU where the model itself is not compiled: vLLM would compile a few small functions all the same, each at the
first request that needs it (log-probabilities, sampling without a seed), which then stalls for seconds."""
_CPU_DEFAULTS: dict[str, object] = {"dtype": "float32", "enforce_eager": True, "max_num_seqs": 8}
# On a CPU it is the share of all RAM that must be free at the start, so a family's figures for GPUs mean nothing there.
_CPU_FORCED: dict[str, object] = {"gpu_memory_utilization": 0.3, "tensor_parallel_size": 1}


def engine_arguments(spec: LoadSpec, *, known: Collection[str], on_cpu: bool) -> dict[str, object]:
    """The keyword arguments of `AsyncEngineArgs`. Raises VlmtuiError for an unknown one, naming the nearest."""
    for name in spec.engine_args:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            raise VlmtuiError(
                ErrorKind.BAD_ENGINE_ARGUMENT,
                f"The installed vLLM has no engine argument {name!r}.",
                hint=f"Did you mean {close[0]!r}?" if close else "Remove it from the model's record or the settings.",
            )
    given = {
        "disable_log_stats": True,
        **spec.engine_args,
        "model": spec.model,
        "trust_remote_code": spec.trust_remote_code,
    }
    if spec.revision is not None:
        given["revision"] = spec.revision
    return {**_CPU_DEFAULTS, **given, **_CPU_FORCED} if on_cpu else given
