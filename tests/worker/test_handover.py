"""Answers whose clients change while the engine's thread sends: each client gets all of it, once and in order."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.worker.hosted import EchoEngine
from tests.worker.stage import Stage, ready, request, serving
from vlmtui.domain.engine import LoadSpec
from vlmtui.domain.generation import Cancelled, Delta, EngineEvent, Failed, Finished, Request, Timings, Usage
from vlmtui.protocol.spool import read_spooled

_TAKEOVERS = 40


class Counting(EchoEngine):
    """An engine that counts, as fast as it can, until it is stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.is_enough = threading.Event()

    async def generate(self, request: Request) -> AsyncGenerator[EngineEvent, None]:
        for number in itertools.count():
            yield Delta(request_id=request.request_id, text=f"{number} ", tokens=1)
            await asyncio.sleep(0)
            if self.is_enough.is_set():
                break
        yield Finished(request_id=request.request_id, finish_reason="stop", usage=Usage(), timings=Timings())


@pytest.fixture
def engine() -> Counting:
    return Counting()


@pytest.fixture
async def stage(short_path: Path, engine: Counting) -> AsyncIterator[Stage]:
    async def load(spec: LoadSpec) -> EchoEngine:
        return engine

    async with serving(short_path, load) as found:
        yield found


def counted(events: list[EngineEvent]) -> int:
    """Return the last number of the deltas, which must count from 0 without a gap."""
    numbers = [int(word) for event in events if isinstance(event, Delta) for word in event.text.split()]
    assert numbers == list(range(len(numbers)))
    return len(numbers)


async def test_each_client_that_takes_over_gets_the_whole_answer(stage: Stage, engine: Counting) -> None:
    clients = [await ready(await stage.client()) for _ in range(2)]
    events = clients[0].generate(request("", keep=True))
    for turn in range(_TAKEOVERS):
        so_far = [await anext(events) for _ in range(20)]
        taken = clients[(turn + 1) % 2].resume("r")
        first = await anext(taken)
        so_far += [event async for event in events]
        assert isinstance(so_far[-1], Failed), "it was taken over"
        assert counted([first]) >= 1 and counted(so_far) >= 20
        events = continued(first, taken)
    engine.is_enough.set()
    whole = [event async for event in events]
    assert isinstance(whole[-1], Finished)
    assert counted(whole) == whole[-1].usage.completion_tokens
    for client in clients:
        await client.close()


async def continued(first: EngineEvent, rest: AsyncGenerator[EngineEvent, None]) -> AsyncGenerator[EngineEvent, None]:
    yield first
    async with aclosing(rest):
        async for event in rest:
            yield event


async def test_the_spool_of_a_stopped_worker_ends_with_its_last_event(stage: Stage) -> None:
    client = await ready(await stage.client())
    async with aclosing(client.generate(request("", keep=True))) as events:
        async for event in events:
            if isinstance(event, Delta) and event.text.startswith("100 "):
                stage.server.stop()
                break
        rest = [event async for event in events]
    await stage.task
    left = read_spooled(stage.server.runtime, "r")
    assert left is not None and isinstance(left[-1], Cancelled) and isinstance(rest[-1], Cancelled)
    assert counted(left) == left[-1].usage.completion_tokens == rest[-1].usage.completion_tokens
    await client.close()
