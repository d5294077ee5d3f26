"""What was said, as the screen shows it."""

from __future__ import annotations

import asyncio

import pytest
from textual.app import App
from textual.widget import Widget
from textual.widgets import Static

from tests.support.scripted_engine import Fail, Hold, Step
from tests.ui.conftest import StartChat, turns_of
from vlmtui.domain.failure import Failure
from vlmtui.domain.generation import Cancelled, Timings, Usage
from vlmtui.errors import ErrorKind
from vlmtui.session.generation import Answer
from vlmtui.ui.chat.assistant_turn import AssistantTurn
from vlmtui.ui.chat.past_answer import PastAnswer
from vlmtui.ui.chat.screen import ChatScreen
from vlmtui.ui.chat.status_bar import StatusBar
from vlmtui.ui.chat.thinking_block import ThinkingBlock
from vlmtui.ui.chat.transcript import LIVE_MAX, Transcript
from vlmtui.ui.chat.welcome import WelcomePanel
from vlmtui.ui.terminal.themes import VARIABLES
from vlmtui.ui.widgets.footer_bar import FooterBar
from vlmtui.ui.widgets.markdown_text import MarkdownText

MARKDOWN = """# One

Text with **bold** and `code` <box>(1, 2)</box>
and a second line of the same paragraph.

> A quote

- first
- second
  - inner

1. one
2. two

```python
def area(radius: float) -> float:
    return 3.14 * radius ** 2
```

| shape | colour |
|---|---|
| circle | red |

The end."""

ENDED = Cancelled(request_id="2", usage=Usage(), timings=Timings())
OUT_OF_MEMORY = Failure(kind=ErrorKind.OUT_OF_MEMORY, message="Out of memory.", detail="a " * 200, hint="Close it.")


class Bare(App[None]):
    def get_theme_variable_defaults(self) -> dict[str, str]:
        return dict(VARIABLES)


async def test_hostile_text_is_shown_and_not_obeyed(chatting: StartChat) -> None:
    async with chatting(["\x1b[31mred\x1b]0;title\x07 ", "\u202egnp.tac [/x]"]) as chat:
        await chat.say("\x1b[2Jwipe [/b]")
        await chat.until(lambda: "gnp" in chat.shown())
        assert "\x1b" not in chat.shown()
        assert "\u202e" not in chat.shown()
        assert "␛[31mred" in chat.shown()
        assert "\x1b" not in str(chat.screen.query_one(".said", Static).render())
        assert chat.last.answer.text.startswith("\x1b[31m"), "what the model said is kept as it was"


async def test_thinking_shows_its_last_lines_and_is_folded_away_once_it_is_over(chatting: StartChat) -> None:
    gate, never = asyncio.Event(), asyncio.Event()
    lines = "".join(f"step {number}\n" for number in range(1, 9))
    async with chatting(["<thi", f"nk>\n{lines}", Hold(gate), "so.\n</think>\n\n", "The answer.", Hold(never)]) as chat:
        await chat.send("Think")
        await chat.until(lambda: "step 8" in chat.screen_text())
        assert chat.shown() == ""
        assert "▶ Thinking… 2 tokens" in chat.screen_text()
        assert "step 6" in chat.screen_text() and "step 5" not in chat.screen_text()
        await chat.pilot.press("ctrl+t")
        await chat.until(lambda: "step 1" in chat.screen_text())
        await chat.pilot.press("ctrl+t")
        gate.set()
        await chat.until(lambda: chat.shown() == "The answer.")
        block = chat.screen.query_one(ThinkingBlock)
        await chat.until(lambda: block.title.startswith("Thought · ") and block.title.endswith(" · 3 tokens"))
        assert not block.is_open
        assert "so." not in chat.screen_text()
        await chat.pilot.press("ctrl+t")
        await chat.until(lambda: "so." in chat.screen_text())


async def test_what_reasoning_took_is_kept_with_the_answer(chatting: StartChat) -> None:
    async with chatting(["<think>hm ", "so.</think>", "The answer."]) as chat:
        await chat.say("Think")
        title = chat.screen.query_one(ThinkingBlock).title
        assert title.endswith(" · 2 tokens")
        stored = chat.controller.live.id
        assert stored is not None
        await chat.controller.open(stored)
        chat.app.navigator.show_chat()
        await chat.until(lambda: title in chat.screen_text())


async def test_nothing_is_cut_off_on_a_small_terminal(chatting: StartChat) -> None:
    async with chatting(["word " * 400], size=(80, 24)) as chat:
        await chat.say("long")
        for widget in (chat.composer, chat.screen.query_one(StatusBar)):
            assert chat.screen.region.contains_region(widget.region)
            assert widget.region.height == 1
        assert chat.composer.has_focus


async def test_another_model_goes_on_with_the_conversation(chatting: StartChat) -> None:
    async with chatting(["The answer."]) as chat:
        await chat.say("first")
        chat.app.navigator.show_chat()
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen) and bool(turns_of(chat.screen)))
        await chat.until(lambda: chat.shown() == "The answer.")


async def test_thinking_stays_open_when_no_answer_came(chatting: StartChat) -> None:
    never = asyncio.Event()
    async with chatting(["<think>half a thought", Hold(never)]) as chat:
        await chat.send("Think")
        await chat.until(lambda: bool(chat.screen.query(ThinkingBlock)))
        await chat.pilot.press("escape")
        await chat.until(lambda: not chat.last.is_running)
        block = chat.screen.query_one(ThinkingBlock)
        await chat.until(lambda: block.title.startswith("Thought"))
        assert block.is_open
        await chat.pilot.press("ctrl+t")
        await chat.until(lambda: not block.is_open)


