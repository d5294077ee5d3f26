"""The cursor on messages and answers: what it acts on is what is shown marked."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from textual import events

from tests.support.documents import written
from tests.support.scripted_engine import Hold
from tests.ui.conftest import Chat, StartChat, picture
from tests.unit.store.made import bulk
from vlmtui.session.prompt_report import exchange_numbered
from vlmtui.ui.chat.blocks import Part
from vlmtui.ui.chat.transcript import MessageCursor, Transcript
from vlmtui.ui.compare.screen import CompareScreen
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.help import HelpScreen, LeaderScreen
from vlmtui.ui.inspector.screen import InspectorScreen
from vlmtui.ui.seeing.room import ImageRoom
from vlmtui.ui.widgets.footer_bar import FooterBar

ANSWERS = (["Answer one."], ["Answer two."], ["Answer three."])


async def three_turns(chat: Chat) -> None:
    for number in ("one", "two", "three"):
        await chat.say(f"Question {number}")


def marked_rows(chat: Chat) -> str:
    """The text of the rows that have the cursor's bar."""
    rows = [re.search(r"█ (?!Your message|Answer \d)(.*)", line) for line in chat.screen_text().splitlines()]
    return "\n".join(re.split(r"\s{3,}|[▏▎▍▌▋▊▉█▇▆▅▄▃▂▁│]", row[1])[0].strip() for row in rows if row)


def place(chat: Chat) -> tuple[int, Part] | None:
    marked = chat.screen.marked
    return (chat.controller.number_of(marked.exchange), marked.part) if marked else None


def footer(chat: Chat) -> list[str]:
    return [item.title for item in chat.screen.query_one(FooterBar).items]


def inspected(chat: Chat) -> str:
    screen = chat.app.screen
    return screen.inspected.title if isinstance(screen, InspectorScreen) else ""


async def is_at(chat: Chat, number: int, part: Part) -> None:
    """The cursor is there, and the marked rows in view are those of that message or answer."""
    await chat.until(lambda: place(chat) == (number, part))
    marked = chat.screen.marked
    assert marked is not None
    await chat.until(lambda: bool(marked_rows(chat)) and marked_rows(chat).split("\n")[0] in marked.text)


async def test_up_from_an_empty_composer_selects_messages_and_escape_goes_back(chatting: StartChat) -> None:
    async with chatting(*ANSWERS) as chat:
        await three_turns(chat)
        await chat.pilot.press("up")
        await is_at(chat, 3, Part.ANSWER)
        assert marked_rows(chat) == "Answer three."
        assert "█ Answer 3 of 3" in chat.screen_text()
        await chat.pilot.press("up")
        await is_at(chat, 3, Part.MESSAGE)
        await chat.pilot.press("k", "k", "j")
        await is_at(chat, 2, Part.ANSWER)
        await chat.pilot.press("home")
        await is_at(chat, 1, Part.MESSAGE)
        await chat.pilot.press("up")
        await is_at(chat, 1, Part.MESSAGE)
        await chat.pilot.press("escape", "h", "i")
        await chat.until(lambda: chat.composer.text == "hi")
        assert place(chat) is None and marked_rows(chat) == ""


async def test_the_selected_newest_answer_is_fully_in_view(
    chatting: StartChat,
) -> None:
    async with chatting(*([f"Answer {number}.\n\nIts end {number}."] for number in range(6)), size=(80, 24)) as chat:
        for number in range(6):
            await chat.say(f"Question {number}")
        transcript = chat.screen.transcript
        width = transcript.text_width
        await chat.pilot.press("up")
        await is_at(chat, 6, Part.ANSWER)
        assert marked_rows(chat).splitlines()[-1] == "Its end 5."
        assert transcript.text_width == width


async def test_down_below_the_newest_answer_is_the_composer_again(chatting: StartChat) -> None:
    async with chatting(*ANSWERS) as chat:
        await three_turns(chat)
        await chat.pilot.press("up", "up", "down", "down", "x")
        await chat.until(lambda: chat.composer.text == "x" and place(chat) is None)


