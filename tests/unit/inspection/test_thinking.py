"""The tags of the family's record separate reasoning and answer."""

from __future__ import annotations

import pytest

from vlmtui.domain.conversation import RawPrompt
from vlmtui.domain.generation import Delta, GenerateRequest, PromptReady, Token
from vlmtui.domain.sampling import Sampling
from vlmtui.domain.thinking import COMMON_TAGS, ThinkingTags
from vlmtui.inspection.thinking import split_thinking
from vlmtui.registry.loader import Registry
from vlmtui.session.generation import Answer, answer_to, request_for, tokens_through

REGISTRY = Registry.bundled()
ANSWERS = {
    "qwen3_vl": "<think>\nTwo shapes.\n</think>\n\nTwo.",
    "qwen3_5": "<think>\nTwo shapes.\n</think>\n\nTwo.",
    "kimi_vl": "◁think▷Two shapes.◁/think▷Two.",
    "gemma4": "<|channel>thought\nTwo shapes.<channel|>Two.",
    "mistral3": "[THINK]Two shapes.[/THINK]Two.",
    "glm4_5v": "<think>Two shapes.</think>Two.",
}


@pytest.mark.parametrize("family", ANSWERS)
def test_each_family_marks_its_reasoning_in_its_own_way(family: str) -> None:
    answer = answer_to(
        GenerateRequest(request_id="1", prompt=RawPrompt(text=""), sampling=Sampling()), REGISTRY[family]
    )
    tags, text = answer.thought.tags, ANSWERS[family]
    parts = split_thinking(text, tags, over=True)
    assert (parts.thinking, parts.answer) == ("Two shapes.", "Two.")
    for end in range(len(text)):
        parts = split_thinking(text[:end], tags, over=False)
        assert not parts.answer or not parts.is_thinking
        assert "Two shapes.".startswith(parts.thinking.rstrip("\n"))


@pytest.mark.parametrize("family", ["gemma4", "mistral3"])
def test_special_tokens_stay_in_answers_where_they_mark_the_reasoning(family: str) -> None:
    prompt = RawPrompt(text="")
    assert not request_for(prompt, REGISTRY[family], Sampling()).sampling.skip_special_tokens
    assert request_for(prompt, REGISTRY["qwen3_vl"], Sampling()).sampling.skip_special_tokens


def test_a_prompt_that_opened_the_reasoning_is_enough() -> None:
    answer = Answer("1", ["Two sha"])
    assert answer.parts(answer.text).answer == "Two sha"
    answer.prompt = PromptReady(request_id="1", prompt="assistant\n<think>\n", token_ids=(), media=())
    assert answer.parts(answer.text) == ("Two sha", "", True)


def test_text_before_the_reasoning_is_part_of_the_answer() -> None:
    for text, wanted in (
        ("Hi <think>\na\n</think>\n\nb", ("a", "Hi \n\nb", False)),
        ("a</think>b<think>c</think>", ("a", "b<think>c</think>", False)),
        ("Hi <think> is a tag", ("", "Hi <think> is a tag", False)),
    ):
        assert split_thinking(text, COMMON_TAGS, over=True) == wanted


def test_another_familys_tags_are_text() -> None:
    parts = split_thinking("[THINK]a[/THINK]b", COMMON_TAGS, over=True)
    assert parts == ("", "[THINK]a[/THINK]b", False)


def test_tokens_of_the_reasoning_are_counted_to_the_end_of_the_closing_tag() -> None:
    texts = ["<think>", "a", " b", "</th", "ink>\n", "c"]
    vocabulary = {number: Token(text=text) for number, text in enumerate(texts)}
    assert tokens_through("</think>", range(6), vocabulary) == 5
    assert tokens_through("</think>", range(4), vocabulary) is None
    split = {0: Token(text="\ufffd", data="◁".encode()[:2]), 1: Token(text="\ufffd", data="◁".encode()[2:] + b"/x")}
    assert tokens_through("◁/x", (0, 1), split) == 2


def test_the_meter_ends_with_a_tag_that_comes_in_parts() -> None:
    answer = Answer("1")
    texts = ["◁think▷hm", "◁/th", "ink▷ yes", " and", "◁/think▷"]
    answer.thought.tags = ThinkingTags("◁think▷", "◁/think▷")
    for number, text in enumerate(texts):
        vocabulary = {number: Token(text=text)}
        answer.take(Delta(request_id="1", text=text, tokens=1, token_ids=(number,), vocabulary=vocabulary))
    assert answer.thought.ended is not None
    assert answer.thought.ended.tokens == 3
    assert answer.thought.ended.seconds is not None
