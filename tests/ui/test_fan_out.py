"""A turn that is sent in several ways at once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual.widgets import Input, Static

from tests.support.documents import written
from tests.support.scripted_engine import Hold, Say, Step
from tests.ui.conftest import Chat, StartChat, picture
from tests.ui.test_screens_look import SIZES
from vlmtui.domain.conversation import ChatPrompt, attachments_of
from vlmtui.inspection.replay import from_json
from vlmtui.ui.chat.comparisons import PlanScreen
from vlmtui.ui.chat.screen import ChatScreen
from vlmtui.ui.compare.answers import AnswerPanel, PictureStrip
from vlmtui.ui.compare.fan_out import FanOutScreen, KindList
from vlmtui.ui.inspector.screen import InspectorScreen
from vlmtui.ui.widgets.dialogs import NameScreen

RED: list[Step] = ["a ", "red ", "circle"]
BLUE: list[Step] = ["a ", "blue ", "circle"]


def fanned(chat: Chat) -> FanOutScreen:
    assert isinstance(chat.app.screen, FanOutScreen)
    return chat.app.screen


async def fan(chat: Chat, text: str) -> FanOutScreen:
    """Give the plan as a command, and wait for all answers and their differences."""
    chat.app.run_action_id("fan_out", text)
    await chat.until(lambda: isinstance(chat.app.screen, FanOutScreen) and fanned(chat).differences is not None)
    await chat.pilot.pause()
    return fanned(chat)


def seen(chat: Chat) -> str:
    return "\n".join(strip.text.rstrip() for strip in chat.app.screen._compositor.render_strips())


def flat(chat: Chat) -> str:
    """Return the screen's text without line breaks."""
    return " ".join(seen(chat).split())


def of(chat: Chat, what: str) -> str:
    return str(chat.app.screen.query_one(what, Static).render())


def texts(screen: FanOutScreen) -> list[str]:
    return [lane.answer.text for lane in screen.fan_out.lanes]


def rows(screen: FanOutScreen) -> list[str]:
    """Return the rows of the kinds, without the spaces between their columns."""
    listed = screen.query_one(KindList)
    return [" ".join(listed.draw(at, 120)[0].plain.split()) for at in range(len(listed.rows))]


def seeds(chat: Chat) -> list[int | None]:
    return [request.sampling.seed for request in chat.host.engine.requests]


async def test_axes_are_shown_as_kinds_with_their_seeds_and_probabilities(chatting: StartChat) -> None:
    async with chatting(*([RED] * 7), BLUE, size=(120, 40)) as chat:
        await chat.write("What is this?")
        screen = await fan(chat, "temperature=0.7,1.2 seed=1..4")
        assert len(chat.host.engine.requests) == 8
        assert of(chat, "#heading").split() == ["8", "answers,", "2", "kinds", "p(answer)"]
        red, blue = rows(screen)
        assert red.startswith("█████████ 7 a red circle 0.")
        assert red.endswith("T 0.7: all seeds · T 1.2: seeds 1 2 3 · the base")
        assert blue.startswith("█ 1 a blue circle 0.") and blue.endswith("T 1.2: seed 4 · differs from token 1")
        assert "temperature 0.7 · seed 1 · ← → answer 1 of 7" in of(chat, "#label")
        await chat.pilot.press("right")
        await chat.until(lambda: "temperature 0.7 · seed 2 · ← → answer 2 of 7" in of(chat, "#label"))
        await chat.pilot.press("down")
        await chat.until(lambda: "temperature 1.2 · seed 4" in of(chat, "#label"))
        assert screen.current == 7


async def test_the_seed_of_an_answer_is_in_its_title(chatting: StartChat) -> None:
    async with chatting(RED, BLUE, size=(80, 24)) as chat:
        await chat.write("What?")
        await fan(chat, "temperature=0.7,1.2")
        (seed,) = {request.sampling.seed for request in chat.host.engine.requests}
        assert f"temperature 0.7 · seed {seed}" in flat(chat)


async def test_compare_takes_a_plan(chatting: StartChat) -> None:
    async with chatting(["First."], RED, BLUE, RED) as chat:
        await chat.say("Hello")
        await chat.write("/compare seed=1..3")
        await chat.pilot.press("enter")
        await chat.until(lambda: isinstance(chat.app.screen, FanOutScreen) and fanned(chat).differences is not None)
        assert seeds(chat)[1:] == [1, 2, 3]