async def test_up_recalls_earlier_texts_in_a_draft_or_an_empty_chat(chatting: StartChat) -> None:
    async with chatting(*ANSWERS) as chat:
        await three_turns(chat)
        await chat.write("draft")
        await chat.pilot.press("up")
        assert chat.composer.text == "Question three" and place(chat) is None
        await chat.pilot.press("down")
        assert chat.composer.text == "draft"
        chat.composer.clear()
        await chat.pilot.press("ctrl+up", "up")
        assert chat.composer.text == "Question two" and place(chat) is None
        chat.composer.clear()
        await chat.pilot.press("ctrl+n")
        await chat.until(lambda: not chat.controller.exchanges)
        await chat.pilot.press("up")
        await chat.until(lambda: chat.composer.text.startswith("Question"))


async def test_the_footer_the_strip_and_the_help_show_its_keys(chatting: StartChat) -> None:
    async with chatting(*ANSWERS, size=(120, 30)) as chat:
        await three_turns(chat)
        assert "Inspect" in footer(chat) and "Edit" not in footer(chat)
        await chat.pilot.press("up")
        keys = ["Back", "Edit", "Answer again", "Inspect", "Compare", "Copy", "Branch", "Fan out"]
        await chat.until(lambda: footer(chat)[: len(keys)] == keys and footer(chat).count("Compare") == 1)
        await chat.pilot.press("ctrl+x")
        await chat.until(lambda: isinstance(chat.app.screen, LeaderScreen))
        await chat.pilot.press("escape", "f1")
        await chat.until(lambda: isinstance(chat.app.screen, HelpScreen))
        await chat.until(
            lambda: "On a selected message" in written(chat.app.screen.query_one("#text", DocumentView))[:40]
        )


