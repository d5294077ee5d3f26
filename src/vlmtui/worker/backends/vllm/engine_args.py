"""From a LoadSpec to the arguments of vLLM's engine: what the spec says, then what this machine needs."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from vlmtui.domain.engine import LoadSpec
from vlmtui.errors import ErrorKind, VlmtuiError

SOCKET_FOLDER = "."
"""Where vLLM's own sockets lie, which ask nobody who he is: in the working directory of all processes of a worker, a
private folder that goes with it. Its full name could be too long for a socket's."""
ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    # The engine lives in a thread, and a forked child of a process with threads can hang.
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    "VLLM_RPC_BASE_PATH": SOCKET_FOLDER,
}
"""Set unless the user has set them otherwise."""
ONE_MACHINE_ENVIRONMENT = {
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
    "NCCL_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
}
"""For processes that are all of this machine: what they listen on is not to be reached from the network. Without it,
gloo and NCCL take the address that the machine's name stands for."""
_SEVERAL_MACHINES = frozenset({"ray", "external_launcher"})
_SPEAKS_TO_OTHERS = ("kv_transfer_config", "kv_events_config", "ec_transfer_config", "weight_transfer_config")
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
    if spec.trust_remote_code:
        # Whatever a record or the user says: the code that was allowed runs, and no other.
        given |= {"revision": spec.revision, "code_revision": spec.code_revision, "tokenizer_revision": spec.revision}
    return {**_CPU_DEFAULTS, **given, **_CPU_FORCED} if on_cpu else given


def environment(engine_args: Mapping[str, object]) -> dict[str, str]:
    """The variables that vLLM is to find, unless the user has set them otherwise."""
    # torch would keep what it compiles, which is code, in a place that any user of the machine could prepare.
    cache = Path(os.environ.get("VLLM_CACHE_ROOT", "~/.cache/vllm")).expanduser()
    found = {**ENVIRONMENT, "TORCHINDUCTOR_CACHE_DIR": str(cache / "torchinductor")}
    return found | ONE_MACHINE_ENVIRONMENT if _is_of_one_machine(engine_args) else found


def listens_to_nobody(engine_args: Mapping[str, object]) -> bool:
    """Whether no process but the one that computes has a reason to connect to what it listens on."""
    sizes = (name for name in engine_args if name.endswith("_parallel_size"))
    is_alone = all(engine_args[name] in (None, 1) for name in sizes)
    speaks = any(engine_args.get(name) is not None for name in _SPEAKS_TO_OTHERS)
    return is_alone and not speaks and _is_of_one_machine(engine_args)


def _is_of_one_machine(engine_args: Mapping[str, object]) -> bool:
    backends = {engine_args.get("distributed_executor_backend"), engine_args.get("data_parallel_backend")}
    is_one = engine_args.get("nnodes") in (None, 1) and engine_args.get("data_parallel_address") is None
    return is_one and not backends & _SEVERAL_MACHINES
