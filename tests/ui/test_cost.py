"""The cost of a message, shown before it is sent, and ways to reduce it."""

from __future__ import annotations

import re
from pathlib import Path

from PIL import Image

from tests.ui.conftest import StartChat, picture
from vlmtui.domain.generation import Failure
from vlmtui.errors import ErrorKind
from vlmtui.media.stage import stage
from vlmtui.session.cost import Cost
from vlmtui.session.dials import processor_arguments
from vlmtui.session.engines import EngineState
from vlmtui.ui.chat.frame import context_rows


async def test_tokens_of_each_attachment_and_of_the_whole_prompt(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting(["A cat."]) as chat:
        chat.screen.sources.attach_files([picture(tmp_path), picture(tmp_path, "dog.png")])
        await chat.until(lambda: "This prompt takes" in chat.screen_text())
        await chat.until(lambda: chat.screen_text().count("16 tokens") == 2)
        assert chat.host.engine.requests == []
        await chat.say("What is this?")
        assert "This prompt takes" not in chat.screen_text()


async def test_the_shown_cost_is_that_of_the_sent_prompt(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting(["A cat."]) as chat:
        chat.screen.sources.attach_files([picture(tmp_path)])
        await chat.until(lambda: chat.screen.prompt_cost.cost is not None)
        before = chat.screen.prompt_cost.cost
        await chat.write(" What is in this picture?")
        await chat.until(lambda: chat.screen.prompt_cost.cost != before)
        told = chat.screen.prompt_cost.cost
        assert told is not None
        await chat.pilot.press("enter")
        await chat.until(lambda: bool(chat.controller.exchanges) and not chat.last.is_running)
        assert told.prompt_tokens == chat.last.answer.usage.prompt_tokens


async def test_an_argument_of_the_processor_is_counted_with_at_once(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting() as chat:
        chat.screen.sources.attach_files([picture(tmp_path)])
        await chat.until(lambda: "This prompt takes" in chat.screen_text())
        asked = len(chat.host.engine.renders)
        chat.app.run_action_id("set", "max_pixels 12544")
        await chat.until(lambda: len(chat.host.engine.renders) > asked)
        counted = chat.host.engine.renders[-1]
        assert processor_arguments(counted.sampling, {}) == {"max_pixels": 12544}
        chat.app.run_action_id("set", "max_pixels default")
        await chat.until(lambda: not processor_arguments(chat.host.engine.renders[-1].sampling, {}))


async def test_without_an_engine_the_record_estimates_the_tokens(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting() as chat:
        chat.host.engine.die()
        await chat.until(lambda: len(chat.host.engines) == 2 and chat.app.engines.is_loaded)
        chat.host.engine.die()
        await chat.until(lambda: chat.app.engines.state is EngineState.DEAD)
        chat.screen.sources.attach_files([picture(tmp_path)])
        await chat.until(lambda: "Attachments take ~" in chat.screen_text())
        assert "an estimate until the model is loaded" in chat.screen_text()
        assert re.search(r"cat\.png.* ~\d+ tokens", chat.screen_text(), re.DOTALL)
        await chat.pilot.press("f5")
        await chat.until(lambda: "This prompt takes" in chat.screen_text())
        assert "~" not in chat.screen_text()


async def test_a_prompt_that_is_too_long_is_reported_and_not_sent(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting() as chat:
        failure = Failure(
            kind=ErrorKind.CONTEXT_TOO_LONG, message="The prompt has 9,000 tokens, the model takes 4,096."
        )
        chat.host.engine.render_failure = failure
        chat.screen.sources.attach_files([picture(tmp_path)])
        await chat.until(lambda: "9,000 tokens" in chat.screen_text())
        assert "/smaller smaller images" in chat.screen_text()


async def test_a_message_that_fills_the_context_stays(chatting: StartChat) -> None:
    async with chatting() as chat:
        await chat.write("word " * 5000)
        await chat.until(lambda: "Too long for the model" in chat.screen_text())
        await chat.pilot.press("enter")
        await chat.until(lambda: "Too long for the model" in chat.notes)
        assert chat.controller.exchanges == []
        assert chat.composer.text.startswith("word ")


def test_an_unknown_context_sets_no_limit() -> None:
    cost = Cost(9000, 0, {})
    assert not cost.is_too_much and cost.text == "This prompt takes 9,000 tokens."


def test_a_context_of_which_the_engine_tells_nothing_is_not_empty() -> None:
    assert [row.plain.strip() for row in context_rows(None, 4096, is_told=False)] == ["? of 4,096"]
    assert context_rows(None, 0, is_told=False) == context_rows(None, 0) == []


async def test_smaller_halves_the_images(chatting: StartChat, tmp_path: Path) -> None:
    path = tmp_path / "large.png"
    Image.linear_gradient("L").resize((400, 300)).save(path)
    async with chatting() as chat:
        chat.screen.sources.attach_files([path])
        await chat.until(lambda: len(chat.controller.draft.attachments) == 1)
        await chat.send("/smaller")
        await chat.until(lambda: chat.controller.draft.attachments[0].width == 200)
        (smaller,) = chat.controller.draft.attachments
        assert (smaller.width, smaller.height) == (200, 150)
        assert "made smaller from 400 × 300" in smaller.notes
        with Image.open(smaller.path) as kept:
            assert kept.size == (200, 150)
        assert chat.composer.text == "[Image #1]"
        await chat.send("/smaller")
        await chat.until(lambda: chat.controller.draft.attachments[0].width == 100)
        assert [note for note in chat.controller.draft.attachments[0].notes if "smaller" in note] == [smaller.notes[-1]]
        await chat.send("/smaller")
        await chat.until(lambda: "smaller: it is only" in chat.notes)


async def test_excluded_attachments_are_struck_out_and_one_key_includes_them(
    chatting: StartChat, tmp_path: Path
) -> None:
    async with chatting(["One."], ["Two."], ["Three."], ["Four."]) as chat:
        for name in ("a.png", "b.png"):
            chat.screen.sources.attach_files([picture(tmp_path, name)])
            await chat.until(lambda: len(chat.controller.draft.attachments) == 1)
            await chat.say(f"What is {name[0]}?")
        assert "▣ 1 a.png" in chat.screen_text() and "▣ 2 b.png" in chat.screen_text()
        await chat.send("/forget")
        await chat.until(lambda: "a.png is now left out of prompts" in chat.notes)
        await chat.until(lambda: "left out of prompts" in chat.screen_text())
        assert "▣ a.png" in chat.screen_text() and "▣ 1 b.png" in chat.screen_text()
        await chat.say("And now?")
        prompt = chat.host.engine.requests[-1].prompt
        sent = [[item.name for item in turn.attachments] for turn in prompt.turns]  # type: ignore[union-attr]
        assert sent == [[], [], ["b.png"], [], []]
        assert [turn.text for turn in prompt.turns][:2] == ["What is a?", "One."]  # type: ignore[union-attr]
        await chat.lead("a", "u")
        await chat.until(lambda: "▣ 1 a.png" in chat.screen_text() and "▣ 2 b.png" in chat.screen_text())
        await chat.say("And again?")
        prompt = chat.host.engine.requests[-1].prompt
        assert [len(turn.attachments) for turn in prompt.turns] == [1, 0, 1, 0, 0, 0, 0]  # type: ignore[union-attr]


async def test_attachments_are_numbered_by_the_prompt(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting(["One."]) as chat:
        await chat.paste(str(picture(tmp_path, "a.png")))
        await chat.until(lambda: chat.composer.text == "[Image #1]")
        await chat.pilot.press("ctrl+u")
        for name in ("b.png", "c.png", "d.png"):
            await chat.paste(str(picture(tmp_path, name)))
        await chat.until(lambda: chat.composer.text == "[Image #1][Image #2][Image #3]")
        await chat.send("/detach 1")
        await chat.until(lambda: chat.composer.text == "[Image #1][Image #2]")
        await chat.until(lambda: "▣ 1 c.png" in chat.screen_text() and "▣ 2 d.png" in chat.screen_text())
        await chat.say("these")
        assert "▣ 1 c.png" in chat.screen_text() and "▣ 2 d.png" in chat.screen_text()


async def test_the_same_picture_twice_is_two_attachments(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting(["Yes."]) as chat:
        path = picture(tmp_path)
        chat.screen.sources.attach_files([path, path])
        await chat.until(lambda: len(chat.controller.draft.attachments) == 2)
        assert chat.controller.draft.attachments[0].sha256 == stage(path, tmp_path / "store").sha256
        await chat.say("Same?")
        assert len(chat.last.user.attachments) == 2