@SIZES
async def test_a_draft_is_answered_with_every_seed_and_one_is_chosen(
    chatting: StartChat, size: tuple[int, int]
) -> None:
    async with chatting(RED, BLUE, RED, ["Fine."], size=size) as chat:
        await chat.write("What is this?")
        screen = await fan(chat, "seed=1,2,3 temperature=0.8")
        assert seeds(chat) == [1, 2, 3]
        assert {request.sampling.temperature for request in chat.host.engine.requests} == {0.8}
        assert texts(screen) == ["a red circle", "a blue circle", "a red circle"]
        assert [screen.about(kind) for kind in screen.fan_out.kinds()] == [
            "seeds 1 3 · the base",
            "seed 2 · differs from token 1",
        ]
        assert chat.controller.draft.words == "What is this?"
        await chat.pilot.press("down", "enter")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen) and bool(chat.controller.exchanges))
        await chat.until(lambda: chat.last.answer_id is not None and chat.last.answer_siblings.count == 3)
        assert chat.last.answer.text == "a blue circle"
        assert not chat.controller.draft.words
        await chat.until(lambda: chat.composer.text == "")
        await chat.until(lambda: "a blue circle" in chat.screen_text())
        await chat.say("Sure?")
        prompt = chat.host.engine.requests[-1].prompt
        assert isinstance(prompt, ChatPrompt)
        assert [turn.text for turn in prompt.turns] == ["What is this?", "a blue circle", "Sure?"]


async def test_a_rendering_that_stays_the_same_is_told_and_follows_the_base(chatting: StartChat) -> None:
    """The scripted engine ignores the template's variables, as a server may."""
    async with chatting(RED, BLUE) as chat:
        await chat.write("What?")
        await fan(chat, "thinking=on,off")
        same = "same prompt: the variable changes nothing"
        await chat.pilot.press("down")
        await chat.until(lambda: same in seen(chat))
        await chat.pilot.press("d")
        await chat.until(lambda: same not in seen(chat))
        await chat.pilot.press("up")
        await chat.until(lambda: same in seen(chat))


async def test_the_last_message_gets_another_answer_and_keeps_its_own(chatting: StartChat) -> None:
    async with chatting(["First."], ["Second."], ["Third."]) as chat:
        await chat.say("Hello")
        await fan(chat, "temperature=0,1")
        await chat.pilot.press("enter")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen) and chat.last.answer.text == "Second.")
        await chat.until(lambda: chat.last.answer_siblings.count == 3 and chat.last.answer_id is not None)
        assert len(chat.controller.exchanges) == 1
        recipe = chat.last.record
        assert recipe is not None
        assert recipe.sampling.temperature == 0
        await chat.pilot.press("alt+left")
        await chat.until(lambda: chat.last.answer.text == "Third.")
        assert chat.last.record is not None
        assert chat.last.record.sampling.temperature == 1


async def test_the_fan_command_is_not_part_of_the_question(chatting: StartChat) -> None:
    async with chatting(["First."], RED, BLUE) as chat:
        await chat.say("Hello")
        await chat.write("/fan seed=1,2")
        await chat.pilot.press("enter")
        await chat.until(lambda: isinstance(chat.app.screen, FanOutScreen) and fanned(chat).differences is not None)
        asked = [request.prompt for request in chat.host.engine.requests[-2:]]
        assert [prompt.turns[-1].text for prompt in asked if isinstance(prompt, ChatPrompt)] == ["Hello", "Hello"]


async def test_the_chosen_wording_becomes_the_message(chatting: StartChat) -> None:
    async with chatting(["One."], ["Two."], ["Three."]) as chat:
        await chat.say("Hello")
        await fan(chat, 'prompt="Hello","Good morning"')
        await chat.pilot.press("down")
        await chat.until(lambda: "“Good morning”" in of(chat, "#label"))
        await chat.pilot.press("enter")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen) and chat.last.user.text == "Good morning")
        await chat.until(lambda: chat.last.user_siblings.count == 2)
        assert [one.user.text for one in chat.controller.exchanges] == ["Good morning"]
        assert chat.last.answer.text == "Three."


async def test_a_line_plans_the_fan_out_and_counts_its_requests(chatting: StartChat) -> None:
    async with chatting(RED, BLUE, RED, BLUE, size=(80, 24)) as chat:
        await chat.write("Which colour?")
        await chat.lead("f")
        await chat.until(lambda: isinstance(chat.app.screen, PlanScreen))
        await chat.until(lambda: "Enter sends 4 requests" in flat(chat))
        line = chat.app.screen.query_one(Input)
        assert line.value == "seed=1..4 temperature=0.8"
        for typed, told in (
            ("seed=1", "2 to 64 requests, not 1"),
            ("seed=1,2 temperature=0", "all answers will be the same"),
            ("hue=1,2", "Can't fan out over hue"),
        ):
            line.value = typed
            await chat.until(lambda told=told: told in of(chat, "#told"))  # type: ignore[misc]
        await chat.pilot.press("enter")
        assert isinstance(chat.app.screen, PlanScreen), "this plan is invalid"
        line.value = ""
        await chat.pilot.press(*"se")
        await chat.until(lambda: "numbers: 1,5 or a range 1..8" in flat(chat))
        await chat.pilot.press("tab")
        await chat.until(lambda: line.value == "seed=" and "1..8" in flat(chat))
        await chat.pilot.press("1", "comma", "2", "space", *"tem", "tab", *"0.7,1.2")
        await chat.until(lambda: line.value == "seed=1,2 temperature=0.7,1.2" and "sends 4 requests" in flat(chat))
        await chat.pilot.press("enter")
        await chat.until(lambda: isinstance(chat.app.screen, FanOutScreen) and fanned(chat).differences is not None)
        assert seeds(chat) == [1, 1, 2, 2]


