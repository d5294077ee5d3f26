"""Asks a `vllm serve` for its metrics. Imports the HTTP client only when it asks."""

from __future__ import annotations

import asyncio

from vlmtui.config.engines import EngineSettings
from vlmtui.domain.metrics import EngineMetrics


def fetch_metrics(settings: EngineSettings) -> EngineMetrics:
    """Ask a server. Blocks for ten seconds at most; what fails is told as by `ask --engine`. Raises VlmtuiError."""
    return asyncio.run(_fetch(settings))


async def _fetch(settings: EngineSettings) -> EngineMetrics:
    from vlmtui.worker.backends.remote.http_api import ServerApi
    from vlmtui.worker.backends.remote.options import server_address, server_options
    from vlmtui.worker.backends.remote.probe import ask_for_metrics

    api = ServerApi(server_address(settings.url), server_options(settings.arguments()))
    try:
        return await ask_for_metrics(api)
    finally:
        await api.close()
