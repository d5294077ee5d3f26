"""Occlusion maps, with an engine that looks at only one part of the image."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from PIL import Image

from tests.support.scripted_engine import scripted_info
from vlmtui.domain.capabilities import Capabilities
from vlmtui.domain.conversation import Attachment, ChatPrompt, RawPrompt, attachments_of, user_turn
from vlmtui.domain.engine import LoadSpec
from vlmtui.domain.generation import (
    Delta,
    EngineEvent,
    Finished,
    Request,
    ScoreRequest,
    Timings,
    Token,
    TokenLogprob,
    Usage,
)
from vlmtui.engine.interface import Engine
from vlmtui.errors import VlmtuiError
from vlmtui.media.images import open_prepared
from vlmtui.media.stage import stage
from vlmtui.session.prompt_report import PromptReport
from vlmtui.session.seeing import (
    OcclusionPlan,
    blind_test,
    changed_images,
    draw_heat,
    occlusion_map,
    occlusion_plan,
    patch_grid,
)

TEXTS = ("a", " red", " cir", "cle")
SPOT = (310, 70)
"""The part of the picture at which the engine looks for its second token."""


class LooksAtOnePlace:
    """Its second token is unlikely where the spot is grey."""

    def __init__(self) -> None:
        self.info = scripted_info()
        self.asked = 0

    async def generate(self, request: Request) -> AsyncGenerator[EngineEvent, None]:
        self.asked += 1
        assert isinstance(request, ScoreRequest)
        pixels = [open_prepared(image.path).getpixel(SPOT) for image in attachments_of(request.prompt)]
        is_seen = bool(pixels) and pixels[0] != (128, 128, 128)
        scores = tuple(
            TokenLogprob(token_id=token, logprob=-0.1 if is_seen or at != 1 else -5.1)
            for at, token in enumerate(request.tokens)
        )
        yield Delta(request_id=request.request_id, text="", tokens=len(scores), logprobs=scores)
        usage, timings = Usage(), Timings()
        yield Finished(request_id=request.request_id, finish_reason="length", usage=usage, timings=timings)


@pytest.fixture
def image(tmp_path: Path) -> Attachment:
    Image.new("RGB", (400, 200), "white").save(tmp_path / "a.png")
    return stage(tmp_path / "a.png", tmp_path / "media")


def plan_of(image: Attachment, longer: int = 8) -> OcclusionPlan:
    prompt = ChatPrompt(turns=(user_turn("What is it?", [image]),))
    return OcclusionPlan(prompt=prompt, image=image, ids=(1, 2, 3, 4), texts=TEXTS, prompt_tokens=96, longer=longer)


async def test_the_part_that_matters_is_the_hottest(image: Attachment, tmp_path: Path) -> None:
    engine, plan, seen = LooksAtOnePlace(), plan_of(image), list[int]()
    found = await occlusion_map(cast(Engine, engine), plan, tmp_path / "seen", seen.append)
    assert plan.grid == (4, 8)
    assert engine.asked == plan.requests == 1 + 3 * 7
    assert seen == list(range(1, 23))
    hottest = found.strongest()
    left, top, right, bottom = plan.box(plan.windows[hottest])
    assert left <= SPOT[0] < right and top <= SPOT[1] < bottom
    assert found.sums()[hottest] == pytest.approx(5.0)
    heat = found.heat()
    assert max(cell for row in heat for cell in row) == heat[1][6] == pytest.approx(5.0)
    assert heat[0][0] == heat[1][3] == pytest.approx(0.0)
    assert found.heat(range(1, 2))[1][6] == pytest.approx(5.0)
    assert found.heat(range(2, 4))[1][6] == pytest.approx(0.0)
    assert not list((tmp_path / "seen").iterdir())
    assert plan.cost == "22 prompts of 100 tokens"


def test_words_are_runs_of_tokens(image: Attachment) -> None:
    assert plan_of(image).words() == [("a", range(1)), ("red", range(1, 2)), ("circle", range(2, 4))]


def test_special_tokens_are_words_of_their_own(image: Attachment) -> None:
    plan = msgspec.structs.replace(plan_of(image), texts=(" center", ".", "<|im_end|>", "on"), special=frozenset({3}))
    assert plan.words() == [("center.", range(2)), ("<|im_end|>", range(2, 3)), ("on", range(3, 4))]


@pytest.mark.parametrize("size", [(1, 1), (4000, 10), (3, 700)])
def test_cells_cover_images_of_any_shape(image: Attachment, size: tuple[int, int]) -> None:
    plan = plan_of(msgspec.structs.replace(image, width=size[0], height=size[1]))
    assert plan.box(plan.windows[0])[:2] == (0, 0)
    assert plan.box(plan.windows[-1])[2:] == size


def test_an_unmeasurable_answer_has_a_reason(image: Attachment) -> None:
    engine: Any = LooksAtOnePlace()
    report = PromptReport(title="1", answer_ids=(1,), vocabulary={1: Token(text="a")})
    with pytest.raises(VlmtuiError, match="doesn't have a"):
        occlusion_plan(report, RawPrompt(text="Hello"), image, engine)
    prompt = RawPrompt(text="Hello", attachments=(image,))
    assert occlusion_plan(report, prompt, image, engine).texts == ("a",)
    with pytest.raises(VlmtuiError, match="tokens of this answer are unknown"):
        occlusion_plan(PromptReport(title="1"), prompt, image, engine)
    engine.info = SimpleNamespace(
        engine="x", spec=LoadSpec(model="x", name="x"), capabilities=Capabilities(), remedies={}
    )
    with pytest.raises(VlmtuiError, match="can't score a given answer"):
        occlusion_plan(report, prompt, image, engine)


def test_heat_is_drawn_over_the_image() -> None:
    drawn = draw_heat(Image.new("RGB", (40, 20), "white"), [[0.0, 2.0], [-2.0, float("nan")]])
    assert drawn.getpixel((5, 5)) == (140, 140, 140)
    red, _, blue = cast(tuple[int, int, int], drawn.getpixel((30, 5)))
    assert red > 200 > blue
    red, _, blue = cast(tuple[int, int, int], drawn.getpixel((5, 15)))
    assert blue > 200 > red
    assert drawn.getpixel((30, 15)) == (140, 140, 140)


async def test_a_blind_test_scores_the_answer_without_the_image(image: Attachment, tmp_path: Path) -> None:
    engine, plan, seen = LooksAtOnePlace(), plan_of(image), list[int]()
    images = changed_images(image, image, tmp_path / "seen")
    found = await blind_test(cast(Engine, engine), plan, images, seen.append)
    assert [*found.changes] == ["none", "grey", "blur", "swap"]
    assert found.sums() == pytest.approx([5.0, 5.0, 0.0, 0.0])
    assert found.verdict() == (
        "It looks. Without the image, this answer is 148 times less likely (−5.0 nats), most at token 1, “ red”."
    )
    assert seen == [1, 2, 3, 4, 5]
    equal = msgspec.structs.replace(found, drops=((0.1, 0.0, 0.0, 0.0),), changes=found.changes[:1])
    assert "It may not look. Without the image, this answer is about as likely (−0.1" in equal.verdict()
    raw = msgspec.structs.replace(plan, prompt=RawPrompt(text="<image>", attachments=(image,)))
    with pytest.raises(VlmtuiError, match="its placeholder would stay"):
        await blind_test(cast(Engine, engine), raw, images)


def test_patches_are_tokens_of_the_prompt() -> None:
    merged = patch_grid(10, 6, grid=(1, 4, 6))
    assert merged is not None
    assert (merged.rows, merged.columns, merged.token(1, 2)) == (2, 3, 15)
    assert merged.box(1, 2, (300, 200)) == (200, 100, 300, 200)
    square = patch_grid(0, 576)
    assert square is not None and (square.rows, square.columns) == (24, 24)
    with_breaks = patch_grid(3, 8, tokens=6, grid=(1, 2, 3))
    assert with_breaks is not None and with_breaks.token(1, 0) == 7, "a token after each row separates it"
    assert patch_grid(0, 7) is None
    assert patch_grid(0, 90, tokens=64) is None
