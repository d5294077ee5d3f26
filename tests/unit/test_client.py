"""The client with a real process that follows the protocol or breaks it."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.support.fake_worker import fake_launcher
from tests.support.hosts import patient_host
from vlmtui.domain.conversation import RawPrompt
from vlmtui.domain.engine import EngineReady, LoadFailed, LoadProgress, LoadSpec, LoadStage
from vlmtui.domain.generation import (
    Cancelled,
    Delta,
    Failed,
    Finished,
    GenerateRequest,
    PromptReady,
    Request,
    Token,
    TokenLogprob,
)
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.local.client import WorkerClient
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.log_ring import LogRing
from vlmtui.paths import Paths
from vlmtui.protocol.endpoint import Endpoint
from vlmtui.protocol.messages import MAX_MESSAGE_BYTES, PROTOCOL_VERSION
from vlmtui.protocol.spool import join_deltas
from vlmtui.session.generation import render

Opening = Callable[..., Awaitable[WorkerClient]]


@pytest.fixture
def paths() -> Iterator[Paths]:
    """Paths below a folder with a short name, since a socket's path must be short."""
    with tempfile.TemporaryDirectory(prefix="vlmtui-test-") as folder:
        yield Paths.below(Path(folder))


@pytest.fixture
async def opening(paths: Paths) -> AsyncIterator[Opening]:
    host = patient_host(paths, fake_launcher())

    async def opened(**options: object) -> WorkerClient:
        spec = LoadSpec(model="/models/fake", name="fake", engine_args=options, typed=tuple(options))
        return await host.open(spec, client="test", keep_alive_s=60)

    yield opened
    for endpoint in Endpoint.all(paths):
        await host.stop(endpoint)


def ask(text: str, request_id: str = "r1") -> GenerateRequest:
    return GenerateRequest(request_id=request_id, prompt=RawPrompt(text=text), sampling=Sampling())


async def test_an_answer_and_its_end(opening: Opening) -> None:
    engine = await opening()
    events = [event async for event in engine.generate(ask("foreign red foreign circle"))]
    assert [type(event) for event in events] == [PromptReady, Delta, Delta, Finished]
    assert "".join(event.text for event in events if isinstance(event, Delta)) == "red circle "


async def test_requests_at_once_do_not_mix(opening: Opening) -> None:
    engine = await opening()

    async def answer(number: int) -> str:
        words = " ".join([f"{number}w"] * 200)
        events = [event async for event in engine.generate(ask(words, f"r{number}"))]
        return "".join(event.text for event in events if isinstance(event, Delta))

    answers = await asyncio.gather(*(answer(number) for number in range(8)))
    assert answers == [f"{number}w " * 200 for number in range(8)]


async def test_cancel_ends_with_cancelled(opening: Opening) -> None:
    engine = await opening()
    events = engine.generate(ask("half hold never"))
    async for event in events:
        if isinstance(event, Delta):
            break
    await engine.cancel("r1")
    [end] = [event async for event in events]
    assert isinstance(end, Cancelled)
    assert end.usage.completion_tokens == 1
    await engine.cancel("r1")


async def test_closing_the_iterator_cancels_in_the_worker(opening: Opening) -> None:
    engine = await opening()
    events = engine.generate(ask("half hold never"))
    await anext(events)
    assert (await engine.status()).running == 1
    await events.aclose()
    while (await engine.status()).running:
        await asyncio.sleep(0)
    again = [event async for event in engine.generate(ask("again"))]
    assert isinstance(again[-1], Finished)


async def test_cancelling_the_consuming_task_cancels_in_the_worker(opening: Opening) -> None:
    engine = await opening()
    holds = asyncio.Event()

    async def consume() -> None:
        async for event in engine.generate(ask("half hold never")):
            if isinstance(event, Delta):
                holds.set()

    task = asyncio.create_task(consume())
    await holds.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    while (await engine.status()).running:
        await asyncio.sleep(0)


