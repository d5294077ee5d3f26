"""Whatever is edited in a prompt: every sentence about the difference is true of the tokens."""

from __future__ import annotations

import json
import re
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cases import examples
from tests.unit.inspection.true_sentences import Tokens, holds
from vlmtui.domain.conversation import Attachment
from vlmtui.domain.generation import MediaSpan
from vlmtui.inspection.prompt_diff import PromptTokens, prompt_diff

_PROMPTS = json.loads((Path(__file__).parents[1] / "registry" / "prompts.json").read_bytes())
_TOKEN = re.compile(r"<[^<>\s]+>|\[/?[A-Z_]+\]|\w+| \w+|\n|\s|.", re.DOTALL)
_SPECIAL = re.compile(r"<[^<>\s]+>|\[/?[A-Z_]+\]")
PAD = "<|image_pad|>"
_SEEN = f"<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n{PAD}{PAD}What is here?<|im_end|>\n"
_LONG = (
    f"{_SEEN}<|im_start|>assistant\nA star.<|im_end|>\n<|im_start|>user\n{PAD} And in this picture?<|im_end|>\n"
    "<|im_start|>assistant\nA square.<|im_end|>\n<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\n"
)
_IMAGES = (PAD, "<image>", "<start_of_image>", "<|image|>", "[IMG]", "<|img|>", "<|image_1|>")
FAMILIES = ("keye_vl", "gemma3", "llava", "mistral3", "mantis", "exaone4_5", "phi3_v", "deepseek_vl_v2", "idefics3",
            "paddleocr_vl", "llava-onevision", "glm4_1v")  # fmt: skip
TEXTS = [_LONG, *(_PROMPTS[name][0] for name in FAMILIES)]
_IDS: dict[str, int] = {}

Edit = tuple[str, int, int, int, str]
Item = tuple[str, int]
"""A token's text, and the number of the picture that it is, from 1; 0: none."""


def items_of(text: str, *, pictures: bool) -> list[Item]:
    count = 0
    found: list[Item] = []
    for token in _TOKEN.findall(text):
        is_picture = pictures and token in _IMAGES
        count += is_picture
        found.append((token, count if is_picture else 0))
    return found


def prompt_of(items: list[Item]) -> PromptTokens:
    ids: list[int] = []
    texts: list[str] = []
    media: list[MediaSpan] = []
    attachments: list[Attachment] = []
    for text, number in items:
        count = 3 if number else 1
        if number:
            media.append(MediaSpan(modality="image", index=len(media), offset=len(ids), length=count, tokens=count))
            attachments.append(
                Attachment(
                    modality="image", name=f"{number}.png", path="", sha256=f"{number:064x}", width=8, height=8,
                    size_bytes=1, format="PNG",
                )
            )  # fmt: skip
        ids += [_IDS.setdefault(text, len(_IDS))] * count
        texts += [text] * count
    special = frozenset(id for text, id in _IDS.items() if _SPECIAL.fullmatch(text))
    return PromptTokens(tuple(ids), tuple(texts), special, tuple(media), tuple(attachments))


def tokens_of(items: list[Item]) -> Tokens:
    return Tokens(
        [text for text, _ in items],
        [bool(_SPECIAL.fullmatch(text)) and not number for text, number in items],
        [f"{number}.png" if number else None for _, number in items],
        [3 if number else 1 for _, number in items],
    )


def edited(items: list[Item], edit: str, start: int, length: int, place: int, new: str) -> list[Item]:
    """Apply an edit; numbers are taken modulo the number of places."""
    start %= len(items) + 1
    part, rest = items[start : start + length], [*items[:start], *items[start + length :]]
    place %= len(rest) + 1
    match edit:
        case "insert":
            return [*items[:start], *items_of(new, pictures=False), *items[start:]]
        case "delete":
            return rest
        case "move":
            return [*rest[:place], *part, *rest[place:]]
        case "duplicate":
            return [*items[:start], *part, *items[start:]]
        case "swap" if items:
            other = place % len(items)
            changed = list(items)
            changed[start - 1], changed[other] = items[other], items[start - 1]
            return changed
        case "cut" if part and not part[0][1]:
            text = part[0][0]
            left = text[: place % (len(text) + 1)] + text[place % (len(text) + 1) + 1 :]
            again = [left] if place % 2 else list(left)
            return [*items[:start], *((one, 0) for one in again if one), *items[start + 1 :]]
        case "other picture" if part and part[0][1]:
            return [*items[:start], (part[0][0], part[0][1] + 7), *items[start + 1 :]]
        case _:
            return items


_EDITS = st.tuples(
    st.sampled_from(["insert", "delete", "move", "swap", "duplicate", "cut", "other picture"]),
    st.integers(0, 200),
    st.integers(1, 14),
    st.integers(0, 200),
    st.sampled_from(
        ["USER: <image>\nWhat is here? ASSISTANT:", "\n", " ", "\n\n", "<s>", "<|im_start|>assistant\n", "system", "x",
         "<|im_start|>system\nBe kind.<|im_end|>\n", "<image>", "<|im_end|>", "assistant", "What is here?", "a b"]
    ),
)  # fmt: skip


@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(st.sampled_from(TEXTS), st.booleans(), st.lists(_EDITS, min_size=1, max_size=3))
def test_every_sentence_is_true_of_the_tokens(text: str, pictures: bool, edits: list[Edit]) -> None:
    left = items_of(text, pictures=pictures)
    right = left
    for edit in edits:
        right = edited(right, *edit)
    for one, other in ((left, right), (right, left)):
        found = prompt_diff(prompt_of(one), prompt_of(other))
        assert found.identical == (one == other)
        assert found.findings
        for sentence in found.findings:
            assert holds(sentence, tokens_of(one), tokens_of(other)), sentence
