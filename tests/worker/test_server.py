"""The server over a real socket, spoken to by the real client; only the engine is scripted."""

from __future__ import annotations

import asyncio
import stat
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.worker.hosted import INFO, EchoEngine
from tests.worker.stage import Stage, answer, ready, request, serving
from vlmtui.domain.conversation import ChatPrompt, user_turn
from vlmtui.domain.engine import LoadFailed, LoadSpec
from vlmtui.domain.generation import (
    Cancelled,
    EngineEvent,
    Failed,
    Finished,
    PromptReady,
    RenderRequest,
    Request,
    Timings,
    Usage,
)
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.protocol.messages import PROTOCOL_VERSION, Hello, Refused, Welcome, decode_worker_message, encode
from vlmtui.session.generation import render
from vlmtui.worker.server import EXIT_ENGINE_DIED, EXIT_LOAD_FAILED


@pytest.fixture
def engine() -> EchoEngine:
    return EchoEngine()


@pytest.fixture
async def stage(short_path: Path, engine: EchoEngine) -> AsyncIterator[Stage]:
    async def load(spec: LoadSpec) -> EchoEngine:
        return engine

    async with serving(short_path, load) as found:
        yield found


async def test_a_request_is_answered_with_counts_and_times(stage: Stage) -> None:
    client = await ready(await stage.client())
    text, last = await answer(client, request("one two three"))
    assert text == "one two three "
    assert isinstance(last, Finished)
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (3, 3)
    assert last.timings.ttft_s is not None
    assert last.timings.ttft_s <= last.timings.total_s
    await client.close()


async def test_only_the_owner_can_use_the_socket(stage: Stage) -> None:
    client = await stage.client()
    assert stat.S_IMODE(stage.endpoint.socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(stage.endpoint.socket.parent.stat().st_mode) == 0o700
    await client.close()


async def test_a_failing_request_is_explained_and_harms_nothing(stage: Stage) -> None:
    client = await ready(await stage.client())
    _, last = await answer(client, request("fail"))
    assert isinstance(last, Failed)
    assert last.failure.kind is ErrorKind.OUT_OF_MEMORY
    assert isinstance((await answer(client, request("again")))[1], Finished)
    await client.close()


async def test_cancel_aborts_in_the_engine_and_counts_the_tokens(stage: Stage, engine: EchoEngine) -> None:
    client = await ready(await stage.client())
    events = []
    async for event in client.generate(request("well wait", "c")):
        events.append(event)
        if getattr(event, "text", "") == "wait ":
            await client.cancel("c")
    assert isinstance(events[-1], Cancelled)
    assert events[-1].usage.completion_tokens == 2
    assert engine.aborted == ["c"]
    await client.close()


async def test_a_client_that_goes_away_leaves_no_request_behind(stage: Stage, engine: EchoEngine) -> None:
    client, other = await ready(await stage.client()), await ready(await stage.client())
    async for event in client.generate(request("wait", "gone")):
        if getattr(event, "text", ""):
            break
    await client.close()
    while stage.server.requests.running:
        await asyncio.sleep(0)
    assert engine.aborted == ["gone"]
    assert isinstance((await answer(other, request("still here")))[1], Finished)
    await other.close()


async def test_one_client_cannot_cancel_anothers_request(stage: Stage) -> None:
    mine, theirs = await ready(await stage.client()), await ready(await stage.client())
    stream = mine.generate(request("wait", "mine"))
    await anext(stream)
    await theirs.cancel("mine")
    await theirs.status()
    assert "mine" in stage.server.requests.running
    await stream.aclose()
    await mine.close()
    await theirs.close()


async def test_the_status_is_sent_while_a_load_blocks(short_path: Path) -> None:
    release = threading.Event()

    async def slow(spec: LoadSpec) -> EchoEngine:
        release.wait(60)
        return EchoEngine()

    async with serving(short_path, slow) as stage:
        client = await stage.client()
        assert (await client.status()).state == "loading"
        _, last = await answer(client, request("early"))
        assert isinstance(last, Failed)
        assert last.failure.kind is ErrorKind.ENGINE_BUSY
        release.set()
        await ready(client)
        assert client.info is not None
        assert client.info.architecture == INFO.architecture
        await client.close()


async def test_a_failed_load_is_reported_and_ends_the_worker(short_path: Path) -> None:
    gate = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def broken(spec: LoadSpec) -> EchoEngine:
        asyncio.run_coroutine_threadsafe(gate.wait(), loop).result(60)
        raise RuntimeError("Cannot find any model weights with `x`")

    async with serving(short_path, broken) as stage:
        client = await stage.client()
        gate.set()
        events = [event async for event in client.load()]
        assert isinstance(events[-1], LoadFailed)
        assert events[-1].failure.kind is ErrorKind.WEIGHTS_MISSING
        assert await stage.task == EXIT_LOAD_FAILED


async def test_an_engine_that_dies_fails_its_requests_and_ends_the_worker(stage: Stage, engine: EchoEngine) -> None:
    client = await ready(await stage.client())
    (stage.endpoint.log.parent).mkdir(parents=True, exist_ok=True)
    events = []
    async for event in client.generate(request("wait", "d")):
        events.append(event)
        if getattr(event, "text", ""):
            engine.die()
    assert isinstance(events[-1], Failed)
    assert events[-1].failure.kind is ErrorKind.ENGINE_DIED
    assert await stage.task == EXIT_ENGINE_DIED


async def test_an_unused_worker_ends_after_its_keep_alive(short_path: Path) -> None:
    async def load(spec: LoadSpec) -> EchoEngine:
        return EchoEngine()

    async with serving(short_path, load, keep_alive_s=0) as stage:
        client = await ready(await stage.client())
        looker = await stage.client("ps")
        await looker.close()
        assert not stage.task.done()
        await client.close()
        assert await asyncio.wait_for(stage.task, 10) == 0


async def test_the_log_can_be_read_and_followed(stage: Stage, short_path: Path) -> None:
    client = await ready(await stage.client())
    log = short_path / "worker.log"
    log.write_text("before\n")
    lines = client.log()
    assert await anext(lines) == "before"
    with log.open("a") as file:
        file.write("after\x1b[31m\n")
    assert await anext(lines) == "after\x1b[31m"
    await client.close()


@pytest.mark.parametrize(
    "first",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b'{"type":"hello"}\n',
        encode(Hello(version=999, client="old", pid=1)),
        b'{"type":"ping","n":1}\n',
        b"\xff\xfe\n",
    ],
)
async def test_a_client_without_a_valid_greeting_is_refused(stage: Stage, first: bytes) -> None:
    friend = await ready(await stage.client())
    reader, writer = await asyncio.open_unix_connection(stage.endpoint.socket)
    writer.write(first)
    reply = decode_worker_message(await reader.readline())
    assert isinstance(reply, Refused)
    assert reply.failure.kind is ErrorKind.PROTOCOL
    assert await reader.read() == b""
    writer.close()
    assert isinstance((await answer(friend, request("unharmed")))[1], Finished)
    await friend.close()


