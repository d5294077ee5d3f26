"""A server of models as a backend: `LoadSpec.backend = "remote"`, its address and options in `engine_args`."""

from __future__ import annotations

from vlmtui.domain.engine import LoadSpec
from vlmtui.worker.backends.contract import Backend, HostedEngine, Report


async def load(spec: LoadSpec, report: Report) -> HostedEngine:
    """Connect to the server. Raises VlmtuiError."""
    from vlmtui.worker.backends.remote.engine import connect_to_server  # the HTTP client takes a while to import

    return await connect_to_server(spec, report)


BACKEND = Backend(title="Server", load=load, computes_here=False)
