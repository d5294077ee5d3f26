"""Raw prompts that are wrong in one way or another."""

from __future__ import annotations

import re

import msgspec
import pytest

from tests.unit.inspection.raw_prompts import REGISTRY, apply_fix, check, items, kinds
from vlmtui.inspection.raw_prompt_check import Finding, FindingKind


def phi(text: str, count: int) -> list[Finding]:
    whole = f"<|user|>\n{text}q<|end|>\n<|assistant|>\n"
    return check(whole, items({"image": count}), REGISTRY["phi3_v"])


@pytest.mark.parametrize(
    ("text", "count", "kind", "said", "mended"),
    [
        ("<|image_2|>\n", 1, "numbering", "<|image_2|> has the wrong number", "<|image_1|>\n"),
        ("<|image_0|>\n", 1, "numbering", "wrong number", "<|image_1|>\n"),
        ("<|image_1|><|image_1|>\n", 2, "numbering", "<|image_1|> appears twice", "<|image_1|><|image_2|>\n"),
        ("<|image_1|><|image_3|>\n", 2, "numbering", "<|image_3|> has the wrong", "<|image_1|><|image_2|>\n"),
        ("<|image_2|>\n", 2, "too_few", "1 image placeholder for 2 images: 1 too few", "<|image_2|>\n<|image_1|>\n"),
        ("<|image_1|><|image_7|>\n", 1, "too_many", "2 image placeholders for 1 image", "<|image_1|>\n"),
        ("<|image_7|><|image_1|>\n", 1, "too_many", "1 too many", "<|image_1|>\n"),
        ("<|image_99999999999999999999|>\n", 1, "numbering", "wrong number", "<|image_1|>\n"),
    ],
)
def test_numbered_placeholders_are_checked(text: str, count: int, kind: str, said: str, mended: str) -> None:
    (finding,) = phi(text, count)
    assert (finding.kind, finding.blocks) == (kind, True)
    assert said in finding.message
    assert finding.fix is not None
    whole = f"<|user|>\n{text}q<|end|>\n<|assistant|>\n"
    assert apply_fix(whole, finding.fix) == f"<|user|>\n{mended}q<|end|>\n<|assistant|>\n"


def test_numbers_may_stand_in_any_order() -> None:
    assert phi("<|image_2|> or <|image_1|>?", 2) == []


QWEN = REGISTRY["qwen2_vl"]
SYSTEM = "<|im_start|>system\nBe brief.<|im_end|>\n"
VISION = "<|vision_start|><|image_pad|><|vision_end|>"


def qwen(content: str, ending: str = "<|im_end|>\n<|im_start|>assistant\n") -> str:
    return f"{SYSTEM}<|im_start|>user\n{content}{ending}"


def test_an_image_copied_with_all_its_tokens_is_folded_again() -> None:
    text = qwen("<|vision_start|>" + "<|image_pad|>" * 1280 + "<|vision_end|>q")
    (finding,) = check(text, items({"image": 1}), QWEN)
    assert finding.fix is not None
    assert finding.fix.label == "write <|image_pad|> once instead of 1,280 times"
    assert apply_fix(text, finding.fix) == qwen(VISION + "q")


def test_a_placeholder_without_its_surroundings_is_wrapped_but_does_not_block() -> None:
    for broken in ("<|image_pad|>", "<|vision_start|><|image_pad|>", "<|image_pad|><|vision_end|>"):
        (finding,) = check(qwen(broken + "q"), items({"image": 1}), QWEN)
        assert (finding.kind, finding.blocks) == (FindingKind.UNWRAPPED, False)
        assert finding.fix is not None
        assert apply_fix(qwen(broken + "q"), finding.fix) == qwen(VISION + "q")


def test_a_restored_placeholder_gets_its_surrounding_tokens() -> None:
    hollow = VISION.replace("<|image_pad|>", "")
    for broken, whole in ((hollow + "q", VISION + "q"), (f"{VISION} or {hollow}?", f"{VISION} or {VISION}?")):
        (finding,) = check(qwen(broken), items({"image": whole.count(VISION)}), QWEN)
        assert finding.kind is FindingKind.TOO_FEW
        assert finding.fix is not None
        assert finding.fix.label == "insert <|image_pad|> between the tokens that belong around it"
        assert apply_fix(qwen(broken), finding.fix) == qwen(whole)


def test_the_label_of_a_fix_names_text_and_place() -> None:
    (finding,) = check(qwen("q"), items({"image": 1}), QWEN)
    assert finding.fix is not None
    assert finding.fix.label == "insert <|image_pad|> in the last message"
    assert apply_fix(qwen("q"), finding.fix) == qwen(VISION + "q")
    (finding,) = check("q", items({"image": 1}), REGISTRY["lfm2_vl"])
    assert finding.fix is not None
    assert finding.fix.label == "insert <image> at the beginning"


def test_a_turn_without_a_raw_template_is_found_with_another_familys() -> None:
    text = "<|im_start|>system\nx<|im_end|>\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"
    (finding,) = check(text, items({"image": 1}), REGISTRY["internvl_chat"])
    assert finding.fix is not None
    assert "user\n<image>\nq<|im_end|>" in apply_fix(text, finding.fix)


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        (qwen("q", "<|im_ends|>\n<|im_end|>\n<|im_start|>assistant\n"), "<|im_end|>"),
        (qwen("q <|im_strat|>"), "<|im_start|>"),
        (qwen("q <|im_end>"), "<|im_end|>"),
        (qwen("q <|zzzzqqqq8|>"), None),
    ],
)
def test_an_unknown_special_token_is_found(text: str, nearest: str | None) -> None:
    (finding,) = check(text, [], QWEN)
    assert finding.kind is FindingKind.UNKNOWN_TOKEN
    assert " is not a special token here; it is tokenized as plain text." in finding.message
    assert (finding.fix.replacement if finding.fix else None) == nearest
    if finding.fix:
        assert check(apply_fix(text, finding.fix), [], QWEN) == [] or nearest != "<|im_start|>"


