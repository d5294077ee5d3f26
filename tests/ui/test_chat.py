"""Turns on a scripted engine: sent, stopped, failed, asked again."""

from __future__ import annotations

import asyncio

from tests.support.scripted_engine import Die, Fail, Hold, ScriptedHost
from tests.support.waiting import until_chat
from tests.ui.conftest import Chat, MakeApp, StartChat, answers_of
from vlmtui.domain.conversation import ChatPrompt
from vlmtui.domain.generation import Cancelled, Failed, Failure, Finished
from vlmtui.errors import ErrorKind
from vlmtui.session.engines import EngineState
from vlmtui.ui.chat.frame import FactsLine, StatusBar


async def test_a_message_is_sent_and_its_answer_shown(chatting: StartChat) -> None:
    async with chatting(["A **red** ", "circle."]) as chat:
        await chat.say("What is this?")
        assert chat.last.answer.text == "A **red** circle."
        await chat.until(lambda: chat.shown() == "A **red** circle.")
        assert isinstance(chat.last.answer.outcome, Finished)
        assert chat.composer.text == ""
        facts = str(chat.screen.query_one(FactsLine).render())
        assert "2 tokens" in facts
        assert "TTFT 50 ms" in facts
        assert "stop <|im_end|>" in facts


async def test_escape_stops_and_keeps_the_partial_answer(chatting: StartChat) -> None:
    never = asyncio.Event()
    async with chatting(["One ", "two ", Hold(never)]) as chat:
        await chat.send("Count")
        await chat.until(lambda: chat.controller.exchanges != [] and chat.last.answer.text == "One two ")
        await chat.pilot.press("escape")
        await chat.until(lambda: not chat.last.is_running)
        assert isinstance(chat.last.answer.outcome, Cancelled)
        await chat.until(lambda: chat.shown() == "One two ")
        await chat.until(lambda: "stopped by you" in chat.answer_lines())


async def test_enter_while_answering_keeps_the_text(chatting: StartChat) -> None:
    never = asyncio.Event()
    async with chatting(["One ", Hold(never)]) as chat:
        await chat.send("Count")
        await chat.until(lambda: chat.controller.running is not None)
        await chat.send("and more")
        assert chat.composer.text == "and more"
        await chat.until(lambda: "Esc stops it" in chat.notes)


async def test_death_mid_answer_keeps_it_and_one_key_restarts_another_retries(chatting: StartChat) -> None:
    async with chatting(["Half ", Die()], ["Half ", Die()], ["Whole."]) as chat:
        await chat.say("Tell me")
        await chat.until(lambda: len(chat.host.engines) == 2 and chat.app.engines.is_loaded)
        await chat.pilot.press("ctrl+r")
        await chat.until(lambda: chat.last.answer_siblings.count == 2 and not chat.last.is_running)
        assert isinstance(chat.last.answer.outcome, Failed)
        assert chat.last.answer.text == "Half "
        await chat.until(lambda: "Ctrl+R sends it again" in chat.answer_lines())
        note = " ".join(chat.answer_lines().replace("▌", "").split())
        assert "killed" in note
        assert "Ctrl+R sends it again, once the engine is loaded" in note
        await chat.until(lambda: chat.app.engines.state is EngineState.DEAD)
        await chat.until(lambda: "Ctrl+X g r restarts" in str(chat.screen.query_one(StatusBar).render()))
        await chat.send("lost?")
        assert chat.composer.text == "lost?"
        await chat.pilot.press("f5")
        await chat.until(lambda: chat.app.engines.state is EngineState.READY)
        await chat.pilot.press("ctrl+r")
        await chat.until(lambda: chat.last.answer.text == "Whole." and not chat.last.is_running)
        await chat.until(lambda: chat.shown() == "Whole.")
        assert chat.last.answer_siblings.count == 3
        assert "sends it again" not in chat.answer_lines()


async def test_another_answer_at_temperature_0_says_that_it_is_probably_the_same(chatting: StartChat) -> None:
    async with chatting(["It is red."], ["It is red."], ["It is red."]) as chat:
        await chat.say("What is it?")
        await chat.send("/set temperature 0.7")
        await chat.pilot.press("ctrl+r")
        await chat.until(lambda: chat.last.answer_siblings.count == 2 and not chat.last.is_running)
        assert "probably the same" not in chat.notes
        await chat.send("/set temperature 0")
        await chat.pilot.press("ctrl+r")
        await chat.until(lambda: chat.last.answer_siblings.count == 3 and not chat.last.is_running)
        assert "probably the same" not in chat.notes, "the answer before was sampled"
        await chat.pilot.press("ctrl+r")
        await chat.until(
            lambda: "At temperature 0 the answer is probably the same. Ctrl+X , sets a temperature." in chat.notes
        )


