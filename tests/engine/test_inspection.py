"""The real engine's reports of prompts and answers, token by token, and their inspection."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from tests.support.asker import Asker
from tests.support.pictures import Easel
from tests.unit.inspection.raw_prompts import apply_fix
from vlmtui.domain.conversation import (
    Attachment,
    ChatPrompt,
    RawPrompt,
    Turn,
    all_attachments,
    assistant_turn,
    user_turn,
)
from vlmtui.domain.engine import EngineInfo
from vlmtui.domain.generation import Failed, Finished, MediaSpan
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.local.client import WorkerClient
from vlmtui.errors import ErrorKind
from vlmtui.inspection.answer_diff import answer_diff
from vlmtui.inspection.build import comparison_of, pieces, prompt_tokens, side_of, texts_of
from vlmtui.inspection.prompt_diff import prompt_diff
from vlmtui.inspection.raw_prompt_check import Finding, FindingKind, check_raw
from vlmtui.inspection.replay import from_json, to_json
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model
from vlmtui.registry.prompts import raw_prompt
from vlmtui.session.generation import Answer, PromptMode, make_request, render
from vlmtui.session.opened_view import open_model_view
from vlmtui.session.seeing import ask_model_view

pytestmark = pytest.mark.engine
BOTH: Sequence[PromptMode] = ("chat", "raw")
QUESTION = "What is in this image?"
IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"


@pytest.fixture
def easel(tmp_path: Path) -> Easel:
    return Easel(tmp_path)


@pytest.fixture
def ask(engine: WorkerClient, shapes: Model) -> Asker:
    return Asker(engine, shapes)


@pytest.fixture
def info(engine: WorkerClient) -> EngineInfo:
    assert engine.info is not None
    return engine.info


def conversations(easel: Easel) -> list[list[Turn]]:
    one = easel.picture(("red", "circle", "top left"))
    two = easel.picture(("blue", "square", "center"))
    return [
        [user_turn(QUESTION, [one.attachment])],
        [user_turn("Describe these images.", [one.attachment, two.attachment])],
        [
            user_turn(QUESTION, [one.attachment]),
            assistant_turn(one.answer),
            user_turn("And in this one?", [two.attachment]),
        ],
    ]


def told(answer: Answer) -> tuple[list[int], list[str]]:
    """The answer's tokens, and their texts."""
    return answer.token_ids, list(texts_of(answer.token_ids, answer.vocabulary))


def spoken(answer: Answer) -> str:
    """The texts of the answer's tokens together, without the special ones."""
    return "".join(answer.vocabulary[one].text for one in answer.token_ids if not answer.vocabulary[one].special)


@pytest.mark.parametrize("number", range(3))
async def test_chat_template_and_raw_template_give_the_same_tokens_and_answer(
    ask: Asker, easel: Easel, info: EngineInfo, number: int
) -> None:
    turns = conversations(easel)[number]
    attachments = all_attachments(turns)
    chat, raw = await ask(*turns, mode="chat"), await ask(*turns, mode="raw")
    assert chat.prompt is not None
    assert raw.prompt is not None
    assert raw.prompt.token_ids == chat.prompt.token_ids
    assert raw.token_ids == chat.token_ids
    assert raw.text == chat.text != ""
    found = prompt_diff(prompt_tokens(chat.prompt, attachments), prompt_tokens(raw.prompt, attachments))
    assert found.identical
    assert found.findings == ("no difference",)

    sides = [
        side_of(
            mode, one.prompt, text=one.text, token_ids=one.token_ids, vocabulary=one.vocabulary, logprobs=None,
            outcome=one.outcome,
        )
        for mode, one in zip(BOTH, (chat, raw), strict=True)
    ]  # fmt: skip
    document = comparison_of(info, Sampling(), attachments, sides)
    assert document.difference is not None
    assert document.difference.prompts_identical
    assert document.difference.answers_identical
    assert from_json(to_json(document)) == document


