"""The same prompts to the worker's own engine and to a real `vllm serve`: the same tokens, answers, probabilities."""

from __future__ import annotations

import asyncio
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psutil
import pytest

from tests.support.equality import chat, compare, prompts, report_of
from tests.support.hosts import patient_host
from tests.support.pictures import Easel
from tests.support.template_prompts import differing_prompts
from tests.support.vllm_server import VllmServer
from vlmtui.domain.conversation import VideoSampling
from vlmtui.domain.engine import LoadSpec
from vlmtui.domain.generation import Delta, Finished, GenerateRequest, PromptReady, RenderRequest
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.local.client import WorkerClient
from vlmtui.errors import VlmtuiError
from vlmtui.paths import Paths
from vlmtui.registry.match import Model
from vlmtui.worker.backends.remote.engine import RemoteEngine, connect_to_server
from vlmtui.worker.server import Limits

pytestmark = pytest.mark.engine


ENDLESS = GenerateRequest(
    request_id="r", prompt=chat("Count to 200."), sampling=Sampling(max_tokens=3000, extra={"ignore_eos": True})
)


_PIXELS_MAX = 1_000_000


class Served(NamedTuple):
    server: VllmServer
    address: str


@pytest.fixture(scope="module")
def served(shapes: Model) -> Iterator[Served]:
    """A server with the bundled model, loading or loaded; it ends with the module."""
    with serve(shapes, VLLM_MAX_IMAGE_PIXELS=str(_PIXELS_MAX)) as found:
        yield found


@contextmanager
def serve(shapes: Model, **variables: str) -> Iterator[Served]:
    with tempfile.TemporaryDirectory(prefix="vlmtui-", dir="/tmp") as folder:
        path = Path(folder) / "socket"
        server = VllmServer(shapes.spec.model, Path(folder), ["--uds", str(path)], **variables)
        try:
            yield Served(server, f"unix:{path}")
        finally:
            server.end()


@pytest.fixture
def address(served: Served) -> str:
    return served.address


async def remote(address: str, **options: object) -> RemoteEngine:
    given: dict[str, object] = {"url": address, "wait_s": 600, **options}
    spec = LoadSpec(model="shapes", name="shapes", backend="remote", engine_args=given, typed=tuple(given))
    return await connect_to_server(spec, lambda step: None)


async def test_a_server_gives_the_same_prompts_and_answers_as_the_worker(
    address: str, engine: WorkerClient, tmp_path: Path
) -> None:
    server = await remote(address)
    differing: list[str] = []
    count = 0
    for count, (name, prompt) in enumerate(prompts(tmp_path), 1):
        here, there = await report_of(engine, prompt, count), await report_of(server, prompt, count)
        differing += [f"{name}: {what}" for what, is_same in compare(here, there).items() if not is_same]
    await server.shutdown()
    assert differing == []
    assert count >= 36


