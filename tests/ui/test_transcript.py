"""The transcript on the screen."""

from __future__ import annotations

import asyncio
import re

from textual.app import App

from tests.support.scripted_engine import Hold, Step
from tests.ui.conftest import Chat, StartChat, answers_of
from vlmtui.domain.generation import Cancelled, Failure, Timings, Usage
from vlmtui.errors import ErrorKind
from vlmtui.ui.chat.frame import StatusBar, WelcomePanel
from vlmtui.ui.chat.screen import ChatScreen
from vlmtui.ui.chat.transcript import Transcript
from vlmtui.ui.terminal.themes import VARIABLES
from vlmtui.ui.widgets.footer_bar import FooterBar

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
        assert "\x1b" not in chat.screen_text()
        assert chat.last.answer.text.startswith("\x1b[31m"), "what the model said is kept as it was"


async def test_streaming_reasoning_shows_its_last_lines_and_folds_at_its_end(chatting: StartChat) -> None:
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
        await chat.until(lambda: re.search(r"▶ Thought · .* · 3 tokens", chat.screen_text()) is not None)
        assert "so." not in chat.screen_text()
        await chat.pilot.press("ctrl+t")
        await chat.until(lambda: "so." in chat.screen_text())


async def test_reasoning_that_is_unfolded_is_seen_even_if_its_title_was_far_above(chatting: StartChat) -> None:
    answer = "<think>\nIs it red?\n</think>\n\n" + "\n\n".join(f"Paragraph {number}" for number in range(40))
    async with chatting([answer]) as chat:
        await chat.say("Look")
        await chat.until(lambda: "Paragraph 39" in chat.screen_text())
        await chat.pilot.press("ctrl+t")
        await chat.until(lambda: "Is it red?" in chat.screen_text())
        await chat.pilot.press("ctrl+t")
        await chat.until(lambda: "Is it red?" not in chat.screen_text())


async def test_the_time_of_reasoning_is_stored_with_the_answer(chatting: StartChat) -> None:
    async with chatting(["<think>hm ", "so.</think>", "The answer."]) as chat:
        await chat.say("Think")
        title = next(line.strip() for line in chat.screen_text().splitlines() if "▶ Thought" in line)
        assert title.endswith(" · 2 tokens")
        stored = chat.controller.live.id
        assert stored is not None
        await chat.controller.open(stored)
        await chat.screen.show_conversation()
        await chat.until(lambda: title in chat.screen_text())


async def test_nothing_is_cut_off_on_a_small_terminal(chatting: StartChat) -> None:
    async with chatting(["word " * 400], size=(80, 24)) as chat:
        await chat.say("long")
        for widget in (chat.composer, chat.screen.query_one(StatusBar)):
            assert chat.screen.region.contains_region(widget.region)
            assert widget.region.height == 1
        assert chat.composer.has_focus


async def test_thinking_stays_open_when_no_answer_came(chatting: StartChat) -> None:
    never = asyncio.Event()
    async with chatting(["<think>half a thought", Hold(never)]) as chat:
        await chat.send("Think")
        await chat.until(lambda: "▶ Thinking" in chat.screen_text())
        await chat.pilot.press("escape")
        await chat.until(lambda: not chat.last.is_running)
        await chat.until(lambda: "▼ Thought" in chat.screen_text() and "half a thought" in chat.screen_text())
        await chat.pilot.press("ctrl+t")
        await chat.until(lambda: "▶ Thought" in chat.screen_text() and "half a thought" not in chat.screen_text())


async def test_after_scrolling_up_the_view_stays_until_a_jump_to_the_end(chatting: StartChat) -> None:
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
        assert chat.screen.query_one("#welcome").display
        await chat.say("first")
        assert not chat.screen.query_one("#welcome").display
        await chat.pilot.press("ctrl+n")
        await chat.until(lambda: chat.screen.query_one("#welcome").display)
        await chat.pilot.pause()
        welcome = chat.screen.query_one(WelcomePanel)
        assert chat.screen.query_one("#conversation").region.contains_region(welcome.region)