async def test_joined_tokens_equal_the_prompt(ask: Asker, easel: Easel) -> None:
    picture = easel.picture(("red", "circle", "top left"))
    turns = [user_turn("Was ist das? 日本語 \U0001f600 naïve\n\tend", [picture.attachment])]
    prompt = await render(ask.engine, make_request(ask.model.family, turns, Sampling()).prompt)
    assert set(prompt.vocabulary) == set(prompt.token_ids)
    special = [entry.text for entry in prompt.vocabulary.values() if entry.special]
    assert set(special) == {"<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>"}
    data = [prompt.vocabulary[token].data or prompt.vocabulary[token].text.encode() for token in prompt.token_ids]
    assert b"".join(data).decode() == prompt.prompt
    assert any(entry.data for entry in prompt.vocabulary.values())
    (image,) = [piece for piece in pieces(prompt, [picture.attachment]) if piece.kind == "media"]
    assert image.label == f"<|image_pad|> × 36 from {picture.attachment.name}"


async def test_joined_words_equal_the_prompt(ask: Asker) -> None:
    prompt = await render(ask.engine, make_request(ask.model.family, [user_turn("What is this?")], Sampling()).prompt)
    assert "".join(texts_of(prompt.token_ids, prompt.vocabulary)) == prompt.prompt


def guard(text: str, attachments: Sequence[Attachment], model: Model, info: EngineInfo) -> list[Finding]:
    return check_raw(
        text,
        attachments,
        model.family,
        special_tokens=frozenset(info.special_tokens),
        stop_tokens=info.stop_tokens,
        bos=info.bos_token,
        adds_bos=info.adds_bos,
        families=Registry.bundled().values(),
    )


@pytest.mark.parametrize(
    ("change", "kind", "blocks"),
    [
        (lambda text: text.replace(IMAGE, ""), FindingKind.TOO_FEW, True),
        (lambda text: text.replace(IMAGE, IMAGE * 2), FindingKind.TOO_MANY, True),
        (lambda text: text.replace(f"{QUESTION}<|im_end|>", QUESTION), FindingKind.END_OF_TURN, False),
        (lambda text: text.replace("<|im_start|>assistant", "<|im_strat|>assistant"), FindingKind.UNKNOWN_TOKEN, False),
    ],
)
async def test_the_guards_fix_gives_the_right_answer(
    ask: Asker, easel: Easel, info: EngineInfo, change: object, kind: FindingKind, blocks: bool
) -> None:
    picture = easel.picture(("red", "circle", "top left"))
    prompt = raw_prompt(ask.model.family, [user_turn(QUESTION, [picture.attachment])])
    assert isinstance(prompt, RawPrompt)
    assert guard(prompt.text, prompt.attachments, ask.model, info) == []
    assert callable(change)
    wrong = change(prompt.text)
    found = [one for one in guard(wrong, prompt.attachments, ask.model, info) if one.kind is kind]
    assert [one.blocks for one in found] == [blocks]
    assert found[0].fix is not None
    assert apply_fix(wrong, found[0].fix) == prompt.text

    good = make_request(ask.model.family, [user_turn(QUESTION, [picture.attachment])], Sampling(), mode="raw")
    answers = [
        await ask.run(msgspec.structs.replace(good, request_id=name, prompt=msgspec.structs.replace(prompt, text=text)))
        for name, text in ((f"{good.request_id}-wrong", wrong), (good.request_id, apply_fix(wrong, found[0].fix)))
    ]
    assert answers[1].text == picture.answer
    if blocks:
        assert isinstance(answers[0].outcome, Failed)
        assert answers[0].outcome.failure.kind is ErrorKind.PLACEHOLDER_MISMATCH
    else:
        assert isinstance(answers[0].outcome, Finished)


async def test_a_doubled_bos_is_reported_and_in_the_difference(ask: Asker, easel: Easel, info: EngineInfo) -> None:
    """The model has no BOS token; the token that begins every turn takes its place."""
    picture = easel.picture(("red", "circle", "top left"))
    turns = [user_turn(QUESTION, [picture.attachment])]
    prompt = raw_prompt(ask.model.family, turns)
    assert isinstance(prompt, RawPrompt)
    with_bos = msgspec.structs.replace(info, bos_token="<|im_start|>")
    twice = "<|im_start|>" + prompt.text
    assert FindingKind.BOS_DOUBLED not in [one.kind for one in guard(prompt.text, [], ask.model, with_bos)]
    assert FindingKind.BOS_DOUBLED in [one.kind for one in guard(twice, [], ask.model, with_bos)]

    once = await render(ask.engine, prompt)
    doubled = await render(ask.engine, msgspec.structs.replace(prompt, text=twice))
    assert doubled.token_ids == (once.token_ids[0], *once.token_ids)
    items = [picture.attachment]
    found = prompt_diff(prompt_tokens(once, items, name="once"), prompt_tokens(doubled, items, name="twice"))
    assert any(finding.startswith("twice adds") for finding in found.findings)


