"""The bundled model in real vLLM, through our own worker: tests on what it saw, not on that something came.

How often the model is right, places included, is measured by `tools/eval_shapes.py`. Here it is enough that every
attachment reached it, in order: colours and shapes tell.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.support.asker import Asker
from tests.support.hosts import patient_host
from tests.support.pictures import Easel
from vlmtui.domain.conversation import Media, RawPrompt, Text, Turn, assistant_turn, user_turn
from vlmtui.domain.generation import Cancelled, Delta, Failed, Finished, GenerateRequest, PromptReady
from vlmtui.domain.metrics import MetricsSample
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.local.client import WorkerClient
from vlmtui.errors import ErrorKind
from vlmtui.paths import Paths
from vlmtui.registry.match import Model
from vlmtui.session.generation import Answer, PromptMode, make_request, new_request_id, run_turn
from vlmtui.worker.backends.contract import CPU_NICENESS

pytestmark = pytest.mark.engine
BOTH: Sequence[PromptMode] = ("chat", "raw")
IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"


@pytest.fixture
def easel(tmp_path: Path) -> Easel:
    return Easel(tmp_path)


@pytest.fixture
def ask(engine: WorkerClient, shapes: Model) -> Asker:
    return Asker(engine, shapes)


async def test_an_answer_without_a_reader_arrives_complete(ask: Asker, easel: Easel, engine: WorkerClient) -> None:
    picture = easel.picture(("blue", "square", "center"))
    turns = [user_turn("What is in this image?", [picture.attachment])]
    request = make_request(ask.model.family, turns, Sampling(max_tokens=40))
    async with aclosing(engine.generate(request)) as events:
        streamed = [event async for event in events]
    whole_request = msgspec.structs.replace(request, request_id=new_request_id(), final_only=True, logprobs=0)
    async with aclosing(engine.generate(whole_request)) as events:
        whole = [event async for event in events]
    ready, delta, ended = whole
    assert isinstance(ready, PromptReady)
    assert isinstance(delta, Delta)
    assert isinstance(ended, Finished)
    assert (delta.text, ready.prompt, ready.vocabulary) == (picture.answer, "", {})
    assert isinstance(first := streamed[0], PromptReady)
    assert (ready.token_ids, ready.media) == (first.token_ids, first.media)
    assert delta.token_ids == tuple(token for one in streamed if isinstance(one, Delta) for token in one.token_ids)
    assert len(delta.logprobs) == delta.tokens
    assert ended.timings.ttft_s is not None
    assert 0 < ended.timings.ttft_s < ended.timings.total_s


@pytest.mark.parametrize("mode", BOTH)
async def test_one_image(ask: Asker, easel: Easel, mode: PromptMode) -> None:
    picture = easel.picture(("red", "circle", "top left"))
    answer = await ask(user_turn("What is in this image?", [picture.attachment]), mode=mode)
    assert answer.text == picture.answer
    assert isinstance(answer.outcome, Finished)
    assert answer.outcome.finish_reason == "stop"
    assert answer.outcome.stop == "<|im_end|>"
    assert answer.prompt is not None
    assert answer.usage.image_tokens == answer.prompt.prompt.count("<|image_pad|>") == 36


@pytest.mark.parametrize("mode", BOTH)
async def test_two_images_in_order(ask: Asker, easel: Easel, mode: PromptMode) -> None:
    first = easel.picture(("yellow", "star", "bottom right"))
    second = easel.picture(("blue", "square", "center"))
    answer = await ask(user_turn("Describe these images.", [first.attachment, second.attachment]), mode=mode)
    assert answer.text == "Image 1: a yellow star at the bottom right. Image 2: a blue square in the center."
    assert answer.prompt is not None
    assert [(span.modality, span.index) for span in answer.prompt.media] == [("image", 0), ("image", 1)]


@pytest.mark.parametrize("mode", BOTH)
async def test_video(ask: Asker, easel: Easel, mode: PromptMode) -> None:
    clip = easel.clip("green", "square", "left")
    answer = await ask(user_turn("What happens in this video?", [clip.attachment]), mode=mode)
    assert answer.text == clip.answer


async def test_a_second_turn_asks_about_the_first_image(ask: Asker, easel: Easel) -> None:
    first = easel.picture(("purple", "triangle", "top"))
    second = easel.picture(("orange", "circle", "left"))
    turns = [
        user_turn("What is in this image?", [first.attachment]),
        assistant_turn(first.answer),
        user_turn("What is in this image?", [second.attachment]),
        assistant_turn(second.answer),
        user_turn("What was in the first image?"),
    ]
    assert (await ask(*turns)).text == first.answer


async def test_chat_template_and_raw_prompt_give_the_same_tokens(ask: Asker, easel: Easel) -> None:
    one, two = easel.picture(("red", "star", "left")), easel.clip("blue", "circle", "up")
    turns = [
        Turn("system", (Text("Be brief."),)),
        Turn("user", (Text("Look: "), Media(one.attachment), Text(" and tell."))),
        assistant_turn(one.answer),
        user_turn("And this {video}?", [two.attachment]),
    ]
    chat, raw = await ask(*turns), await ask(*turns, mode="raw")
    assert chat.prompt is not None
    assert raw.prompt is not None
    assert chat.prompt.token_ids == raw.prompt.token_ids
    assert chat.prompt.media == raw.prompt.media
    assert chat.text == raw.text


async def test_special_characters_reach_the_model_unchanged(ask: Asker) -> None:
    text = 'Ünïcødé 图像 🙂 "quotes" {braces} \\n\ttab\nline <b>[/x]'
    answer = await ask(user_turn(text), mode="raw")
    assert answer.prompt is not None
    assert f"<|im_start|>user\n{text}<|im_end|>" in answer.prompt.prompt


async def test_on_a_cpu_the_engine_has_a_lower_priority_than_the_screen(
    engine: WorkerClient, loaded_worker: Paths
) -> None:
    assert engine.info is not None
    if not engine.info.device.startswith("cpu"):
        pytest.skip("with a GPU the cores are free")
    [worker] = await patient_host(loaded_worker).find_all()
    server = psutil.Process(worker.pid).children()[0]
    computing = [child for child in server.children(recursive=True) if child.name().startswith("VLLM")]
    assert computing, "vLLM's engine core, in which the model computes"
    assert {child.nice() for child in computing} == {os.nice(0) + CPU_NICENESS}


async def test_max_tokens_ends_with_length(ask: Asker) -> None:
    answer = await ask(user_turn("Count to 100."), sampling=Sampling(max_tokens=7))
    assert isinstance(answer.outcome, Finished)
    assert (answer.outcome.finish_reason, answer.outcome.stop) == ("length", None)
    assert answer.usage.completion_tokens == 7


async def test_a_stop_string_ends_the_answer_and_is_named(ask: Asker) -> None:
    answer = await ask(user_turn("Count to 100."), sampling=Sampling(stop=(" 7",)))
    assert answer.text == "1 2 3 4 5 6"
    assert isinstance(answer.outcome, Finished)
    assert answer.outcome.stop == " 7"


async def test_cancel_keeps_the_partial_answer_and_frees_the_engine(ask: Asker, engine: WorkerClient) -> None:
    sampling = Sampling(max_tokens=None, extra={"ignore_eos": True}, skip_special_tokens=False)
    request = make_request(ask.model.family, [user_turn("Count to 200.")], Sampling())
    request = msgspec.structs.replace(request, sampling=sampling)  # no stop tokens: on until the context ends
    answer = Answer(request.request_id)
    async for event, current in run_turn(engine, request):
        answer = current
        if isinstance(event, Delta):
            await engine.cancel(request.request_id)
    assert isinstance(answer.outcome, Cancelled)
    assert answer.text.startswith("1")
    assert 0 < answer.outcome.usage.completion_tokens < 4000
    assert (await engine.status()).running == 0


async def test_two_requests_at_once(ask: Asker, easel: Easel) -> None:
    pictures = [easel.picture(("red", "circle", "top")), easel.picture(("blue", "star", "bottom"))]
    answers = await asyncio.gather(
        *(ask(user_turn("What is in this image?", [picture.attachment])) for picture in pictures)
    )
    assert [answer.text for answer in answers] == [picture.answer for picture in pictures]


@pytest.mark.parametrize(
    ("text", "images"),
    [
        (f"<|im_start|>user\n{IMAGE}{IMAGE}?<|im_end|>\n<|im_start|>assistant\n", 1),
        ("<|im_start|>user\n?<|im_end|>\n<|im_start|>assistant\n", 1),
        (f"<|im_start|>user\n{IMAGE}?<|im_end|>\n<|im_start|>assistant\n", 0),
    ],
)
async def test_wrong_placeholders_are_refused_and_the_engine_lives(
    ask: Asker, easel: Easel, text: str, images: int
) -> None:
    attachments = tuple(easel.picture(("red", "circle", "top")).attachment for _ in range(images))
    prompt = RawPrompt(text=text, attachments=attachments)
    answer = await ask.run(GenerateRequest(request_id=new_request_id(), prompt=prompt, sampling=Sampling()))
    assert isinstance(answer.outcome, Failed)
    assert answer.outcome.failure.kind is ErrorKind.PLACEHOLDER_MISMATCH
    assert (await ask(user_turn("hello"))).text


async def test_a_prompt_over_the_context_length_is_reported(ask: Asker) -> None:
    answer = await ask(user_turn("x " * 5000))
    assert isinstance(answer.outcome, Failed)
    assert answer.outcome.failure.kind is ErrorKind.CONTEXT_TOO_LONG


async def test_an_unknown_sampling_parameter_is_reported(ask: Asker) -> None:
    answer = await ask(user_turn("hello"), sampling=Sampling(extra={"temprature": 1}))
    assert isinstance(answer.outcome, Failed)
    assert answer.outcome.failure.kind is ErrorKind.BAD_INPUT
    assert "temprature" in answer.outcome.failure.detail


async def test_a_missing_image_fails_only_its_turn(ask: Asker, easel: Easel) -> None:
    picture = easel.picture(("red", "circle", "top"))
    Path(picture.attachment.path).unlink()
    answer = await ask(user_turn("?", [picture.attachment]))
    assert isinstance(answer.outcome, Failed)
    assert answer.outcome.failure.kind is ErrorKind.BAD_INPUT
    assert (await ask(user_turn("hello"))).text


async def test_the_engine_reports_its_name_and_version(engine: WorkerClient) -> None:
    assert engine.info is not None
    assert engine.info.architecture == "Qwen2VLForConditionalGeneration"
    assert engine.info.has_chat_template
    assert engine.info.limits == {"image": 8, "video": 2}
    assert engine.info.max_model_len == 4096


async def test_its_metrics_have_the_form_of_a_servers(engine: WorkerClient, shapes: Model) -> None:
    async def generated() -> int:
        async with aclosing(engine.metrics()) as told:
            began = time.time()
            async for one in told:
                assert isinstance(one, MetricsSample), one
                if one.at >= began:
                    (rank,) = one.metrics.ranks
                    assert rank.running == 0 and rank.kv_cache == 0 and one.metrics.first_token_s[0] is not None
                    return rank.generated_tokens or 0
        raise AssertionError

    request = make_request(shapes.family, [user_turn("hello")], Sampling(max_tokens=7, extra={"ignore_eos": True}))
    before = await generated()
    async for _ in engine.generate(request):
        pass
    assert await generated() == before + 7