async def test_a_failure_ends_the_request_only(opening: Opening) -> None:
    engine = await opening()
    [*_, end] = [event async for event in engine.generate(ask("fail"))]
    assert isinstance(end, Failed)
    assert end.failure.kind is ErrorKind.CONTEXT_TOO_LONG
    await engine.status()


async def test_death_mid_answer_fails_every_request(opening: Opening) -> None:
    engine = await opening()
    held = asyncio.create_task(_last(engine, ask("hold", "held")))
    while (await engine.status()).running != 1:
        await asyncio.sleep(0)
    events = [event async for event in engine.generate(ask("half die"))]
    assert [type(event) for event in events] == [PromptReady, Delta, Failed]
    for end in (events[-1], await held):
        assert isinstance(end, Failed)
        assert end.failure.kind is ErrorKind.ENGINE_DIED
        assert end.failure.hint
    cause = await engine.closed()
    assert cause is not None
    assert cause.kind is ErrorKind.ENGINE_DIED
    [after] = [event async for event in engine.generate(ask("more"))]
    assert isinstance(after, Failed)
    with pytest.raises(VlmtuiError, match="stopped"):
        await engine.status()


async def test_a_kill_is_noticed_without_a_request(opening: Opening) -> None:
    engine = await opening()
    pid = engine.pid
    waiting = asyncio.create_task(engine.closed())
    os.kill(pid, signal.SIGKILL)
    cause = await asyncio.wait_for(waiting, 30)
    assert cause is not None
    assert cause.kind is ErrorKind.ENGINE_DIED


@pytest.mark.parametrize("word", ["garbage", "oversized"])
async def test_nonsense_from_the_worker_ends_the_connection(opening: Opening, word: str) -> None:
    engine = await opening()
    [*_, end] = [event async for event in engine.generate(ask(f"half {word} more"))]
    assert isinstance(end, Failed)
    assert end.failure.kind is ErrorKind.PROTOCOL
    cause = await engine.closed()
    assert cause is not None
    assert cause.kind is ErrorKind.PROTOCOL


async def test_a_load_shows_every_stage(opening: Opening) -> None:
    engine = await opening(load="hold")
    events = engine.load()
    stages = [event.stage async for event in _some(events, len(LoadStage)) if isinstance(event, LoadProgress)]
    assert stages == list(LoadStage)
    assert engine.info is None
    waiting = asyncio.create_task(_next(events))
    await engine.shutdown()
    assert isinstance(await waiting, LoadFailed)


async def test_a_failed_load_and_a_closed_worker_give_a_reason(opening: Opening) -> None:
    engine = await opening(load="fail")
    last = [event async for event in engine.load()][-1]
    assert isinstance(last, LoadFailed)
    assert last.failure.kind is ErrorKind.OUT_OF_MEMORY
    cause = await engine.closed()
    assert cause is not None
    assert cause.kind is ErrorKind.OUT_OF_MEMORY


async def test_a_ready_engine_is_ready_at_once(opening: Opening) -> None:
    engine = await opening()
    [*_, last] = [event async for event in engine.load()]
    assert isinstance(last, EngineReady)
    assert [type(event) async for event in engine.load()] == [EngineReady]


@pytest.mark.parametrize(
    ("greeting", "words"),
    [("old", f"version {PROTOCOL_VERSION + 98}"), ("refuse", "too new"), ("garbage", "read the worker")],
)
async def test_a_worker_of_another_version_is_reported(opening: Opening, greeting: str, words: str) -> None:
    with pytest.raises(VlmtuiError, match=words) as caught:
        await opening(greeting=greeting)
    assert caught.value.kind is ErrorKind.PROTOCOL
    assert "vlmtui stop fake" in caught.value.hint


async def test_the_log_begins_with_its_newest_lines_and_goes_on(opening: Opening) -> None:
    engine = await opening()
    log = engine.log()
    assert [await anext(log) for _ in range(6)] == [*(f"line {number}" for number in range(5)), "a new line"]
    another = engine.log(1)
    assert await anext(another) == "a new line"
    await engine.close()
    assert [line async for line in log] == []