async def test_reported_sampling_values_repeat_the_answer(ask: Asker, easel: Easel, info: EngineInfo) -> None:
    turn = user_turn(QUESTION, [easel.picture(("red", "circle", "top left")).attachment])
    drawn = await ask(turn, sampling=Sampling(temperature=1.5, max_tokens=None))
    assert drawn.used is not None and drawn.prompt is not None
    assert (drawn.used.temperature, drawn.used.top_p, drawn.used.top_k) == (1.5, 1.0, 0)
    assert drawn.used.seed is not None
    assert drawn.used.max_tokens == info.max_model_len - len(drawn.prompt.token_ids)
    again = await ask(turn, sampling=Sampling(temperature=1.5, seed=drawn.used.seed))
    assert again.token_ids == drawn.token_ids
    greedy = await ask(turn)
    assert greedy.used is not None
    assert (greedy.used.temperature, greedy.used.seed) == (0, None)


async def test_the_first_difference_of_two_answers_is_right(ask: Asker, easel: Easel) -> None:
    red, blue = easel.picture(("red", "circle", "top left")), easel.picture(("red", "star", "top left"))
    one = await ask(user_turn(QUESTION, [red.attachment]))
    other = await ask(user_turn(QUESTION, [blue.attachment]))
    assert one.text != other.text
    found = answer_diff(one.text, other.text, one.token_ids, other.token_ids)
    assert found.first_divergence is not None
    assert one.token_ids[: found.first_divergence] == other.token_ids[: found.first_divergence]
    assert one.token_ids[found.first_divergence] != other.token_ids[found.first_divergence]
    assert found.first_difference == len("A red ")

    assert one.prompt is not None
    assert other.prompt is not None
    prompts = prompt_diff(prompt_tokens(one.prompt, [red.attachment]), prompt_tokens(other.prompt, [blue.attachment]))
    assert not prompts.identical  # the same token ids, but another picture
    assert one.prompt.token_ids == other.prompt.token_ids
    assert prompts.first_divergence == one.prompt.media[0].offset


@pytest.mark.parametrize("count", [0, 3])
async def test_logprobs_of_an_answer(ask: Asker, easel: Easel, count: int) -> None:
    picture = easel.picture(("red", "circle", "top left"))
    turns = [user_turn(QUESTION, [picture.attachment])]
    plain = await ask(*turns)
    answer = await ask.run(make_request(ask.model.family, turns, Sampling(temperature=0), logprobs=count))
    assert answer.text == plain.text == picture.answer
    assert answer.token_ids == plain.token_ids
    assert plain.logprobs == []
    assert [one.token_id for one in answer.logprobs] == answer.token_ids
    assert answer.usage.completion_tokens == len(answer.token_ids)
    for one in answer.logprobs:
        assert one.logprob <= 1e-4
        assert len(one.top) == count
        assert {other.token_id for other in one.top} <= set(answer.vocabulary)
        assert [other.logprob for other in one.top] == sorted((other.logprob for other in one.top), reverse=True)
        assert sum(math.exp(other.logprob) for other in one.top) <= 1.001
        if count:
            assert (one.top[0].token_id, one.top[0].logprob) == (one.token_id, one.logprob)
    assert math.exp(sum(one.logprob for one in answer.logprobs)) > 0.01  # the model is sure of a red circle
    assert spoken(answer) == answer.text
    assert answer.vocabulary[answer.token_ids[-1]].text == "<|im_end|>"
    assert answer.vocabulary[answer.token_ids[-1]].special


