"""Two prompts turn by turn: how they are split, and which turns correspond."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.scripted_engine import ScriptedEngine
from vlmtui.domain.conversation import Attachment, RawPrompt
from vlmtui.domain.generation import GenerateRequest
from vlmtui.domain.sampling import Sampling
from vlmtui.inspection.prompt_turns import (
    PromptPart,
    PromptTurn,
    Run,
    TurnPair,
    aligned,
    folded_runs,
    marked_runs,
    placeholders,
    prompt_parts,
    raw_turns,
    rendered_turns,
)
from vlmtui.registry.loader import Registry
from vlmtui.registry.schema import Family
from vlmtui.session.generation import render

REGISTRY = Registry.bundled()
SHAPES = REGISTRY["shapes"]
PAD = "<|vision_start|><|image_pad|><|vision_end|>"
USER = "<|im_start|>user\n{}<|im_end|>\n"
MODEL = "<|im_start|>assistant\n{}<|im_end|>\n"
LAST = "<|im_start|>assistant\n"


def picture(name: str) -> Attachment:
    return Attachment(
        modality="image", name=f"{name}.png", path=f"/{name}.png", sha256=name * 8, width=32, height=24,
        size_bytes=9, format="PNG",
    )  # fmt: skip


CAT, DOG = picture("c"), picture("d")


async def rendered(text: str, *items: Attachment) -> list[PromptTurn]:
    """The turns of a prompt that an engine has rendered."""
    request = GenerateRequest(request_id="r", prompt=RawPrompt(text=text, attachments=items), sampling=Sampling())
    ready = await render(ScriptedEngine(), request.prompt)
    parts = prompt_parts(ready, items, items, SHAPES, frozenset())
    turns = rendered_turns(parts, SHAPES)
    runs = [(run.text, run.style) for turn in turns for run in turn.runs]
    assert runs == [(run.text, run.style) for run in folded_runs(ready, items, items, frozenset())]
    return turns


def turns_of(text: str, family: Family, items: Sequence[Attachment]) -> list[PromptTurn]:
    return raw_turns(text, family, placeholders(text, family, items))


def told(pairs: Sequence[TurnPair]) -> list[tuple[str, str, bool]]:
    return [(one.left.role if one.left else "-", one.right.role if one.right else "-", one.is_equal) for one in pairs]


async def test_a_rendered_prompt_equals_the_raw_prompt_it_was_made_from() -> None:
    text = USER.format(PAD + "What?") + MODEL.format("A cat.") + USER.format(PAD + "And?") + LAST
    left, right = await rendered(text, CAT, DOG), turns_of(text, SHAPES, (CAT, DOG))
    assert told(aligned(left, right)) == [
        ("user", "user", True), ("assistant", "assistant", True), ("user", "user", True),
        ("assistant", "assistant", True),
    ]  # fmt: skip
    assert [turn.media_hashes for turn in left] == [(CAT.sha256,), (), (DOG.sha256,), ()]


async def test_only_what_one_side_lacks_is_marked() -> None:
    text = USER.format(PAD + "What is  this?") + LAST
    other = USER.format(PAD + "What is this?!").replace("<|im_end|>", "") + LAST
    (user, last) = aligned(await rendered(text, CAT), turns_of(other, SHAPES, (CAT,)))
    assert last.changes == ((), ()) and user.left and user.right
    ours, theirs = user.changes
    assert [user.left.text[start:end] for start, end in ours] == [" ", "<|im_end|>"]
    assert [user.right.text[start:end] for start, end in theirs] == ["", "!"]
    assert [run.text for run in marked_runs(user.left, ours) if run.differs] == [" ", "<|im_end|>"]
    (gone,) = aligned(await rendered(text, CAT), turns_of(text.removesuffix(LAST), SHAPES, (CAT,)))[1:]
    assert gone.right is None and gone.changes == (((0, len(LAST)),), ())


async def test_equal_texts_with_different_images_differ() -> None:
    text = USER.format(PAD + "What?") + LAST
    pairs = aligned(await rendered(text, CAT), turns_of(text, SHAPES, (DOG,)))
    assert told(pairs) == [("user", "user", False), ("assistant", "assistant", True)]


def test_other_turns_stay_aligned_around_a_changed_and_a_removed_turn() -> None:
    turns = [USER.format("one"), MODEL.format("1"), USER.format("two"), MODEL.format("2"), USER.format("three"), LAST]
    changed = [turns[0], "<|im_start|>assistantuh", *turns[3:]]
    pairs = aligned(turns_of("".join(turns), SHAPES, ()), turns_of("".join(changed), SHAPES, ()))
    assert told(pairs) == [
        ("user", "user", True), ("assistant", "assistant", False), ("user", "-", False),
        ("assistant", "assistant", True), ("user", "user", True), ("assistant", "assistant", True),
    ]  # fmt: skip


def test_text_without_heads_is_one_turn_without_a_role() -> None:
    assert turns_of("Just text\n\nwith lines", SHAPES, ()) == [PromptTurn("", 0, "Just text\n\nwith lines")]
    assert turns_of("", SHAPES, ()) == []
    assert rendered_turns([], SHAPES) == []


@pytest.mark.parametrize(
    ("text", "roles"),
    [
        ("<s>[INST] one [/INST] two</s>[INST] three [/INST]", [""]),
        ("<bos><start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\n", ["user", "assistant"]),
        ("<|user|>\nhi<|end|>\n<|assistant|>\n", ["user", "assistant"]),
        ("<|im_start|>system\nBe brief.<|im_end|>\n" + USER.format("user") + LAST, ["system", "user", "assistant"]),
        ("<|im_start|>userhi<|im_start|>assistant\n", ["user", "assistant"]),
    ],
)
def test_heads_begin_turns(text: str, roles: list[str]) -> None:
    """Turn heads of the family, the most common ones, and some without their line break."""
    assert [turn.role for turn in turns_of(text, SHAPES, ())] == roles


def test_an_added_bos_belongs_to_the_first_turn() -> None:
    parts = [PromptPart("", (Run("<s>", "special"),)), PromptPart("USER: hi", (Run("USER: hi"),))]
    (turn,) = rendered_turns(parts, SHAPES)
    assert turn.text == "USER: hi" and turn.runs == (Run("<s>", "special", raw_length=0), Run("USER: hi"))


PIECES = st.lists(
    st.sampled_from(
        ["<|im_start|>", "<|im_end|>", "user", "assistant", "system", "\n", PAD, "<|image_pad|>", "USER:", "[INST]",
         "hi", " ", "<|user|>", "é", "<start_of_turn>", "model"]
    ),
    max_size=30,
)  # fmt: skip


@given(PIECES, PIECES, st.sampled_from(sorted(REGISTRY, key=str)))
def test_joined_turns_are_the_prompt_and_equal_pairs_are_equal(left: list[str], right: list[str], name: str) -> None:
    family = REGISTRY[name]
    sides = [turns_of("".join(pieces), family, (CAT,)) for pieces in (left, right)]
    for pieces, turns in zip((left, right), sides, strict=True):
        assert "".join(turn.text for turn in turns) == "".join(pieces)
        assert all("".join(pieces)[turn.start :].startswith(turn.text) for turn in turns)
    pairs = aligned(*sides)
    assert [pair.left for pair in pairs if pair.left] == sides[0]
    assert [pair.right for pair in pairs if pair.right] == sides[1]
    for pair in pairs:
        if pair.is_equal:
            assert pair.left and pair.right
            assert (pair.left.text, pair.left.media_hashes) == (pair.right.text, pair.right.media_hashes)


@given(PIECES)
def test_joined_runs_are_the_rendered_prompt(pieces: list[str]) -> None:
    media = {PAD: PromptPart("<|image_pad|>", (Run("[Image]", "media"),), "c")}
    parts = [media.get(one) or PromptPart(one, (Run(one),)) for one in pieces]
    turns = rendered_turns(parts, SHAPES)
    assert "".join(turn.text for turn in turns) == "".join(part.text for part in parts)
    shown = "".join(run.text for turn in turns for run in marked_runs(turn, ((1, 3), (3, 3), (5, 90))))
    assert shown == "".join(run.text for part in parts for run in part.runs)
