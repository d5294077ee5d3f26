"""Hugging Face Transformers as a backend."""

from __future__ import annotations

from vlmtui.domain.engine import LoadSpec
from vlmtui.worker.backends.contract import Backend, HostedEngine, Report
from vlmtui.worker.backends.transformers.failures import explain_load, explain_request
from vlmtui.worker.backends.transformers.progress import read_progress


async def load(spec: LoadSpec, report: Report) -> HostedEngine:
    """Load a model. Blocks the event loop."""
    from vlmtui.worker.backends.transformers.engine import load_engine  # importing torch takes seconds

    return await load_engine(spec, report)


BACKEND = Backend(
    title="Transformers",
    load=load,
    read_progress=read_progress,
    explain_load=explain_load,
    explain_request=explain_request,
    computes_in_worker=True,
)
