"""Events of an engine become pieces, a comparison's document, and a request again."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest

from tests.support.scripted_engine import Say, ScriptedEngine, scripted_info
from vlmtui.domain.conversation import Attachment, ChatPrompt, Prompt, RawPrompt, user_turn
from vlmtui.domain.generation import Cancelled, Failed, Failure, GenerateRequest, Token
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import ErrorKind
from vlmtui.export.comparison import answer_runs, difference_lines, export_html, export_markdown, prompt_runs
from vlmtui.inspection.build import (
    comparison_of,
    pieces,
    prompt_tokens,
    side_of,
    texts_of,
    tokens_of,
    with_paths,
    without_paths,
)
from vlmtui.inspection.prompt_diff import prompt_diff
from vlmtui.inspection.replay import Comparison, Side, from_json, to_json
from vlmtui.session.generation import Answer, run_turn

CONTENT = b"a picture"
PICTURE = Attachment(
    modality="image", name="caf\udce9.png", path="/home/me/x", sha256=hashlib.sha256(CONTENT).hexdigest(), width=8,
    height=8, size_bytes=9, format="PNG", source="/home/me/y",
)  # fmt: skip
CHAT = ChatPrompt(turns=(user_turn("What is this?", [PICTURE]),))


def raw(text: str) -> RawPrompt:
    return RawPrompt(text=text, attachments=(PICTURE,))


async def asked(prompt: Prompt, *said: Any, logprobs: int | None = None) -> Answer:
    engine = ScriptedEngine(answers=[said] if said else ())
    request = GenerateRequest(request_id="r", prompt=prompt, sampling=Sampling(), logprobs=logprobs)
    return [answer async for _, answer in run_turn(engine, request)][-1]


def side(answer: Answer, mode: Any = "chat", **more: Any) -> Side:
    return side_of(
        mode, answer.prompt, text=answer.text, token_ids=answer.token_ids, vocabulary=answer.vocabulary,
        logprobs=answer.logprobs, outcome=answer.outcome, **more,
    )  # fmt: skip


async def compared(*answers: Answer) -> Comparison:
    sides = [
        msgspec.structs.replace(side(answer, label=f"seed {number}"), sampling={"seed": number})
        for number, answer in enumerate(answers)
    ]
    return comparison_of(scripted_info(), Sampling(), [PICTURE], sides)


async def test_a_prompt_becomes_pieces() -> None:
    answer = await asked(raw("<|im_start|>user\n<|image_pad|>What?<|im_end|>"))
    assert answer.prompt is not None
    found = pieces(answer.prompt, [PICTURE])
    assert [(piece.text, piece.kind, len(piece.ids)) for piece in found] == [
        ("<|im_start|>", "special", 1),
        ("user", "text", 1),
        ("\n", "text", 1),
        ("<|image_pad|>", "media", 16),
        ("What?", "text", 1),
        ("<|im_end|>", "special", 1),
    ]
    assert found[3].media is not None
    assert found[3].media.resized == (112, 112)


async def test_partial_characters_and_missing_tokens_are_shown() -> None:
    answer = await asked(raw("a b"))
    assert answer.prompt is not None
    first, second = answer.prompt.token_ids[-2:]
    broken = msgspec.structs.replace(answer.prompt, vocabulary={second: Token(text="\ufffd", data=b"\xe2\x82")})
    assert texts_of((first, second), broken.vocabulary) == (f"⟨{first}⟩", "\ufffd")
    assert pieces(broken, [PICTURE])[-1].text == "⟨e2 82⟩"
    kept = side_of("raw", broken, text="", token_ids=[], vocabulary={}, logprobs=None, outcome=None)
    document = comparison_of(scripted_info(), Sampling(), [PICTURE], [kept])
    again = from_json(to_json(document))
    assert again == document
    assert tokens_of(again.sides[0], [PICTURE]).pieces()[-1].text == "⟨e2 82⟩"


async def test_a_side_has_the_prompt_and_the_answer() -> None:
    answer = await asked(CHAT, "a ", Say("red circle", 2, {"red": -0.5, "blue": -1.0}), logprobs=2)
    kept = side(answer)
    assert answer.prompt is not None
    assert kept.prompt == answer.prompt.prompt
    assert "".join(kept.prompt_token_texts) == kept.prompt
    assert kept.prompt_token_ids == answer.prompt.token_ids
    assert kept.answer == "a red circle"
    assert kept.answer_token_texts == ("a ", "red", " circle")
    assert kept.logprobs is not None
    assert [(one.text, one.logprob) for one in kept.logprobs] == [("a ", -0.25), ("red", -0.5), (" circle", -4.0)]
    assert [other.text for other in kept.logprobs[1].top] == ["red", "blue"]
    assert (kept.finish_reason, kept.stop, kept.failure) == ("stop", "<|im_end|>", "")
    assert kept.usage.image_tokens == 16
    kept_tokens = tokens_of(kept, [PICTURE])
    assert prompt_diff(kept_tokens, prompt_tokens(answer.prompt, [PICTURE])).identical


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (Failed(request_id="r", failure=Failure(kind=ErrorKind.INTERNAL, message="It broke.")), "It broke."),
        (None, "Not complete yet."),
    ],
)
async def test_an_unfinished_answer_has_a_reason_and_a_token_count(outcome: Any, said: str) -> None:
    answer = await asked(CHAT, "half ")
    answer.outcome = outcome
    kept = side(answer)
    assert (kept.failure, kept.finish_reason) == (said, None)
    assert (kept.usage.completion_tokens, kept.usage.image_tokens) == (1, 16)


async def test_a_stopped_answer_has_a_reason() -> None:
    answer = await asked(CHAT, "half ")
    answer.outcome = Cancelled(request_id="r", usage=answer.usage, timings=answer.timings or pytest.fail("no times"))
    assert side(answer).failure == "Stopped before it was complete."


async def test_chat_and_raw_are_compared() -> None:
    chat = side(await asked(raw("<|im_start|>user\n<image>Hi"), "a ", "red ", "circle"))
    other = side(await asked(raw("<|im_start|>user\n<image>Ho"), "a ", "blue ", "circle"), "raw")
    document = comparison_of(scripted_info(), Sampling(), [PICTURE], [chat, other])
    found = document.difference
    assert found is not None
    assert (found.prompts_identical, found.answers_identical) == (False, False)
    assert found.prompt_first_divergence == 3 + 16
    assert (found.answer_first_divergence, found.answer_first_difference) == (1, 2)
    assert from_json(to_json(document)) == document
    assert document.model == "shapes"


async def test_a_side_without_a_prompt_has_no_difference() -> None:
    failed = Failed(request_id="r", failure=Failure(kind=ErrorKind.PLACEHOLDER_MISMATCH, message="Too few."))
    empty = side_of("raw", None, text="", token_ids=[], vocabulary={}, logprobs=None, outcome=failed)
    document = comparison_of(scripted_info(), Sampling(), [PICTURE], [side(await asked(CHAT)), empty])
    assert document.difference is None
    assert "Too few." in export_html(document, lambda _: None)


async def test_further_sides_are_compared_with_the_first() -> None:
    answers = [await asked(CHAT, *words) for words in (["a ", "red"], ["a ", "blue"], ["a ", "red"], ["a ", "green"])]
    document = await compared(*answers)
    assert difference_lines(document) == [
        "The prompts of all 4 are identical.",
        "Answers: 2 of 4 are identical; numbers 2, 4 differ from the first.",
    ]
    assert [[run.text for run in runs if run.differs] for runs in answer_runs(document)] == [
        [],
        ["blue"],
        [],
        ["green"],
    ]
    assert not any(run.differs for runs in prompt_runs(document) for run in runs)
    page, text = export_html(document, lambda _: None), export_markdown(document)
    assert page.count("<section>") == 4
    assert "<mark>green</mark>" in page
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## Difference", "## `seed 0`", "## `seed 1`", "## `seed 2`", "## `seed 3`",
    ]  # fmt: skip
    assert "seed 3, " in text
    assert from_json(to_json(document)) == document


@pytest.mark.parametrize("prompt", [CHAT, raw("<image>Hi")])
async def test_a_request_is_kept_without_paths_and_finds_its_files_again(prompt: Prompt) -> None:
    document = comparison_of(scripted_info(), Sampling(), [PICTURE], [side(await asked(prompt), request=prompt)])
    data = to_json(document)
    assert b"/home/me" not in data
    request = from_json(data).sides[0].request
    assert request == without_paths(prompt)
    assert request is not None
    found = with_paths(request, {PICTURE.sha256: "/new"})
    items = found.turns[0].attachments if isinstance(found, ChatPrompt) else found.attachments
    assert [item.path for item in items] == ["/new"]
    with pytest.raises(KeyError):
        with_paths(request, {})
