"""A server in the test's own event loop, and the means to speak to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tests.worker.hosted import SPEC, EchoEngine
from vlmtui.domain.conversation import ChatPrompt, user_turn
from vlmtui.domain.engine import EngineReady, LoadSpec
from vlmtui.domain.generation import EngineEvent, GenerateRequest, Request
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.local.client import WorkerClient, connect
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import Paths
from vlmtui.protocol.endpoint import Endpoint
from vlmtui.worker.backends import contract
from vlmtui.worker.backends.contract import Backend, HostedEngine, Report
from vlmtui.worker.serve import make_server
from vlmtui.worker.server import Limits, WorkerServer

Loader = Callable[[LoadSpec], Awaitable[EchoEngine]]


async def nothing() -> None:
    """The client's own way to end a process: there is none here."""


class Stage:
    """A running server and the means to speak to it."""

    def __init__(self, server: WorkerServer, endpoint: Endpoint, task: asyncio.Task[int]) -> None:
        self.server = server
        self.endpoint = endpoint
        self.task = task

    async def client(self, name: str = "test") -> WorkerClient:
        while not self.endpoint.socket.exists():
            await asyncio.sleep(0)
        return await connect(self.endpoint, client=name, attached=True, timeout_s=10, answer_timeout_s=60, end=nothing)


def backend_around(load: Loader, *, computes_in_worker: bool = False) -> Backend:
    """A backend that explains failures in its own words."""

    async def load_echo(spec: LoadSpec, report: Report) -> HostedEngine:
        return await load(spec)

    return Backend(
        title="Echo",
        load=load_echo,
        explain_load=explain_load,
        explain_request=explain_request,
        computes_in_worker=computes_in_worker,
    )


def explain_load(error: BaseException, log: Sequence[str], *, name: str) -> VlmtuiError:
    if "weights" in str(error):
        return VlmtuiError(ErrorKind.WEIGHTS_MISSING, f"{name} lacks weights.")
    return contract.explain_load(error, log, name=name)


def explain_request(error: BaseException, log: Sequence[str]) -> VlmtuiError:
    if "out of memory" in str(error):
        return VlmtuiError(ErrorKind.OUT_OF_MEMORY, "Too much.")
    return contract.explain_request(error, log)


@asynccontextmanager
async def serving(
    short_path: Path,
    load: Loader,
    *,
    keep_alive_s: float | None = None,
    limits: Limits | None = None,
    computes_in_worker: bool = False,
    spec: LoadSpec = SPEC,
) -> AsyncIterator[Stage]:
    endpoint = Endpoint.of(Paths.below(short_path), spec)
    log = short_path / "worker.log"
    log.write_text("")
    server = make_server(
        spec,
        backend_around(load, computes_in_worker=computes_in_worker),
        log=log,
        runtime=endpoint.runtime,
        keep_alive_s=keep_alive_s,
        pid=1,
        limits=limits,
    )
    task = asyncio.create_task(server.run(endpoint.socket))
    async with AsyncExitStack() as stack:
        stack.callback(server.stop)
        yield Stage(server, endpoint, task)
    await task


def request(text: str, request_id: str = "r", *, keep: bool = False) -> GenerateRequest:
    prompt = ChatPrompt(turns=(user_turn(text),))
    return GenerateRequest(request_id=request_id, prompt=prompt, sampling=Sampling(), keep=keep)


async def ready(client: WorkerClient) -> WorkerClient:
    events = [event async for event in client.load()]
    assert isinstance(events[-1], EngineReady)
    return client


async def answer(client: WorkerClient, wanted: Request) -> tuple[str, EngineEvent]:
    events = [event async for event in client.generate(wanted)]
    return "".join(getattr(event, "text", "") for event in events), events[-1]
