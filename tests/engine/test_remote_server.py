"""The same prompts to the worker's own engine and to a real `vllm serve`: the same tokens, answers, probabilities."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.support.pictures import Easel
from tests.support.vllm_server import VllmServer
from vlmtui.domain.attachment import Attachment, VideoSampling
from vlmtui.domain.conversation import Turn, assistant_turn, system_turn, user_turn
from vlmtui.domain.engine import LoadSpec
from vlmtui.domain.generation import Delta, Finished, GenerateRequest, PromptReady, TokenLogprob
from vlmtui.domain.prompt import ChatPrompt, Prompt, RawPrompt
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Engine
from vlmtui.engine.local.client import WorkerClient
from vlmtui.errors import VlmtuiError
from vlmtui.registry.match import Model
from vlmtui.worker.backends.remote.engine import RemoteEngine, connect_to_server

pytestmark = pytest.mark.engine


class Served(NamedTuple):
    server: VllmServer
    address: str


@pytest.fixture(scope="module")
def served(shapes: Model) -> Iterator[Served]:
    """A server with the bundled model, loading or loaded; it ends with the module."""
    with tempfile.TemporaryDirectory(prefix="vlmtui-", dir="/tmp") as folder:
        path = Path(folder) / "socket"
        server = VllmServer(shapes.spec.model, Path(folder), ["--uds", str(path)])
        try:
            yield Served(server, f"unix:{path}")
        finally:
            server.end()


@pytest.fixture
def address(served: Served) -> str:
    return served.address


async def remote(address: str, **options: object) -> RemoteEngine:
    given: dict[str, object] = {"url": address, "wait_s": 600, **options}
    spec = LoadSpec(model="shapes", name="shapes", backend="remote", engine_args=given)
    return await connect_to_server(spec, lambda step: None)


class Told:
    """What an engine told of one request."""

    def __init__(self) -> None:
        self.prompt: PromptReady | None = None
        self.text = ""
        self.ids: list[int] = []
        self.logprobs: list[TokenLogprob] = []
        self.end: Finished | None = None


async def told(engine: Engine | RemoteEngine, prompt: Prompt, number: int) -> Told:
    found = Told()
    asked = GenerateRequest(request_id=f"r{number}", prompt=prompt, sampling=Sampling(max_tokens=40), logprobs=2)
    async for event in engine.generate(asked):
        match event:
            case PromptReady():
                found.prompt = event
            case Delta():
                found.text += event.text
                found.ids += event.token_ids
                found.logprobs += event.logprobs
            case Finished():
                found.end = event
    return found


def prompts(folder: Path) -> Iterator[tuple[str, Prompt]]:
    """Some thirty prompts of all kinds."""
    easel = Easel(folder)
    names = ("red", "green", "blue", "yellow")
    shapes = ("circle", "square")
    places = ("center", "left")
    drawn = [
        easel.picture((colour, shape, place)) for shape, place in zip(shapes, places, strict=True) for colour in names
    ]
    pictures = [one.attachment for one in drawn]
    clip = easel.clip("red", "circle", "left").attachment
    for number, picture in enumerate(pictures):
        yield f"one picture {number}", chat("What is in this image?", picture)
        yield f"raw {number}", raw("What is in this image?", picture)
    yield "two pictures", chat("What is different?", *pictures[:2])
    yield "two pictures, raw", raw("What is different?", *pictures[:2])
    yield "eight pictures", chat("How many images are there?", *pictures)
    yield "eight pictures, raw", raw("How many images are there?", *pictures)
    yield "video", chat("What moves?", clip)
    yield "video and picture", chat("What is this?", clip, pictures[0])
    yield "video, raw", raw("What moves?", clip)
    yield "picture and video, raw", raw("What is this?", pictures[0], clip)
    for text in ("Hello!", "What can you do?", "naïve café ✓ 日本語", "  spaces  ", "x" * 300):
        yield f"text {text[:9]}", chat(text)
        yield f"raw text {text[:9]}", raw(text)
    system = system_turn("Be brief.")
    first = (user_turn("Look.", pictures[:1]), assistant_turn("A red circle."))
    yield "system", ChatPrompt(turns=(system, user_turn("What is in this image?", pictures[:1])))
    yield "image in turn 2", ChatPrompt(turns=(*first, user_turn("And this one?", pictures[1:2])))
    yield "prefill", raw("What is in this image?", pictures[0], begun="A green")
    yield "answered", ChatPrompt(turns=(user_turn("What is in this image?", pictures[:1]), assistant_turn("A green")))
    yield "about an earlier one", ChatPrompt(turns=(system, *first, user_turn("What colour was it?")))


def chat(text: str, *media: Attachment) -> ChatPrompt:
    return ChatPrompt(turns=(Turn("user", user_turn(text, media).parts),))


def raw(text: str, *media: Attachment, begun: str = "") -> RawPrompt:
    pads = "".join(f"<|vision_start|><|{one.modality}_pad|><|vision_end|>" for one in media)
    return RawPrompt(
        text=f"<|im_start|>user\n{pads}{text}<|im_end|>\n<|im_start|>assistant\n{begun}", attachments=tuple(media)
    )


async def test_a_server_gives_what_the_worker_gives(address: str, engine: WorkerClient, tmp_path: Path) -> None:
    server = await remote(address)
    differing: list[str] = []
    count = 0
    for count, (name, prompt) in enumerate(prompts(tmp_path), 1):
        here, there = await told(engine, prompt, count), await told(server, prompt, count)
        assert here.prompt is not None and there.prompt is not None
        same = {
            "prompt ids": here.prompt.token_ids == there.prompt.token_ids,
            "prompt": here.prompt.prompt == there.prompt.prompt,
            "media": places(here.prompt) == places(there.prompt),
            "answer ids": here.ids == there.ids,
            "answer": here.text == there.text,
            "log-probabilities": close(here.logprobs, there.logprobs),
            "end": here.end is not None and there.end is not None and here.end.stop == there.end.stop,
        }
        differing += [f"{name}: {what}" for what, is_same in same.items() if not is_same]
    await server.shutdown()
    assert differing == []
    assert count >= 30


def places(prompt: PromptReady) -> list[tuple[str, int, int, int]]:
    return [(span.modality, span.index, span.offset, span.length) for span in prompt.media]


def close(one: list[TokenLogprob], other: list[TokenLogprob]) -> bool:
    """The same tokens, as likely; of alternatives only the likeliest, as those of no weight change places."""
    return len(one) == len(other) and all(
        a.token_id == b.token_id and abs(a.logprob - b.logprob) < 1e-3 for a, b in zip(one, other, strict=True)
    )


async def test_a_picture_that_the_server_has_is_not_sent_again(
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
        await told(server, chat("What is in this image?", picture), number)
        for number, picture in enumerate((one, one, other, one))
    ]
    assert first.ids == again.ids == third.ids and "red" in first.text and "green" in between.text
    assert first.prompt is not None and again.prompt is not None
    assert (first.prompt.token_ids, places(first.prompt)) == (again.prompt.token_ids, places(again.prompt))
    assert [url is None for url in sent] == [False, True, False, True]
    await server.shutdown()


async def test_frames_that_the_server_drops_are_told(address: str, tmp_path: Path) -> None:
    server = await remote(address)
    clip = Easel(tmp_path).clip("red", "circle", "left", frames=48).attachment
    enough, more = (msgspec.structs.replace(clip, sampling=VideoSampling(num_frames=count)) for count in (32, 40))
    assert (await told(server, chat("What moves?", enough), 1)).end is not None
    with pytest.raises(VlmtuiError, match="of the video's 40 it uses 32"):
        await told(server, chat("What moves?", more), 2)
    await server.shutdown()


async def test_a_server_that_is_stopped_goes_on_or_is_given_up_and_a_killed_one_is_named(served: Served) -> None:
    """The last test: the server does not outlive it."""
    patient, hasty = (
        await remote(served.address, stall_s=1.0),
        await remote(served.address, stall_s=1.0, silence_max_s=3),
    )
    request = GenerateRequest(
        request_id="r",
        prompt=chat("Count to 200."),
        sampling=Sampling(max_tokens=3000, extra={"ignore_eos": True}),
    )
    await told(patient, chat("Hello"), 2)
    (core,) = served.server.processes("VLLM::EngineCore")
    for process in served.server.processes("VLLM::"):
        process.nice(19)  # or it is through before this test has read a token, where others want the processor, too
    goes_on, given_up = patient.generate(request), hasty.generate(request)
    for kind in (PromptReady, Delta):
        assert all(isinstance(event, kind) for event in await asyncio.gather(anext(goes_on), anext(given_up)))
    core.suspend()
    try:
        with pytest.raises(VlmtuiError, match="has been silent for 3 seconds"):
            async for _ in given_up:
                pass
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
        await told(patient, chat("Hello"), 3)
    await patient.shutdown()
    await hasty.shutdown()
