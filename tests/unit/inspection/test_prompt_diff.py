"""The difference of two prompts, and what it means."""

from __future__ import annotations

import json
import random
import re
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from tests.support.cases import in_one_test
from vlmtui.domain.conversation import Attachment
from vlmtui.domain.generation import MediaSpan
from vlmtui.inspection.prompt_diff import MOST, PromptDiff, PromptTokens, prompt_diff
from vlmtui.inspection.sequence_diff import common_start, diff_blocks

PROMPTS = json.loads((Path(__file__).parents[1] / "registry" / "prompts.json").read_bytes())
TEXTS = {name: texts[0] for name, texts in PROMPTS.items() if isinstance(texts[0], str)}
_TOKEN = re.compile(r"<[^<>\s]+>|\[/?[A-Z_]+\]|\w+| \w+|\n|\s|.", re.DOTALL)
_SPECIAL = re.compile(r"<[^<>\s]+>|\[/?[A-Z_]+\]")
_VOCABULARY: dict[str, int] = {}

PAD = "<|image_pad|>"
USER = "<|im_start|>user\n"
END = "<|im_end|>\n<|im_start|>assistant\n"


def picture(letter: str) -> Attachment:
    return Attachment(
        modality="image", name=f"{letter}.png", path="/x", sha256=letter * 64, width=8, height=8, size_bytes=1,
        format="PNG",
    )  # fmt: skip


def prompt(text: str, *, pictures: str = "", run: int = 4, name: str = "", image: str = PAD) -> PromptTokens:
    """As a toy tokenizer makes it: words, marks, special tokens; every image token `run` times, one picture each."""
    ids: list[int] = []
    texts: list[str] = []
    media: list[MediaSpan] = []
    for token in _TOKEN.findall(text):
        count = run if pictures and token == image else 1
        if count > 1 or (pictures and token == image):
            media.append(MediaSpan(modality="image", index=len(media), offset=len(ids), length=count, tokens=count))
        ids += [_VOCABULARY.setdefault(token, len(_VOCABULARY))] * count
        texts += [token] * count
    special = frozenset(number for token, number in _VOCABULARY.items() if _SPECIAL.fullmatch(token))
    return PromptTokens(tuple(ids), tuple(texts), special, tuple(media), tuple(map(picture, pictures)), name)


def holds(diff: PromptDiff, left: PromptTokens, right: PromptTokens) -> None:
    """The spans are both prompts, and before the first divergence the ids are equal."""
    assert [token for span in diff.spans for piece in span.left for token in piece.ids] == list(left.ids)
    assert [token for span in diff.spans for piece in span.right for token in piece.ids] == list(right.ids)
    assert diff.identical == (diff.first_divergence is None)
    if diff.first_divergence is not None:
        assert left.ids[: diff.first_divergence] == right.ids[: diff.first_divergence]


def compare(left: str, right: str) -> PromptDiff:
    one, other = prompt(left), prompt(right)
    diff = prompt_diff(one, other)
    holds(diff, one, other)
    return diff


@in_one_test({name: (name,) for name in TEXTS})
def test_every_familys_prompt_equals_itself(name: str) -> None:
    diff = compare(TEXTS[name], TEXTS[name])
    assert diff.identical
    assert diff.findings == ("no difference",)
    assert [span.operation for span in diff.spans] == ["equal"]


def test_joined_spans_are_both_prompts() -> None:
    names = list(TEXTS)
    for one, other in pairwise(names):
        compare(TEXTS[one], TEXTS[other])


@pytest.mark.parametrize(
    ("left", "right", "finding"),
    [
        (f"<s>{USER}q", f"<s><s>{USER}q", "the right adds “<s>” after “<s>”"),
        (f"<s>{USER}q", f"{USER}q", "the right lacks “<s>” at the start"),
        (f"{USER}\nq{END}", f"{USER}q{END}", "the right lacks “↵” after “<|im_start|>user↵”"),
        (f"{USER}a b{END}", f"{USER}a  b{END}", "the right adds “ ” after “<|im_start|>user↵a”"),
        (f"{USER}q{END}", f"{USER}q{END}\n", "the right adds “↵” at the end"),
        (f"x\n{END}", "x\n<|im_end|>", "the right lacks “↵<|im_start|>assistant↵” at the end"),
        (
            f"{USER}q{END}",
            f"<|im_start|>system\nYou are kind.<|im_end|>\n{USER}q{END}",
            "the right adds “<|im_start|>system↵You are kind.<|im_end|>↵” at the start",
        ),
        (
            f"{USER}q{END}A.<|im_end|>\n{USER}q{END}",
            f"{USER}q{END}",
            "the right lacks “<|im_start|>assistant↵A.<|im_…<|im_start|>user↵q<|im_end|>↵” after “q<|im_end|>↵”",
        ),
        (f"{USER}<image>q", f"{USER}{PAD}q", f"after “<|im_start|>user↵”: “<image>” in the left, “{PAD}” in the right"),
    ],
)
def test_a_difference_has_a_sentence(left: str, right: str, finding: str) -> None:
    diff = compare(left, right)
    assert not diff.identical
    assert diff.findings == (finding,)


def test_findings_use_the_names_of_the_sides() -> None:
    left, right = prompt(f"{USER}q", name="the chat template"), prompt(f"<s>{USER}q", name="the raw prompt")
    assert prompt_diff(left, right).findings == ("the raw prompt adds “<s>” at the start",)


