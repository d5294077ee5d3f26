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
from vlmtui.session.seeing import OcclusionPlan, draw_heat, occlusion_map, occlusion_plan

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
        (image,) = attachments_of(request.prompt)
        is_seen = open_prepared(image.path).getpixel(SPOT) != (128, 128, 128)
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
    (left, top, right, bottom), drop = found.part()
    assert left <= SPOT[0] < right and top <= SPOT[1] < bottom
    assert drop == pytest.approx(5.0)
    heat = found.heat()
    assert max(cell for row in heat for cell in row) == heat[1][6] == pytest.approx(5.0)
    assert heat[0][0] == heat[1][3] == pytest.approx(0.0)
    assert found.heat(range(1, 2))[1][6] == pytest.approx(5.0)
    assert found.heat(range(2, 4))[1][6] == pytest.approx(0.0)
    assert not list((tmp_path / "seen").iterdir())
    assert plan.cost == "4 × 8 cells, 2 × 2 grey at a time: 22 prompts of 100 tokens each; nothing is generated."


def test_words_are_runs_of_tokens(image: Attachment) -> None:
    assert plan_of(image).words() == [("a", range(1)), ("red", range(1, 2)), ("circle", range(2, 4))]


@pytest.mark.parametrize("size", [(1, 1), (4000, 10), (3, 700)])
def test_cells_cover_images_of_any_shape(image: Attachment, size: tuple[int, int]) -> None:
    plan = plan_of(msgspec.structs.replace(image, width=size[0], height=size[1]))
    assert plan.box(plan.windows[0])[:2] == (0, 0)
    assert plan.box(plan.windows[-1])[2:] == size


def test_an_unmeasurable_answer_has_a_reason(image: Attachment) -> None:
    engine: Any = LooksAtOnePlace()
    report = PromptReport(title="1", answer_ids=(1,), vocabulary={1: Token(text="a")})
    with pytest.raises(VlmtuiError, match="no image"):
        occlusion_plan(report, RawPrompt(text="Hello"), engine)
    prompt = RawPrompt(text="Hello", attachments=(image,))
    assert occlusion_plan(report, prompt, engine).texts == ("a",)
    with pytest.raises(VlmtuiError, match="tokens of this answer are unknown"):
        occlusion_plan(PromptReport(title="1"), prompt, engine)
    engine.info = SimpleNamespace(engine="x", capabilities=Capabilities(), remedies={})
    with pytest.raises(VlmtuiError, match="can't score a given answer"):
        occlusion_plan(report, prompt, engine)


def test_heat_is_drawn_over_the_image() -> None:
    drawn = draw_heat(Image.new("RGB", (40, 20), "white"), [[0.0, 2.0], [-2.0, float("nan")]], (20, 0, 40, 10))
    assert drawn.getpixel((5, 5)) == (140, 140, 140)
    red, _, blue = cast(tuple[int, int, int], drawn.getpixel((30, 5)))
    assert red > 200 > blue
    red, _, blue = cast(tuple[int, int, int], drawn.getpixel((5, 15)))
    assert blue > 200 > red
    assert drawn.getpixel((20, 0)) == (255, 255, 255)
    assert drawn.getpixel((30, 15)) == (140, 140, 140)