async def test_a_server_renders_the_templates_of_reasoning_families_as_the_tokenizer_does(
    address: str, shapes: Model, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    server = await remote(address)
    differing, count = await differing_prompts(server, AutoTokenizer.from_pretrained(shapes.spec.model), tmp_path)
    await server.shutdown()
    assert differing == []
    assert count >= 150


async def test_a_picture_is_sent_to_a_server_once(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await remote(address)
    sent: list[object] = []
    events = server._api.events

    def noted(path: str, body: dict[str, Any]) -> Any:
        sent.append(body["messages"][0]["content"][0]["image_url"])
        return events(path, body)

    monkeypatch.setattr(server._api, "events", noted)
    easel = Easel(tmp_path)
    one, other = (easel.picture((colour, "circle", "left")).attachment for colour in ("red", "green"))
    first, again, between, third = [
        await report_of(server, chat("What is in this image?", picture), number)
        for number, picture in enumerate((one, one, other, one))
    ]
    assert first.ids == again.ids == third.ids and "red" in first.text and "green" in between.text
    assert first.places
    assert (first.prompt_ids, first.places) == (again.prompt_ids, again.places)
    assert [url is None for url in sent] == [False, True, False, True]
    await server.shutdown()


async def test_frames_dropped_by_the_server_are_reported(address: str, tmp_path: Path) -> None:
    server = await remote(address)
    clip = Easel(tmp_path).clip("red", "circle", "left", frames=48).attachment
    enough, more = (msgspec.structs.replace(clip, sampling=VideoSampling(num_frames=count)) for count in (32, 40))
    assert (await report_of(server, chat("What moves?", enough), 1)).end is not None
    with pytest.raises(VlmtuiError, match="it uses 32 of 40"):
        await report_of(server, chat("What moves?", more), 2)
    await server.shutdown()


async def test_the_count_of_a_prompt_tells_a_limit_before_anything_is_sent(address: str, tmp_path: Path) -> None:
    """The server reads the images to count their tokens, and refuses them as it would refuse the message."""
    server = await remote(address)
    easel = Easel(tmp_path)
    small, large = (
        easel.picture(("red", "circle", "left"), size=size).attachment for size in ((224, 224), (1400, 1000))
    )
    for images, said in (
        ((small, large), rf"exceeds the server's limit\. It is {re.escape(large.name)} \(1,400×1,000\)\."),
        ((small,) * 9, "more attachments of a kind than the server accepts"),
    ):
        with pytest.raises(VlmtuiError, match=said):
            await report_of(server, chat("What is there?", *images), 1)
        asked = RenderRequest(request_id="r", prompt=chat("What is there?", *images), sampling=Sampling())
        with pytest.raises(VlmtuiError, match=said):
            [one async for one in server.generate(asked)]
    await server.shutdown()


@contextmanager
def slowed(server: VllmServer, *, run_s: float = 0.1, stand_s: float = 0.7) -> Iterator[None]:
    """Let all processes of a server run for a short time only, again and again, as on a machine that is starved.

    So an endless answer is still in its middle when the first token has been read, however busy the machine is."""
    ended = threading.Event()
    processes = server.processes()

    def slow() -> None:
        while not ended.is_set():
            _each(processes, psutil.Process.suspend)
            ended.wait(stand_s)
            _each(processes, psutil.Process.resume)
            ended.wait(run_s)

    _each(processes, psutil.Process.suspend)
    thread = threading.Thread(target=slow)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def stopped(server: VllmServer) -> Iterator[None]:
    """Let no process of a server run: it takes connections, and answers nothing, not even how it is."""
    processes = server.processes()
    _each(processes, psutil.Process.suspend)
    try:
        yield
    finally:
        _each(processes, psutil.Process.resume)


def _each(processes: list[psutil.Process], change: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            change(process)


async def test_a_slow_server_gives_complete_answers(served: Served, tmp_path: Path) -> None:
    """Its health is asked all the while: it stands still longer than a silence may last before that."""
    server = await remote(served.address, stall_s=0.2, deaf_max_s=60)
    red = chat("What is in this image?", Easel(tmp_path).picture(("red", "circle", "left")).attachment)
    quick = await report_of(server, red, 1)
    began = time.monotonic()
    with slowed(served.server):
        slow = await report_of(server, red, 1)
    assert (slow.text, slow.ids, slow.prompt_ids) == (quick.text, quick.ids, quick.prompt_ids)
    assert slow.end is not None and "red circle" in slow.text
    assert time.monotonic() - began > 0.7, "it stood still at least once"
    await server.shutdown()


async def test_a_stopped_server_continues_its_answer_without_a_hang(
    served: Served, shapes: Model, short_path: Path
) -> None:
    given = {"url": served.address, "wait_s": 600, "stall_s": 1.0, "deaf_max_s": 60}
    spec = LoadSpec(model="shapes", name="shapes", backend="remote", engine_args=given, typed=tuple(given))
    client = await patient_host(Paths.below(short_path)).open(spec, client="tests", keep_alive_s=0)
    try:
        assert [_ async for _ in client.load()]
        events = client.generate(ENDLESS)
        while not isinstance(await anext(events), Delta):
            pass
        with stopped(served.server):
            until = time.monotonic() + Limits().shortest_silence_s + 4
            while time.monotonic() < until:
                assert (await client.status()).engine_silent_s == 0, "the app would offer to start the engine anew"
                await asyncio.sleep(0.5)
        assert isinstance(await anext(events), Delta)
        await events.aclose()
    finally:
        await client.shutdown()


async def test_a_stopped_server_times_out_and_answers_later(served: Served) -> None:
    server = await remote(served.address, stall_s=1.0, deaf_max_s=2.0)
    events = server.generate(ENDLESS)
    while not isinstance(await anext(events), Delta):
        pass
    with stopped(served.server), pytest.raises(VlmtuiError, match=r"has answered nothing for \d+ seconds") as failed:
        async for _ in events:
            pass
    assert "What came is kept" in failed.value.hint
    assert (await report_of(server, chat("Hello"), 5)).end is not None
    await server.shutdown()


async def test_stopped_and_killed_servers_are_distinguished(served: Served) -> None:
    """The last test: the server does not outlive it."""
    patient, hasty = (
        await remote(served.address, stall_s=1.0),
        await remote(served.address, stall_s=1.0, silence_max_s=3),
    )
    await report_of(patient, chat("Hello"), 2)
    (core,) = served.server.processes("VLLM::EngineCore")
    goes_on, given_up = patient.generate(ENDLESS), hasty.generate(ENDLESS)
    with slowed(served.server):
        for kind in (PromptReady, Delta):
            assert all(isinstance(event, kind) for event in await asyncio.gather(anext(goes_on), anext(given_up)))
    core.suspend()
    try:
        rest = [event async for event in given_up]
    except VlmtuiError as error:
        assert "has been silent for 3 seconds" in error.message
    else:
        assert isinstance(rest[-1], Finished) and rest[-1].usage.completion_tokens == 3000
        pytest.skip("the whole answer had come before the engine was stopped: nothing can be silent")
    finally:
        core.resume()
    assert isinstance(await anext(goes_on), Delta)
    for process in served.server.processes():
        if process.pid == served.server.process.pid:
            process.kill()
    with pytest.raises(VlmtuiError) as failed:
        async for event in goes_on:
            assert isinstance(event, Delta)
    assert "in the middle of the answer" in failed.value.message and "What came is kept" in failed.value.hint
    with pytest.raises(VlmtuiError, match="Nothing listens"):
        await report_of(patient, chat("Hello"), 3)
    await patient.shutdown()
    await hasty.shutdown()
