"""Fixes put deleted and torn special tokens of a raw prompt back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cases import examples
from tests.unit.inspection.raw_prompts import REGISTRY, conversations, items, written
from vlmtui.domain.conversation import Attachment
from vlmtui.inspection.placeholders import MODALITIES, forms_of, occurrences
from vlmtui.inspection.prompt_turns import own_tokens
from vlmtui.inspection.raw_prompt_check import Finding, FindingKind, apply_fix, check_raw
from vlmtui.registry.schema import Family

QWEN = REGISTRY["qwen2_vl"]
VISION = "<|vision_start|><|image_pad|><|vision_end|>"
FAMILIES = sorted(REGISTRY.values(), key=lambda family: family.family)


def five_turns() -> tuple[str, list[Attachment]]:
    """A chat of five turns, with pictures in the first and the third."""
    pictures = items({"image": 2})
    text = "<|im_start|>system\nYou are helpful.<|im_end|>\n"
    for number, picture in enumerate(("p", "", "p", "", "")):
        text += f"<|im_start|>user\n{VISION if picture else ''}Question {number}?<|im_end|>\n<|im_start|>assistant\n"
        text += f"Answer {number}.<|im_end|>\n" if number < 4 else ""
    return text, pictures


def check(text: str, original: str, attachments: list[Attachment], family: Family = QWEN) -> list[Finding]:
    return check_raw(
        text,
        attachments,
        family,
        special_tokens=frozenset(own_tokens(family)),
        stop_tokens=(),
        bos=None,
        adds_bos=False,
        families=REGISTRY.values(),
        originals=(original,),
    )


def mended(text: str, original: str, attachments: list[Attachment], family: Family = QWEN) -> str:
    """The text after the fixes of what was lost, one after the other."""
    for _ in range(12):
        lost = (FindingKind.TOO_FEW, FindingKind.TORN_TOKEN, FindingKind.UNWRAPPED)
        fixes = [one.fix for one in check(text, original, attachments, family) if one.kind in lost and one.fix]
        if not fixes:
            return text
        text = apply_fix(text, fixes[0])
    raise AssertionError("the fixes come to no end")


def test_a_placeholder_cut_out_of_the_first_turn_comes_back_into_the_first_turn() -> None:
    """Ctrl+K on the row of the first picture left the end of a torn token behind."""
    whole, pictures = five_turns()
    cut = whole.replace(VISION, "rt|>", 1)
    findings = check(cut, whole, pictures)
    (few,) = [one for one in findings if one.kind is FindingKind.TOO_FEW]
    assert few.message.endswith("1 too few. No place for image0.")
    assert cut.count("\n", 0, few.start) + 1 == 4
    assert few.fix is not None
    assert few.fix.label == f"restore {VISION}"
    assert apply_fix(cut, few.fix) == whole


@pytest.mark.parametrize("at", [0, 1])
def test_the_picture_whose_placeholder_was_deleted_is_named(at: int) -> None:
    whole, pictures = five_turns()
    start = whole.index(VISION) if at == 0 else whole.rindex(VISION)
    text = whole[:start] + whole[start + len(VISION) :]
    (finding,) = check(text, whole, pictures)
    assert finding.message.endswith(f"No place for image{at}.")
    assert finding.fix is not None
    assert apply_fix(text, finding.fix) == whole


def test_without_the_original_the_picture_that_the_engine_would_not_reach_is_named() -> None:
    whole, pictures = five_turns()
    (finding,) = check(whole.replace(VISION, "", 1), "", pictures)
    assert finding.message.endswith("1 too few. No place for image1.")


@pytest.mark.parametrize(
    ("torn", "token"),
    [
        ("<|vision_st art|>", "<|vision_start|>"),
        ("rt|>", "<|vision_start|>"),
        ("<|vision_sta", "<|vision_start|>"),
        ("vision_start|>", "<|vision_start|>"),
        ("<|vision_start>", "<|vision_start|>"),
    ],
)
def test_a_torn_token_is_named_with_its_line_and_made_whole(torn: str, token: str) -> None:
    whole, pictures = five_turns()
    text = whole.replace(token, torn, 1)
    (finding,) = [one for one in check(text, whole, pictures) if one.kind is FindingKind.TORN_TOKEN]
    assert finding.message.startswith(f"{torn} is not {token}: ")
    assert text.count("\n", 0, finding.start) + 1 == 4
    assert mended(text, whole, pictures) == whole


@pytest.mark.parametrize(
    ("torn", "token"),
    [("<|im_st art|>", "<|im_start|>"), ("<|im_end", "<|im_end|>"), ("im_end|>", "<|im_end|>")],
)
def test_a_torn_token_is_found_without_the_original(torn: str, token: str) -> None:
    text = f"<|im_start|>user\n{VISION}q{torn}\n<|im_start|>assistant\n"
    findings = check(text, "", items({"image": 1}))
    assert [one.fix.replacement for one in findings if one.kind is FindingKind.TORN_TOKEN and one.fix] == [token]


def test_the_beginning_of_a_placeholder_without_signs_is_found() -> None:
    family = REGISTRY["llava"]
    (found,) = [
        one
        for one in check("USER: <image\nWhat? ASSISTANT:", "", items({"image": 1}), family)
        if one.kind is FindingKind.TORN_TOKEN
    ]
    assert found.fix is not None
    assert found.fix.replacement == "<image>"


def test_code_and_prose_are_no_torn_tokens() -> None:
    code = "if a <b and c> d: x |> y; <im> [a b] std::vector<int> <!-- note --> 1 <2"
    text = f"<|im_start|>user\n{VISION}{code}<|im_end|>\n<|im_start|>assistant\n"
    for original in ("", text.replace(code, "q")):
        findings = check(text, original, items({"image": 1}))
        assert [one for one in findings if one.kind is FindingKind.TORN_TOKEN] == []


def test_a_prompt_of_another_shape_keeps_its_shape() -> None:
    whole, _ = five_turns()
    text = "USER: tell me. ASSISTANT:"
    fixes = [one.fix for one in check(text, whole, items({"image": 2})) if one.kind is FindingKind.TOO_FEW]
    assert fixes[0] is not None
    assert "tell me." in apply_fix(text, fixes[0])


@settings(max_examples=examples(150), deadline=None, derandomize=True)
@given(st.data())
def test_a_fix_restores_any_deleted_or_torn_placeholder(data: st.DataObject) -> None:
    family = data.draw(st.sampled_from(FAMILIES))
    turns = data.draw(st.sampled_from(list(conversations(family))))
    whole, attachments = written(family, turns)
    several = len(attachments) > 1 and len({item.modality for item in attachments}) == 1
    places = []
    for modality in MODALITIES:
        form = forms_of(family, modality, several=several)
        if form and any(item.modality == modality for item in attachments):
            found = occurrences(whole, form[1], frozenset(family.stop_tokens))
            places += [(one.start, one.end, one.outer_start, one.outer_end) for one in found]
    if not places or any(one.blocks for one in check(whole, whole, list(attachments), family)):
        return
    start, end, outer_start, outer_end = data.draw(st.sampled_from(places))
    how = data.draw(st.sampled_from(["outer", "inner", "space", "head", "tail"]))
    middle = data.draw(st.integers(start + 1, end - 1))
    left = {"outer": "", "inner": "", "space": whole[start:middle] + " " + whole[middle:end]}
    left |= {"head": whole[start:middle], "tail": whole[middle:end]}
    if how == "outer":
        start, end = outer_start, outer_end
    text = whole[:start] + left[how] + whole[end:]
    assert mended(text, whole, list(attachments), family) == whole
