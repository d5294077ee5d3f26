"""Compare with an engine for each side: the chat template on one, the raw prompt on another."""

from __future__ import annotations

import asyncio
from functools import partial

from textual.widgets import Input, OptionList, Static

from tests.support.scripted_engine import Hold
from tests.ui.conftest import Chat, StartChat
from vlmtui.domain.conversation import ChatPrompt, RawPrompt
from vlmtui.session.engines import EngineState
from vlmtui.session.generation import PromptMode
from vlmtui.session.resume import stored_model
from vlmtui.ui.chat.screen import ChatScreen
from vlmtui.ui.compare.answers import AnswerPane
from vlmtui.ui.compare.raw_prompt import RawEditor
from vlmtui.ui.compare.screen import CompareScreen
from vlmtui.ui.compare.sides import SidesScreen, StoredComparisonScreen
from vlmtui.ui.widgets.dialogs import ChoiceScreen, NameScreen


def compared(chat: Chat) -> CompareScreen:
    assert isinstance(chat.app.screen, CompareScreen)
    return chat.app.screen


async def side_by_side(chat: Chat, engine: str, way: str = "", *, side: PromptMode = "raw") -> CompareScreen:
    """Open Compare for a draft, choose a side's engine, and how it is loaded."""
    await chat.write("What is this?")
    chat.app.run_action_id("compare")
    await chat.until(lambda: isinstance(chat.app.screen, CompareScreen) and bool(chat.app.screen.query(RawEditor)))
    screen = compared(chat)
    await chat.until(lambda: bool(screen.editor.text))
    target = screen.editor if side == "raw" else screen.query_one("#chat-prompt")
    target.focus()
    await chat.until(lambda: screen.focused is target)
    await chat.pilot.press("ctrl+x", "A")
    await chat.until(lambda: isinstance(chat.app.screen, NameScreen) and bool(chat.app.screen.query(Input)))
    chat.app.screen.query_one(Input).value = engine
    await chat.pilot.press("enter")
    if way:
        await chat.until(
            lambda: (
                isinstance(chat.app.screen, ChoiceScreen)
                and any(lines.highlighted == 0 for lines in chat.app.screen.query(OptionList))
            )
        )
        lines = chat.app.screen.query_one(OptionList)
        at = next(at for at, line in enumerate(lines.options) if way in str(line.prompt))
        await chat.pilot.press(*["down"] * at, "enter")
    await chat.until(lambda: chat.app.screen is screen)
    return screen


def shown(screen: SidesScreen, where: str) -> str:
    return str(screen.query_one(where, Static).content)


def answers(screen: CompareScreen) -> list[str]:
    return [screen.query_one(f"#{side}-answer", AnswerPane).text.text for side in ("chat", "raw")]


async def test_the_raw_side_has_another_engine(chatting: StartChat) -> None:
    async with chatting(["A", " cat."], ["A", " dog."]) as chat:
        screen = await side_by_side(chat, "here dtype=bfloat16", "Load beside")
        await chat.until(lambda: "here dtype=bfloat16: shapes" in shown(screen, "#raw-head"))
        await chat.pilot.press("ctrl+r")
        await chat.until(lambda: screen.controller.is_over)
        here, other = chat.host.engines
        assert other.spec.engine_args["dtype"] == "bfloat16" and not here.was_shut_down
        sent = [type(engine.requests[-1].prompt) for engine in (here, other)]
        assert sent == [ChatPrompt, RawPrompt]
        await chat.until(lambda: answers(screen) == ["A cat.", "A dog."])
        await chat.until(lambda: "vLLM 0.32.0 · bfloat16 · cpu" in shown(screen, "#raw-head"))
        left, right = screen.controller.document().sides
        assert left.engine is None and right.engine is not None
        screen.editor.focus()
        await chat.pilot.press("alt+u")
        await chat.until(lambda: chat.last.answer.text == "A dog.")
        made = chat.last.record
        assert made is not None and made.made_by == stored_model(chat.host.engines[-1].spec)
        await chat.pilot.press("ctrl+x", "h")
        await chat.until(lambda: isinstance(chat.app.screen, ChoiceScreen))
        await chat.pilot.press("enter")
        await chat.until(lambda: isinstance(chat.app.screen, StoredComparisonScreen))
        stored = chat.app.screen
        assert isinstance(stored, StoredComparisonScreen)
        await chat.until(lambda: shown(stored, "#raw-head") == "Raw prompt · vLLM 0.32.0 · bfloat16 · cpu")
        assert shown(stored, "#chat-head") == "Chat template · vLLM 0.32.0 · float32 · cpu"


