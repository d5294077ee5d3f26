"""A server in the test's own event loop, and the means to speak to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tests.worker.hosted import SPEC, EchoEngine
from vlmtui.domain.conversation import user_turn
from vlmtui.domain.engine import ChatPrompt, EngineEvent, EngineReady, GenerateRequest, LoadSpec
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.client import WorkerClient
from vlmtui.engine.connect import connect
from vlmtui.paths import Paths
from vlmtui.protocol.endpoint import Endpoint
from vlmtui.worker.server import WorkerServer, make_server

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
        return await connect(self.endpoint, client=name, attached=True, timeout=10, end=nothing)


@asynccontextmanager
async def serving(short_path: Path, load: Loader, *, keep_alive_s: float | None = None) -> AsyncIterator[Stage]:
    endpoint = Endpoint.of(Paths.below(short_path), SPEC)
    log = short_path / "worker.log"
    log.write_text("")
    server = make_server(SPEC, load, log=log, runtime=endpoint.runtime, keep_alive_s=keep_alive_s, pid=1)
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


async def answer(client: WorkerClient, wanted: GenerateRequest) -> tuple[str, EngineEvent]:
    events = [event async for event in client.generate(wanted)]
    return "".join(getattr(event, "text", "") for event in events), events[-1]
