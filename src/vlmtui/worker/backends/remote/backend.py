"""The `Backend` of a model server. Its address and options are in `LoadSpec.engine_args`."""

from __future__ import annotations

from vlmtui.domain.engine import LoadSpec
from vlmtui.worker.backends.contract import Backend, HostedEngine, Report


async def load(spec: LoadSpec, report: Report) -> HostedEngine:
    """Connect to the server. Raises VlmtuiError."""
    from vlmtui.worker.backends.remote.engine import connect_to_server  # the HTTP client takes a while to import

    return await connect_to_server(spec, report)


BACKEND = Backend(title="Server", load=load, computes_here=False)
