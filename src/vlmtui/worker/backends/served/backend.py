"""Other environments' vLLM as a backend: the worker starts its server as a child and speaks HTTP to it.

The app names the server in the environment variable `SERVER_VARIABLE`.
"""

from __future__ import annotations

from collections.abc import Sequence

from vlmtui.domain.engine import LoadSpec
from vlmtui.errors import VlmtuiError
from vlmtui.worker.backends.contract import Backend, HostedEngine, Report
from vlmtui.worker.backends.served.server_process import ServerEnded
from vlmtui.worker.backends.vllm import failures
from vlmtui.worker.backends.vllm.progress import read_progress


async def load(spec: LoadSpec, report: Report) -> HostedEngine:
    """Start the server and wait for it. Raises VlmtuiError, or ServerEnded if it ends while it loads."""
    from vlmtui.worker.backends.served.engine import serve_and_connect  # the HTTP client takes a while to import

    return await serve_and_connect(spec, report)


def explain_load(error: BaseException, log: Sequence[str], *, name: str) -> VlmtuiError:
    """Explain a failed load; a server that ended, by its last words in the log."""
    if isinstance(error, ServerEnded):
        return failures.explain_server_exit(log, name=name, said=str(error))
    return failures.explain_load(error, log, name=name)


def explain_request(error: BaseException, log: Sequence[str] = ()) -> VlmtuiError:
    """Explain a failed request, perhaps one that failed because the server ended."""
    if isinstance(error, ServerEnded):
        return failures.explain_death(log, fallback=str(error))
    return failures.explain_request(error, log)


BACKEND = Backend(
    title="vLLM's server",
    load=load,
    read_progress=read_progress,
    explain_load=explain_load,
    explain_request=explain_request,
    explain_death=failures.explain_death,
)