async def test_an_endless_message_is_refused(stage: Stage) -> None:
    friend = await ready(await stage.client())
    reader, writer = await asyncio.open_unix_connection(stage.endpoint.socket, limit=2**20)
    writer.write(encode(Hello(version=PROTOCOL_VERSION, client="flood", pid=1)))
    assert isinstance(decode_worker_message(await reader.readline()), Welcome)
    with suppress(ConnectionError):
        for _ in range(20):
            writer.write(b"x" * 2**20)
            await writer.drain()
    with suppress(ConnectionError):
        assert b"refused" in await reader.read()
    writer.close()
    assert isinstance((await answer(friend, request("unharmed")))[1], Finished)
    await friend.close()


async def test_shutdown_ends_every_request_with_one_terminal_event(stage: Stage, engine: EchoEngine) -> None:
    client, other = await ready(await stage.client()), await ready(await stage.client())
    stream = client.generate(request("wait", "s"))
    await anext(stream)
    await other.shutdown()
    events = [event async for event in stream]
    assert isinstance(events[-1], Cancelled)
    assert await stage.task == 0
    assert engine.ended
    await client.close()


class RenderingEngine(EchoEngine):
    """Renders the last turn's text; `block` first holds its thread until it is released, `wait` waits for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.release = threading.Event()

    async def generate(self, request: Request) -> AsyncGenerator[EngineEvent, None]:
        if not isinstance(request, RenderRequest):
            async for event in super().generate(request):
                yield event
            return
        assert isinstance(request.prompt, ChatPrompt)
        text = request.prompt.turns[-1].text
        self.entered.set()
        if text == "fail":
            raise VlmtuiError(ErrorKind.PLACEHOLDER_MISMATCH, "One too many.")
        if text == "block":
            self.release.wait(60)
        if text == "wait":
            try:
                await asyncio.Event().wait()
            finally:
                self.aborted.append(request.request_id)
        yield PromptReady(request_id=request.request_id, prompt=text, token_ids=(1, 2), media=())
        yield Finished(request_id=request.request_id, finish_reason="stop", usage=Usage(), timings=Timings())


@pytest.fixture
def renderer() -> RenderingEngine:
    return RenderingEngine()


@pytest.fixture
async def rendering(short_path: Path, renderer: RenderingEngine) -> AsyncIterator[Stage]:
    async def load(spec: LoadSpec) -> EchoEngine:
        return renderer

    async with serving(short_path, load) as found:
        yield found


def prompt(text: str) -> ChatPrompt:
    return ChatPrompt(turns=(user_turn(text),))


async def test_prompts_are_rendered_beside_an_answer(rendering: Stage) -> None:
    client = await ready(await rendering.client())
    stream = client.generate(request("wait"))
    await anext(stream)
    one, two = await asyncio.gather(render(client, prompt("one")), render(client, prompt("two")))
    assert (one.prompt, two.prompt, one.token_ids) == ("one", "two", (1, 2))
    await client.cancel("r")
    events = [event async for event in stream]
    assert sum(isinstance(event, Finished | Failed | Cancelled) for event in events) == 1
    assert isinstance(events[-1], Cancelled)
    while rendering.server.requests.running:
        await asyncio.sleep(0)
    await client.close()


async def test_a_render_that_fails_is_explained_and_harms_nothing(rendering: Stage) -> None:
    client = await ready(await rendering.client())
    with pytest.raises(VlmtuiError, match="One too many") as caught:
        await render(client, prompt("fail"))
    assert caught.value.kind is ErrorKind.PLACEHOLDER_MISMATCH
    assert (await render(client, prompt("again"))).prompt == "again"
    assert isinstance((await answer(client, request("and an answer")))[1], Finished)
    await client.close()


async def test_a_cancelled_render_is_aborted_in_the_engine(rendering: Stage, renderer: RenderingEngine) -> None:
    client = await ready(await rendering.client())
    waiting = asyncio.create_task(render(client, prompt("wait")))
    assert await asyncio.to_thread(renderer.entered.wait, 60)
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting
    while rendering.server.requests.running:
        await asyncio.sleep(0)
    assert len(renderer.aborted) == 1
    assert (await render(client, prompt("again"))).prompt == "again"
    await client.close()


async def test_the_status_is_sent_while_a_prompt_is_rendered(rendering: Stage, renderer: RenderingEngine) -> None:
    client = await ready(await rendering.client())
    heavy = asyncio.create_task(render(client, prompt("block")))
    assert await asyncio.to_thread(renderer.entered.wait, 60)
    await client.status()
    assert not heavy.done()
    renderer.release.set()
    assert (await heavy).prompt == "block"
    await client.close()


async def test_a_render_of_an_engine_that_dies_fails(rendering: Stage, renderer: RenderingEngine) -> None:
    client = await ready(await rendering.client())
    (rendering.endpoint.log.parent).mkdir(parents=True, exist_ok=True)
    waiting = asyncio.create_task(render(client, prompt("wait")))
    assert await asyncio.to_thread(renderer.entered.wait, 60)
    renderer.die()
    with pytest.raises(VlmtuiError) as caught:
        await waiting
    assert caught.value.kind is ErrorKind.ENGINE_DIED
    assert await rendering.task == EXIT_ENGINE_DIED


async def test_the_server_tells_which_files_have_changed_since_the_load(
    short_path: Path, tmp_path: Path, engine: EchoEngine
) -> None:
    template = tmp_path / "chat_template.jinja"
    template.write_text("1")

    async def load(spec: LoadSpec) -> EchoEngine:
        return engine

    async with serving(short_path, load, spec=LoadSpec(model=str(tmp_path), name="test")) as stage:
        client = await ready(await stage.client())
        assert client.info is not None and client.info.files != ""
        assert client.changed == (await client.status()).changed == ()
        template.write_text("2")
        assert (await client.status()).changed == ("chat_template.jinja",)
        other, visitor = await stage.client(), await stage.client("ps")
        assert (other.changed, visitor.changed) == (("chat_template.jinja",), ())
        for one in (client, other, visitor):
            await one.close()


async def test_a_file_that_changes_during_the_load_makes_it_fail(
    short_path: Path, tmp_path: Path, engine: EchoEngine
) -> None:
    (tmp_path / "config.json").write_text("1")

    async def load(spec: LoadSpec) -> EchoEngine:
        (tmp_path / "config.json").write_text("2")
        return engine

    async with serving(short_path, load, spec=LoadSpec(model=str(tmp_path), name="test")) as stage:
        events = [event async for event in (await stage.client()).load()]
        assert isinstance(events[-1], LoadFailed)
        assert events[-1].failure.kind is ErrorKind.MODEL_CHANGED