def test_an_image_is_one_unit_that_compares_by_its_content_and_its_tokens() -> None:
    text = f"{USER}{PAD}What{END}"
    same = prompt_diff(prompt(text, pictures="a"), prompt(text, pictures="a"))
    assert same.identical
    assert sum(len(span.left) for span in same.spans) == len(_TOKEN.findall(text))

    left, right = prompt(text, pictures="a"), prompt(text, pictures="b")
    other = prompt_diff(left, right)
    holds(other, left, right)
    assert left.ids == right.ids
    assert not other.identical
    assert other.first_divergence == 3
    assert other.findings == (
        f"after “<|im_start|>user↵”: “[{PAD} × 4 from a.png]” in the left, “[{PAD} × 4 from b.png]” in the right",
    )

    left, right = prompt(text, pictures="a"), prompt(text, pictures="a", run=1280)
    smaller = prompt_diff(left, right)
    holds(smaller, left, right)
    assert smaller.findings == (
        f"after “<|im_start|>user↵”: “[{PAD} × 4 from a.png]” in the left, “[{PAD} × 1,280 from a.png]” in the right",
    )


def test_a_placeholder_as_plain_text_is_a_different_placeholder() -> None:
    left, right = prompt(f"{USER}<image>q"), prompt(f"{USER}{PAD}q", pictures="a")
    diff = prompt_diff(left, right)
    holds(diff, left, right)
    label = f"“[{PAD} × 4 from a.png]”"
    assert diff.findings == (f"after “<|im_start|>user↵”: “<image>” in the left, {label} in the right",)
    assert prompt_diff(prompt(f"{USER}q"), right).findings == (f"the right adds {label} after “<|im_start|>user↵”",)


def test_images_with_the_same_name_are_told_apart_by_their_hashes() -> None:
    one = prompt(f"{USER}{PAD}q", pictures="a")
    twin = msgspec.structs.replace(one.attachments[0], sha256="b" * 64)
    (finding,) = prompt_diff(one, msgspec.structs.replace(one, attachments=(twin,))).findings
    assert "from a.png (aaaaaaaa)]” in the left" in finding
    assert "from a.png (bbbbbbbb)]” in the right" in finding


def test_the_word_system_in_a_question_is_no_system_prompt() -> None:
    diff = compare(f"{USER}q{END}", f"{USER}system design? q{END}")
    assert diff.findings == ("after “<|im_start|>user↵”: “q” in the left, “system design? q” in the right",)


def test_equal_texts_with_different_tokens_are_reported() -> None:
    left, right = prompt("ab cd"), prompt("abcd")
    right = PromptTokens((left.ids[0], 9_001, 9_002), ("ab", " c", "d"), left.special_ids)
    assert prompt_diff(left, right).findings == (
        "after “ab”: “ cd” tokenized differently, 1 token in the left, 2 in the right",
    )


def test_many_differences_are_counted_after_the_first() -> None:
    words = [f"w{number} x{number}" for number in range(30)]
    diff = compare(" ".join(words), " ".join(words).replace("x", "y"))
    assert len(diff.findings) == MOST + 1
    assert diff.findings[-1] == f"{30 - MOST} more differences"


def test_without_attachments_images_compare_by_their_number() -> None:
    one = prompt(f"{PAD}{PAD}x", pictures="ab")
    bare = PromptTokens(one.ids, one.texts, one.special_ids, one.media)
    assert prompt_diff(bare, bare).identical


def test_hostile_text_in_findings_is_visible() -> None:
    diff = compare(f"{USER}q{END}", f"<|im_start|>system\n\x1b[31m\u202eevil{'x' * 500}<|im_end|>\n{USER}q{END}")
    (finding,) = diff.findings
    assert finding.isprintable()
    assert len(finding) < 200


def test_twenty_thousand_tokens_are_compared_with_little_work() -> None:
    """Tokens repeat a lot, so the plain algorithm would take minutes here."""
    random.seed(1)
    words = [f"w{number}" for number in range(50)]
    left = [random.choice(words) for _ in range(20_000)]
    right = list(left)
    for number in range(0, 20_000, 100):
        right[number] = f"x{number}"
        left[number] = f"y{number}"
    parts = diff_blocks(left, right)
    assert sum(part.operation == "equal" for part in parts) <= 201
    whole = diff_blocks([random.choice(words) for _ in range(20_000)], [random.choice(words) for _ in range(20_000)])
    assert (whole[-1].left_end, whole[-1].right_end) == (20_000, 20_000)


def test_blocks_cover_both_sequences_and_are_correct() -> None:
    random.seed(2)
    for _ in range(300):
        left = random.choices("abc", k=random.randrange(12))
        right = random.choices("abc", k=random.randrange(12))
        rebuilt: tuple[list[str], list[str]] = ([], [])
        parts = diff_blocks(left, right)
        for part in parts:
            here, there = left[part.left_start : part.left_end], right[part.right_start : part.right_end]
            assert (part.operation == "equal") == (here == there)
            assert here or part.operation == "added"
            assert there or part.operation == "removed"
            rebuilt[0].extend(here)
            rebuilt[1].extend(there)
        assert rebuilt == (left, right)
        assert all(one.operation != other.operation for one, other in pairwise(parts))
    assert common_start("abc", "abd") == 2


def test_long_sequences_are_anchored_at_unique_tokens() -> None:
    filler = ["the"] * 2000
    left = [*filler, "one", *filler, "two", *filler]
    right = ["new", *filler, "one", *filler, "2", "two", *filler, "end"]
    parts = [(part.operation, left[part.left_start : part.left_end][:1]) for part in diff_blocks(left, right)]
    assert parts == [
        ("added", []),
        ("equal", ["the"]),
        ("added", []),
        ("equal", ["two"]),
        ("added", []),
    ]
