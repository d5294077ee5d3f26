"""The chat screen on a scripted engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from PIL import Image
from textual import events
from textual.widgets import Collapsible, Markdown, Static

from tests.support.scripted_engine import Die, Fail, Hold, ScriptedHost, Step
from tests.ui.conftest import AppPilot, MakeApp, Until
from vlmtui.domain.engine import Cancelled, ChatPrompt, Failed, Failure, Finished
from vlmtui.errors import ErrorKind
from vlmtui.ui.app import VlmtuiApp
from vlmtui.ui.controllers.chat import ChatController, Exchange
from vlmtui.ui.controllers.engine import EngineState
from vlmtui.ui.screens.chat import ChatScreen
from vlmtui.ui.widgets.assistant_turn import AssistantTurn
from vlmtui.ui.widgets.attachment_view import AttachmentView
from vlmtui.ui.widgets.composer import Composer
from vlmtui.ui.widgets.slash_menu import SlashMenu
from vlmtui.ui.widgets.status_bar import StatusBar
from vlmtui.ui.widgets.transcript import LIVE_MAX


@dataclass
class Chat:
    """The app with its chat screen shown."""

    app: VlmtuiApp
    host: ScriptedHost
    pilot: AppPilot
    _until: Until

    @property
    def screen(self) -> ChatScreen:
        assert isinstance(self.app.screen, ChatScreen)
        return self.app.screen

    @property
    def controller(self) -> ChatController:
        assert self.app.chat_controller is not None
        return self.app.chat_controller

    @property
    def composer(self) -> Composer:
        return self.screen.query_one(Composer)

    @property
    def last(self) -> Exchange:
        return self.controller.exchanges[-1]

    @property
    def notes(self) -> str:
        return "\n".join(note.message for note in self.app._notifications)

    def shown(self) -> str:
        """The text of the newest answer as the screen has it."""
        return self.screen.query(AssistantTurn).last().query_one(Markdown).source

    async def until(self, condition: Callable[[], bool]) -> None:
        await self._until(self.pilot, condition)

    async def write(self, text: str) -> None:
        self.composer.insert(text)
        await self.pilot.pause()

    async def send(self, text: str) -> None:
        await self.write(text)
        await self.pilot.press("enter")

    async def say(self, text: str) -> None:
        """Send and wait for the end of the answer."""
        count = len(self.controller.exchanges)
        await self.send(text)
        await self.until(lambda: len(self.controller.exchanges) > count and not self.last.is_running)
        await self.until(lambda: self.screen.query(AssistantTurn).last().query_one(".facts").display)

    async def paste(self, text: str) -> None:
        self.app.post_message(events.Paste(text))
        await self.pilot.pause()


@pytest.fixture
def chatting(make_app: MakeApp, until: Until) -> Callable[..., object]:
    @asynccontextmanager
    async def start(*answers: list[Step], size: tuple[int, int] = (100, 30)) -> AsyncIterator[Chat]:
        host = ScriptedHost(answers=list(answers))
        app = make_app(host, initial_model="shapes")
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: isinstance(app.screen, ChatScreen))
            await pilot.pause()
            yield Chat(app, host, pilot, until)

    return start


def picture(folder: Path, name: str = "cat.png") -> Path:
    path = folder / name
    Image.new("RGB", (32, 24), "red").save(path)
    return path


async def test_a_message_is_sent_and_its_answer_shown(chatting) -> None:  # type: ignore[no-untyped-def]
    async with chatting(["A **red** ", "circle."]) as chat:
        await chat.say("What is this?")
        assert chat.last.answer.text == "A **red** circle."
        await chat.until(lambda: chat.shown() == "A **red** circle.")
        assert isinstance(chat.last.answer.outcome, Finished)
        assert chat.composer.text == ""
        facts = str(chat.screen.query_one(".facts", Static).render())
        assert "2 tokens" in facts
        assert "TTFT 50 ms" in facts
        assert "stop <|im_end|>" in facts


async def test_ctrl_j_breaks_the_line_and_a_pasted_break_does_not_send(chatting) -> None:  # type: ignore[no-untyped-def]
    async with chatting() as chat:
        await chat.write("one")
        await chat.pilot.press("ctrl+j")
        await chat.paste("two\nthree\n")
        assert chat.composer.text == "one\ntwo\nthree\n"
        assert chat.controller.exchanges == []


async def test_escape_stops_and_keeps_what_came(chatting) -> None:  # type: ignore[no-untyped-def]
    never = asyncio.Event()
    async with chatting(["One ", "two ", Hold(never)]) as chat:
        await chat.send("Count")
        await chat.until(lambda: chat.controller.exchanges != [] and chat.last.answer.text == "One two ")
        await chat.pilot.press("escape")
        await chat.until(lambda: not chat.last.is_running)
        assert isinstance(chat.last.answer.outcome, Cancelled)
        await chat.until(lambda: chat.shown() == "One two ")
        await chat.until(lambda: "stopped by you" in str(chat.screen.query_one(".facts", Static).render()))


async def test_enter_while_answering_keeps_what_is_written(chatting) -> None:  # type: ignore[no-untyped-def]
    never = asyncio.Event()
    async with chatting(["One ", Hold(never)]) as chat:
        await chat.send("Count")
        await chat.until(lambda: chat.controller.running is not None)
        await chat.send("and more")
        assert chat.composer.text == "and more"
        assert "Esc stops it" in chat.notes


async def test_a_pasted_path_is_attached_and_sent_before_the_text(chatting, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
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


async def test_a_path_within_a_text_stays_text(chatting, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    async with chatting() as chat:
        text = f"see {picture(tmp_path)} please"
        await chat.paste(text)
        assert chat.composer.text == text
        assert chat.controller.staged == []


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
async def test_a_file_that_cannot_be_attached_is_named_and_nothing_is_lost(  # type: ignore[no-untyped-def]
    chatting, tmp_path: Path, name: str, make: Callable[[Path], object], reason: str
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


async def test_enter_waits_for_the_files(chatting, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    async with chatting() as chat:
        chat.screen._stage([picture(tmp_path)])
        await chat.say("now")
        assert len(chat.last.user.attachments) == 1


async def test_backspace_in_an_empty_message_removes_the_newest_attachment(chatting, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    async with chatting() as chat:
        await chat.paste(str(picture(tmp_path)))
        await chat.until(lambda: len(chat.controller.staged) == 1)
        await chat.pilot.press("backspace")
        await chat.until(lambda: chat.controller.staged == [])


async def test_more_than_the_model_takes_is_said_before_sending(chatting, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    async with chatting() as chat:
        paths = [picture(tmp_path, f"{number}.png") for number in range(9)]
        chat.screen._stage(paths)
        await chat.until(lambda: len(chat.controller.staged) == 9)
        await chat.send("all")
        await chat.until(lambda: "at most 8 images" in chat.notes)
        assert chat.composer.text == "all"
        assert len(chat.controller.staged) == 9
        assert chat.controller.exchanges == []


async def test_death_mid_answer_keeps_it_and_one_key_restarts_another_retries(chatting) -> None:  # type: ignore[no-untyped-def]
    async with chatting(["Half ", Die()], ["Whole."]) as chat:
        await chat.say("Tell me")
        assert isinstance(chat.last.answer.outcome, Failed)
        assert chat.last.answer.text == "Half "
        await chat.until(lambda: bool(chat.screen.query(".failure")))
        note = str(chat.screen.query_one(".failure", Static).render())
        assert "killed" in note
        assert "F5" in note
        await chat.until(lambda: chat.app.engine_controller.state is EngineState.DEAD)
        assert "F5 restarts" in str(chat.screen.query_one(StatusBar).render())
        await chat.send("lost?")
        assert chat.composer.text == "lost?"
        await chat.pilot.press("f5")
        await chat.until(lambda: chat.app.engine_controller.state is EngineState.READY)
        await chat.pilot.press("ctrl+r")
        await chat.until(lambda: chat.last.answer.text == "Whole." and not chat.last.is_running)
        assert [old.text for old in chat.last.earlier] == ["Half "]
        assert not chat.screen.query(".failure")


async def test_a_failed_turn_is_told_and_not_sent_again(chatting) -> None:  # type: ignore[no-untyped-def]
    failure = Failure(kind=ErrorKind.CONTEXT_TOO_LONG, message="Too long [/x].", hint="Start a new chat.")
    async with chatting([Fail(failure)], ["Fine."]) as chat:
        await chat.say("first")
        await chat.until(lambda: bool(chat.screen.query(".failure")))
        assert "Too long [/x]." in str(chat.screen.query_one(".failure", Static).render())
        await chat.say("second")
        sent = chat.host.engine.requests[-1].prompt
        assert isinstance(sent, ChatPrompt)
        assert [turn.text for turn in sent.turns] == ["second"]


async def test_later_turns_carry_the_earlier_ones_and_the_system_prompt(chatting) -> None:  # type: ignore[no-untyped-def]
    async with chatting(["One."], ["Two."]) as chat:
        await chat.send("/system Be brief.")
        await chat.until(lambda: chat.controller.settings.system_prompt == "Be brief.")
        await chat.send("/set temperature 0.7")
        await chat.until(lambda: chat.controller.settings.sampling.temperature == 0.7)
        await chat.say("first")
        await chat.say("second")
        request = chat.host.engine.requests[-1]
        assert isinstance(request.prompt, ChatPrompt)
        assert [(turn.role, turn.text) for turn in request.prompt.turns] == [
            ("system", "Be brief."),
            ("user", "first"),
            ("assistant", "One."),
            ("user", "second"),
        ]
        assert request.sampling.temperature == 0.7


async def test_hostile_text_is_shown_and_not_obeyed(chatting) -> None:  # type: ignore[no-untyped-def]
    async with chatting(["\x1b[31mred\x1b]0;title\x07 ", "\u202egnp.tac [/x]"]) as chat:
        await chat.say("\x1b[2Jwipe [/b]")
        await chat.until(lambda: "gnp" in chat.shown())
        assert "\x1b" not in chat.shown()
        assert "\u202e" not in chat.shown()
        assert "␛[31mred" in chat.shown()
        assert "\x1b" not in str(chat.screen.query_one(".said", Static).render())
        assert chat.last.answer.text.startswith("\x1b[31m"), "what the model said is kept as it was"


async def test_thinking_is_folded_away_once_it_is_over(chatting) -> None:  # type: ignore[no-untyped-def]
    gate, never = asyncio.Event(), asyncio.Event()
    async with chatting(["<thi", "nk>\nhm ", Hold(gate), "so.\n</think>\n\n", "The answer.", Hold(never)]) as chat:
        await chat.send("Think")
        await chat.until(lambda: bool(chat.screen.query(Collapsible)))
        assert chat.shown() == ""
        gate.set()
        await chat.until(lambda: chat.shown() == "The answer.")
        block = chat.screen.query_one(Collapsible)
        await chat.until(lambda: block.title == "Thought")
        assert "so." in str(chat.screen.query_one(".thoughts", Static).render())


async def test_old_answers_are_frozen_and_the_widgets_bounded(chatting) -> None:  # type: ignore[no-untyped-def]
    async with chatting(*[[f"Answer **{number}**."] for number in range(30)]) as chat:
        for number in range(30):
            await chat.say(f"question {number}")
        turns = list(chat.screen.query(AssistantTurn))
        assert [turn.is_frozen for turn in turns[:10]] == [True] * 10
        assert len(chat.screen.query(Markdown)) == LIVE_MAX
        frozen, live = turns[0], turns[-1]
        per_frozen_turn = 1 + len(frozen.query("*")) + 2
        assert 180 * per_frozen_turn + 20 * (3 + len(live.query("*"))) + 30 <= 1500


async def test_history_goes_up_and_down_and_keeps_the_draft(chatting) -> None:  # type: ignore[no-untyped-def]
    async with chatting(["a"], ["b"]) as chat:
        await chat.say("first")
        await chat.say("second\nwith two lines")
        await chat.write("draft")
        await chat.pilot.press("up")
        assert chat.composer.text == "second\nwith two lines"
        await chat.pilot.press("up", "up")
        assert chat.composer.text == "first"
        await chat.pilot.press("down", "down", "down")
        assert chat.composer.text == "draft"


async def test_history_survives_the_app(chatting, make_app: MakeApp, until: Until) -> None:  # type: ignore[no-untyped-def]
    async with chatting(["a"]) as chat:
        await chat.say("remember me")
    again = make_app(ScriptedHost(), initial_model="shapes")
    async with again.run_test() as pilot:
        await until(pilot, lambda: isinstance(again.screen, ChatScreen))
        await pilot.pause()
        await pilot.press("up")
        assert again.screen.query_one(Composer).text == "remember me"


async def test_the_slash_menu_completes(chatting) -> None:  # type: ignore[no-untyped-def]
    async with chatting() as chat:
        await chat.pilot.press("slash", "a", "t")
        await chat.until(lambda: bool(chat.screen.query_one(SlashMenu).display))
        await chat.pilot.press("tab")
        await chat.until(lambda: chat.composer.text == "/attach ")
        assert not chat.screen.query_one(SlashMenu).display


async def test_an_unknown_command_is_told_and_kept(chatting) -> None:  # type: ignore[no-untyped-def]
    async with chatting(["ok"]) as chat:
        await chat.send("/nonsense now")
        await chat.until(lambda: "/nonsense" in chat.notes)
        assert chat.composer.text == "/nonsense now"
        chat.composer.text = ""
        await chat.say("//nonsense")
        assert chat.last.user.text == "/nonsense"


async def test_new_chat_forgets_and_copy_copies(chatting) -> None:  # type: ignore[no-untyped-def]
    async with chatting(["The answer."], ["Fresh."]) as chat:
        await chat.say("first")
        await chat.pilot.press("ctrl+y")
        await chat.until(lambda: chat.app.clipboard == "The answer.")
        await chat.pilot.press("ctrl+n")
        await chat.until(lambda: chat.controller.exchanges == [])
        assert not chat.screen.query(AssistantTurn)
        await chat.say("second")
        sent = chat.host.engine.requests[-1].prompt
        assert isinstance(sent, ChatPrompt)
        assert [turn.text for turn in sent.turns] == ["second"]


async def test_nothing_is_cut_off_on_a_small_terminal(chatting) -> None:  # type: ignore[no-untyped-def]
    async with chatting(["word " * 400], size=(80, 24)) as chat:
        await chat.say("long")
        for widget in (chat.composer, chat.screen.query_one(StatusBar)):
            assert chat.screen.region.contains_region(widget.region)
            assert widget.region.height == 1
        assert chat.composer.has_focus


async def test_another_model_goes_on_with_the_conversation(chatting) -> None:  # type: ignore[no-untyped-def]
    async with chatting(["The answer."]) as chat:
        await chat.say("first")
        chat.app._show_alone(chat.app._chat_screen())
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen) and bool(chat.screen.query(AssistantTurn)))
        await chat.until(lambda: chat.shown() == "The answer.")
