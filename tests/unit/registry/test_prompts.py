"""Turns become prompts."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from vlmtui.domain.conversation import (
    Attachment,
    Media,
    Modality,
    RawPrompt,
    Text,
    Turn,
    assistant_turn,
    system_turn,
    user_turn,
)
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import VlmtuiError
from vlmtui.registry.loader import Registry
from vlmtui.registry.prompts import chat_prompt, raw_prompt
from vlmtui.registry.schema import Family, Place, RawTemplate, Takes
from vlmtui.session.generation import make_request

IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"


def attachment(name: str = "a.png", modality: Modality = "image") -> Attachment:
    return Attachment(
        modality=modality,
        name=name,
        path=f"/media/{name}",
        sha256="0" * 64,
        width=8,
        height=8,
        size_bytes=1,
        format="PNG",
    )


def raw_text(family: Family, turns: Sequence[Turn]) -> str:
    """The raw prompt of a family whose record writes it."""
    prompt = raw_prompt(family, turns)
    assert isinstance(prompt, RawPrompt)
    return prompt.text


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry.bundled()


@pytest.fixture
def shapes(registry: Registry) -> Family:
    return registry["shapes"]


def test_raw_prompt_holds_every_turn_and_its_images(shapes: Family) -> None:
    turns = [
        system_turn("Be brief."),
        user_turn("What is {this}?", [attachment("a.png")]),
        assistant_turn("A red circle."),
        user_turn('And "these"?\n', [attachment("b.png"), attachment("c.png")]),
    ]
    prompt = raw_prompt(shapes, turns)
    assert isinstance(prompt, RawPrompt)
    assert prompt.text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        f"<|im_start|>user\n{IMAGE}What is {{this}}?<|im_end|>\n"
        "<|im_start|>assistant\nA red circle.<|im_end|>\n"
        f'<|im_start|>user\n{IMAGE}{IMAGE}And "these"?\n<|im_end|>\n'
        "<|im_start|>assistant\n"
    )
    assert [item.name for item in prompt.attachments] == ["a.png", "b.png", "c.png"]


def test_text_that_looks_like_a_field_is_left_alone(shapes: Family) -> None:
    assert "{content}{i}" in raw_text(shapes, [user_turn("{content}{i}")])


def test_an_image_stays_where_it_was_put(shapes: Family) -> None:
    turn = Turn("user", (Text("Look at "), Media(attachment()), Text(" closely.")))
    assert f"Look at {IMAGE} closely." in raw_text(shapes, [turn])


def numbered(place: Place = "before") -> Family:
    return Family(
        family="numbered",
        title="Numbered",
        models=("org/numbered",),
        architectures=("X",),
        takes={"image": Takes(placeholder="<|image_{i}|>", max_items=3, place=place, separator="\n", gap="\n")},
        raw=RawTemplate(user="U:{content}\n", assistant="A:{content}\n", generation_prompt="A:"),
    )


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("before", "U:<|image_1|>\n<|image_2|>\nq\nA:a\nU:<|image_3|>\nr\nA:"),
        ("after", "U:q\n<|image_1|>\n<|image_2|>\nA:a\nU:r\n<|image_3|>\nA:"),
        ("turn", "<|image_1|><|image_2|>U:q\nA:a\n<|image_3|>U:r\nA:"),
        ("front", "<|image_1|><|image_2|><|image_3|>U:q\nA:a\nU:r\nA:"),
    ],
)
def test_placeholders_are_numbered_over_the_conversation(place: Place, expected: str) -> None:
    first = user_turn("q", [attachment(), attachment()])
    turns = [first, assistant_turn("a"), user_turn("r", [attachment()])]
    assert raw_text(numbered(place), turns) == expected


def test_an_image_in_the_middle_stays_there_and_keeps_its_number() -> None:
    composed = Turn("user", (Media(attachment("1")), Text("like "), Media(attachment("2")), Text("?")))
    prompt = raw_prompt(numbered(), [composed])
    assert isinstance(prompt, RawPrompt)
    assert prompt.text == "U:<|image_1|>\nlike <|image_2|>\n?\nA:"
    assert [item.name for item in prompt.attachments] == ["1", "2"]


def test_a_family_that_does_not_interleave_gets_its_images_in_their_place() -> None:
    family = numbered()
    takes = msgspec.structs.replace(family.takes["image"], interleave=False)
    family = msgspec.structs.replace(family, takes={"image": takes})
    composed = Turn("user", (Text("like "), Media(attachment()), Text("this?")))
    assert raw_text(family, [composed]) == "U:<|image_1|>\nlike this?\nA:"


def test_a_family_without_a_system_turn_refuses_a_system_prompt() -> None:
    with pytest.raises(VlmtuiError, match="does not support a system prompt"):
        raw_prompt(numbered("before"), [system_turn("x"), user_turn("q")])


def test_unsupported_media_are_named(shapes: Family) -> None:
    with pytest.raises(VlmtuiError, match=r"does not accept videos.*'clip\.mp4'"):
        chat_prompt(numbered("before"), [user_turn("q", [attachment("clip.mp4", "video")])])
    with pytest.raises(VlmtuiError, match="at most 8 images"):
        raw_prompt(shapes, [user_turn("q", [attachment() for _ in range(9)])])


def test_a_request_carries_the_familys_stop_tokens(shapes: Family) -> None:
    request = make_request(shapes, [user_turn("hello")], Sampling(stop_tokens=("X",)))
    assert request.sampling.stop_tokens == ("X", "<|im_end|>", "<|endoftext|>")