@pytest.mark.parametrize(
    "answer",
    [
        [MARKDOWN],
        ["<think>", "first\n\nsecond</think>\n\nThe answer."],
        ["<think>only thoughts"],
        ["Half ", Fail(OUT_OF_MEMORY)],
        ["| a | b |\n|---|---|\n| " + "long cell " * 20 + "| c |\n\nbelow"],
    ],
)
async def test_an_old_answer_looks_as_it_did(chatting: StartChat, answer: list[Step]) -> None:
    async with chatting(answer, size=(80, 140)) as chat:
        await chat.say("Show me")
        turn = chat.screen.query_one(AssistantTurn)
        past = PastAnswer(turn.answer, thinking_open=turn.is_thinking_open)
        await chat.screen.query_one(Transcript).mount(past, after=turn)

        def rows(widget: Widget) -> list[str]:
            return chat.screen_text().splitlines()[widget.region.y : widget.region.bottom]

        await chat.until(lambda: len(rows(turn)) == turn.region.height > 0 and rows(turn) == rows(past))


@pytest.mark.parametrize("turns_of_the_loop", range(12))
async def test_an_answer_may_begin_again_at_any_moment_of_its_mounting(turns_of_the_loop: int) -> None:
    app = Bare()
    async with app.run_test() as pilot:
        turn = AssistantTurn(Answer("1", ["first"]))
        mounted = app.mount(turn)
        for _ in range(turns_of_the_loop):
            await asyncio.sleep(0)
        await turn.restart(Answer("2", ["sec", "ond"], outcome=ENDED))
        await mounted
        await pilot.pause()
        assert turn.query_one(MarkdownText).source == "second"
        assert len(turn.query(MarkdownText)) == 1
        assert [line.plain for line in turn.query_one(MarkdownText).lines_of(40)] == ["second"]


async def test_scrolling_up_holds_still_until_one_jumps_to_the_end(chatting: StartChat) -> None:
    gate, never = asyncio.Event(), asyncio.Event()
    long = "\n\n".join(f"line {number}" for number in range(60))
    async with chatting([long, Hold(gate), "\n\nmore", Hold(never)], size=(80, 24)) as chat:
        transcript = chat.screen.query_one(Transcript)
        await chat.send("Go")
        await chat.until(lambda: transcript.max_scroll_y > 50 and transcript.is_vertical_scroll_end)
        await chat.pilot.press("pageup")
        await chat.until(lambda: chat.screen.query_one("#more").display)
        held = transcript.scroll_target_y
        gate.set()
        await chat.until(lambda: chat.shown().endswith("more"))
        assert transcript.scroll_target_y == held
        await chat.pilot.press("ctrl+end")
        await chat.until(lambda: transcript.is_vertical_scroll_end)
        assert not chat.screen.query_one("#more").display


async def test_every_hint_of_the_footer_fits_on_a_small_terminal(chatting: StartChat) -> None:
    never = asyncio.Event()
    async with chatting(["One ", Hold(never)], size=(80, 24)) as chat:
        bar = chat.screen.query_one(FooterBar)
        for is_running in (False, True):
            if is_running:
                await chat.send("Count")
                await chat.until(lambda: "Stop" in [item.title for item in bar.items])
            for item, region in bar.placed():
                assert chat.screen.region.contains_region(region), item.title


async def test_a_new_chat_shows_the_welcome_again(chatting: StartChat) -> None:
    async with chatting(["One."]) as chat:
        assert chat.screen.query(WelcomePanel)
        await chat.say("first")
        assert not chat.screen.query(WelcomePanel)
        await chat.pilot.press("ctrl+n")
        await chat.until(lambda: bool(chat.screen.query(WelcomePanel)))
        await chat.pilot.pause()
        welcome = chat.screen.query_one(WelcomePanel)
        assert chat.screen.query_one(Transcript).region.contains_region(welcome.region)


@pytest.mark.slow
async def test_a_long_conversation_is_whole_on_another_screen(chatting: StartChat) -> None:
    count = LIVE_MAX + 3
    async with chatting(*[[f"<think>hm</think>Answer {number}."] for number in range(count)]) as chat:
        for number in range(count):
            await chat.say(f"question {number}")
        for live in (LIVE_MAX, 1):
            assert len(turns_of(chat.screen)) == live
            transcript = chat.screen.query_one(Transcript)
            transcript.scroll_home(animate=False)
            await chat.until(lambda: "Answer 0." in chat.screen_text() and "Answer 2." in chat.screen_text())
            past = chat.screen.query(PastAnswer).first()
            await chat.pilot.click(past, offset=(3, 0))
            await chat.until(lambda: "hm" in chat.screen_text())
            await chat.pilot.press("ctrl+end")
            await chat.until(lambda: f"Answer {count - 1}." in chat.screen_text())
            chat.app.navigator.show_chat()
            await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
            await chat.until(lambda: bool(turns_of(chat.screen)))


async def test_a_message_is_shown_in_widgets_that_were_mounted_before(chatting: StartChat) -> None:
    def spare() -> list[AssistantTurn]:
        return [turn for turn in chat.screen.query(AssistantTurn) if not turn.display]

    async with chatting(["One."], ["Two."]) as chat:
        for question, answer in (("first", "One."), ("second", "Two.")):
            await chat.until(lambda: len(spare()) == 1)
            (waiting,) = spare()
            await chat.say(question)
            assert turns_of(chat.screen)[-1] is waiting
            await chat.until(lambda: question in chat.screen_text() and answer in chat.screen_text())  # noqa: B023
        await chat.pilot.press("ctrl+n")
        await chat.until(lambda: not turns_of(chat.screen) and len(spare()) == 1)
