"""Without a GPU: the model computes in the engine core's own process, on cores that no other engine has.

vLLM gives the model a process of its own there, for one reason: the threads of OpenMP take their number and their cores
from the environment when a process starts. The engine core then waits for each step in a loop of `sched_yield`, on the
core that is left for preparing prompts and for whoever reads the answer. But the core's own process starts with an
environment, too: with one GPU the model computes in it anyway.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from vlmtui.worker.hf.cpu_cores import bound_cores

_log = logging.getLogger(__name__)

EXECUTOR = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
"""By its path, as vLLM takes the name `uni` for that of the other one on a CPU."""
_TITLE = "VLLM::"


def starter(*, on_cpu: bool) -> Callable[[Any], Any]:
    """Return the function that makes an AsyncLLM of AsyncEngineArgs."""
    from vllm.v1.engine.async_llm import AsyncLLM

    return _start_on_cpu if on_cpu and _has_parts() else AsyncLLM.from_engine_args


def _start_on_cpu(engine_args: Any) -> Any:
    """Return a new AsyncLLM whose engine core has the environment that vLLM would give the model's process."""
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.engine.async_llm import AsyncLLM

    sizes = [value for name, value in vars(engine_args).items() if name.endswith("_parallel_size")]
    is_alone = all(size in (None, 1) for size in sizes)
    if is_alone and engine_args.distributed_executor_backend is None:  # else somebody chose it
        engine_args.distributed_executor_backend = EXECUTOR
    config = engine_args.create_engine_config(UsageContext.ENGINE_CONTEXT)
    with _bound_threads(config):
        return AsyncLLM.from_vllm_config(
            config,
            enable_log_requests=engine_args.enable_log_requests,
            disable_log_stats=engine_args.disable_log_stats,
        )


def _has_parts() -> bool:
    """Whether the installed vLLM is built as the one that this was written for."""
    try:
        from vllm.utils.ompmultiprocessing import OMPProcessManager  # noqa: F401
        from vllm.v1.executor.uniproc_executor import UniProcExecutor  # noqa: F401
    except ImportError:
        return False
    return True


@contextmanager
def _bound_threads(config: Any) -> Iterator[None]:
    """Set the variables of OpenMP for processes that are started meanwhile, as `VLLM_CPU_OMP_THREADS_BIND` says; if it
    says nothing, with cores that are free of other engines, where there are enough."""
    if config.parallel_config.distributed_executor_backend != EXECUTOR:
        yield
        return
    from vllm.utils.cpu_resource_utils import get_allowed_cpu_list
    from vllm.utils.ompmultiprocessing import OMPProcessManager

    manager = OMPProcessManager(config)
    if manager.auto_setup and len(manager.cpu_lists) == 1:
        allowed = sorted(one.id for one in get_allowed_cpu_list())
        manager.cpu_lists = [free_cores(manager.cpu_lists[0], allowed, taken_cores())]
        _log.info("the model is bound to the cores %s", manager.cpu_lists[0])
    with manager.configure_omp_envs(rank=0, local_rank=0):
        yield


def free_cores(wanted: list[int], allowed: list[int], taken: set[int]) -> list[int]:
    """Return as many cores as are wanted: the last of those that are allowed if some are taken and enough are free."""
    free = [core for core in allowed if core not in taken]
    if not taken & set(wanted) or len(free) < len(wanted):
        return wanted
    return free[-len(wanted) :]


def taken_cores() -> set[int]:
    """Return the cores to which engines of this machine have bound their threads, one each."""
    found: set[int] = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.name().startswith(_TITLE):
                found |= bound_cores(Path(f"/proc/{process.pid}/task"))
    return found
