"""vLLM's engine arguments and environment variables for a LoadSpec on this machine."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from vlmtui.domain.engine import LoadSpec
from vlmtui.engines.serve import cpu_arguments
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.text import did_you_mean

SOCKET_FOLDER = "."
"""Where vLLM puts its own, unauthenticated sockets: the working directory of the worker's processes, a private folder
that is removed with the worker. The absolute path could be too long for a socket address."""
ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    # The engine runs in a thread, and a child forked from a process with threads can hang.
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    "VLLM_RPC_BASE_PATH": SOCKET_FOLDER,
}
"""Defaults; variables that the user has set take precedence."""
ONE_MACHINE_ENVIRONMENT = {
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
    "NCCL_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
}
"""Makes gloo and NCCL listen on the loopback interface; by default they listen on the host name's address. Used if no
other machine takes part in the engine."""
_SEVERAL_MACHINES = frozenset({"ray", "external_launcher"})
_TRANSFER_ARGUMENTS = ("kv_transfer_config", "kv_events_config", "ec_transfer_config", "weight_transfer_config")
CPU_EXECUTOR = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
"""The import path of vLLM's executor without a further process: on a CPU, vLLM replaces its short name `uni` by
`mp`."""
CPU_ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": str(max((os.cpu_count() or 2) - 1, 1))}
"""A KV cache of 1 GiB (vLLM's default is more memory than a small machine has), and a core left for the app."""
EAGER_CPU_ENVIRONMENT = {"TORCH_COMPILE_DISABLE": "1"}
"""Turns off torch.compile on a CPU. Even with `enforce_eager` vLLM compiles a few small functions on the first request
that needs them (log-probabilities, sampling without a seed), which takes seconds."""


def engine_arguments(spec: LoadSpec, *, known: Collection[str], on_cpu: bool) -> dict[str, object]:
    """Return keyword arguments for `AsyncEngineArgs`, whose fields are `known`. Raises VlmtuiError for an unknown
    argument, with the most similar name."""
    for name in spec.engine_args:
        if name not in known:
            raise VlmtuiError(
                ErrorKind.BAD_ENGINE_ARGUMENT,
                f"The installed vLLM has no engine argument {name!r}.",
                hint=did_you_mean(name, known) or "Remove it from the model's record or the settings.",
            )
    given = {
        "disable_log_stats": False,  # True would disable the metrics as well
        **spec.engine_args,
        "model": spec.model,
        "trust_remote_code": spec.trust_remote_code,
    }
    if spec.revision is not None:
        given["revision"] = spec.revision
    if spec.trust_remote_code:
        # These override the model's record and the user: only the code that the user trusted may run.
        given |= {"revision": spec.revision, "code_revision": spec.code_revision, "tokenizer_revision": spec.revision}
    if on_cpu and given.get("enable_lora"):
        given["max_loras"] = int(str(given.get("max_loras", 1))) + 1  # see `AdapterShelf`
    if not on_cpu:
        return given
    arguments = cpu_arguments(given)
    if has_no_peers(arguments):
        # By default vLLM starts one more process on a CPU, and waits for it in a loop that keeps a core busy.
        arguments.setdefault("distributed_executor_backend", CPU_EXECUTOR)
    return arguments


def environment(engine_args: Mapping[str, object]) -> dict[str, str]:
    """Return default environment variables for vLLM. Variables that the user has set take precedence."""
    # By default torch caches compiled code in a shared temporary folder that any user could have created.
    cache = Path(os.environ.get("VLLM_CACHE_ROOT", "~/.cache/vllm")).expanduser()
    found = {**ENVIRONMENT, "TORCHINDUCTOR_CACHE_DIR": str(cache / "torchinductor")}
    return found | ONE_MACHINE_ENVIRONMENT if _is_of_one_machine(engine_args) else found


def own_context(text: str) -> int | None:
    """Return the model's context length in tokens. vLLM's error about a too large `max_model_len` names it; None if
    `text` is another error."""
    found = re.search(r"greater than the derived max_model_len \([^=()]*=(\d+)", text)
    return int(found[1]) if found else None


def own_context_note(own: int, wished: object) -> str:
    """Return the note for the user that the model's context, `own` tokens, is shorter than the requested one."""
    return f"The model's own context is {own:,} tokens; {wished:,} were asked for."


def has_no_peers(engine_args: Mapping[str, object]) -> bool:
    """Return True if the engine is a single process: no other rank and no KV transfer needs to connect to its ports."""
    sizes = (name for name in engine_args if name.endswith("_parallel_size"))
    is_alone = all(engine_args[name] in (None, 1) for name in sizes)
    speaks = any(engine_args.get(name) is not None for name in _TRANSFER_ARGUMENTS)
    return is_alone and not speaks and _is_of_one_machine(engine_args)


def _is_of_one_machine(engine_args: Mapping[str, object]) -> bool:
    backends = {engine_args.get("distributed_executor_backend"), engine_args.get("data_parallel_backend")}
    is_one = engine_args.get("nnodes") in (None, 1) and engine_args.get("data_parallel_address") is None
    return is_one and not backends & _SEVERAL_MACHINES
