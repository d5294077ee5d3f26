"""Sound in a message, and in the inspector."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.sounds import write_tone, write_with_pictures
from tests.support.waiting import until
from tests.ui.conftest import StartChat
from tests.ui.test_inspector import Host, asked, engine_of, opened
from vlmtui.domain.conversation import user_turn
from vlmtui.media.stage import stage
from vlmtui.registry.loader import Registry
from vlmtui.ui.seeing.room import ImageRoom


async def test_audio_is_attached_and_rejected_by_a_model_without_audio(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting(size=(120, 40)) as chat:
        await chat.send(f"/attach {write_tone(tmp_path / 'tone.wav', 4.2)}")
        await chat.until(lambda: chat.composer.text == "[Audio #1]")
        await chat.until(lambda: "♪ 1 tone.wav" in chat.screen_text())
        assert "4.2 s" in chat.screen_text()
        await chat.send("What do you hear?")
        await chat.until(lambda: "does not accept sounds" in chat.notes)
        assert [item.name for item in chat.controller.draft.attachments] == ["tone.wav"]
        chat.app.run_action_id("image", "1")
        await chat.until(lambda: isinstance(chat.app.screen, ImageRoom))


async def test_a_videos_audio_track_is_attached_behind_it(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting() as chat:
        await chat.send("/sound")
        await chat.until(lambda: "The message has no video." in chat.notes)
        await chat.send(f"/attach {write_with_pictures(tmp_path / 'clip.mp4')}")
        await chat.until(lambda: [item.modality for item in chat.controller.draft.attachments] == ["video"])
        await chat.send("/sound 1")
        await chat.until(lambda: [item.modality for item in chat.controller.draft.attachments] == ["video", "audio"])
        assert {item.name for item in chat.controller.draft.attachments} == {"clip.mp4"}


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])
async def test_the_inspector_draws_the_waveform(tmp_path: Path, size: tuple[int, int]) -> None:
    sound = stage(write_tone(tmp_path / "tone.wav", 2.0), tmp_path / "media")
    engine = await engine_of(["A tone."])
    inspected = await asked(engine, user_turn("What is this?", [sound]), family=Registry.bundled()["qwen2_5_omni"])
    async with Host(inspected, engine, tmp_path / "cache").run_test(size=size) as pilot:
        app = await opened(pilot)
        await pilot.press("3")
        await until(pilot, lambda: "▄▄▄▄" in app.text() or "▀▀▀▀" in app.text())
        assert "44,100 samples a second" in app.text()
        assert "2.00 s" in app.text()
