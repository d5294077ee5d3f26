"""Fan-outs over missing, grey, blurred, exchanged and smaller images, and verdicts on likelihoods."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest
from PIL import Image

from tests.support.scripted_engine import DEFAULT_SPEC, ScriptedEngine, scripted_info
from tests.support.scripted_tokens import token_id
from tests.ui.conftest import picture
from vlmtui.domain.capabilities import ALL
from vlmtui.domain.conversation import (
    Attachment,
    Turn,
    all_attachments,
    assistant_turn,
    attachments_of,
    system_turn,
    user_turn,
)
from vlmtui.domain.generation import ScoreRequest
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import VlmtuiError
from vlmtui.export.comparison import difference_lines
from vlmtui.inspection.answer_diff import tally_text
from vlmtui.inspection.replay import from_json, to_json
from vlmtui.media.stage import stage
from vlmtui.registry.loader import Registry
from vlmtui.session.fan_out import (
    FanOut,
    PictureChange,
    changed_pictures,
    plan_of,
    planned_specs,
    possible_changes,
    verdict,
    with_system,
)
from vlmtui.session.lanes import LaneScore, TokenDrop, times

SHAPES = Registry.bundled()["shapes"]
LOOK = plan_of({"image": ["sent", "none"]})


@pytest.fixture
def staged(tmp_path: Path) -> list[Attachment]:
    """Two images of 64 × 48 pixels: red above blue, and blue."""
    found = []
    for name, colours in (("two.png", ("red", "blue")), ("blue.png", ("blue", "blue"))):
        image = Image.new("RGB", (64, 48), colours[0])
        image.paste(colours[1], (0, 24, 64, 48))
        image.save(tmp_path / name)
        found.append(stage(tmp_path / name, tmp_path / "media"))
    return found


def pixels(item: Attachment) -> Image.Image:
    with Image.open(item.path) as image:
        return image.convert("RGB")


def test_every_change_is_made_to_all_images_only(staged: list[Attachment], tmp_path: Path) -> None:
    one, other = staged
    turns = [user_turn("A", [one]), assistant_turn("B"), user_turn("C", [other])]
    changes = possible_changes(turns)
    assert changes == list(PictureChange)
    made = changed_pictures(changes, turns, tmp_path / "media")
    specs = planned_specs(plan_of({"image": changes}), SHAPES, turns, Sampling(), pictures=made)
    found = {spec.label: spec.turns for spec in specs}
    assert found["as sent"] == tuple(turns)
    assert [turn.text for turn in found["no image"]] == ["A", "B", "C"]
    assert all_attachments(found["no image"]) == ()
    assert [item.sha256 for item in all_attachments(found["exchanged"])] == [other.sha256, one.sha256]
    for item in all_attachments(found["grey"]):
        assert pixels(item).getcolors() == [(64 * 48, (128, 128, 128))]
        assert "(grey)" in item.name
        assert item.size_bytes == Path(item.path).stat().st_size
    blurred, _ = all_attachments(found["blurred"])
    assert (blurred.width, blurred.height) == pixels(blurred).size == (64, 48)
    top, edge = pixels(blurred).getpixel((32, 2)), pixels(blurred).getpixel((32, 24))
    assert isinstance(top, tuple) and isinstance(edge, tuple)
    assert top[0] > 200 and 60 < edge[0] < 200  # its colours stay, its edge is gone
    assert [turn.text for turn in found["blurred"]] == ["A", "B", "C"]


def test_an_image_has_at_most_the_pixels_of_the_plan(staged: list[Attachment], tmp_path: Path) -> None:
    turns = [user_turn("A", staged[:1])]
    made = changed_pictures([1000, 10_000], turns, tmp_path / "media")
    smaller, same = made[staged[0].sha256, 1000], made[staged[0].sha256, 10_000]
    assert same == staged[0]
    assert pixels(smaller).size == (smaller.width, smaller.height) == (36, 27)


def test_an_unchangeable_attachment_is_reported(staged: list[Attachment], tmp_path: Path) -> None:
    media = tmp_path / "media"
    with pytest.raises(VlmtuiError, match="no image"):
        possible_changes([user_turn("A")])
    one = [user_turn("A", staged[:1])]
    assert PictureChange.SWAP not in possible_changes(one)
    with pytest.raises(VlmtuiError, match="no other image"):
        changed_pictures(["sent", "swap"], one, media)
    video = Attachment(
        modality="video", name="a.mp4", path="", sha256="1" * 64, width=8, height=8, size_bytes=1, format="mp4"
    )
    assert possible_changes([user_turn("A", [video])]) == [PictureChange.SENT, PictureChange.NONE]
    with pytest.raises(VlmtuiError, match="video can be left out"):
        changed_pictures(["sent", "grey"], [user_turn("A", [video])], media)


def test_a_system_prompt_replaces_or_removes_the_previous_one() -> None:
    turns = (system_turn("Old."), user_turn("A"))
    assert with_system(turns, "New.") == (system_turn("New."), user_turn("A"))
    assert with_system(turns, "") == (user_turn("A"),)
    found = planned_specs(plan_of({"system": ["New.", ""]}), SHAPES, turns, Sampling(temperature=1))
    assert [variant.turns[0].text for variant in found] == ["New.", "A"]
    assert found[0].sampling.seed is not None and found[0].sampling.seed == found[1].sampling.seed


async def asked(
    turns: list[Turn], tmp_path: Path, engine: ScriptedEngine, *changes: PictureChange
) -> tuple[FanOut, list[LaneScore | None]]:
    async for _ in engine.load():
        pass
    plan = plan_of({"image": changes})
    made = changed_pictures(changes, turns, tmp_path / "media")
    fan_out = FanOut(plan, SHAPES, turns, Sampling(), engine, pictures=made)
    await fan_out.lanes.run()
    return fan_out, await fan_out.scores()


async def test_the_first_answer_is_scored_under_every_other_prompt(tmp_path: Path) -> None:
    item = stage(picture(tmp_path), tmp_path / "media")
    engine = ScriptedEngine(DEFAULT_SPEC, answers=[["a ", "red ", "circle"], ["no ", "idea"], ["grey"]])
    fan_out, scores = await asked(
        [user_turn("What?", [item])], tmp_path, engine, PictureChange.SENT, PictureChange.NONE, PictureChange.GREY
    )
    answer = tuple(token_id(text) for text in ("a ", "red ", "circle"))
    assert [request.tokens for request in engine.scored] == [answer] * 3
    assert [len(attachments_of(request.prompt)) for request in engine.scored] == [1, 0, 1]
    assert scores[0] is None
    assert scores[1] is not None and math.isclose(scores[1].log_ratio, 3 * (-3.0 + 0.1))
    assert scores[2] is not None and scores[2].log_ratio == 0
    assert verdict(fan_out.plan, scores).startswith(
        "It looks. Without the image, this answer is 6.0·10³ times less likely (−8.7 nats), most at token 0 (first)"
    )
    document = fan_out.document()
    assert from_json(to_json(document)) == document
    assert difference_lines(document)[0] == "Prompts: numbers 2, 3 differ from the first."
    assert len(document.attachments) == 2  # the picture, and the grey one
    assert [len(attachments_of(side.request)) for side in document.sides if side.request] == [1, 0, 1]

    fan_out.base = 1  # the others are held against another answer: nothing is said of the picture
    assert verdict(fan_out.plan, await fan_out.scores()) == ""
    with pytest.raises(VlmtuiError, match="can't score a given answer"):
        bare = msgspec.structs.replace(scripted_info(), capabilities=msgspec.structs.replace(ALL, scores=False))
        engine = ScriptedEngine(DEFAULT_SPEC, info=bare)
        await asked([user_turn("What?", [item])], tmp_path, engine, PictureChange.SENT, PictureChange.NONE)


async def test_partial_scores_are_compared_on_common_tokens(tmp_path: Path) -> None:
    item = stage(picture(tmp_path), tmp_path / "media")
    engine = ScriptedEngine(DEFAULT_SPEC, answers=[["a ", "b ", "c"]])

    def halves(request: ScoreRequest) -> float:
        return -1.0 if attachments_of(request.prompt) else -1.5

    engine.score = halves
    _, scores = await asked([user_turn("What?", [item])], tmp_path, engine, PictureChange.SENT, PictureChange.NONE)
    assert scores[1] is not None and scores[1].tokens == 3
    assert math.isclose(scores[1].ratio, math.exp(-1.5))


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (
            0.02,
            "It looks. Without the image, this answer is 50 times less likely (−3.9 nats), most at token 1, "
            "“ red”: 98% → 2%.",
        ),
        (0.49, "It looks. Without the image, this answer is 2 times less likely (−0.71 nats)."),
        (0.97, "It may not look. Without the image, this answer is about as likely (−0.0305 nats)."),
        (1.9, "It may not look. Without the image, this answer is about as likely (0.64 nats)."),
        (3.0, "Without the image, this answer is 3 times more likely (1.1 nats): the image makes it less likely."),
    ],
)
def test_the_verdict_agrees_with_the_numbers(ratio: float, said: str) -> None:
    drop = TokenDrop(1, " red", 0.98, 0.02) if ratio == 0.02 else None
    assert verdict(LOOK, [None, LaneScore(math.log(ratio), 3, drop)]) == said


def test_without_scores_there_is_no_verdict() -> None:
    assert verdict(LOOK, [None, None]) == ""
    assert verdict(plan_of({"seed": [1, 2]}), [None, LaneScore(0, 1)]) == ""
    assert verdict(plan_of({"image": ["none", "grey"]}), [None, LaneScore(0, 1)]) == ""
    told = verdict(plan_of({"image": ["blur", "sent"]}), [LaneScore(-5, 1), None])
    assert told == "It looks. With the image blurred, this answer is 148 times less likely (−5.0 nats)."


@pytest.mark.parametrize(
    ("ratio", "said"),
    [(1, "1×"), (0.5, "0.5×"), (0.0123, "0.012×"), (1e-7, "10⁻⁷×"), (42.4, "42×"), (5e12, "5.0·10¹²×")],
)
def test_ratios_are_short(ratio: float, said: str) -> None:
    assert times(math.log(ratio)) == said


def test_an_unbounded_ratio_is_a_number() -> None:
    assert LaneScore(-9999.0 * 100, 100).ratio == 0
    assert math.isfinite(LaneScore(9999.0 * 100, 100).ratio)
    assert times(-9999.0).endswith("10⁻⁴³⁴³×")


def test_equal_answers_are_counted() -> None:
    assert tally_text(["a red circle", "a red circle ", "blue", "a red circle"]) == "3 × “a red circle” · 1 × “blue”"
    assert tally_text(["a", "a"]) == "Both answers are equal."
    assert tally_text(["a", "b", "c"]) == "3 different answers."
    assert tally_text(["a"]) == tally_text([]) == ""
    assert "\x1b" not in tally_text(["\x1b[2J" * 30, "b", "b"])
    assert len(tally_text(["x" * 20_000, "b", "b"])) < 100