async def test_edit_copy_inspect_and_compare_act_on_the_selected_message(
    chatting: StartChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with chatting(*ANSWERS, ["Another."]) as chat:
        await three_turns(chat)
        copied: list[str] = []
        monkeypatch.setattr(chat.app, "copy_to_clipboard", copied.append)
        await chat.pilot.press("up", "up", "up", "y", "up", "y")
        await chat.until(lambda: copied == ["Answer two.", "Question two"])
        await chat.pilot.press("i")
        await chat.until(lambda: inspected(chat) == "exchange 2")
        await chat.pilot.press("escape", "c")
        second = exchange_numbered(chat.controller, "2")
        await chat.until(lambda: isinstance(chat.app.screen, CompareScreen))
        assert isinstance(chat.app.screen, CompareScreen) and chat.app.screen.message.exchange is second
        await chat.pilot.press("escape")
        await is_at(chat, 2, Part.MESSAGE)
        await chat.pilot.press("e")
        await chat.until(lambda: chat.composer.text == "Question two" and chat.controller.editing is second)
        assert place(chat) is None
        await chat.send(" please")
        await chat.until(lambda: chat.last.answer.text == "Another." and not chat.last.is_running)
        assert [exchange.user.text for exchange in chat.controller.exchanges] == ["Question one", "Question two please"]


async def test_leader_and_chat_keys_act_on_the_selected_message(chatting: StartChat) -> None:
    async with chatting(*ANSWERS) as chat:
        await three_turns(chat)
        await chat.pilot.press("up", "home")
        await is_at(chat, 1, Part.MESSAGE)
        await chat.pilot.press("f12")
        await chat.until(lambda: inspected(chat) == "exchange 1")
        await chat.pilot.press("escape")
        await is_at(chat, 1, Part.MESSAGE)
        await chat.lead("e")
        await chat.until(lambda: chat.composer.text == "Question one")


async def test_another_answer_to_an_earlier_message_is_a_branch_of_its_own(chatting: StartChat) -> None:
    async with chatting(*ANSWERS, ["Answer two again."]) as chat:
        await three_turns(chat)
        await chat.pilot.press("up", "up", "up", "r")
        await chat.until(lambda: chat.last.answer.text == "Answer two again." and not chat.last.is_running)
        assert [one.user.text for one in chat.controller.exchanges] == ["Question one", "Question two"]
        await is_at(chat, 2, Part.ANSWER)
        assert marked_rows(chat).startswith("Answer two again.")
        sent = [request.prompt for request in chat.host.engines[0].requests]
        assert sent[3] == sent[1] != sent[2]
        await chat.until(lambda: chat.last.answer_siblings.count == 2)
        await chat.pilot.press("left")
        await chat.until(lambda: len(chat.controller.exchanges) == 3)
        await is_at(chat, 2, Part.ANSWER)
        assert "Answer three." in chat.screen_text()
        await chat.pilot.press("left")
        await chat.until(lambda: "There is no other branch on that side." in chat.notes)
        await chat.pilot.press("right")
        await chat.until(lambda: chat.last.answer.text == "Answer two again.")
        await is_at(chat, 2, Part.ANSWER)


async def test_branch_keys_act_at_the_selected_message(chatting: StartChat) -> None:
    async with chatting(*ANSWERS, ["Four."], ["Five."]) as chat:
        await three_turns(chat)
        await chat.pilot.press("up", "r")
        await chat.until(lambda: chat.last.answer.text == "Four." and not chat.last.is_running)
        await chat.until(lambda: chat.last.answer_siblings.count == 2)
        await chat.pilot.press("home", "left")
        await chat.until(lambda: "There is no other branch on that side." in chat.notes)
        assert chat.last.answer.text == "Four."


async def test_branch_writes_another_message_that_follows_there(chatting: StartChat) -> None:
    async with chatting(*ANSWERS, ["Elsewhere."]) as chat:
        await three_turns(chat)
        await chat.pilot.press("up", "home", "down", "b")
        await chat.until(lambda: chat.controller.editing is exchange_numbered(chat.controller, "2"))
        assert chat.composer.text == "" and chat.composer.has_focus
        await chat.send("Another way")
        await chat.until(lambda: chat.last.answer.text == "Elsewhere." and not chat.last.is_running)
        assert [one.user.text for one in chat.controller.exchanges] == ["Question one", "Another way"]
        await chat.until(lambda: chat.last.user_siblings.count == 2)


async def test_space_shows_the_pictures_of_a_message_and_folds_the_reasoning_of_an_answer(
    chatting: StartChat, tmp_path: Path
) -> None:
    async with chatting(["<think>Because.</think>Red."], ["Two."]) as chat:
        chat.screen.sources.attach_files([picture(tmp_path)])
        await chat.until(lambda: len(chat.controller.draft.attachments) == 1)
        await chat.say("What is it?")
        await chat.say("And now?")
        await chat.pilot.press("up", "up", "up")
        await is_at_answer(chat, 1)
        assert "Because." not in chat.screen_text()
        await chat.pilot.press("space")
        await chat.until(lambda: "Because." in chat.screen_text())
        await chat.pilot.press("up", "enter")
        await chat.until(lambda: isinstance(chat.app.screen, ImageRoom))
        await chat.pilot.press("escape", "end")
        await is_at_answer(chat, 2)
        await chat.until(lambda: "Open" not in footer(chat))


async def is_at_answer(chat: Chat, number: int) -> None:
    await chat.until(lambda: place(chat) == (number, Part.ANSWER))


async def test_the_selection_stays_while_answers_stream(chatting: StartChat) -> None:
    go, more = asyncio.Event(), asyncio.Event()
    many = "\n\n".join(f"Line {number}." for number in range(40))
    async with chatting(["Answer one."], ["Begun. ", Hold(go), many, Hold(more), " End."], size=(80, 24)) as chat:
        await chat.say("Question one")
        await chat.send("Question two")
        await chat.until(lambda: "Begun." in chat.screen_text())
        await chat.pilot.press("up", "up", "up")
        await is_at(chat, 1, Part.ANSWER)
        go.set()
        await chat.until(lambda: "Line 39." in chat.last.answer.text)
        await is_at(chat, 1, Part.ANSWER)
        await chat.pilot.press("r")
        await chat.until(lambda: "There is no finished answer to replace." in chat.notes)
        await chat.pilot.press("end")
        await is_at(chat, 2, Part.ANSWER)
        more.set()
        await chat.until(lambda: not chat.last.is_running)
        await is_at(chat, 2, Part.ANSWER)
        await chat.pilot.press("escape", "ctrl+end")
        await chat.until(lambda: "End." in chat.screen_text())


@pytest.mark.slow
async def test_moving_the_selection_loads_older_messages(chatting: StartChat) -> None:
    async with chatting(size=(80, 24)) as chat:
        conversation = await chat.app.services.store.run(lambda store: bulk(store, 600, 0))
        chat.app.stored.open(conversation)
        await chat.until(lambda: "turn 599 of" in chat.screen_text())
        everything = chat.controller.branch.all
        await chat.pilot.press("up", "home")
        await is_at(chat, 1, Part.MESSAGE)
        assert chat.controller.branch.older == 0
        await chat.pilot.press("down", "down", "down")
        await is_at(chat, 2, Part.ANSWER)
        await chat.pilot.press("end", *["up"] * 45)
        number, part = len(everything) - 22, Part.MESSAGE
        await is_at(chat, number, part)
        for key in ("pageup", "pageup", "pagedown", "up", "pageup", "down"):
            await chat.pilot.press(key)
            await chat.until(lambda: bool(marked_rows(chat)))
            marked = chat.screen.marked
            assert marked is not None and marked_rows(chat).split("\n")[0] in marked.text
        await chat.pilot.press("e")
        assert marked is not None
        await chat.until(lambda: chat.controller.editing is marked.exchange)


async def test_scrolling_moves_the_selection(chatting: StartChat) -> None:
    async with chatting(size=(80, 24)) as chat:
        conversation = await chat.app.services.store.run(lambda store: bulk(store, 100, 0))
        chat.app.stored.open(conversation)
        await chat.until(lambda: "turn 99 of" in chat.screen_text())
        await chat.pilot.press("up")
        transcript = chat.screen.query_one(Transcript)
        for _ in range(12):
            transcript._on_mouse_scroll_up(events.MouseScrollUp(transcript, 5, 5, 0, -1, 0, False, False, False))
            await chat.pilot.pause()
            await chat.until(lambda: bool(marked_rows(chat)))
            marked = chat.screen.marked
            assert marked is not None and marked_rows(chat).split("\n")[0] in marked.text
        found = place(chat)
        assert found is not None and found[0] < 48


async def test_leaving_the_conversation_ends_the_selection(chatting: StartChat) -> None:
    async with chatting(*ANSWERS) as chat:
        await three_turns(chat)
        await chat.pilot.press("up", "up", "ctrl+n")
        await chat.until(lambda: not chat.controller.exchanges and chat.composer.has_focus)
        assert not chat.screen.query_one(MessageCursor).display
        await chat.pilot.press("h", "i")
        assert chat.composer.text == "hi"


async def test_a_paste_goes_to_the_composer(chatting: StartChat) -> None:
    async with chatting(*ANSWERS) as chat:
        await three_turns(chat)
        await chat.pilot.press("up")
        await chat.paste("some text")
        await chat.until(lambda: chat.composer.text == "some text" and place(chat) is None)


STRUCTURED = """<think>hm</think>Before.

```json
{"a": 1}
```

<table><tr><td>x</td></tr></table>

After **all**.

- end"""


async def test_the_parts_of_an_answer_are_selected_and_copied(chatting: StartChat) -> None:
    async with chatting([STRUCTURED]) as chat:
        await chat.say("Parts, please")
        await chat.pilot.press("up")
        line = chat.screen.query_one(MessageCursor)
        wanted = [
            ("reasoning, 1 line", "hm"), ("text, 1 line", "Before."), ("JSON, 1 line", '{"a": 1}'),
            ("table, 1 line", "<table><tr><td>x</td></tr></table>"), ("text, 3 lines", "After **all**.\n\n- end"),
        ]  # fmt: skip
        for number, (told, text) in enumerate(wanted, 1):
            await chat.pilot.press("right_square_bracket")
            await chat.until(lambda at=number, told=told: f"part {at} of 5: {told}" in str(line.render()))  # type: ignore[misc]
            await chat.pilot.press("Y")
            assert chat.app.clipboard == text
        await chat.pilot.press("right_square_bracket", "Y")
        assert chat.app.clipboard == STRUCTURED
        await chat.pilot.press("left_square_bracket", "up", "down")
        await chat.until(lambda: "part" not in str(line.render()).partition("·")[0])


async def test_space_unfolds_long_json(chatting: StartChat) -> None:
    long = "[\n" + ",\n".join(f'  "{number}"' for number in range(60)) + "\n]"
    async with chatting([long], size=(100, 100)) as chat:
        await chat.say("JSON, please")
        assert '"59"' not in chat.screen_text() and "more lines" in chat.screen_text()
        await chat.pilot.press("up", "space")
        await chat.until(lambda: '"59"' in chat.screen_text())
        await chat.pilot.press("space")
        await chat.until(lambda: "more lines" in chat.screen_text())


async def test_a_chat_begins_in_the_composer_not_with_the_keys_of_a_message(
    chatting: StartChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    focused: list[MessageCursor] = []
    monkeypatch.setattr(MessageCursor, "on_focus", lambda cursor: focused.append(cursor), raising=False)
    async with chatting(*ANSWERS) as chat:
        assert not focused
        await three_turns(chat)
        await chat.pilot.press("up")
        await is_at(chat, 3, Part.ANSWER)
        assert focused
