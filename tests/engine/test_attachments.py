"""Attachments in the real engine: counted before they are sent, turned upright, remembered, reused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from PIL import Image

from tests.support.asker import Asker
from tests.support.pictures import Easel, Picture
from vlmtui.domain.conversation import Media, RawPrompt, Text, Turn, assistant_turn, user_turn
from vlmtui.domain.generation import Failed
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.local.client import WorkerClient
from vlmtui.engine.local.launcher import worker_environment
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.media.stage import stage
from vlmtui.paths import Paths
from vlmtui.protocol.endpoint import Endpoint
from vlmtui.registry.match import Model
from vlmtui.session.generation import PromptMode, make_request, render

pytestmark = pytest.mark.engine
BOTH: Sequence[PromptMode] = ("chat", "raw")
QUESTION = "What is in this image?"
Flip = Image.Transpose
TURNED = {
    1: None,
    2: Flip.FLIP_LEFT_RIGHT,
    3: Flip.ROTATE_180,
    4: Flip.FLIP_TOP_BOTTOM,
    5: Flip.TRANSPOSE,
    6: Flip.ROTATE_90,
    7: Flip.TRANSVERSE,
    8: Flip.ROTATE_270,
}
"""The transposition that stores an upright picture under each EXIF orientation."""
ORIENTATION = 0x0112


@pytest.fixture
def easel(tmp_path: Path) -> Easel:
    return Easel(tmp_path)


@pytest.fixture
def ask(engine: WorkerClient, shapes: Model) -> Asker:
    return Asker(engine, shapes)


def look(picture: Picture) -> str:
    """`red circle` of `A red circle at the top.`"""
    return " ".join(picture.answer.split()[1:3])


@pytest.mark.parametrize("mode", BOTH)
async def test_a_rendered_prompt_is_the_one_that_is_answered(ask: Asker, easel: Easel, mode: PromptMode) -> None:
    one, two = easel.picture(("red", "star", "left")), easel.clip("blue", "circle", "up")
    turns = [
        Turn("user", (Text("Look: "), Media(one.attachment), Text(" and tell."))),
        assistant_turn(one.answer),
        user_turn("And this {video}?", [two.attachment]),
    ]
    prompt = make_request(ask.model.family, turns, Sampling(), mode=mode).prompt
    before = await render(ask.engine, prompt)
    answer = await ask(*turns, mode=mode)
    after = await render(ask.engine, prompt)
    assert answer.prompt is not None
    for rendered in (before, after):
        assert (rendered.prompt, rendered.token_ids) == (answer.prompt.prompt, answer.prompt.token_ids)
        assert rendered.media == answer.prompt.media
    assert [span.modality for span in before.media] == ["image", "video"]
    assert all(span.tokens > 0 for span in before.media)


async def test_a_rendered_image_is_seen_when_it_is_sent(ask: Asker, easel: Easel) -> None:
    for picture in (easel.picture(("red", "circle", "top left")), easel.picture(("blue", "star", "bottom"))):
        turn = user_turn(QUESTION, [picture.attachment])
        for _ in range(2):
            await render(ask.engine, make_request(ask.model.family, [turn], Sampling()).prompt)
        assert look(picture) in (await ask(turn)).text


async def test_an_unrenderable_prompt_is_reported(ask: Asker, easel: Easel) -> None:
    picture = easel.picture(("red", "circle", "top"))
    for text in ("No placeholder at all.", "<|vision_start|><|image_pad|><|vision_end|>" * 2):
        with pytest.raises(VlmtuiError) as caught:
            await render(ask.engine, RawPrompt(text=text, attachments=(picture.attachment,)))
        assert caught.value.kind is ErrorKind.PLACEHOLDER_MISMATCH
    assert look(picture) in (await ask(user_turn(QUESTION, [picture.attachment]))).text


async def test_an_image_of_a_refused_message_can_be_sent_again(ask: Asker, easel: Easel) -> None:
    """The text alone fits, so that the media are processed before the engine finds the prompt too long."""
    picture = easel.picture(("green", "square", "right"))

    async def tokens(repeats: int) -> int:
        prompt = make_request(ask.model.family, [user_turn("x " * repeats)], Sampling()).prompt
        return len((await render(ask.engine, prompt)).token_ids)

    info = ask.engine.info
    assert info is not None
    each = (await tokens(200) - await tokens(100)) // 100
    repeats = 100 + (info.max_model_len - 10 - await tokens(100)) // each
    answer = await ask(user_turn("x " * repeats, [picture.attachment]))
    assert isinstance(answer.outcome, Failed)
    assert answer.outcome.failure.kind is ErrorKind.CONTEXT_TOO_LONG
    again = await ask(user_turn(QUESTION, [picture.attachment]))
    assert again.failure is None
    assert look(picture) in again.text


async def test_every_exif_orientation_is_seen_upright(ask: Asker, easel: Easel, tmp_path: Path) -> None:
    picture = easel.picture(("red", "circle", "top left"), ("blue", "square", "bottom"), size=(320, 192))
    answers = {}
    for orientation, flip in TURNED.items():
        path = tmp_path / f"orientation {orientation}.jpg"
        exif = Image.Exif()
        exif[ORIENTATION] = orientation
        with Image.open(picture.path) as upright:
            stored = upright.convert("RGB") if flip is None else upright.convert("RGB").transpose(flip)
        stored.save(path, quality=95, subsampling=0, exif=exif)
        attachment = stage(path, tmp_path / "store")
        assert (attachment.width, attachment.height) == (320, 192)
        answers[orientation] = (await ask(user_turn(QUESTION, [attachment]))).text
    assert answers == dict.fromkeys(TURNED, picture.answer)


@pytest.mark.parametrize("mode", BOTH)
async def test_the_first_of_three_images_is_remembered(ask: Asker, easel: Easel, mode: PromptMode) -> None:
    pictures = [
        easel.picture(("red", "circle", "top")),
        easel.picture(("blue", "square", "left")),
        easel.picture(("yellow", "star", "bottom")),
    ]
    turns: list[Turn] = []
    for picture in pictures:
        turns += [user_turn(QUESTION, [picture.attachment]), assistant_turn(picture.answer)]
    answer = await ask(*turns, user_turn("What was in the first image?"), mode=mode)
    assert answer.prompt is not None
    assert len(answer.prompt.media) == 3
    assert look(pictures[0]) in answer.text


REUSE = """
import asyncio, json, sys
from dataclasses import fields
from types import SimpleNamespace