async def test_a_command_names_the_engine_of_a_side(chatting: StartChat) -> None:
    async with chatting(["A", " cat."], ["A", " dog."]) as chat:
        await chat.write("What is this?")
        chat.app.run_action_id("compare", 'raw="here dtype=bfloat16"')
        await chat.until(lambda: isinstance(chat.app.screen, ChoiceScreen) and bool(chat.app.screen.query(OptionList)))
        lines = chat.app.screen.query_one(OptionList)
        await chat.until(lambda: lines.highlighted == 0)
        at = next(at for at, line in enumerate(lines.options) if "Load beside" in str(line.prompt))
        await chat.pilot.press(*["down"] * at, "enter")
        await chat.until(lambda: isinstance(chat.app.screen, CompareScreen) and bool(chat.app.screen.query(RawEditor)))
        screen = compared(chat)
        await chat.until(lambda: "here dtype=bfloat16: shapes" in shown(screen, "#raw-head"))
        await chat.until(lambda: bool(screen.editor.text))
        await chat.pilot.press("ctrl+r")
        await chat.until(lambda: screen.controller.is_over)
        assert chat.host.engines[1].spec.engine_args["dtype"] == "bfloat16"


def chat_tells(chat: Chat, text: str) -> bool:
    return any(text in note.message for note in chat.app._notifications)


async def test_a_command_with_an_engine_that_is_not_there_opens_nothing(chatting: StartChat) -> None:
    async with chatting(["One."]) as chat:
        await chat.write("What is this?")
        for typed, told in {"raw=": "names no engine", "raw=smolvlm": "another raw prompt"}.items():
            chat.app.run_action_id("compare", typed)
            await chat.until(partial(chat_tells, chat, told))
        assert not isinstance(chat.app.screen, CompareScreen)


async def test_sides_load_one_after_the_other_and_say_that_they_wait(chatting: StartChat) -> None:
    go = asyncio.Event()
    async with chatting(["A", Hold(go), " cat."], ["A", " dog."], ["Again."]) as chat:
        screen = await side_by_side(chat, "transformers", "One after the other")
        await chat.pilot.press("ctrl+r")
        await chat.until(lambda: "Waits for memory" in shown(screen, "#raw-answer .facts"))
        assert len(chat.host.engines) == 1
        go.set()
        await chat.until(lambda: screen.controller.is_over)
        await chat.until(lambda: answers(screen) == ["A cat.", "A dog."])
        first, other, *_ = chat.host.engines
        assert first.was_shut_down and other.spec.backend == "transformers"
        controller = chat.app.engines
        await chat.until(lambda: controller.state is EngineState.READY and len(chat.host.engines) == 3)
        assert controller.require_model().spec.backend == "vllm"


async def test_a_draft_becomes_the_next_message_with_the_answer_of_another_engine(chatting: StartChat) -> None:
    async with chatting(["A", " dog."], ["A", " cat."]) as chat:
        screen = await side_by_side(chat, "transformers", "Load beside", side="chat")
        await chat.pilot.press("ctrl+r")
        await chat.until(lambda: screen.controller.is_over and screen.message.exchange is not None)
        here, other = chat.host.engines
        sent = [type(engine.requests[-1].prompt) for engine in (here, other)]
        assert sent == [RawPrompt, ChatPrompt]
        await chat.pilot.press("escape")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
        last = chat.last
        assert last.user.text == "What is this?" and last.record is not None
        assert last.record.made_by is not None and last.record.made_by.backend == "transformers"
        assert not chat.controller.draft.words


async def test_a_side_takes_no_model_of_another_family(chatting: StartChat) -> None:
    async with chatting(["One."]) as chat:
        screen = await side_by_side(chat, "smolvlm")
        await chat.until(lambda: any("another raw prompt" in note.message for note in chat.app._notifications))
        assert screen.controller.engines is None
        assert "smolvlm" not in shown(screen, "#raw-head")
