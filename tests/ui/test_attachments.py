"""Files on their way into a message."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PIL import Image

from tests.support.pictures import Easel
from tests.ui.conftest import StartChat, picture
from vlmtui.domain.conversation import Attachment, ChatPrompt, Media, Text, VideoSampling
from vlmtui.media import stage
from vlmtui.ui.attachments.browser import BrowserScreen, FileList
from vlmtui.ui.attachments.frames import FramesChoice, FramesScreen
from vlmtui.ui.chat.screen import ChatScreen
from vlmtui.ui.chat.suggestions import SuggestionMenu
from vlmtui.ui.seeing.room import ImageRoom
from vlmtui.ui.widgets.attachment_view import AttachmentView
from vlmtui.ui.widgets.dialogs import ChoiceScreen
from vlmtui.ui.widgets.thumbnails import name_line


async def test_a_pasted_path_is_attached_where_the_cursor_is(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting() as chat:
        await chat.write("What is ")
        await chat.paste(f"'{picture(tmp_path)}'")
        await chat.until(lambda: len(chat.controller.draft.attachments) == 1)
        await chat.until(lambda: chat.composer.text == "What is [Image #1]")
        await chat.say("this?")
        turn = chat.last.user
        assert [item.name for item in turn.attachments] == ["cat.png"]
        assert turn.parts == (Text("What is "), Media(turn.attachments[0]), Text("this?"))
        assert chat.controller.draft.attachments == []
        sent = chat.host.engine.requests[-1].prompt
        assert isinstance(sent, ChatPrompt)
        assert sent.turns[-1] == turn
        await chat.until(lambda: chat.screen_text().count("▣ 1 cat.png") == 1)


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
        assert chat.controller.draft.attachments == []
        await chat.say("")
        assert chat.last.user.text == "my question"


async def test_enter_waits_for_the_files(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting() as chat:
        chat.screen.sources.attach_files([picture(tmp_path)])
        await chat.say("now")
        assert len(chat.last.user.attachments) == 1
        await chat.until(lambda: chat.composer.text == "")


async def test_backspace_removes_a_whole_attachment(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting() as chat:
        await chat.paste(str(picture(tmp_path)))
        await chat.until(lambda: len(chat.controller.draft.attachments) == 1)
        await chat.pilot.press("backspace")
        await chat.until(lambda: chat.controller.draft.attachments == [])


async def test_too_many_media_are_reported_before_sending(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting() as chat:
        paths = [picture(tmp_path, f"{number}.png") for number in range(9)]
        chat.screen.sources.attach_files(paths)
        await chat.until(lambda: len(chat.controller.draft.attachments) == 9)
        await chat.send("all")
        await chat.until(lambda: "at most 8 images" in chat.notes)
        assert chat.composer.text.endswith("[Image #9]all")
        assert len(chat.controller.draft.attachments) == 9
        assert chat.controller.exchanges == []


async def test_text_typed_after_enter_is_not_sent(
    chatting: StartChat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, look = asyncio.Event(), stage.stage_source

    async def slow(*arguments: Any) -> Attachment:
        await looked.wait()
        return await look(*arguments)

    monkeypatch.setattr(stage, "stage_source", slow)
    async with chatting() as chat:
        chat.screen.sources.attach_files([picture(tmp_path)])
        await chat.send("now")
        await chat.write(" and then")
        looked.set()
        await chat.until(lambda: len(chat.controller.draft.attachments) == 1)
        await chat.pilot.pause()
        assert chat.composer.text == "[Image #1]now and then"
        assert chat.controller.exchanges == []


async def test_detach_takes_the_number_of_the_caption(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting() as chat:
        for name in ("a.png", "b.png", "c.png"):
            await chat.paste(str(picture(tmp_path, name)))
        await chat.until(lambda: len(chat.controller.draft.attachments) == 3)
        await chat.send("/detach 7")
        await chat.until(lambda: "no attachment 7" in chat.notes)
        await chat.send("/detach 2")
        await chat.until(lambda: [item.name for item in chat.controller.draft.attachments] == ["a.png", "c.png"])


async def test_many_attachments_take_several_rows_and_stay_in_view(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting(["Many."], size=(80, 24)) as chat:
        for number in range(5):
            await chat.paste(str(picture(tmp_path, f"{number}.png")))
        await chat.until(lambda: len(chat.screen.query(AttachmentView)) == 5)
        await chat.pilot.pause()
        for view in chat.screen.query(AttachmentView):
            assert chat.screen.region.contains_region(view.region)
        await chat.say("Compare")
        chat.screen.transcript.scroll_home(animate=False)
        await chat.until(lambda: re.search(r"▣ 1 0\.png +▣ 2 1\.png", chat.screen_text()) is not None)


async def test_a_token_is_one_piece(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting() as chat:
        await chat.write("ab")
        await chat.pilot.press("left")
        chat.screen.sources.attach_files([picture(tmp_path)])
        await chat.until(lambda: chat.composer.text == "a[Image #1]b")
        assert chat.composer.cursor_location == (0, 11)
        await chat.pilot.press("left")
        assert chat.composer.cursor_location == (0, 1), "over the token"
        await chat.pilot.press("right")
        assert chat.composer.cursor_location == (0, 11)
        await chat.pilot.press("ctrl+w")
        assert (chat.composer.text, chat.controller.draft.attachments) == ("ab", [])
        await chat.pilot.press("ctrl+z")
        await chat.until(lambda: len(chat.controller.draft.attachments) == 1)
        await chat.pilot.press("home", "right", "delete")
        assert chat.composer.text == "ab"


async def test_a_token_is_cut_and_pasted_elsewhere(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting(["Yes."]) as chat:
        chat.screen.sources.attach_files([picture(tmp_path)])
        await chat.until(lambda: chat.composer.text == "[Image #1]")
        await chat.write("before")
        await chat.pilot.press("home", "shift+right")
        chat.composer.action_cut()
        await chat.until(lambda: chat.composer.text == "before" and chat.controller.draft.attachments == [])
        await chat.pilot.press("end", "ctrl+v")
        await chat.until(lambda: len(chat.controller.draft.attachments) == 1)
        await chat.say(" after")
        assert [type(part) for part in chat.last.user.parts] == [Text, Media, Text]
        assert "before[Image #1] after" in chat.screen_text()


async def test_commands_work_beside_attachments_and_leave_them(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting() as chat:
        chat.screen.sources.attach_files([picture(tmp_path)])
        await chat.until(lambda: len(chat.controller.draft.attachments) == 1)
        await chat.send("/set temperature 0.5")
        await chat.until(lambda: chat.controller.settings.sampling.temperature == 0.5)
        assert chat.composer.text == "[Image #1]"


async def test_a_recalled_prompt_keeps_the_attachments(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting(["One."]) as chat:
        await chat.say("first")
        chat.screen.sources.attach_files([picture(tmp_path)])
        await chat.until(lambda: len(chat.controller.draft.attachments) == 1)
        await chat.pilot.press("up")
        assert chat.composer.text == "[Image #1] first"


async def test_text_after_leading_attachments_is_shown_after_a_space(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting(["One."]) as chat:
        chat.app.run_action_id("attach", str(picture(tmp_path)))
        await chat.until(lambda: chat.composer.text == "[Image #1]")
        await chat.pilot.press(*"what?")
        assert chat.composer.text == "[Image #1] what?"
        await chat.pilot.press("enter")
        await chat.until(lambda: len(chat.controller.exchanges) == 1)
        assert chat.last.user.parts[1] == Text("what?")
        await chat.until(lambda: "[Image #1] what?" in chat.screen_text())
        await chat.paste(str(picture(tmp_path, "dog.png")))
        await chat.until(lambda: chat.composer.text == "[Image #2]")
        await chat.pilot.press(*"/atta")
        assert chat.composer.text == "[Image #2]/atta", "a command"


async def test_an_at_sign_completes_paths(chatting: StartChat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my shots").mkdir()
    picture(tmp_path / "my shots", "cat one.png")
    monkeypatch.chdir(tmp_path)
    async with chatting(["A cat."]) as chat:
        menu = chat.screen.query_one(SuggestionMenu)
        await chat.write("What is @my")
        await chat.until(lambda: menu.display)
        await chat.pilot.press("tab")
        await chat.until(lambda: chat.composer.text == 'What is @"my shots/' and menu.display)
        await chat.pilot.press("enter")
        await chat.until(lambda: chat.composer.text == "What is [Image #1]")
        assert chat.controller.exchanges == []
        assert not menu.display
        await chat.write(" me@example.org")
        await chat.pilot.pause()
        assert not menu.display


async def test_many_files_are_attached_after_a_question(chatting: StartChat, tmp_path: Path) -> None:
    for number in range(21):
        picture(tmp_path, f"{number}.png")
    async with chatting() as chat:
        chat.app.run_action_id("attach", str(tmp_path / "*.png"))
        await chat.until(lambda: isinstance(chat.app.screen, ChoiceScreen))
        await chat.pilot.press("escape")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
        assert chat.composer.text == ""
        chat.app.run_action_id("attach", str(tmp_path / "*.png"))
        await chat.until(lambda: isinstance(chat.app.screen, ChoiceScreen))
        await chat.pilot.press("enter")
        await chat.until(lambda: len(chat.controller.draft.attachments) == 21)
        assert [item.name for item in chat.controller.draft.attachments] == [f"{number}.png" for number in range(21)]


async def test_a_web_address_is_attached(chatting: StartChat, tmp_path: Path) -> None:
    picture(tmp_path)
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/cat.png"
        async with chatting() as chat:
            chat.app.run_action_id("attach", address)
            await chat.until(lambda: len(chat.controller.draft.attachments) == 1)
            (attached,) = chat.controller.draft.attachments
            assert (attached.name, attached.source) == ("cat.png", address)
            chat.app.run_action_id("attach", address + "x")
            await chat.until(lambda: "404" in chat.notes)
            assert chat.composer.text == "[Image #1]"
        server.shutdown()


async def test_the_inbox_shows_the_copy_command_and_the_browser_opens_there(chatting: StartChat) -> None:
    async with chatting() as chat:
        inbox = chat.screen.services.paths.inbox
        chat.app.run_action_id("inbox")
        await chat.until(lambda: "scp" in chat.notes)
        assert str(inbox) in chat.notes
        assert inbox.stat().st_mode & 0o777 == 0o700
        picture(inbox, "from home.png")
        await chat.pilot.press("ctrl+o")
        await chat.until(
            lambda: isinstance(chat.app.screen, BrowserScreen) and bool(chat.app.screen.query_one(FileList).rows)
        )
        await chat.pilot.press("enter")
        await chat.until(lambda: [item.name for item in chat.controller.draft.attachments] == ["from home.png"])


async def test_f9_shows_an_attachment(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting() as chat:
        await chat.pilot.press("f9")
        await chat.until(lambda: "Nothing is attached" in chat.notes)
        chat.screen.sources.attach_files([picture(tmp_path)])
        await chat.until(lambda: len(chat.controller.draft.attachments) == 1)
        await chat.pilot.press("f9")
        await chat.until(lambda: isinstance(chat.app.screen, ImageRoom))
        await chat.pilot.press("escape")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))


async def test_the_frames_of_a_video_are_chosen(chatting: StartChat, tmp_path: Path) -> None:
    clip = Easel(tmp_path).clip("red", "circle", "left")
    async with chatting(["It moves."]) as chat:
        chat.screen.sources.attach_files([clip.path])
        await chat.until(lambda: chat.composer.text == "[Video #1]")
        chat.app.run_action_id("frames")
        await chat.until(lambda: isinstance(chat.app.screen, FramesScreen) and chat.app.screen.is_mounted)
        chat.app.screen.dismiss(FramesChoice(VideoSampling(num_frames=3), as_images=False))
        await chat.until(lambda: chat.controller.draft.attachments[0].sampling == VideoSampling(num_frames=3))
        chat.app.run_action_id("frames", "1")
        await chat.until(lambda: isinstance(chat.app.screen, FramesScreen) and chat.app.screen.is_mounted)
        chat.app.screen.dismiss(FramesChoice(VideoSampling(num_frames=2), as_images=True))
        await chat.until(lambda: chat.composer.text == "[Image #1][Image #2]")
        await chat.say("What moves?")
        assert [item.modality for item in chat.last.user.attachments] == ["image", "image"]


async def test_page_attaches_another_page_or_a_frame(chatting: StartChat, tmp_path: Path) -> None:
    pages = [Image.new("RGB", (40, 30), colour) for colour in ("red", "green", "blue")]
    pages[0].save(tmp_path / "scan.tif", save_all=True, append_images=pages[1:])
    pages[0].save(tmp_path / "moves.gif", save_all=True, append_images=pages[1:], duration=100)
    async with chatting() as chat:
        chat.screen.sources.attach_files([tmp_path / "scan.tif", tmp_path / "moves.gif"])
        await chat.until(lambda: "Attached page 1 of 3 of scan.tif." in chat.notes)
        await chat.until(lambda: "▣ 1 p. 1/3 scan.tif" in chat.screen_text())
        await chat.until(lambda: "/page 1 attaches" in chat.notes)
        await chat.until(lambda: chat.composer.text == "[Image #1][Video #2]")
        await chat.send("/page 3 1")
        await chat.until(lambda: chat.controller.draft.attachments[0].name == "scan.tif (page 3)")
        await chat.send("/page 1 2")
        await chat.until(lambda: chat.composer.text == "[Image #1][Image #2]")
        await chat.send("/page 9 1")
        await chat.until(lambda: "scan.tif" in chat.notes and "9" in chat.notes)
        assert chat.controller.draft.attachments[0].page == 3
        await chat.send("/page 2-3 1")
        await chat.until(lambda: [item.page for item in chat.controller.draft.attachments] == [2, 3, 1])
        assert chat.composer.text.count("[Image #") == 3
        await chat.send("/page all 1")
        await chat.until(lambda: [item.page for item in chat.controller.draft.attachments] == [1, 2, 3, 3, 1])
        await chat.send("/page two 1")
        await chat.until(lambda: "For instance /page 2, /page 1-3 or /page all." in chat.notes)


def test_a_name_is_cut_in_the_middle_and_its_page_stays() -> None:
    page = Attachment(
        modality="image",
        name="a paper with a long name.pdf (page 2)",
        path="",
        sha256="",
        width=1,
        height=1,
        size_bytes=1,
        format="PDF",
        page=2,
        pages=3,
    )
    assert name_line(page, 1) == "▣ 1 p. 2/3 a paper with a long name.pdf"
    assert name_line(page, 1, 26) == "▣ 1 p. 2/3 a paper…ame.pdf"
    gif = msgspec.structs.replace(page, name="b.gif (frame 2)", format="GIF")
    assert name_line(gif, None, 4) == "▣ fr. 2/3 b.gif"


async def test_thumbnails_follow_the_height_of_the_terminal(chatting: StartChat, tmp_path: Path) -> None:
    Image.new("RGB", (640, 480), "red").save(tmp_path / "cat.png")
    async with chatting(["A cat."], size=(80, 24)) as chat:
        chat.screen.sources.attach_files([tmp_path / "cat.png"])
        await chat.until(lambda: bool(chat.controller.draft.attachments))
        await chat.say("What is it?")
        low = chat.screen.transcript.document.height
        await chat.pilot.resize_terminal(80, 60)
        await chat.until(lambda: chat.screen.transcript.document.height == low + 4)