async def test_an_unlikely_chosen_token_is_outside_the_top(ask: Asker) -> None:
    plain = await ask.run(make_request(ask.model.family, [user_turn("hello")], Sampling(), logprobs=2))
    best = {plain.logprobs[0].token_id, *(other.token_id for other in plain.logprobs[0].top)}
    unlikely = next(token for token in range(1000) if token not in best)
    sampling = Sampling(max_tokens=1, extra={"allowed_token_ids": [unlikely]})
    answer = await ask.run(make_request(ask.model.family, [user_turn("hello")], sampling, logprobs=2))
    (one,) = answer.logprobs
    assert one.token_id == unlikely
    assert one.top == plain.logprobs[0].top
    assert one.logprob < one.top[1].logprob < one.top[0].logprob


async def test_too_many_logprobs_are_refused_with_a_sentence(ask: Asker) -> None:
    answer = await ask.run(make_request(ask.model.family, [user_turn("hello")], Sampling(), logprobs=50))
    assert isinstance(answer.outcome, Failed)
    assert answer.outcome.failure.kind is ErrorKind.BAD_INPUT
    assert "50" in answer.outcome.failure.message
    assert "20" in answer.outcome.failure.message
    assert (await ask(user_turn("hello"))).text


async def test_special_tokens_of_prompt_and_answer_look_the_same(ask: Asker) -> None:
    sampling = Sampling(skip_special_tokens=False, max_tokens=50)
    answer = await ask(user_turn("hello"), sampling=sampling)
    ids, texts = told(answer)
    assert len(ids) == answer.tokens == answer.usage.completion_tokens
    assert "".join(texts).startswith(answer.text)


async def test_a_processed_image_is_reported_from_the_cache_too(ask: Asker, easel: Easel) -> None:
    picture = easel.picture(("red", "circle", "top left"), size=(320, 192))
    spans: list[MediaSpan] = []
    for _ in range(2):
        answer = await ask(user_turn(QUESTION, [picture.attachment]))
        assert answer.prompt is not None
        spans += answer.prompt.media
    rendered = await render(
        ask.engine, make_request(ask.model.family, [user_turn(QUESTION, [picture.attachment])], Sampling()).prompt
    )
    first, second = spans
    assert first == second == rendered.media[0]
    assert first.resized is not None
    width, height = first.resized
    assert abs(width / height - 320 / 192) < 0.3
    assert first.grid == (1, height // 14, width // 14)
    assert first.tensors["pixel_values"] == (first.grid[1] * first.grid[2], 3 * 2 * 14 * 14)
    assert first.tokens == first.grid[1] * first.grid[2] // 4


async def test_a_processed_video_is_reported(ask: Asker, easel: Easel) -> None:
    clip = easel.clip("green", "square", "left")
    prompt = await render(
        ask.engine, make_request(ask.model.family, [user_turn("?", [clip.attachment])], Sampling()).prompt
    )
    (span,) = prompt.media
    assert span.modality == "video"
    assert span.grid[0] == 4  # eight frames, two to a patch
    assert span.tokens == math.prod(span.grid) // 4
    assert span.resized == (span.grid[2] * 14, span.grid[1] * 14)


async def test_the_engine_reports_template_and_sampling_of_a_prompt(info: EngineInfo) -> None:
    assert "message" in info.chat_template
    assert {"<|im_start|>", "<|im_end|>", "<|image_pad|>"} <= set(info.special_tokens)
    assert info.stop_tokens[0] == "<|im_end|>"
    assert (info.bos_token, info.adds_bos) == (None, False)
    assert info.revision is None


async def test_the_model_sees_the_image_that_was_sent(engine: WorkerClient, tmp_path: Path, easel: Easel) -> None:
    picture = easel.picture(("red", "circle", "top left")).attachment
    prompt = ChatPrompt(turns=(user_turn("What is it?", [picture]),))
    (view,) = await ask_model_view(engine, prompt, tmp_path / "seen")
    assert view.medium.is_exact
    opened = open_model_view(view)
    for number, found in enumerate(opened.regions):
        assert found is not None
        difference = opened.difference(number)
        assert difference is not None
        assert difference.mean < 3.0
    assert all(one.length for one in view.medium.pictures)
