"""Two hundred turns in a sitting, and two thousand that are stored."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.waiting import until, until_chat
from tests.ui.conftest import Chat, MakeApp, StartChat, picture, turns_of
from tests.unit.store.made import bulk
from vlmtui.config.settings import Settings
from vlmtui.domain.conversation import user_turn
from vlmtui.domain.generation import Delta, Finished, Timings, Usage
from vlmtui.media.stage import stage
from vlmtui.session.exchange import Exchange
from vlmtui.session.generation import Answer
from vlmtui.ui.chat.transcript import LIVE_MAX, Transcript
from vlmtui.ui.widgets.attachment_view import AttachmentView

TURNS = 200
PICTURES_EVERY = 4
ONE_BY_ONE = LIVE_MAX + 5
"""Turns that are added as in a conversation; those before them at once, as when the chat's screen is made anew."""

STORED, IMAGES = 2_000, 500

WIDGETS_MAX = 1_500

TEXT = "<think>Let me look.</think># Shapes\n\nA **red** circle.\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"


def answered(number: int, folder: Path) -> Exchange:
    """An exchange that is over; every fourth question comes with a picture."""
    attachments = [] if number % PICTURES_EVERY else [stage(picture(folder), folder / "media")]
    answer = Answer(f"request{number}")
    answer.take(Delta(request_id=answer.request_id, text=f"{TEXT}\nAnswer {number}.", tokens=40))
    usage = Usage(prompt_tokens=20, completion_tokens=40)
    timings = Timings(ttft_s=0.1, total_s=1.0)
    answer.take(Finished(request_id=answer.request_id, finish_reason="stop", usage=usage, timings=timings, stop="</s>"))
    return Exchange(user_turn(f"question {number}", attachments), answer)


async def test_the_widgets_are_bounded(make_app: MakeApp, tmp_path: Path) -> None:
    app = make_app(settings=Settings(graphics="halfcell"), initial_model="shapes")
    async with app.run_test(size=(100, 30)) as pilot:
        await until_chat(pilot)
        transcript = app.screen.query_one(Transcript)
        transcript.show_empty(False)
        exchanges = [answered(number, tmp_path) for number in range(TURNS)]
        await transcript.add(*exchanges[:-ONE_BY_ONE])
        for exchange in exchanges[-ONE_BY_ONE:]:
            await transcript.add(exchange)
            assert len(app.screen.query("*")) <= WIDGETS_MAX
        assert 1 < len(turns_of(app.screen)) <= LIVE_MAX
        await until(pilot, lambda: bool(app.screen.query(AttachmentView)))
        await until(pilot, lambda: not any(worker.is_running for worker in app.workers if worker.group == "thumbnail"))
        assert len(app.screen.query("*")) <= WIDGETS_MAX


def numbers(chat: Chat) -> set[int]:
    """Of the attachments that have widgets."""
    return {view.number for view in chat.screen.query(AttachmentView) if view.number is not None}


@pytest.mark.slow
async def test_two_thousand_stored_turns_with_five_hundred_images(chatting: StartChat) -> None:
    async with chatting() as chat:
        conversation = await chat.app.services.store.run(lambda store: bulk(store, STORED, IMAGES))
        chat.app.open_conversation(conversation)
        await chat.until(lambda: f"turn {STORED - 1} of" in chat.screen_text())
        transcript = chat.screen.query_one(Transcript)
        first = numbers(chat)
        assert max(first) == IMAGES
        read: list[int] = []
        for _ in range(30):
            assert len(chat.screen.query("*")) <= WIDGETS_MAX / 3
            read += map(int, re.findall(r"turn (\d+) of", chat.screen_text()))
            transcript.scroll_page_up(animate=False)
            await chat.until(lambda: transcript._look_timer is None and not transcript._changing.locked())
            await chat.pilot.pause()
        assert set(range(min(read), STORED)) == set(read), "page by page, nothing is left out"
        assert len(chat.controller.exchanges) < STORED / 4, "what nobody came near is not loaded"
        for view in chat.screen.query(AttachmentView):
            assert view.number is not None and view.attachment.name == f"{4 * (view.number - 1)}.png"
        await chat.pilot.press("ctrl+end")
        await chat.until(lambda: f"turn {STORED - 1} of" in chat.screen_text())
        assert numbers(chat) == first