async def test_escape_leaves_the_line_without_a_request(chatting: StartChat) -> None:
    async with chatting() as chat:
        await chat.write("Hello")
        await chat.pilot.press("alt+s")
        await chat.until(lambda: isinstance(chat.app.screen, PlanScreen))
        await chat.pilot.press("escape")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
        assert not chat.host.engine.requests
        assert chat.composer.text == "Hello"


async def test_escape_stops_all_then_leaves_and_the_answers_are_there_again(chatting: StartChat) -> None:
    held = asyncio.Event()
    async with chatting(["Half ", Hold(held), "more"], ["Also ", Hold(held), "more"]) as chat:
        await chat.write("Hello")
        chat.app.run_action_id("fan_out", "seed=1,2")
        await chat.until(lambda: isinstance(chat.app.screen, FanOutScreen) and "1 token …" in seen(chat))
        await chat.pilot.press("enter")
        await chat.until(lambda: "not complete yet" in chat.notes)
        await chat.pilot.press("escape")
        await chat.until(lambda: fanned(chat).differences is not None)
        assert len(chat.host.engine.cancelled) == 2
        await chat.pilot.press("escape")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
        assert chat.composer.text == "Hello"
        await chat.pilot.press("alt+s")
        await chat.until(lambda: isinstance(chat.app.screen, FanOutScreen))
        assert [lane.answer.text for lane in fanned(chat).fan_out.lanes] == ["Half ", "Also "]
        assert len(chat.host.engine.requests) == 2
        await chat.pilot.press("ctrl+n")
        await chat.until(lambda: isinstance(chat.app.screen, PlanScreen))


async def test_the_base_changes_and_answers_are_inspected_and_exported(
    chatting: StartChat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with chatting(RED, BLUE, BLUE) as chat:
        await chat.write("Hello")
        screen = await fan(chat, "seed=1,2,3 temperature=1")
        assert rows(screen)[0].endswith("seeds 2 3 · differs from token 1")
        await chat.pilot.press("up", "d")
        await chat.until(lambda: rows(screen)[0].endswith("seeds 2 3 · the base"))
        await chat.pilot.press("i")
        await chat.until(lambda: isinstance(chat.app.screen, InspectorScreen))
        assert chat.app.screen.inspected.answer == "a blue circle"  # type: ignore[attr-defined]
        await chat.pilot.press("escape")
        await chat.until(lambda: chat.app.screen is screen)
        for name in ("a.md", "fan-out.html", "a.json"):
            await chat.pilot.press("w")
            await chat.until(lambda: isinstance(chat.app.screen, NameScreen) and chat.app.screen.is_mounted)
            typed = chat.app.screen.query_one(Input)
            assert typed.value == "fan-out.html"
            typed.value = name
            await chat.pilot.press("enter")
            await chat.until(lambda name=name: (tmp_path / name).exists())  # type: ignore[misc]
        document = from_json((tmp_path / "a.json").read_bytes())
        assert [side.sampling["seed"] for side in document.sides] == [2, 1, 3]
        assert "a red circle" in (tmp_path / "a.md").read_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("seed=1", "2 to 64 requests"),
        ("hue=1,2", "Can't fan out over"),
        ("seed", "not a list"),
        ("seed=1,x", "whole number"),
    ],
)
async def test_an_invalid_plan_is_reported(chatting: StartChat, text: str, said: str) -> None:
    async with chatting() as chat:
        await chat.write("Hello")
        chat.app.run_action_id("fan_out", text)
        await chat.until(lambda: said in chat.notes)
        assert isinstance(chat.app.screen, ChatScreen)
        assert chat.composer.text == "Hello"


