"""Two thousand stored turns on the screen."""

from __future__ import annotations

import re

import pytest

from tests.ui.conftest import StartChat
from tests.unit.store.made import bulk
from vlmtui.ui.chat.transcript import Transcript

STORED, IMAGES = 2_000, 500

WIDGETS_MAX = 100


@pytest.mark.slow
async def test_two_thousand_stored_turns_with_five_hundred_images(chatting: StartChat) -> None:
    async with chatting() as chat:
        conversation = await chat.app.services.store.run(lambda store: bulk(store, STORED, IMAGES))
        chat.app.stored.open(conversation)
        # Pictures take other lines once it is known that their files are not there.
        await chat.until(lambda: chat.screen_text().count("The stored image") > 1)
        await chat.until(lambda: f"turn {STORED - 1} of" in chat.screen_text())
        transcript = chat.screen.query_one(Transcript)
        read: list[int] = []
        for _ in range(30):
            assert len(chat.screen.query("*")) <= WIDGETS_MAX
            read += map(int, re.findall(r"turn (\d+) of", chat.screen_text()))
            for number, name in re.findall(r"▣ (\d+) (\d+)\.png", chat.screen_text()):
                assert int(name) == 4 * (int(number) - 1)
            transcript.page(-1)
            await chat.pilot.pause()
            await chat.pilot.pause()
        assert set(range(min(read), STORED)) == set(read), "page by page, nothing is left out"
        assert len(chat.controller.exchanges) < STORED / 4, "what nobody came near is not loaded"
        await chat.pilot.press("ctrl+end")
        await chat.until(lambda: f"turn {STORED - 1} of" in chat.screen_text())
        await chat.until(lambda: f"▣ {IMAGES} " in chat.screen_text())
