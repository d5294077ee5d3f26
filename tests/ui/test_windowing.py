"""Only a part of a long conversation has widgets, and nobody sees it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.widget import Widget

from tests.support.waiting import until
from tests.ui.conftest import picture, turns_of
from vlmtui.domain.conversation import user_turn
from vlmtui.domain.generation import Delta, Finished, Timings, Usage
from vlmtui.media.stage import stage
from vlmtui.session.exchange import Exchange
from vlmtui.session.generation import Answer
from vlmtui.ui.chat.past_answer import PastAnswer
from vlmtui.ui.chat.transcript import Transcript
from vlmtui.ui.chat.windowing import (
    NEAR,
    NEWEST,
    Window,
    is_near_top,
    newest_window,
    window_after_adding,
    window_around,
)
from vlmtui.ui.terminal.themes import VARIABLES
from vlmtui.ui.widgets.attachment_view import AttachmentView

WIDGETS_MAX = 350
COUNT = 300

Weights = st.lists(st.integers(2, 60), min_size=1, max_size=200)


@given(Weights)
def test_the_newest_window_ends_with_the_conversation_and_is_no_larger_than_needed(weights: list[int]) -> None:
    window = newest_window(weights)
    assert window.last == len(weights)
    assert window.first == 0 or sum(weights[window.first :]) >= NEWEST
    assert sum(weights[window.first + 1 :]) < NEWEST


@given(Weights, st.data())
def test_the_window_reaches_beyond_the_view_and_is_bounded(weights: list[int], data: st.DataObject) -> None:
    count = len(weights)
    first = data.draw(st.integers(0, count - 1))
    view = Window(first, data.draw(st.integers(first + 1, min(count, first + 20))))
    outer = Window(data.draw(st.integers(0, view.first)), data.draw(st.integers(view.last, count)))
    window = window_around(outer, weights, view)
    near = max(NEAR, sum(weights[view.first : view.last]))
    assert window.first <= view.first < view.last <= window.last
    assert window.first == 0 or sum(weights[window.first : view.first]) >= near
    assert window.last == count or sum(weights[view.last : window.last]) >= near
    assert sum(weights[window.first : window.last]) <= 7 * near + 2 * max(weights)
    assert window_around(window, weights, view) == window, "it stands still when nothing moves"


def test_what_is_added_at_the_end_joins_what_stands_there() -> None:
    weights = [2] * 100
    assert window_after_adding(Window(70, 100), [*weights, 2]) == Window(70, 101)
    assert window_after_adding(Window(10, 40), [*weights, 2]) == Window(71, 101), "the end was not shown"
    assert window_after_adding(Window(0, 0), weights) == Window(70, 100)
    assert window_after_adding(Window(0, 1), weights) == Window(70, 100), "too much at once"


def test_more_is_loaded_before_one_is_at_the_top() -> None:
    weights = [2] * 100
    assert is_near_top(weights, Window(4, 8))
    assert not is_near_top(weights, Window(40, 44))


class TranscriptApp(App[None]):
    """A transcript alone, with a store of older exchanges."""

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return dict(VARIABLES)

    def __init__(self, cache: Path, older: Sequence[Exchange] = ()) -> None:
        super().__init__()
        self.transcript = Transcript(cache=cache)
        self.older = list(older)
        self.loaded: list[Exchange] = []
        self.asked = 0
        self.ends_seen: list[bool] = []

    def compose(self) -> ComposeResult:
        yield self.transcript

    async def on_transcript_older_wanted(self, event: Transcript.OlderWanted) -> None:
        self.asked += 1
        found, self.older = self.older[-event.limit :], self.older[: -event.limit]
        self.loaded[:0] = found
        await self.transcript.add_older(self.loaded)

    def on_transcript_end_seen(self, event: Transcript.EndSeen) -> None:
        self.ends_seen.append(event.is_seen)


class Long:
    """A conversation on the screen."""

    def __init__(self, app: TranscriptApp, pilot: Pilot[None]) -> None:
        self.app, self.pilot, self.transcript = app, pilot, app.transcript

    async def settled(self) -> None:
        """Until nothing is looked at any more, and all is laid out."""
        transcript = self.transcript
        await self.pilot.pause()

        def rests() -> bool:
            return transcript._look_timer is None and not transcript._changing.locked()

        await until(self.pilot, rests)
        await self.pilot.pause()

    def text(self) -> str:
        return "\n".join(strip.text.rstrip() for strip in self.app.screen._compositor.render_strips())

    @property
    def widgets(self) -> int:
        return len(self.app.screen.query("*"))

    async def page(self, how: str) -> None:
        getattr(self.transcript, f"scroll_page_{how}")(animate=False)
        await self.settled()

    async def page_up_to(self, text: str, *, pages: int = 300) -> None:
        for _ in range(pages):
            if text in self.text():
                return
            await self.page("up")
        raise AssertionError(f"never came to {text!r}; the screen is\n{self.text()}")

    def is_painted(self) -> bool:
        """Whether the screen shows what one has scrolled to, and all of it."""
        first, view = self.transcript.in_view()[0], self.transcript
        wanted = view.region.y + view._regions[first].y - round(view.scroll_y)
        return not self.app._batch_count and self.place(first) == wanted

    def place(self, widget: Widget) -> int:
        """The row of the screen in which it begins."""
        return widget.region.y


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
        await app.transcript.add(*exchanges[-here:], media_above=above)
        await long.settled()
        yield long


async def test_a_long_conversation_opens_at_its_end_with_few_widgets(tmp_path: Path) -> None:
    async with conversation(tmp_path, [exchange(number) for number in range(COUNT)]) as long:
        assert f"Answer {COUNT - 1}." in long.text()
        assert long.widgets <= WIDGETS_MAX
        assert len(turns_of(long.app)) == 1, "only the newest can still change"
        assert long.transcript.is_following


@pytest.mark.slow
async def test_one_pages_through_all_of_it_and_back(tmp_path: Path) -> None:
    count = 80
    async with conversation(tmp_path, [exchange(number) for number in range(count)], here=40) as long:
        most = 0
        seen: list[int] = []
        while "Answer 0." not in long.text():
            await long.page("up")
            most = max(most, long.widgets)
            seen.append(int(long.text().split("question ")[1].split(".")[0]))
            assert len(seen) < 200, seen
        assert seen == sorted(seen, reverse=True)
        assert all(before - after <= 6 for before, after in pairwise(seen)), "nothing was skipped"
        assert long.app.asked >= 2, "what was stored was loaded, and then that there is no more"
        assert most <= WIDGETS_MAX
        assert f"Answer {count - 1}." not in long.text()
        for _ in range(200):
            if long.transcript.is_following:
                break
            await long.page("down")
        assert f"Answer {count - 1}." in long.text()
        assert long.widgets <= WIDGETS_MAX


async def test_what_one_reads_stays_where_it_is_when_more_comes_above_and_goes_below(tmp_path: Path) -> None:
    async with conversation(tmp_path, [exchange(number) for number in range(COUNT)]) as long:
        changed = 0
        for _ in range(25):
            before = [id(child) for child in long.transcript.children]
            long.transcript.scroll_page_up(animate=False)
            await long.pilot.pause()
            reading = [(widget, long.place(widget)) for widget in long.transcript.in_view()]
            shown = long.text()
            await long.settled()
            changed += before != [id(child) for child in long.transcript.children]
            assert [(widget, long.place(widget)) for widget in long.transcript.in_view()] == reading
            assert _without_scrollbar(long.text()) == _without_scrollbar(shown)
        assert changed >= 4, "the window has moved"


@pytest.mark.slow
async def test_nothing_is_skipped_when_one_pages_on_while_more_is_put_above(tmp_path: Path) -> None:
    async with conversation(tmp_path, [exchange(number) for number in range(COUNT)]) as long:
        read: list[int] = []
        for _ in range(60):
            await until(long.pilot, long.is_painted)
            read += map(int, re.findall(r"question (\d+)", long.text()))
            scrolled = asyncio.Event()
            long.transcript.scroll_page_up()  # in vain while one is at the first that stands here
            long.transcript.call_after_refresh(scrolled.set)
            await until(long.pilot, scrolled.is_set)
        assert min(read) < COUNT - 100
        assert set(read) == set(range(min(read), COUNT))


async def test_a_picture_that_grows_above_does_not_move_what_one_reads(tmp_path: Path) -> None:
    async with conversation(tmp_path, [exchange(number) for number in range(40)]) as long:
        for _ in range(3):
            await long.page("up")
        reading = [(widget, long.place(widget)) for widget in long.transcript.in_view()[1:]]
        first = long.transcript.children[0]
        first.styles.height = 12
        await long.settled()
        assert first.size.height == 12
        assert [(widget, long.place(widget)) for widget in long.transcript.in_view()[1:]] == reading


@pytest.mark.slow
async def test_images_are_counted_over_the_whole_conversation(tmp_path: Path) -> None:
    exchanges = [exchange(number, attachments=number % 2, folder=tmp_path) for number in range(100)]
    async with conversation(tmp_path, exchanges, here=30) as long:
        assert {view.number for view in long.app.query(AttachmentView)} <= {*range(36, 51)}
        assert "▣ 50 cat.png" in long.text()
        await long.page_up_to("question 41.")
        await long.page_up_to("question 9.")
        for user in long.app.query(AttachmentView):
            turn = next(shown for shown in long.transcript._shown if user in shown.user.walk_children())
            assert user.number == (int(turn.exchange.user.text.split()[1].strip(".")) + 1) // 2


async def test_the_end_is_one_jump_away_from_anywhere(tmp_path: Path) -> None:
    async with conversation(tmp_path, [exchange(number) for number in range(COUNT)]) as long:
        await long.page_up_to(f"question {COUNT - 70}.")
        assert long.app.ends_seen == [False]
        assert not long.transcript.ends_here
        long.transcript.show_end()
        await until(long.pilot, lambda: f"Answer {COUNT - 1}." in long.text())
        await long.settled()
        assert long.transcript.is_following
        assert long.app.ends_seen == [False, True]
        assert long.widgets <= WIDGETS_MAX


async def test_a_new_exchange_brings_one_back_to_the_end(tmp_path: Path) -> None:
    async with conversation(tmp_path, [exchange(number) for number in range(COUNT)]) as long:
        await long.page_up_to(f"question {COUNT - 70}.")
        running = Exchange(user_turn("and now?"), Answer("running"))
        await long.transcript.add(running)
        await long.settled()
        assert "and now?" in long.text()
        running.answer.take(Delta(request_id="running", text="Still going", tokens=2))
        await until(long.pilot, lambda: "Still going" in long.text())
        running.answer.take(ended(running.answer))
        long.transcript.finish(running)
        await until(long.pilot, lambda: "Still going" in long.text())
        assert long.transcript.is_following


async def test_an_answer_that_ends_out_of_sight_is_whole_when_one_is_back(tmp_path: Path) -> None:
    async with conversation(tmp_path, [exchange(number) for number in range(COUNT)]) as long:
        running = Exchange(user_turn("and now?"), Answer("running"))
        await long.transcript.add(running)
        await long.settled()
        await long.page_up_to(f"question {COUNT - 70}.")
        assert not any(turn.answer is running.answer for turn in turns_of(long.app))
        running.answer.take(Delta(request_id="running", text="All of it.", tokens=2))
        running.answer.take(ended(running.answer))
        long.transcript.finish(running)
        long.transcript.show_end()
        await until(long.pilot, lambda: "All of it." in long.text())


async def test_another_answer_takes_the_place_of_a_past_one(tmp_path: Path) -> None:
    exchanges = [exchange(number) for number in range(40)]
    async with conversation(tmp_path, exchanges) as long:
        past = exchanges[-3]
        assert any(answer.answer is past.answer for answer in long.app.query(PastAnswer))
        past.show_answer(Answer("again"))
        await long.transcript.restart(past)
        past.answer.take(Delta(request_id="again", text="Another one.", tokens=2))
        await until(long.pilot, lambda: "Another one." in long.text())


async def test_unfolded_thinking_is_unfolded_when_one_comes_back(tmp_path: Path) -> None:
    exchanges = [exchange(number) for number in range(COUNT)]
    last = exchanges[-2].answer
    last.pieces[:0] = ["<think>a deep thought</think>"]
    async with conversation(tmp_path, exchanges) as long:
        assert "a deep thought" not in long.text()
        assert long.transcript.toggle_thinking()
        await until(long.pilot, lambda: "a deep thought" in long.text())
        await long.page_up_to(f"question {COUNT - 70}.")
        long.transcript.show_end()
        await until(long.pilot, lambda: "a deep thought" in long.text())


@pytest.mark.parametrize("count", [1, 3])
async def test_a_short_conversation_asks_for_older_ones_at_most_once(tmp_path: Path, count: int) -> None:
    async with conversation(tmp_path, [exchange(number) for number in range(count)]) as long:
        for how in ("up", "down", "up"):
            await long.page(how)
        assert long.app.asked <= 1


def _without_scrollbar(text: str) -> list[str]:
    return [line[:76].rstrip() for line in text.splitlines()]
