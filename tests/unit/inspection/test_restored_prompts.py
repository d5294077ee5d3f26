"""Fixes make torn special tokens of a raw prompt whole."""

from __future__ import annotations

import pytest

from tests.unit.inspection.raw_prompts import REGISTRY, apply_fix, items
from vlmtui.domain.conversation import Attachment
from vlmtui.inspection.prompt_turns import own_tokens
from vlmtui.inspection.raw_prompt_check import Finding, FindingKind, check_raw
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


def check(text: str, attachments: list[Attachment], family: Family = QWEN) -> list[Finding]:
    return check_raw(
        text,
        attachments,
        family,
        special_tokens=frozenset(own_tokens(family)),
        stop_tokens=(),
        bos=None,
        adds_bos=False,
        families=REGISTRY.values(),
    )


def mended(text: str, attachments: list[Attachment], family: Family = QWEN) -> str:
    """The text after the fixes of what was torn, one after the other."""
    for _ in range(12):
        lost = (FindingKind.TOO_FEW, FindingKind.TORN_TOKEN, FindingKind.UNWRAPPED)
        fixes = [one.fix for one in check(text, attachments, family) if one.kind in lost and one.fix]
        if not fixes:
            return text
        text = apply_fix(text, fixes[0])
    raise AssertionError("the fixes come to no end")


def test_an_attachment_without_placeholder_is_named() -> None:
    whole, pictures = five_turns()
    (finding,) = check(whole.replace(VISION, "", 1), pictures)
    assert finding.message.endswith("1 too few. No place for image1.")


@pytest.mark.parametrize(
    ("torn", "token"),
    [
        ("<|vision_st art|>", "<|vision_start|>"),
        ("<|vision_sta", "<|vision_start|>"),
        ("vision_start|>", "<|vision_start|>"),
    ],
)
def test_a_torn_token_is_named_and_restored(torn: str, token: str) -> None:
    whole, pictures = five_turns()
    text = whole.replace(token, torn, 1)
    (finding,) = [one for one in check(text, pictures) if one.kind is FindingKind.TORN_TOKEN]
    assert finding.message.startswith(f"{torn} is not {token}: ")
    assert text.count("\n", 0, finding.start) + 1 == 4
    assert mended(text, pictures) == whole


@pytest.mark.parametrize(
    ("torn", "token"),
    [("<|im_st art|>", "<|im_start|>"), ("<|im_end", "<|im_end|>"), ("im_end|>", "<|im_end|>")],
)
def test_a_torn_token_is_found(torn: str, token: str) -> None:
    text = f"<|im_start|>user\n{VISION}q{torn}\n<|im_start|>assistant\n"
    findings = check(text, items({"image": 1}))
    assert [one.fix.replacement for one in findings if one.kind is FindingKind.TORN_TOKEN and one.fix] == [token]


def test_the_beginning_of_a_placeholder_without_signs_is_found() -> None:
    family = REGISTRY["llava"]
    (found,) = check("USER: <image\nWhat? ASSISTANT:", items({"image": 1}), family)
    assert found.fix is not None
    assert found.fix.replacement == "<image>"


def test_code_and_prose_have_no_torn_tokens() -> None:
    code = "if a <b and c> d: x |> y; <im> [a b] std::vector<int> <!-- note --> 1 <2"
    text = f"<|im_start|>user\n{VISION}{code}<|im_end|>\n<|im_start|>assistant\n"
    findings = check(text, items({"image": 1}))
    assert [one for one in findings if one.kind is FindingKind.TORN_TOKEN] == []


@pytest.mark.parametrize("torn", ["<|image_pa", "<|image_ pad|>", "<|image_pda|>", "image_pad|>"])
def test_a_torn_placeholder_is_restored_at_its_place(torn: str) -> None:
    whole, pictures = five_turns()
    text = whole.replace("<|image_pad|>", torn, 1)
    (finding,) = [one for one in check(text, pictures) if one.blocks]
    assert finding.kind is FindingKind.TOO_FEW
    assert finding.fix is not None
    assert apply_fix(text, finding.fix) == whole
