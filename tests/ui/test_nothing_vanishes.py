"""All text of an answer can be read on the screen, whatever happens meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.scripted_engine import Hold
from tests.ui.conftest import Chat, StartChat, answers_of
from vlmtui.session.exchange import AnswerEnded
from vlmtui.ui.chat.screen import ChatScreen
from vlmtui.ui.chat.transcript import Transcript
from vlmtui.ui.document.lines import as_written


def has(chat: Chat, *texts: str) -> bool:
    shown = chat.screen_text()
    return all(text in shown for text in texts)


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ("[x]: y", "[x]: y"),
        ("Seen.\n\n[1]: http://a.b 'title'", "[1]: http://a.b 'title'"),
        ("<!-- a comment -->", "<!-- a comment -->"),
        ("<div>", "<div>"),
        ("    indented", "indented"),
        ("[cat](12,34,56,78)", "[cat](12,34,56,78)"),
        ("![](shape.png)", "![](shape.png)"),
        ("<box:10,20>", "<box:10,20>"),
        ("&lt;box&gt;", "&lt;box&gt;"),
        (r"\[ \frac{a}{b} \]", r"\[ \frac{a}{b} \]"),
        ("```A red circle\n```", "A red circle"),
        ("```python\nx = 1", "x = 1"),
        ("#", "#"),
        ("1. one\n1. again", "1. again"),
        ("| a | b |\n|---|---|\n| one | two | three |", "three"),
        ("| a | b |\n|---|---|", "│ a │ b │"),
        ("> " * 30 + "deep", "deep"),
        (" \n\n  \nlate", "late"),
        ("<think>", "<think>"),
        ("<think>\n\n</think>\n\n", "</think>"),
        ("<think>unclosed", "unclosed"),
        ("<thin", "<thin"),
    ],
)
async def test_text_that_markdown_hides_is_shown(chatting: StartChat, answer: str, shown: str) -> None:
    async with chatting([*answer], size=(80, 24)) as chat:
        await chat.say("Say")
        await chat.until(lambda: has(chat, shown))


@pytest.mark.parametrize("piece", [1, 3, 1000])
async def test_an_answer_that_begins_where_unopened_thinking_ends(chatting: StartChat, piece: int) -> None:
    gates = [asyncio.Event(), asyncio.Event()]
    never = asyncio.Event()
    begin = " it over.</think>First line\nsecond line\n\n| a | b |\n|---|---|\n| c"
    pieces = [begin[start : start + piece] for start in range(0, len(begin), piece)]
    steps = ["I think", Hold(gates[0]), *pieces, Hold(gates[1]), " | d |\n\nThe end.", Hold(never)]
    async with chatting(steps, size=(80, 30)) as chat:
        await chat.send("Think")
        await chat.until(lambda: has(chat, "I think"))
        gates[0].set()
        await chat.until(lambda: has(chat, "First line", "second line", "│ c │"))
        gates[1].set()
        await chat.until(lambda: has(chat, "First line", "second line", "│ c │ d │", "The end."))


async def test_a_late_end_of_an_older_answer_does_not_stop_the_new_one(chatting: StartChat) -> None:
    gate, never = asyncio.Event(), asyncio.Event()
    async with chatting(["Old."], ["New", Hold(gate), " text", Hold(never)]) as chat:
        await chat.say("Say")
        await chat.pilot.press("ctrl+r")
        await chat.until(lambda: has(chat, "New"))
        assert not has(chat, "Old.")
        chat.screen.post_message(ChatScreen.ConversationChanged(AnswerEnded(chat.last)))
        await chat.pilot.pause()
        gate.set()
        await chat.until(lambda: has(chat, "New text"))


async def test_an_answer_that_ends_below_another_screen(chatting: StartChat) -> None:
    gate = asyncio.Event()
    async with chatting(["# Title\n\nfirst ", Hold(gate), "second\n\n- third"]) as chat:
        await chat.send("Say")
        await chat.until(lambda: has(chat, "first"))
        chat.app.run_action_id("settings")
        await chat.until(lambda: not isinstance(chat.app.screen, ChatScreen))
        gate.set()
        await chat.until(lambda: not chat.last.is_running)
        await chat.pilot.press("escape")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
        await chat.until(lambda: has(chat, "Title", "first second", "• third", "2 tokens"))


async def test_another_size_and_theme_in_the_middle(chatting: StartChat) -> None:
    gate, never = asyncio.Event(), asyncio.Event()
    words = " ".join(f"word{number}" for number in range(40))
    async with chatting([words, Hold(gate), "\n\n```python\nlast = 1", Hold(never)]) as chat:
        await chat.send("Say")
        await chat.until(lambda: has(chat, "word0", "word39"))
        await chat.pilot.resize_terminal(60, 40)
        chat.app.theme = "textual-light"
        gate.set()
        await chat.until(lambda: has(chat, *words.split(), "last = 1"))
        await chat.pilot.resize_terminal(110, 40)
        await chat.until(lambda: has(chat, *words.split(), "last = 1"))


async def test_a_long_answer_is_whole_from_its_first_line_to_its_last(chatting: StartChat) -> None:
    lines = [f"line{number} with **some** text and `code`" for number in range(300)]
    async with chatting(["\n\n".join(lines)], size=(80, 24)) as chat:
        await chat.say("Say")
        await chat.until(lambda: has(chat, "line299", "1 token"))
        chat.screen.query_one(Transcript).scroll_home(animate=False)
        await chat.until(lambda: has(chat, "line0 with some text"))
        chat.screen.query_one(Transcript).scroll_to(y=300, animate=False)
        await chat.until(lambda: has(chat, "line150"))


async def test_text_below_a_table_that_is_too_wide(chatting: StartChat) -> None:
    columns = [f"c{number}" for number in range(40)]
    table = f"|{'|'.join(columns)}|\n|{'|'.join('-' for _ in columns)}|\n|{'|'.join(columns)}|"
    async with chatting([f"{table}\n\nbelow"], size=(80, 40)) as chat:
        await chat.say("Say")
        await chat.until(lambda: has(chat, "below"))
        written = as_written((line, 0, None) for line in answers_of(chat.screen)[-1].lines)
        assert all(written.count(column) == 2 for column in columns[10:]), written