import msgspec
from vllm import AsyncEngineArgs
from vllm.renderers import renderer_from_config

from vlmtui.domain.generation import GenerateRequest

from vlmtui.domain.engine import LoadSpec
from vlmtui.worker.backends.vllm.engine_args import engine_arguments
from vlmtui.worker.backends.vllm.engine import VllmEngine

given = msgspec.json.decode(sys.stdin.buffer.read(), type=tuple[LoadSpec, list[GenerateRequest]])
known = {field.name for field in fields(AsyncEngineArgs)}
arguments = engine_arguments(given[0], known=known, on_cpu=True)
config = AsyncEngineArgs(**arguments).create_engine_config()
renderer = renderer_from_config(config)
sent = []

async def generate(rendered, *rest, **more):
    sent.append((rendered["mm_hashes"]["image"], sum(item is not None for item in rendered["mm_kwargs"]["image"])))
    yield SimpleNamespace(
        finished=True,
        outputs=[SimpleNamespace(text="", token_ids=[], finish_reason="length", stop_reason=None)],
    )

llm = SimpleNamespace(
    renderer=renderer, get_tokenizer=renderer.get_tokenizer, model_config=config.model_config, generate=generate,
    errored=False,
)
engine = VllmEngine(llm, given[0], arguments)

async def main():
    for request in given[1]:
        async for _ in engine.generate(request):
            pass

asyncio.run(main())
stats = renderer.mm_processor_cache.make_stats()
print(json.dumps({"sent": sent, "looked_up": stats.total, "hits": stats.hits}))
"""
"""The worker's own way from a request to the engine core's input, without a core: what is handed to it is counted."""


@pytest.mark.parametrize("mode", BOTH)
def test_an_image_sent_in_five_turns_is_processed_once(
    shapes: Model, easel: Easel, short_path: Path, mode: PromptMode
) -> None:
    picture = easel.picture(("red", "circle", "top"))
    turns: list[Turn] = []
    requests = []
    for _ in range(5):
        turns.append(user_turn(QUESTION, [picture.attachment]))
        requests.append(make_request(shapes.family, turns, Sampling(), mode=mode))
        turns.append(assistant_turn(picture.answer))
    endpoint = Endpoint.named(Paths.below(short_path), "reuse")
    done = subprocess.run(
        [sys.executable, "-c", REUSE],
        input=msgspec.json.encode((shapes.spec, requests)),
        env=worker_environment(os.environ, endpoint),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:].decode()
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["sent"] == [[[picture.attachment.sha256] * (n + 1), 1 if n == 0 else 0] for n in range(5)]
    assert (found["looked_up"], found["looked_up"] - found["hits"]) == (1 + 2 + 3 + 4 + 5, 1)