async def test_our_own_close_is_no_death(opening: Opening) -> None:
    engine = await opening()
    await engine.close()
    assert await engine.closed() is None
    await engine.close()
    [end] = [event async for event in engine.generate(ask("more"))]
    assert isinstance(end, Failed)


@pytest.mark.parametrize("text", ["\udcff", "x" * MAX_MESSAGE_BYTES], ids=["not Unicode", "too large"])
async def test_an_unsendable_request_fails_and_is_harmless(opening: Opening, text: str) -> None:
    engine = await opening()
    [end] = [event async for event in engine.generate(ask(text))]
    assert isinstance(end, Failed)
    assert end.failure.kind is ErrorKind.BAD_INPUT
    assert isinstance(await _last(engine, ask("fine")), Finished)


async def test_a_request_id_is_used_once(opening: Opening) -> None:
    engine = await opening()
    events = engine.generate(ask("hold"))
    await anext(events)
    with pytest.raises(ValueError, match="r1"):
        await anext(engine.generate(ask("again")))
    await events.aclose()


async def test_prompts_are_rendered_while_an_answer_is_under_way(opening: Opening) -> None:
    engine = await opening()
    held = engine.generate(ask("hold"))
    await anext(held)
    found = await asyncio.gather(*(render(engine, RawPrompt(text=text)) for text in ("one", "fail hold", "")))
    assert [(type(ready), ready.prompt) for ready in found] == [
        (PromptReady, "one"),
        (PromptReady, "fail hold"),
        (PromptReady, ""),
    ]
    await held.aclose()
    while (await engine.status()).running:
        await asyncio.sleep(0)


async def test_a_render_that_is_cancelled_harms_nothing(opening: Opening) -> None:
    engine = await opening()
    rendering = asyncio.create_task(render(engine, RawPrompt(text="one")))
    await asyncio.sleep(0)
    rendering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await rendering
    assert (await render(engine, RawPrompt(text="two"))).prompt == "two"
    while (await engine.status()).running:
        await asyncio.sleep(0)


async def test_a_render_raises_the_error_of_a_request(opening: Opening) -> None:
    engine = await opening()
    with pytest.raises(VlmtuiError) as caught:
        await render(engine, RawPrompt(text="\udcff"))
    assert caught.value.kind is ErrorKind.BAD_INPUT
    os.kill(engine.pid, signal.SIGKILL)
    await engine.closed()
    with pytest.raises(VlmtuiError) as caught:
        await render(engine, RawPrompt(text="one"))
    assert caught.value.kind is ErrorKind.ENGINE_DIED


def test_joined_deltas_lose_no_token() -> None:
    deltas = []
    for number in range(2000):
        entry = TokenLogprob(token_id=number, logprob=-1.0)
        token = Token(text=str(number))
        delta = Delta(
            request_id="r1", text="x", tokens=1, token_ids=(number,), vocabulary={number: token}, logprobs=(entry,)
        )
        deltas.append(delta)
    whole = join_deltas(deltas)
    assert (whole.text, whole.tokens) == ("x" * 2000, 2000)
    assert whole.token_ids == tuple(whole.vocabulary) == tuple(entry.token_id for entry in whole.logprobs)
    assert whole.token_ids == tuple(range(2000))


def test_a_log_ring_forgets_the_oldest() -> None:
    ring = LogRing(2000)
    ring.extend(str(number) for number in range(3000))
    assert ring.newest(2) == ["2998", "2999"]
    seen = ring.total
    ring.append("more")
    assert ring.since(seen) == ["more"]
    assert (len(ring.since(0)), len(ring.newest(5000)), ring.newest(0)) == (2000, 2000, [])


async def _last(engine: WorkerClient, request: Request) -> object:
    return [event async for event in engine.generate(request)][-1]


async def _some(events: AsyncIterator[object], count: int) -> AsyncIterator[object]:
    for _ in range(count):
        yield await anext(events)


async def _next(events: AsyncIterator[object]) -> object:
    return await anext(events)
