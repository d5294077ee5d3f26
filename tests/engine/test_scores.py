"""The likelihood of an answer without its picture. The bundled model sees, so its answers depend on it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.support.asker import Asker
from tests.support.other_requests import to_score
from tests.support.pictures import Easel
from vlmtui.domain.conversation import user_turn
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.local.client import WorkerClient
from vlmtui.registry.match import Model
from vlmtui.session.fan_out import FanOut, PictureMap, changed_pictures, plan_of, verdict
from vlmtui.session.generation import make_request
from vlmtui.session.lanes import score_lanes

pytestmark = pytest.mark.engine
QUESTION = "What is in this image?"


@pytest.fixture
def easel(tmp_path: Path) -> Easel:
    return Easel(tmp_path)


async def test_scoring_an_answer_gives_its_log_probabilities(engine: WorkerClient, shapes: Model, easel: Easel) -> None:
    ask, turn = Asker(engine, shapes), user_turn(QUESTION, [easel.picture(("red", "circle", "top left")).attachment])
    said = await ask.run(make_request(shapes.family, [turn], Sampling(temperature=0), logprobs=1))
    request = make_request(shapes.family, [turn], Sampling(temperature=0), logprobs=1)
    scored = await ask.run(to_score(request, said.token_ids))
    assert scored.token_ids == said.token_ids
    assert scored.prompt is not None and said.prompt is not None
    assert scored.prompt.token_ids == said.prompt.token_ids
    assert [one.token_id for one in scored.logprobs] == said.token_ids
    for one, other in zip(scored.logprobs, said.logprobs, strict=True):
        assert math.isclose(one.logprob, other.logprob, abs_tol=0.02)


async def test_an_answer_is_much_less_likely_without_its_picture(
    engine: WorkerClient, shapes: Model, easel: Easel, tmp_path: Path
) -> None:
    picture = easel.picture(("red", "circle", "top left"))
    turns = [user_turn(QUESTION, [picture.attachment])]
    plan = plan_of({"image": ["sent", "none", "grey", "blur"]})
    pictures = changed_pictures(plan.axes["image"], turns, tmp_path / "media")
    fan_out = FanOut(plan, shapes.family, turns, Sampling(temperature=0), engine, pictures=pictures)
    await fan_out.lanes.run()
    assert fan_out.lanes[0].answer.text == picture.answer
    own, without, grey, blurred = await score_lanes(fan_out.lanes, 0)
    assert own is None
    assert without is not None and grey is not None and blurred is not None
    assert without.ratio < 0.05 and grey.ratio < 0.05
    assert without.drop is not None and without.drop.after < without.drop.before
    assert blurred.log_ratio > grey.log_ratio  # a blurred picture still tells the colour and the place
    assert f"Without the image, this answer is {without.text}" in verdict(plan, (own, without, grey, blurred))


async def test_an_obvious_answer_is_as_likely_without_the_picture(
    engine: WorkerClient, shapes: Model, easel: Easel
) -> None:
    """The same token with the same picture: the app reports that nothing changes."""
    picture = easel.picture(("red", "circle", "top left"))
    turns = [user_turn(QUESTION, [picture.attachment])]
    plan = plan_of({"image": ["sent", "swap"]})
    pictures: PictureMap = {(picture.attachment.sha256, "swap"): picture.attachment}
    fan_out = FanOut(plan, shapes.family, turns, Sampling(temperature=0), engine, pictures=pictures)
    await fan_out.lanes.run()
    scores = await score_lanes(fan_out.lanes, 0)
    assert scores[1] is not None and math.isclose(scores[1].log_ratio, 0, abs_tol=0.05)
    assert "It may not look." in verdict(plan, scores)
