"""Runs a model in another environment's vLLM: starts a `vllm serve` of that environment and connects to it.

The app names the server's program in the environment variable `SERVER_VARIABLE`.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from vlmtui.domain.engine import LoadSpec, LoadStage
from vlmtui.errors import VlmtuiError
from vlmtui.worker.backends.contract import Backend, HostedEngine, LoadStep, ProcessEnded, Report
from vlmtui.worker.backends.vllm import failures
from vlmtui.worker.backends.vllm.backend import read_progress
from vlmtui.worker.backends.vllm.engine_args import own_context, own_context_note


async def load(spec: LoadSpec, report: Report) -> HostedEngine:
    """Start the server and wait until it listens. Raises VlmtuiError, or ProcessEnded if its process ends before."""
    from vlmtui.worker.backends.served.engine import serve_and_connect  # the HTTP client takes a while to import

    return await serve_and_connect(spec, report)


async def load_with_own_context(
    spec: LoadSpec, report: Report, error: ProcessEnded, log: Sequence[str]
) -> HostedEngine:
    """Start the server again with the model's own context length, if `log` says that the server rejected a larger
    `max_model_len`. Otherwise raise `error`. Raises the same errors as `load`."""
    from vlmtui.worker.backends.served.engine import serve_and_connect

    own = own_context("\n".join(log))
    wished = spec.engine_args.get("max_model_len")
    if own is None or not isinstance(wished, int) or own >= wished:
        raise error
    note = own_context_note(own, wished)
    report(LoadStep(LoadStage.CONFIG, note))
    smaller = msgspec.structs.replace(spec, engine_args={**spec.engine_args, "max_model_len": own})
    engine = await serve_and_connect(smaller, report)
    engine.info = msgspec.structs.replace(engine.info, spec=spec, notes=(note,))
    return engine


def explain_load(error: BaseException, log: Sequence[str], *, name: str) -> VlmtuiError:
    """Explain a failed load. If the server's process ended, the log has the cause."""
    if isinstance(error, ProcessEnded):
        return failures.explain_server_exit(log, name=name, said=str(error))
    return failures.explain_load(error, log, name=name)


def explain_request(error: BaseException, log: Sequence[str] = ()) -> VlmtuiError:
    """Explain a failed request. If the server's process ended, the log has the cause."""
    if isinstance(error, ProcessEnded):
        return failures.explain_death(log, fallback=str(error))
    return failures.explain_request(error, log)


BACKEND = Backend(
    title="vLLM's server",
    load=load,
    load_again=load_with_own_context,
    read_progress=read_progress,
    explain_load=explain_load,
    explain_request=explain_request,
    explain_death=failures.explain_death,
)