async def test_a_failed_turn_is_reported_and_not_sent_again(chatting: StartChat) -> None:
    failure = Failure(kind=ErrorKind.CONTEXT_TOO_LONG, message="Too long [/x].", hint="Start a new chat.")
    async with chatting([Fail(failure)], ["Fine."]) as chat:
        await chat.say("first")
        await chat.until(lambda: "Too long [/x]." in chat.answer_lines())
        await chat.say("second")
        sent = chat.host.engine.requests[-1].prompt
        assert isinstance(sent, ChatPrompt)
        assert [turn.text for turn in sent.turns] == ["second"]


async def test_later_turns_carry_the_earlier_ones_and_the_system_prompt(chatting: StartChat) -> None:
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


async def test_new_chat_clears_the_conversation_and_copy_copies_the_answer(chatting: StartChat) -> None:
    async with chatting(["The answer."], ["Fresh."]) as chat:
        await chat.say("first")
        await chat.lead("y")
        await chat.until(lambda: chat.app.clipboard == "The answer.")
        await chat.pilot.press("ctrl+n")
        await chat.until(lambda: chat.controller.exchanges == [])
        assert not answers_of(chat.screen)
        await chat.say("second")
        sent = chat.host.engine.requests[-1].prompt
        assert isinstance(sent, ChatPrompt)
        assert [turn.text for turn in sent.turns] == ["second"]


async def test_no_request_goes_to_a_dead_engine_and_the_answer_stays(chatting: StartChat) -> None:
    async with chatting(["Kept."]) as chat:
        await chat.say("first")
        chat.host.engine.die()
        await chat.until(lambda: len(chat.host.engines) == 2 and chat.app.engines.is_loaded)
        chat.host.engine.die()
        await chat.until(lambda: chat.app.engines.state is EngineState.DEAD)
        await chat.pilot.press("ctrl+r")
        await chat.until(lambda: "killed" in chat.notes)
        assert chat.last.answer.text == "Kept."
        assert chat.last.answer_siblings.count == 1
        assert chat.shown() == "Kept."


async def test_changed_files_of_the_model_are_told_and_a_key_loads_them(chatting: StartChat) -> None:
    async with chatting(["One."], ["Two."]) as chat:
        chat.host.engine.changed = ("chat_template.jinja",)
        await chat.say("first")
        told = "loaded: chat_template.jinja. The engine has the earlier files. Ctrl+X g r restarts it."
        await chat.until(lambda: told in chat.notes)
        await chat.until(lambda: "files changed · Ctrl+X g r reloads" in chat.screen_text())
        await chat.pilot.press("f5")
        await chat.until(lambda: len(chat.host.engines) == 2 and chat.app.engines.is_loaded)
        await chat.until(lambda: "files changed" not in chat.screen_text())
        assert chat.host.engines[0].was_shut_down
        await chat.say("second")
        assert chat.shown() == "Two."
        chat.host.engine.changed = ("chat_template.jinja",)
        chat.app.engines.require_engine()
        await chat.until(lambda: chat.app.engines.is_to_restart)
        chat.app.models.choose_by_name("shapes")
        await chat.until(lambda: len(chat.host.engines) == 3 and chat.app.engines.is_loaded)


async def test_a_failure_shows_its_detail_and_the_engine_only_if_it_died(chatting: StartChat) -> None:
    failure = Failure(kind=ErrorKind.CONTEXT_TOO_LONG, message="Too long.", detail="5000 > 4096", hint="Shorten it.")
    async with chatting([Fail(failure)]) as chat:
        await chat.say("first")
        await chat.until(lambda: "Ctrl+R sends it again" in chat.answer_lines())
        note = " ".join(chat.answer_lines().replace("▌", "").split())
        assert "5000 > 4096" in note
        assert "Shorten it." in note
        assert "Ctrl+R" in note
        assert "once the engine" not in note


async def test_one_note_is_shown_above_the_composer_beside_problems(make_app: MakeApp) -> None:
    host = ScriptedHost(load=[])
    app = make_app(host, initial_model="shapes")
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await until_chat(pilot)
        chat = Chat(app, host, pilot)

        def shown() -> list[str]:
            return [line.strip(" ▌") for line in chat.screen_text().split("\n") if "note" in line]

        app.tell("A note of a problem.", severity="warning")
        app.tell("An earlier note.")
        app.tell("The newest note.")
        await chat.until(lambda: shown() == ["A note of a problem.", "The newest note."])
        rows = [at for at, line in enumerate(chat.screen_text().split("\n")) if "note" in line]
        assert rows[1] < chat.screen.panel.region.y <= rows[1] + 4
        assert [note.timeout for note in app._notifications] == [4, 4, 4]
        await chat.write("one\ntwo\nthree\nfour")
        await chat.until(lambda: "four" in chat.screen_text() and shown()[1] == "The newest note.")
        app.tell("A note of many words. " * 10)
        await chat.until(lambda: any(note.timeout == 11 for note in app._notifications))
