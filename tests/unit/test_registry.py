"""The registry: records, prompts, matching."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vlmtui.domain.attachment import Attachment, Modality
from vlmtui.domain.conversation import Media, Text, Turn, assistant_turn, system_turn, user_turn
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.session import make_request
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.registry.loader import Registry, parse_family
from vlmtui.registry.match import DEFAULT_MODEL, resolve
from vlmtui.registry.prompts import chat_prompt, raw_prompt
from vlmtui.registry.schema import Family, RawTemplate, Takes

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
    assert prompt.text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        f"<|im_start|>user\n{IMAGE}What is {{this}}?<|im_end|>\n"
        "<|im_start|>assistant\nA red circle.<|im_end|>\n"
        f'<|im_start|>user\n{IMAGE}{IMAGE}And "these"?\n<|im_end|>\n'
        "<|im_start|>assistant\n"
    )
    assert [item.name for item in prompt.attachments] == ["a.png", "b.png", "c.png"]


def test_text_that_looks_like_a_field_is_left_alone(shapes: Family) -> None:
    assert "{content}{i}" in raw_prompt(shapes, [user_turn("{content}{i}")]).text


def test_an_image_stays_where_it_was_put(shapes: Family) -> None:
    turn = Turn("user", (Text("Look at "), Media(attachment()), Text(" closely.")))
    assert f"Look at {IMAGE} closely." in raw_prompt(shapes, [turn]).text


def numbered(place: str) -> Family:
    return Family(
        family="numbered",
        title="Numbered",
        models=("org/numbered",),
        architectures=("X",),
        takes={"image": Takes(placeholder="<|image_{i}|>", max_items=3, place=place, joiner="\n")},  # type: ignore[arg-type]
        raw=RawTemplate(user="U:{content}\n", assistant="A:{content}\n", generation_prompt="A:"),
    )


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("before", "U:<|image_1|>\n<|image_2|>\nq\nA:a\nU:<|image_3|>\nr\nA:"),
        ("after", "U:q<|image_1|>\n<|image_2|>\n\nA:a\nU:r<|image_3|>\n\nA:"),
    ],
)
def test_placeholders_are_numbered_over_the_conversation(place: str, expected: str) -> None:
    first = Turn("user", (Media(attachment()), Text("q"), Media(attachment())))
    turns = [first, assistant_turn("a"), user_turn("r", [attachment()])]
    assert raw_prompt(numbered(place), turns).text == expected


def test_a_family_without_system_turn_says_so() -> None:
    with pytest.raises(VlmtuiError, match="no system prompt"):
        raw_prompt(numbered("before"), [system_turn("x"), user_turn("q")])


def test_what_a_family_cannot_take_is_named(shapes: Family) -> None:
    with pytest.raises(VlmtuiError, match=r"takes no video.*'clip\.mp4'"):
        chat_prompt(numbered("before"), [user_turn("q", [attachment("clip.mp4", "video")])])
    with pytest.raises(VlmtuiError, match="at most 8 images"):
        raw_prompt(shapes, [user_turn("q", [attachment() for _ in range(9)])])


def test_a_request_carries_the_familys_stop_tokens(shapes: Family) -> None:
    request = make_request(shapes, [user_turn("hello")], Sampling(stop_tokens=("X",)))
    assert request.sampling.stop_tokens == ("X", "<|im_end|>", "<|endoftext|>")


def test_the_default_model_ships_with_the_package(registry: Registry) -> None:
    model = resolve(registry, DEFAULT_MODEL)
    assert model.spec.name == "shapes"
    assert model.spec.engine_args["limit_mm_per_prompt"] == {"image": 8, "video": 2}
    assert not model.spec.trust_remote_code


def test_a_local_folder_finds_its_family_by_architecture(registry: Registry, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["Qwen2VLForConditionalGeneration"]}))
    model = resolve(registry, str(tmp_path))
    assert model.family.family == "shapes"
    assert model.spec.model == str(tmp_path)


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ('{"architectures": ["NobodyKnows"]}', ErrorKind.MODEL_UNKNOWN),
        ("{}", ErrorKind.MODEL_UNKNOWN),
        ("[]", ErrorKind.BAD_INPUT),
        ("{", ErrorKind.BAD_INPUT),
        (None, ErrorKind.BAD_INPUT),
    ],
)
def test_a_folder_that_is_no_known_model_is_refused(
    registry: Registry, tmp_path: Path, config: str | None, kind: ErrorKind
) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    with pytest.raises(VlmtuiError) as caught:
        resolve(registry, str(tmp_path))
    assert caught.value.kind is kind
    assert caught.value.exit_code == 2


def test_an_unknown_name_lists_the_known_ones(registry: Registry) -> None:
    with pytest.raises(VlmtuiError) as caught:
        resolve(registry, "nobody/knows")
    assert "shapes" in caught.value.hint


def test_a_record_with_an_unknown_field_is_refused() -> None:
    with pytest.raises(VlmtuiError, match=r"broken\.toml") as caught:
        parse_family(b'family = "x"\nplaceholders = 1', "broken.toml")
    assert "placeholders" in caught.value.detail
