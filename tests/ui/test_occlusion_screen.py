"""The heat map on the screen: cost first, progress, words, Escape."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.support.scripted_engine import scripted_info
from tests.support.waiting import until
from tests.ui.seeing_host import Host
from vlmtui.domain.conversation import ChatPrompt, attachments_of, user_turn
from vlmtui.domain.generation import (
    Delta,
    EngineEvent,
    Failed,
    Failure,
    Finished,
    Request,
    ScoreRequest,
    Timings,
    TokenLogprob,
    Usage,
)
from vlmtui.errors import ErrorKind
from vlmtui.media.images import open_prepared
from vlmtui.media.stage import stage
from vlmtui.session.seeing import OcclusionPlan
from vlmtui.ui.seeing.occlusion_screen import OcclusionScreen


class Looks:
    """The second token is unlikely where the middle of the last two columns is grey. Waits until `may_go`."""

    def __init__(self) -> None:
        self.info = scripted_info()
        self.may_go = asyncio.Event()
        self.may_go.set()
        self.fails = False

    async def generate(self, request: Request) -> AsyncGenerator[EngineEvent, None]:
        await self.may_go.wait()
        if self.fails:
            failure = Failure(kind=ErrorKind.INTERNAL, message="It broke.")
            yield Failed(request_id=request.request_id, failure=failure)
            return
        assert isinstance(request, ScoreRequest)
        (image,) = attachments_of(request.prompt)
        is_seen = open_prepared(image.path).getpixel((330, 70)) != (128, 128, 128)
        scores = tuple(
            TokenLogprob(token_id=token, logprob=-0.1 if is_seen or at != 1 else -2.4)
            for at, token in enumerate(request.tokens)
        )
        yield Delta(request_id=request.request_id, text="", tokens=len(scores), logprobs=scores)
        usage, timings = Usage(), Timings()
        yield Finished(request_id=request.request_id, finish_reason="length", usage=usage, timings=timings)


def host(folder: Path, engine: Any = None) -> Host[OcclusionScreen]:
    engine = engine or Looks()
    Image.new("RGB", (400, 200), "white").save(folder / "a.png")
    image = stage(folder / "a.png", folder / "media")
    plan = OcclusionPlan(
        prompt=ChatPrompt(turns=(user_turn("What is it?", [image]),)),
        image=image,
        ids=(1, 2, 3),
        texts=("a", " red\x1b]0;t\x07", " one"),
        prompt_tokens=97,
        longer=4,
    )
    return Host(OcclusionScreen(plan, lambda: engine, store=folder / "seen", folder=folder, number=1))


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)], ids=["80x24", "120x40", "200x60"])
async def test_the_cost_is_shown_before_the_map(tmp_path: Path, size: tuple[int, int]) -> None:
    app = host(tmp_path)
    async with app.run_test(size=size) as pilot:
        await app.drawn(pilot)
        assert "2 × 4 cells, 2 × 2 grey at a time: 4 prompts" in app.text()
        assert "\x1b" not in app.text()
        assert " measures" in app.text(), "nothing is measured yet"
        await pilot.press("enter")
        await until(pilot, lambda: app.seen.map is not None)
        await app.drawn(pilot)
        await until(pilot, lambda: "0.1× as likely" in app.text())
        assert app.seen.map is not None
        assert app.seen.map.part()[0] == (200, 0, 400, 200)
        await pilot.press("down")
        await until(pilot, lambda: "not less likely" in app.text())
        await pilot.press("w")
        await until(pilot, lambda: (tmp_path / "vlmtui-heat.json").is_file())
        assert not list((tmp_path / "seen").iterdir())


async def test_a_click_shows_how_much_the_part_matters(tmp_path: Path) -> None:
    app = host(tmp_path)
    async with app.run_test(size=(120, 40)) as pilot:
        await app.drawn(pilot)
        await pilot.click(".picture", offset=(2, 2))  # nothing is measured yet
        await pilot.press("enter")
        await until(pilot, lambda: app.seen.map is not None)
        await app.drawn(pilot)
        await pilot.click(".picture", offset=(2, 2))
        await until(pilot, lambda: " is 1× as likely" in app.text())
        await app.drawn(pilot)
        await pilot.click(".picture", offset=(app.seen.query_one(".picture").size.width - 2, 2))
        await until(pilot, lambda: "0.1× as likely" in app.text())
        await pilot.press("down", "up")
        await until(pilot, lambda: app.seen._window is None)


async def test_escape_stops_measuring_and_then_closes(tmp_path: Path) -> None:
    engine = Looks()
    app = host(tmp_path, engine)
    async with app.run_test(size=(120, 30)) as pilot:
        await app.drawn(pilot)
        engine.may_go.clear()
        await pilot.press("plus", "minus", "r")
        await until(pilot, lambda: "0 of 4 scored" in app.text())
        await pilot.press("escape")
        await until(pilot, lambda: "measures" in app.text())
        engine.may_go.set()
        engine.fails = True
        await pilot.press("r")
        await until(pilot, lambda: "It broke." in "".join(note.message for note in app._notifications))
        await pilot.press("escape")
        await until(pilot, lambda: app.is_closed)
