"""Boxes, points and times in an answer, read by different coordinate conventions."""

from __future__ import annotations

import msgspec
import pytest

from vlmtui.domain.conversation import Attachment
from vlmtui.domain.generation import MediaSpan, PromptReady, Token
from vlmtui.errors import VlmtuiError
from vlmtui.registry.loader import Registry
from vlmtui.session.answer_places import places_of
from vlmtui.session.prompt_report import PromptReport

REGISTRY = Registry.bundled()
PICTURE = Attachment(
    modality="image", name="a.png", path="/a.png", sha256="0", width=400, height=200, size_bytes=1, format="PNG"
)
CAT = '[{"bbox_2d": [100, 50, 300, 150], "label": "cat"}]'
SPAN = MediaSpan(modality="image", index=0, offset=0, length=4, tokens=4, resized=(200, 100), grid=(1, 4, 8))


def report(answer: str, *, resized: bool = True) -> PromptReport:
    prompt = PromptReady(request_id="1", prompt="", token_ids=(1, 2, 3, 4), media=(SPAN,) if resized else ())
    return PromptReport(title="exchange 1", prompt=prompt, answer=answer, attachments=(PICTURE,))


def test_the_engines_size_scales_resized_pixels() -> None:
    places = places_of(report(CAT), REGISTRY["qwen2_5_vl"])
    assert places.resized == (200, 100)
    (one,) = places.placed
    assert one.xyxy == pytest.approx((200, 100, 400, 200))
    assert "as the family's record says" in places.convention
    assert places.inside == 0


def test_after_the_last_convention_comes_the_first() -> None:
    places = places_of(report(CAT), REGISTRY["qwen3_vl"])
    seen: dict[str, object] = {}
    for _ in places.scales:
        seen[places.grounding.scale] = [*places.placed[0].xyxy, places.inside]
        places = places.with_next_scale()
    assert next(iter(seen)) == "thousand"
    assert places.convention == "0 to 1000, x first (as the family's record says)"
    assert seen["pixels"] == [100, 50, 300, 150, 1]
    assert seen["resized"] == [200, 100, 400, 200, 0]
    assert seen["percent"] == [400, 100, 400, 200, 0]
    swapped = places.with_other_order()
    assert swapped.placed[0].xyxy == pytest.approx((20, 20, 60, 60))
    assert "the record says 0 to 1000, x first" in swapped.convention
    assert swapped.with_other_order() == places


def test_without_a_record_the_format_is_found_and_called_a_guess() -> None:
    places = places_of(report('<point x=\'1\'> no, <point x="10" y="20">dog</point>', resized=False), None)
    assert places.grounding.format == "point_tags"
    assert "a guess" in places.convention
    assert "resized" not in places.scales
    assert [mark.label for mark in places.marks] == ["dog"]


def test_coordinates_that_are_special_tokens_are_read_from_the_tokens() -> None:
    texts = ["cat", "<loc_100>", "<loc_100>", "<loc_500>", "<loc_500>", "</s>"]
    vocabulary = {at: Token(text=text, special=at > 0) for at, text in enumerate(texts)}
    told = msgspec.structs.replace(report("cat"), answer_ids=tuple(range(6)), vocabulary=vocabulary)
    places = places_of(told, REGISTRY["florence2"])
    assert [mark.label for mark in places.marks] == ["cat"]
    assert places.answer == "".join(texts)


@pytest.mark.parametrize(("answer", "pictures"), [("A cat.", 1), (CAT, 0)])
def test_an_answer_without_places_or_images_has_a_reason(answer: str, pictures: int) -> None:
    told = msgspec.structs.replace(report(answer), attachments=(PICTURE,) * pictures)
    with pytest.raises(VlmtuiError, match="found in this answer" if pictures else "no image"):
        places_of(told, None)


def test_the_export_is_in_pixels_of_the_image() -> None:
    exported = places_of(report(CAT + '{"bbox_2d": [1]}'), REGISTRY["qwen3_vl"]).as_json()
    assert exported["categories"] == [{"id": 1, "name": "cat"}]
    assert exported["unreadable"] == ['{"bbox_2d": [1]}']
    (one,) = msgspec.convert(exported["annotations"], list[dict[str, object]])
    assert one["bbox"] == [40, 10, 80, 20]
    assert one["area"] == 1600
    assert one["segmentation"] == [[40, 10, 120, 10, 120, 30, 40, 30]]
    assert one["text"] == CAT[1:-1]


def test_places_lie_on_the_image_that_the_answer_names() -> None:
    other = msgspec.structs.replace(PICTURE, name="b.png", width=1000, height=100)
    answer = '<points coords="1 1 500 500;2 2 500 500;7 3 100 100">cat</points>'
    places = places_of(msgspec.structs.replace(report(answer), attachments=(other, PICTURE)), REGISTRY["molmo2"])
    assert [places.medium_of(at).medium.name for at in range(3)] == ["b.png", "a.png", "a.png"]
    assert [one.xyxy[:2] for one in places.placed] == [(500, 50), (200, 100), (40, 20)]
    exported = places.as_json()
    assert [image["id"] for image in msgspec.convert(exported["images"], list[dict[str, object]])] == [1, 2]
    annotations = msgspec.convert(exported["annotations"], list[dict[str, object]])
    assert [one["image_id"] for one in annotations] == [1, 2, 2]


def test_an_answer_about_a_video_has_times() -> None:
    video = msgspec.structs.replace(PICTURE, modality="video", duration_s=2.0, fps=4.0)
    told = msgspec.structs.replace(report("", resized=False), attachments=(video,))
    tracks = msgspec.structs.replace(told, answer='<tracks coords="0.5 1 500 500;1.0 1 500 600">cat</tracks>')
    places = places_of(tracks, REGISTRY["molmo2"])
    assert [places.medium_of(at).second for at in range(2)] == [0.5, 1.0]
    (first, _) = msgspec.convert(places.as_json()["annotations"], list[dict[str, object]])
    assert first["second"] == 0.5
    timed = '{"start_time": "00:00.50", "end_time": "00:01.00", "description": "a cat"} {"start": "soon", "end": 2}'
    for family in (REGISTRY["qwen3_vl"], None):
        places = places_of(msgspec.structs.replace(told, answer=timed), family)
        assert not places.marks
        assert len(places.unreadable) == len(places.with_next_scale().unreadable) == 1
        assert places.medium_of(0).second == 0.5
        end = timed.index("}") + 1
        assert places.as_json()["time_ranges"] == [
            {"start_s": 0.5, "end_s": 1.0, "label": "a cat", "text": timed[:end], "span": [0, end]}
        ]
    with pytest.raises(VlmtuiError, match="found in this answer"):
        places_of(msgspec.structs.replace(told, answer="A cat."), None)
    # About an image, times mean nothing.
    with pytest.raises(VlmtuiError, match="found in this answer"):
        places_of(report(timed), None)