async def test_a_conversation_looks_the_same_on_a_new_screen(chatting: StartChat) -> None:
    answers: list[list[Step]] = [[MARKDOWN], ["<think>", "first\n\nsecond</think>\n\nThe answer."], ["<think>only"]]
    async with chatting(*answers, size=(80, 140)) as chat:
        for number in range(3):
            await chat.say(f"question {number}")
        await chat.pilot.pause()
        before = chat.screen_text()
        await chat.screen.show_conversation()
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen) and bool(answers_of(chat.screen)))
        await chat.until(lambda: chat.screen_text() == before)


async def test_a_click_on_its_title_unfolds_the_reasoning(chatting: StartChat) -> None:
    async with chatting(["<think>a deep thought</think>So."]) as chat:
        await chat.say("Why?")
        await chat.until(lambda: "▶ Thought" in chat.screen_text())
        row = next(y for y, line in enumerate(chat.screen_text().splitlines()) if "▶ Thought" in line)
        await chat.pilot.click(offset=(8, row))
        await chat.until(lambda: "a deep thought" in chat.screen_text())
        assert chat.screen.marked is None


async def test_text_is_copied_as_it_was_written_over_several_messages(chatting: StartChat) -> None:
    words = " ".join(f"word{number}" for number in range(40))
    async with chatting([words], [words], size=(80, 40)) as chat:
        await chat.say("first question")
        await chat.say("second question")
        rows = chat.screen_text().splitlines()
        first = next(y for y, line in enumerate(rows) if "first question" in line)
        last = next(y for y, line in enumerate(rows) if "second question" in line)
        left = rows[first].index("first")
        await chat.pilot.mouse_down(offset=(left, first))
        await chat.pilot.hover(offset=(left + 3, last))
        await chat.pilot.mouse_up(offset=(left + 6, last))
        assert chat.screen.get_selected_text() == f"first question\n\n{words}\n\nsecond"


def highlighted(chat: Chat) -> list[str]:
    """Return the highlighted texts in view, without the match that was found last."""
    view = chat.screen.query_one(Transcript)
    segments = (segment for y in range(view.size.height) for segment in view.render_line(y))
    return [segment.text for segment in segments if segment.style and segment.style.underline]


async def test_a_search_selects_the_message_with_the_match_and_n_goes_on(chatting: StartChat) -> None:
    async with chatting(["A red circle, a star."], ["No stars."], ["None."], size=(80, 24)) as chat:
        for question in ("What is it?", "A star again?", "And now?"):
            await chat.say(question)
        await chat.lead("slash")
        await chat.pilot.press(*"star")
        await chat.until(lambda: "1 of 3" in chat.screen_text())
        await chat.until(lambda: highlighted(chat) == ["star", "star"])
        await chat.pilot.press("enter")
        await chat.until(lambda: "Answer 1 of 3 · match 1 of 3 · n N others" in chat.screen_text())
        await chat.pilot.press("n")
        await chat.until(lambda: "Your message 2 of 3 · match 2 of 3" in chat.screen_text())
        assert len(highlighted(chat)) == 2
        await chat.pilot.press("N", "N")
        await chat.until(lambda: "Answer 2 of 3 · match 3 of 3" in chat.screen_text())
        await chat.pilot.press("escape")
        await chat.until(lambda: chat.composer.has_focus and not highlighted(chat))


async def test_a_text_is_found_in_the_conversation(chatting: StartChat) -> None:
    long = "\n\n".join(f"line {number}" for number in range(60))
    async with chatting([f"A red circle.\n\n{long}"], ["A blue square."], size=(80, 24)) as chat:
        await chat.say("first")
        await chat.say("second")
        await chat.send("/find")
        await chat.until(lambda: not chat.composer.has_focus)
        await chat.pilot.press(*"red", "space", *"circle")
        await chat.until(lambda: "A red circle." in chat.screen_text() and "1 of 1" in chat.screen_text())
        await chat.pilot.press("escape")
        await chat.until(lambda: chat.composer.has_focus and "1 of 1" not in chat.screen_text())
        assert not highlighted(chat), "Escape ends the search"
        await chat.pilot.press("ctrl+end")
        await chat.until(lambda: "A blue square." in chat.screen_text())