def test_words_in_brackets_are_unknown_tokens_only_near_a_known_one() -> None:
    mistral = REGISTRY["mistral3"]
    assert kinds(check("<s>[INST]see [TODO] and <some_tag>[/INST]", [], mistral)) == []
    findings = check("<s>[INTS]q[/INST]", [], mistral)
    assert findings[0].kind is FindingKind.UNKNOWN_TOKEN
    assert findings[0].fix is not None
    assert findings[0].fix.replacement == "[INST]"


def test_without_the_tokenizers_tokens_none_is_called_unknown() -> None:
    assert check(qwen("<|whatever|>"), [], QWEN, special=frozenset()) == []


def test_a_stop_token_after_the_beginning_of_an_answer_is_found() -> None:
    text = qwen("q") + "An answer.<|im_end|>\n"
    (finding,) = check(text, [], QWEN)
    assert finding.kind is FindingKind.STOP_AT_END
    assert text[finding.start : finding.end] == "<|im_end|>"
    assert finding.fix is not None
    assert apply_fix(text, finding.fix) == qwen("q") + "An answer."


def test_a_closed_last_turn_lacks_only_the_generation_prompt() -> None:
    for end in ("<|im_end|>", "<|im_end|>\n", "<|im_end|>\n<|im_start|>assistant"):
        (finding,) = check(qwen("q", end), [], QWEN)
        assert finding.kind is FindingKind.GENERATION_PROMPT
        assert finding.fix is not None
        assert apply_fix(qwen("q", end), finding.fix) == qwen("q")


def test_the_beginning_of_an_answer_is_accepted() -> None:
    assert check(qwen("q") + "The picture shows", [], QWEN) == []


def test_an_open_turn_between_two_others_is_found() -> None:
    text = f"{SYSTEM}<|im_start|>user\na\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n"
    text += "<|im_start|>assistant\n"
    (finding,) = check(text, [], QWEN)
    assert finding.kind is FindingKind.END_OF_TURN
    assert finding.fix is not None
    assert "user\na<|im_end|>\n<|im_start|>assistant\nb" in apply_fix(text, finding.fix)


GEMMA = REGISTRY["gemma3"]
TURN = "<start_of_turn>user\nq<end_of_turn>\n<start_of_turn>model\n"


@pytest.mark.parametrize(
    ("text", "adds", "kind", "mended"),
    [
        (TURN, False, "bos_missing", "<bos>" + TURN),
        (TURN, True, None, ""),
        ("<bos>" + TURN, False, None, ""),
        ("<bos>" + TURN, True, "bos_doubled", TURN),
        ("<bos><bos>" + TURN, False, "bos_doubled", "<bos>" + TURN),
        ("<bos><bos>" + TURN, True, "bos_doubled", TURN),
    ],
)
def test_a_missing_or_doubled_bos_is_found(text: str, adds: bool, kind: str | None, mended: str) -> None:
    findings = check(text, [], GEMMA, bos="<bos>", adds_bos=adds)
    assert kinds(findings) == ([kind] if kind else [])
    if findings:
        assert findings[0].fix is not None
        assert apply_fix(text, findings[0].fix) == mended


def test_bos_after_leading_placeholders_is_found() -> None:
    mllama = REGISTRY["mllama"]
    pictures = items({"image": 2})
    assert check("<|image|><|image|><|begin_of_text|>q", pictures, mllama, bos="<|begin_of_text|>") == []
    (finding,) = check("<|image|><|image|>q", pictures, mllama, bos="<|begin_of_text|>")
    assert finding.fix is not None
    assert apply_fix("<|image|><|image|>q", finding.fix) == "<|image|><|image|><|begin_of_text|>q"


HOSTILE = [
    "",
    "   \n",
    "\x1b[31m<|im_end|>\x1b]0;x\x07",
    "\u202e<|image_pad|>\u2066",
    "[b]<|[b]|>[/b]",
    "<" * 5000,
    "<|" * 5000,
    "[" * 5000 + "]" * 5000,
    "<|image_" + "1" * 5000 + "|>",
    "\ud800<image>",
    "({i}){content}<|image_{i}|>",
]


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_hostile_text_is_checked_and_every_fix_clears_its_finding(number: int) -> None:
    text = HOSTILE[number]
    for family in REGISTRY.values():
        attachments = items({next(iter(family.takes)): 2})
        for finding in check(text, attachments, family):
            assert 0 <= finding.start <= finding.end <= len(text)
            if finding.fix:
                assert 0 <= finding.fix.start <= finding.fix.end <= len(text)
                again = check(apply_fix(text, finding.fix), attachments, family)
                assert (finding.kind, finding.message) not in [(one.kind, one.message) for one in again]


def test_one_after_the_other_the_fixes_make_a_whole_prompt_of_a_bare_question() -> None:
    for family in REGISTRY.values():
        modality = next(iter(family.takes))
        text = "What is this?"
        for _ in range(6):
            findings = [one for one in check(text, items({modality: 1}), family) if one.fix]
            if not findings:
                break
            assert findings[0].fix is not None
            text = apply_fix(text, findings[0].fix)
        assert not [one for one in check(text, items({modality: 1}), family) if one.blocks]
        assert "What is this?" in re.sub(r"\s+", " ", text)


def test_attachments_of_a_users_family_are_checked() -> None:
    family = msgspec.structs.replace(QWEN, family="mine", takes={})
    findings = check(qwen(VISION + "q"), items({"image": 1}), family)
    assert FindingKind.NOT_TAKEN in kinds(findings)
