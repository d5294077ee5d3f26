"""A model in a `vllm serve` that the worker starts and ends."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import get_args

import msgspec

from vlmtui.domain.conversation import Modality
from vlmtui.domain.engine import EngineInfo, LoadSpec, LoadStage
from vlmtui.domain.generation import EngineEvent, Request
from vlmtui.domain.metrics import EngineMetrics
from vlmtui.engines.serve import ServerProgram, cpu_arguments
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.inspection.placeholders import placeholder_texts
from vlmtui.paths import Paths
from vlmtui.registry.loader import Registry
from vlmtui.worker.backends.contract import CPU_NICENESS, LoadStep, Report
from vlmtui.worker.backends.remote.engine import RemoteEngine, connect_to_server
from vlmtui.worker.backends.served.server_process import ServerEnded, ServerProcess, given_program, start_server
from vlmtui.worker.hf.remote_code import pin_remote_code

_ANY_TIME_S = 1e9
"""The time limit for connecting. It never passes: the wait ends with the server's process."""
_END_S = 10.0
"""The most seconds that a server takes to end after its engine has died."""


async def serve_and_connect(spec: LoadSpec, report: Report) -> ServedEngine:
    """Start the app's server program with the spec's model, and connect to it once it listens.

    Raises VlmtuiError, or ServerEnded if the server's process ends before."""
    program = given_program()
    report(LoadStep(LoadStage.CONFIG, f"starting the server of vLLM {program.version}"))
    if program.is_for_cpu:
        os.nice(CPU_NICENESS)
    spec = pin_remote_code(spec)
    async with AsyncExitStack() as stack:
        process = await start_server(program, spec, Path.cwd())
        stack.push_async_callback(process.end)
        connecting = asyncio.create_task(connect_to_server(_reached(spec, process), lambda step: None))
        ended = asyncio.create_task(process.ended())
        await asyncio.wait({connecting, ended}, return_when=asyncio.FIRST_COMPLETED)
        if not connecting.done():
            connecting.cancel()
            await asyncio.gather(connecting, return_exceptions=True)
            raise ended.result()
        engine = ServedEngine(await connecting, process, ended, program, spec)
        stack.pop_all()
    return engine


def _reached(spec: LoadSpec, process: ServerProcess) -> LoadSpec:
    """Return the LoadSpec with which the `remote` backend connects to this server."""
    arguments: dict[str, object] = {"url": process.url, "model": spec.name, "wait_s": _ANY_TIME_S}
    registry = Registry.with_users(Paths.default().families)
    if spec.family is not None and spec.family in registry:
        arguments["placeholders"] = placeholder_texts(registry[spec.family])
    if process.key_file is not None:
        arguments["api_key_file"] = str(process.key_file)
    return msgspec.structs.replace(spec, engine_args=arguments)


class ServedEngine:
    """An engine in a server's process; it is dead when that process has ended."""

    def __init__(
        self,
        remote: RemoteEngine,
        process: ServerProcess,
        ended: asyncio.Task[ServerEnded],
        program: ServerProgram,
        spec: LoadSpec,
    ) -> None:
        self._remote = remote
        self._process = process
        self._ended = ended
        self.info = msgspec.structs.replace(_info(remote.info, program, spec), address=process.url)

    async def died(self) -> None:
        await asyncio.shield(self._ended)

    async def shutdown(self) -> None:
        await self._remote.shutdown()
        await self._process.end()

    async def metrics(self) -> EngineMetrics:
        """Return the server's metrics. Raises VlmtuiError."""
        return await self._remote.metrics()

    async def generate(self, request: Request) -> AsyncGenerator[EngineEvent, None]:
        try:
            async with aclosing(self._remote.generate(request)) as events:
                async for event in events:
                    yield event
        except VlmtuiError as error:
            if error.kind is not ErrorKind.NO_NETWORK:
                raise
            # The server's engine may have died. Its process then ends within seconds.
            done, _ = await asyncio.wait({self._ended}, timeout=_END_S)
            if not done:
                raise
            raise self._ended.result() from error


def _info(found: EngineInfo, program: ServerProgram, spec: LoadSpec) -> EngineInfo:
    """Complete the server's facts about the engine with those that its start arguments tell."""
    arguments = cpu_arguments(spec.engine_args) if program.is_for_cpu else dict(spec.engine_args)
    dtype = arguments.get("dtype")
    return msgspec.structs.replace(
        found,
        spec=spec,
        engine="vLLM",
        engine_version=found.engine_version or program.version,
        device="cpu" if program.is_for_cpu else "GPU",
        dtype=dtype if isinstance(dtype, str) else "",
        limits=_limits(arguments.get("limit_mm_per_prompt")) or found.limits,
        engine_args=arguments,
        revision=spec.revision,
    )


def _limits(given: object) -> dict[Modality, int]:
    if not isinstance(given, Mapping):
        return {}
    modalities: tuple[Modality, ...] = get_args(Modality)
    return {one: count for one in modalities if isinstance(count := given.get(one), int) and count}
