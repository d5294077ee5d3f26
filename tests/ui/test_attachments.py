"""Files on their way into a message."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ui.conftest import StartChat, picture
from vlmtui.domain.engine import ChatPrompt
from vlmtui.ui.widgets.attachment_view import AttachmentView
from vlmtui.ui.widgets.user_turn import IllustratedTurn


async def test_a_pasted_path_is_attached_and_sent_before_the_text(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting() as chat:
        await chat.write("What is ")
        await chat.paste(f"'{picture(tmp_path)}'")
        await chat.until(lambda: len(chat.controller.staged) == 1)
        assert chat.composer.text == "What is "
        await chat.say("this?")
        turn = chat.last.user
        assert [item.name for item in turn.attachments] == ["cat.png"]
        assert turn.text == "What is this?"
        assert chat.controller.staged == []
        sent = chat.host.engine.requests[-1].prompt
        assert isinstance(sent, ChatPrompt)
        assert sent.turns[-1] == turn
        assert len(chat.screen.query_one("#transcript").query(AttachmentView)) == 1


@pytest.mark.parametrize(
    ("name", "make", "reason"),
    [
        ("gone.png", lambda path: None, "gone.png"),
        ("folder.png", lambda path: path.mkdir(), "folder"),
        ("text.png", lambda path: path.write_text("hello, I am text"), "text"),
        ("empty.png", lambda path: path.touch(), "empty"),
        ("[red]x[.png", lambda path: path.write_bytes(b"\x89PNG"), "[red]x[.png"),
    ],
)
async def test_a_file_that_cannot_be_attached_is_named_and_nothing_is_lost(
    chatting: StartChat, tmp_path: Path, name: str, make: Callable[[Path], object], reason: str
) -> None:
    path = tmp_path / name
    make(path)
    async with chatting() as chat:
        chat.app.run_action_id("attach", str(path))
        await chat.write("my question")
        await chat.until(lambda: name in chat.notes)
        assert reason in chat.notes
        assert chat.composer.text == "my question"
        assert chat.controller.staged == []
        await chat.say("")
        assert chat.last.user.text == "my question"


async def test_enter_waits_for_the_files(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting() as chat:
        chat.screen._stage([picture(tmp_path)])
        await chat.say("now")
        assert len(chat.last.user.attachments) == 1


async def test_backspace_in_an_empty_message_removes_the_newest_attachment(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting() as chat:
        await chat.paste(str(picture(tmp_path)))
        await chat.until(lambda: len(chat.controller.staged) == 1)
        await chat.pilot.press("backspace")
        await chat.until(lambda: chat.controller.staged == [])


async def test_more_than_the_model_takes_is_said_before_sending(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting() as chat:
        paths = [picture(tmp_path, f"{number}.png") for number in range(9)]
        chat.screen._stage(paths)
        await chat.until(lambda: len(chat.controller.staged) == 9)
        await chat.send("all")
        await chat.until(lambda: "at most 8 images" in chat.notes)
        assert chat.composer.text == "all"
        assert len(chat.controller.staged) == 9
        assert chat.controller.exchanges == []


async def test_what_is_written_after_enter_is_not_sent_with_the_files(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting() as chat:
        await chat.write("now")
        chat.screen._pending += 1
        await chat.pilot.press("enter")
        await chat.write(" and then")
        chat.screen._stage([picture(tmp_path)])
        chat.screen._pending -= 1
        await chat.until(lambda: len(chat.controller.staged) == 1)
        assert chat.composer.text == "now and then"
        assert chat.controller.exchanges == []


async def test_detach_takes_the_number_of_the_caption(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting() as chat:
        for name in ("a.png", "b.png", "c.png"):
            await chat.paste(str(picture(tmp_path, name)))
        await chat.until(lambda: len(chat.controller.staged) == 3)
        await chat.send("/detach 7")
        await chat.until(lambda: "No attachment 7" in chat.notes)
        await chat.send("/detach 2")
        await chat.until(lambda: [item.name for item in chat.controller.staged] == ["a.png", "c.png"])


async def test_many_attachments_take_several_rows_and_stay_in_view(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting(["Many."], size=(80, 24)) as chat:
        for number in range(5):
            await chat.paste(str(picture(tmp_path, f"{number}.png")))
        await chat.until(lambda: len(chat.screen.query(AttachmentView)) == 5)
        await chat.pilot.pause()
        for view in chat.screen.query(AttachmentView):
            assert chat.screen.region.contains_region(view.region)
        await chat.say("Compare")
        columns = {view.region.x for view in chat.screen.query_one(IllustratedTurn).query(AttachmentView)}
        assert len(columns) == 2
