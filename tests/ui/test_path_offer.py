"""Paths and addresses in a message: nothing that names a file is sent as text without a question."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ui.conftest import Chat, StartChat, picture
from vlmtui.domain.conversation import Media, Text
from vlmtui.media.stage import stage
from vlmtui.session.draft import token_text
from vlmtui.ui.chat.suggestions import PathOffer


def offer(chat: Chat) -> PathOffer:
    return chat.screen.query_one(PathOffer)


def offered(chat: Chat) -> str:
    return str(offer(chat).content) if offer(chat).display else ""


async def test_a_typed_path_is_offered_and_tab_attaches_it_in_place(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting() as chat:
        path = picture(tmp_path)
        await chat.send(f"{path} what is this?")
        await chat.until(lambda: offer(chat).is_open)
        assert "cat.png  a PNG image · " in offered(chat)
        assert "Tab Attach it · Enter Send as text · Esc Edit" in chat.screen_text()
        assert chat.controller.exchanges == []
        await chat.pilot.press("tab")
        await chat.until(lambda: chat.composer.text == "[Image #1] what is this?")
        assert not offer(chat).display
        await chat.pilot.press("enter")
        await chat.until(lambda: len(chat.controller.exchanges) == 1)
        media, text = chat.last.user.parts
        assert isinstance(media, Media)
        assert media.attachment.name == "cat.png"
        assert text == Text("what is this?"), "the space is for the eye"


async def test_enter_sends_a_path_as_text_without_asking_twice(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting() as chat:
        text = f"what does {tmp_path}/nope.png say?"
        await chat.send(text)
        await chat.until(lambda: "no such file" in offered(chat))
        assert "Tab" not in offered(chat)
        await chat.pilot.press("enter")
        await chat.until(lambda: len(chat.controller.exchanges) == 1)
        assert chat.last.user.text == text
        await chat.until(lambda: not chat.last.is_running)
        await chat.send(text)
        await chat.until(lambda: len(chat.controller.exchanges) == 2)


async def test_escape_goes_back_to_editing_and_the_next_enter_asks_again(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting() as chat:
        picture(tmp_path)
        await chat.send(f"what is {tmp_path}/cat.png?")
        await chat.until(lambda: offer(chat).is_open)
        await chat.pilot.press("escape")
        await chat.until(lambda: not offer(chat).display)
        await chat.pilot.press("enter")
        await chat.until(lambda: offer(chat).is_open)
        await chat.pilot.press("!")
        await chat.until(lambda: not offer(chat).display)
        assert chat.composer.text.endswith("?!")
        assert chat.controller.exchanges == []


async def test_paths_left_in_the_text_are_offered_again(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting() as chat:
        await chat.send(f"{picture(tmp_path)} and {tmp_path}/none.png")
        await chat.until(lambda: offer(chat).is_open)
        await chat.pilot.press("tab")
        await chat.until(lambda: chat.composer.text == f"[Image #1] and {tmp_path}/none.png")
        await chat.until(lambda: chat.controller.draft.text == chat.composer.text)
        await chat.pilot.pause()
        await chat.pilot.press("enter")
        await chat.until(lambda: "none.png  no such file" in offered(chat))
        assert len(offer(chat).mentions) == 1


async def test_a_path_that_fails_to_attach_returns_to_the_text(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting() as chat:
        path = tmp_path / "broken.png"
        path.write_bytes(b"\x89PNG\r\n\x1a\nnothing")
        await chat.send(f"see {path}!")
        await chat.until(lambda: offer(chat).is_open)
        await chat.pilot.press("tab")
        await chat.until(lambda: "broken.png" in chat.notes)
        await chat.until(lambda: chat.composer.text == f"see {path}!")


async def test_a_folder_attaches_its_pictures_and_a_text_file_is_named(
    chatting: StartChat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "shots"
    folder.mkdir()
    picture(folder, "1.png")
    picture(folder, "2.png")
    (tmp_path / "note.txt").write_text("words")
    monkeypatch.chdir(tmp_path)
    async with chatting() as chat:
        await chat.send("compare ./shots with note.txt")
        await chat.until(lambda: offer(chat).is_open)
        assert "./shots  a folder with 2 images or videos" in offered(chat)
        assert "note.txt  text: not an image, video or sound" in offered(chat)
        assert "Tab Attach 2 files" in offered(chat)
        await chat.pilot.press("tab")
        await chat.until(lambda: chat.composer.text == "compare [Image #1][Image #2] with note.txt")


async def test_an_address_is_not_opened_before_it_is_attached(
    chatting: StartChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []
    monkeypatch.setattr("vlmtui.media.stage.download_source", lambda *args: opened.append(args))
    async with chatting() as chat:
        await chat.send("see http://127.0.0.1:1/a/tri.webp?key=1, please")
        await chat.until(lambda: "a web address, not opened unless you attach it" in offered(chat))
        assert opened == []
        await chat.pilot.press("enter")
        await chat.until(lambda: len(chat.controller.exchanges) == 1)
        assert opened == []


async def test_a_path_alone_is_no_command(chatting: StartChat) -> None:
    async with chatting() as chat:
        await chat.send("/nope.png")
        await chat.until(lambda: "no such file" in offered(chat))
        await chat.pilot.press("escape", "ctrl+u")
        await chat.send("/nope")
        await chat.until(
            lambda: "There is no command nope." in chat.notes or "There is no command /nope." in chat.notes
        )


async def test_ordinary_messages_are_sent_at_once(chatting: StartChat) -> None:
    async with chatting() as chat:
        await chat.say('and/or it\'s 1/2, e.g. "this" /s')
        assert not offer(chat).display


async def test_the_question_stays_open_when_a_file_before_the_path_gets_its_token(
    chatting: StartChat, tmp_path: Path
) -> None:
    async with chatting() as chat:
        draft = chat.controller.draft
        number = draft.reserve(0, written="dog.png")
        await chat.write(f"{token_text(number)} and {picture(tmp_path)} too")
        await chat.pilot.press("enter")
        await chat.until(lambda: offer(chat).is_open)
        dog = stage(picture(tmp_path, "dog.png"), tmp_path / "media")
        chat.screen.panel.file_checked(number, dog)
        await chat.until(lambda: chat.composer.text.startswith("[Image #1] and"))
        assert offer(chat).is_open
        await chat.pilot.press("tab")
        await chat.until(lambda: chat.composer.text == "[Image #1] and [Image #2] too")
