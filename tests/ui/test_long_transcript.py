"""A long conversation: read from its end to its beginning, while it grows."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from tests.support.waiting import until
from tests.ui.conftest import picture
from vlmtui.domain.conversation import user_turn
from vlmtui.domain.generation import Delta, Finished, Timings, Usage
from vlmtui.media.stage import stage
from vlmtui.session.exchange import Exchange
from vlmtui.session.generation import Answer
from vlmtui.ui.chat.transcript import Transcript
from vlmtui.ui.terminal.graphics import Graphics
from vlmtui.ui.terminal.themes import VARIABLES

COUNT = 300


class TranscriptApp(App[None]):
    """A transcript alone, with a store of older exchanges."""

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return dict(VARIABLES)

    def __init__(self, cache: Path, older: Sequence[Exchange] = ()) -> None:
        super().__init__()
        self.graphics = Graphics("halfcell")
        self.transcript = Transcript(cache=cache)
        self.older = list(older)
        self.loaded: list[Exchange] = []
        self.asked = 0
        self.ends_seen: list[bool] = []

    def compose(self) -> ComposeResult:
        yield self.transcript

    def on_transcript_older_wanted(self, event: Transcript.OlderWanted) -> None:
        self.asked += 1
        found, self.older = self.older[-event.limit :], self.older[: -event.limit]
        self.loaded[:0] = found
        self.transcript.add_older(self.loaded)

    def on_transcript_end_seen(self, event: Transcript.EndSeen) -> None:
        self.ends_seen.append(event.is_seen)


class Long:
    """A conversation on the screen."""

    def __init__(self, app: TranscriptApp, pilot: Pilot[None]) -> None:
        self.app, self.pilot, self.transcript = app, pilot, app.transcript

    def text(self) -> str:
        view = self.transcript
        return "\n".join(view.render_line(y).text.rstrip() for y in range(view.size.height))

    async def settled(self) -> None:
        for _ in range(3):
            await self.pilot.pause()

    async def page(self, by: int) -> None:
        self.transcript.page(by)
        await self.settled()

    async def page_up_to(self, text: str) -> None:
        for _ in range(300):
            if text in self.text():
                return
            await self.page(-1)
        raise AssertionError(f"never came to {text!r}; the screen is\n{self.text()}")


def ended(answer: Answer) -> Finished:
    usage, timings = Usage(prompt_tokens=9, completion_tokens=4), Timings(ttft_s=0.1, total_s=1.0)
    return Finished(request_id=answer.request_id, finish_reason="stop", usage=usage, timings=timings)


def exchange(number: int, *, attachments: int = 0, folder: Path | None = None) -> Exchange:
    items = []
    if attachments:
        assert folder is not None
        items = [stage(picture(folder), folder / "media")] * attachments
    answer = Answer(f"request{number}")
    answer.take(Delta(request_id=answer.request_id, text=f"Answer {number}.\n\nMore of it.\n", tokens=4))
    answer.take(ended(answer))
    return Exchange(user_turn(f"question {number}.", items), answer)


@asynccontextmanager
async def conversation(
    folder: Path, exchanges: Sequence[Exchange], *, here: int = COUNT, size: tuple[int, int] = (80, 24)
) -> AsyncIterator[Long]:
    app = TranscriptApp(folder / "thumbnails", exchanges[:-here])
    async with app.run_test(size=size) as pilot:
        long = Long(app, pilot)
        above = sum(len(one.user.attachments) for one in exchanges[:-here])
        app.loaded = list(exchanges[-here:])
        app.transcript.append(*exchanges[-here:], media_above=above)
        await long.settled()
        yield long


async def test_a_long_conversation_opens_at_its_end(tmp_path: Path) -> None:
    async with conversation(tmp_path, [exchange(number) for number in range(COUNT)]) as long:
        assert f"Answer {COUNT - 1}." in long.text()
        assert long.transcript.is_following


async def test_paging_reaches_every_turn_and_back(tmp_path: Path) -> None:
    count = 80
    async with conversation(tmp_path, [exchange(number) for number in range(count)], here=40) as long:
        seen: list[int] = []
        while "Answer 0." not in long.text():
            await long.page(-1)
            seen.append(int(long.text().split("question ")[1].split(".")[0]))
            assert len(seen) < 200, seen
        assert seen == sorted(seen, reverse=True)
        assert all(before - after <= 6 for before, after in pairwise(seen)), "nothing was skipped"
        assert long.app.asked >= 2, "what was stored was loaded, and then that there is no more"
        assert f"Answer {count - 1}." not in long.text()
        while not long.transcript.is_following:
            await long.page(1)
        assert f"Answer {count - 1}." in long.text()


async def test_the_view_stays_while_older_turns_load_above(tmp_path: Path) -> None:
    async with conversation(tmp_path, [exchange(number) for number in range(COUNT)], here=20) as long:
        for _ in range(25):
            long.transcript.page(-1)
            shown = long.text()
            await long.settled()
            assert long.text() == shown
        assert long.app.asked >= 1


async def test_paging_skips_nothing_while_older_turns_load(tmp_path: Path) -> None:
    async with conversation(tmp_path, [exchange(number) for number in range(COUNT)], here=20) as long:
        read: list[int] = []
        for _ in range(60):
            read += map(int, re.findall(r"question (\d+)", long.text()))
            await long.page(-1)
        assert min(read) < COUNT - 100
        assert set(read) == set(range(min(read), COUNT))


async def test_images_are_counted_over_the_whole_conversation(tmp_path: Path) -> None:
    exchanges = [exchange(number, attachments=number % 2, folder=tmp_path) for number in range(100)]
    async with conversation(tmp_path, exchanges, here=30) as long:
        assert "▣ 50 cat.png" in long.text()
        await long.page_up_to("question 41.")
        assert "▣ 21 cat.png" in long.text()
        await long.page_up_to("question 9.")
        assert "▣ 5 cat.png" in long.text()
        await until(long.pilot, lambda: "▀" in long.text())


async def test_the_end_is_one_jump_away_from_anywhere(tmp_path: Path) -> None:
    async with conversation(tmp_path, [exchange(number) for number in range(COUNT)]) as long:
        await long.page_up_to(f"question {COUNT - 70}.")
        assert long.app.ends_seen == [False]
        long.transcript.show_end()
        await long.settled()
        assert f"Answer {COUNT - 1}." in long.text()
        assert long.transcript.is_following
        assert long.app.ends_seen == [False, True]


async def test_a_new_exchange_scrolls_to_the_end(tmp_path: Path) -> None:
    async with conversation(tmp_path, [exchange(number) for number in range(COUNT)]) as long:
        await long.page_up_to(f"question {COUNT - 70}.")
        running = Exchange(user_turn("and now?"), Answer("running"))
        long.transcript.append(running)
        await long.settled()
        assert "and now?" in long.text()
        running.answer.take(Delta(request_id="running", text="Still going", tokens=2))
        await until(long.pilot, lambda: "Still going" in long.text())
        running.answer.take(ended(running.answer))
        long.transcript.finish(running)
        await until(long.pilot, lambda: "Still going" in long.text())
        assert long.transcript.is_following


async def test_an_answer_that_ends_out_of_view_is_complete(tmp_path: Path) -> None:
    async with conversation(tmp_path, [exchange(number) for number in range(COUNT)]) as long:
        running = Exchange(user_turn("and now?"), Answer("running"))
        long.transcript.append(running)
        await long.settled()
        await long.page_up_to(f"question {COUNT - 70}.")
        shown = long.text()
        running.answer.take(Delta(request_id="running", text="All of it.", tokens=2))
        running.answer.take(ended(running.answer))
        long.transcript.finish(running)
        await long.settled()
        assert long.text() == shown
        long.transcript.show_end()
        await until(long.pilot, lambda: "All of it." in long.text())


async def test_another_answer_takes_the_place_of_a_past_one(tmp_path: Path) -> None:
    exchanges = [exchange(number) for number in range(40)]
    async with conversation(tmp_path, exchanges) as long:
        past = exchanges[-3]
        past.answer = Answer("again")
        long.transcript.restart(past)
        past.answer.take(Delta(request_id="again", text="Another one.", tokens=2))
        await until(long.pilot, lambda: "Another one." in long.text())
        assert "Answer 37." not in long.text()


async def test_unfolded_reasoning_stays_unfolded_out_of_view(tmp_path: Path) -> None:
    exchanges = [exchange(number) for number in range(COUNT)]
    last = exchanges[-2].answer
    last.pieces[:0] = ["<think>a deep thought</think>"]
    async with conversation(tmp_path, exchanges) as long:
        assert "a deep thought" not in long.text()
        assert long.transcript.toggle_reasoning()
        await long.settled()
        assert "a deep thought" in long.text()
        await long.page_up_to(f"question {COUNT - 70}.")
        long.transcript.show_end()
        await until(long.pilot, lambda: "a deep thought" in long.text())


@pytest.mark.parametrize("count", [1, 3])
async def test_a_short_conversation_asks_for_older_ones_at_most_once(tmp_path: Path, count: int) -> None:
    async with conversation(tmp_path, [exchange(number) for number in range(count)]) as long:
        for by in (-1, 1, -1):
            await long.page(by)
        assert long.app.asked <= 1