@SIZES
async def test_a_plan_over_images_shows_the_likelihood(
    chatting: StartChat, tmp_path: Path, size: tuple[int, int]
) -> None:
    async with chatting(RED, RED, BLUE, ["grey"], ["fog"], size=size) as chat:
        await chat.paste(str(picture(tmp_path)))
        await chat.until(lambda: bool(chat.controller.draft.attachments) and not chat.controller.draft.pending)
        await chat.say("What is this?")
        chat.host.engine.score = lambda request: -0.1 if attachments_of(request.prompt) else -1.1
        chat.app.run_action_id("fan_out", "image=sent,none,grey,blur")
        await chat.until(lambda: isinstance(chat.app.screen, FanOutScreen) and fanned(chat).scores is not None)
        await chat.until(lambda: fanned(chat).differences is not None)
        screen = fanned(chat)
        sent = [attachments_of(request.prompt) for request in chat.host.engine.requests[1:]]
        assert [len(items) for items in sent] == [1, 0, 1, 1]
        unchanged, without, grey, _ = (screen.about(kind) for kind in screen.fan_out.kinds())
        assert unchanged == "as sent · the base"
        assert without == "no image · −3.0 nats · differs from token 1"
        assert grey == "grey · 0 nats · differs from token 0"
        assert not screen.query_one(PictureStrip).query("AttachmentView") or size[1] >= 30
        await chat.until(
            lambda: (
                "It looks. Without the image, this answer is 20 times less likely (−3.0 nats), most at token 0"
                in flat(chat)
            )
        )
        await chat.pilot.press("down", "d")
        await chat.until(lambda: screen.scores is not None and screen.scores[1] is None)
        await chat.until(lambda: "without the image" not in flat(chat))
        await chat.pilot.press("up", "enter")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen) and chat.last.answer_siblings.count == 2)
        assert chat.last.answer.text == "a red circle"


async def test_the_selected_message_is_sent_without_its_image(chatting: StartChat, tmp_path: Path) -> None:
    async with chatting(RED, BLUE, RED, BLUE, ["grey"]) as chat:
        await chat.paste(str(picture(tmp_path)))
        await chat.until(lambda: bool(chat.controller.draft.attachments) and not chat.controller.draft.pending)
        await chat.say("What is this?")
        await chat.say("And now?")
        await chat.pilot.press("up", "home")
        await chat.until(lambda: chat.screen.marked is not None)
        first = chat.controller.exchanges[0]
        assert chat.screen.marked is not None and chat.screen.marked.exchange is first
        chat.app.run_action_id("fan_out", "image=sent,none,grey,blur")
        await chat.until(lambda: isinstance(chat.app.screen, FanOutScreen) and fanned(chat).differences is not None)
        for request in chat.host.engine.requests[2:]:
            assert isinstance(request.prompt, ChatPrompt)
            assert [turn.text for turn in request.prompt.turns if turn.role != "system"] == ["What is this?"]


async def test_a_message_without_an_image_has_none_to_leave_out(chatting: StartChat) -> None:
    async with chatting(RED) as chat:
        await chat.say("Hello")
        chat.app.run_action_id("fan_out", "image=sent,none,grey,blur")
        await chat.until(lambda: "There is no image to leave out." in chat.notes)
        assert isinstance(chat.app.screen, ChatScreen)


async def test_an_answer_after_another_history_is_no_answer_of_this_chat(chatting: StartChat) -> None:
    async with chatting(RED, BLUE, ["Three."]) as chat:
        await chat.say("Hello")
        await fan(chat, 'system="Be brief.","Be kind."')
        await chat.pilot.press("enter")
        await chat.until(lambda: "cannot continue with this answer" in chat.notes)
        assert chat.last.answer.text == "a red circle"
        assert chat.last.answer_siblings.count == 1


async def test_without_a_message_a_sentence_says_so(chatting: StartChat) -> None:
    async with chatting() as chat:
        await chat.pilot.press("alt+s")
        await chat.until(lambda: bool(chat.notes))
        assert isinstance(chat.app.screen, ChatScreen)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(40, 12), (200, 60)], ids=["40x12", "200x60"])
async def test_answers_of_20_000_tokens_in_four_lanes_leave_time_for_keys(
    chatting: StartChat, size: tuple[int, int]
) -> None:
    held = asyncio.Event()
    long = " ".join(f"word{number}" for number in range(20_000))
    steps: list[Step] = [Say(long, tokens=20_000), Hold(held), " end"]
    async with chatting(steps, steps, steps, steps, size=size) as chat:
        await chat.write("Hello")
        chat.app.run_action_id("fan_out", "seed=1,2,3,4 temperature=1")
        await chat.until(lambda: isinstance(chat.app.screen, FanOutScreen))
        screen = fanned(chat)
        view = screen.query_one(AnswerPanel).view
        await chat.until(lambda: all(text.endswith("word19999") for text in texts(screen)))
        await chat.until(lambda: written(view).endswith("word19999"))
        await chat.pilot.resize_terminal(120, 40)
        await chat.pilot.press("down")
        await chat.until(lambda: screen.current == 1)
        held.set()
        await chat.until(lambda: screen.differences is not None)
        await chat.until(lambda: written(view) == f"{long} end")
        await chat.until(lambda: rows(screen)[0].startswith("██████████ 4 "))
        await chat.pilot.press("escape")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
