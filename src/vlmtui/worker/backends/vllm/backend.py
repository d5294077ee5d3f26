"""vLLM as a backend."""

from __future__ import annotations

from vlmtui.domain.engine import LoadSpec
from vlmtui.worker.backends.contract import Backend, HostedEngine, Report
from vlmtui.worker.backends.vllm.failures import explain_death, explain_load, explain_request
from vlmtui.worker.backends.vllm.progress import read_progress


async def load(spec: LoadSpec, report: Report) -> HostedEngine:
    """Load a model. Blocks the event loop."""
    from vlmtui.worker.backends.vllm.engine import load_engine  # importing vLLM takes seconds

    return await load_engine(spec, report)


BACKEND = Backend(
    title="vLLM",
    load=load,
    read_progress=read_progress,
    explain_load=explain_load,
    explain_request=explain_request,
    explain_death=explain_death,
)
