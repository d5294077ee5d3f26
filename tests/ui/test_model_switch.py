"""Another model instead of the loaded one: that one stays until the other has loaded, or one is asked."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from textual.widgets import OptionList, Static

from tests.support.scripted_engine import DEFAULT_LOAD, Hold, LoadStep, ScriptedEngine, ScriptedHost
from tests.support.waiting import until
from tests.ui.conftest import GIB, Chat, MakeApp, StartChat
from vlmtui.domain.engine import LoadFailed
from vlmtui.domain.generation import Failed, Failure
from vlmtui.engine.machine import Gpu, Machine
from vlmtui.errors import ErrorKind
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import resolve
from vlmtui.session import dials
from vlmtui.session.dials import processor_arguments
from vlmtui.session.engines import EngineState
from vlmtui.ui.chat.screen import ChatScreen
from vlmtui.ui.widgets.dialogs import ChoiceScreen

OTHER = "smolvlm"
NO_MEMORY = LoadFailed(Failure(kind=ErrorKind.OUT_OF_MEMORY, message="Not enough memory."))


def choose(chat: Chat, *load: LoadStep) -> None:
    """Choose another model, whose load has these steps."""
    chat.host.load_steps = list(load)
    chat.app.models.load(resolve(chat.app.services.registry, OTHER))


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has no room for a second engine."""
    machine = Machine(gpus=(Gpu("Test GPU", free=2 * GIB, total=24 * GIB),), ram_free=32 * GIB)
    monkeypatch.setattr(Machine, "measure", classmethod(lambda cls: machine))


def top(chat: Chat) -> str:
    """Return the text of the current screen."""
    return "\n".join(strip.text for strip in chat.app.screen._compositor.render_strips())


def asked(chat: Chat) -> str:
    """The question, once it is shown."""
    is_asked = isinstance(chat.app.screen, ChoiceScreen) and bool(chat.app.screen.query(OptionList))
    return str(chat.app.screen.query(Static).first().content) if is_asked else ""


async def failed(chat: Chat) -> None:
    await chat.until(lambda: chat.app.engines.state is EngineState.DEAD)


async def test_the_loaded_model_stays_until_the_other_has_loaded(chatting: StartChat) -> None:
    async with chatting() as chat:
        go = asyncio.Event()
        choose(chat, *DEFAULT_LOAD[:3], Hold(go))
        await chat.until(lambda: len(chat.host.engines) == 2)
        old, new = chat.host.engines
        assert old.alive
        go.set()
        await chat.until(lambda: not old.alive)
        assert old.was_shut_down
        assert new.alive
        assert chat.app.engines.former is None


async def test_a_failed_switch_goes_back_with_one_key_and_without_a_load(chatting: StartChat) -> None:
    async with chatting(["before"], ["after"]) as chat:
        await chat.say("first")
        choose(chat, *DEFAULT_LOAD[:3], NO_MEMORY)
        await failed(chat)
        await chat.until(lambda: "Esc goes back to shapes" in top(chat))
        await chat.pilot.press("escape")
        await chat.until(lambda: chat.app.engines.state is EngineState.READY)
        assert chat.host.engines[0].alive
        await chat.say("second")
        assert chat.last.answer.text == "after"


async def test_a_load_that_is_aborted_goes_back_to_the_former_model(chatting: StartChat) -> None:
    async with chatting() as chat:
        choose(chat, *DEFAULT_LOAD[:3], Hold(asyncio.Event()))
        await chat.until(lambda: len(chat.host.engines) == 2)
        await chat.until(lambda: chat.app.engines.progress == DEFAULT_LOAD[2])
        await chat.until(lambda: "shapes stays loaded until then" in top(chat))
        await chat.pilot.press("escape")
        await chat.until(lambda: chat.app.engines.state is EngineState.READY)
        assert chat.app.engines.require_model().spec.name == "shapes"
        assert not chat.host.engines[1].alive


@pytest.mark.usefixtures("full")
async def test_too_little_memory_is_asked_about(chatting: StartChat) -> None:
    async with chatting() as chat:
        choose(chat, *DEFAULT_LOAD)
        await chat.until(lambda: "shapes is unloaded first" in asked(chat))
        assert "GiB of memory; here: Test GPU, 2.0 GiB free." in asked(chat)
        await chat.pilot.press("escape")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
        assert len(chat.host.engines) == 1
        choose(chat, *DEFAULT_LOAD)
        await chat.until(lambda: bool(asked(chat)))
        await chat.pilot.press("down", "enter")
        await chat.until(lambda: len(chat.host.engines) == 2)
        assert not chat.host.engines[0].alive


@pytest.mark.usefixtures("full")
async def test_a_former_model_that_was_unloaded_is_loaded_again_with_one_key(chatting: StartChat) -> None:
    async with chatting() as chat:
        choose(chat, *DEFAULT_LOAD[:3], NO_MEMORY)
        await chat.until(lambda: bool(asked(chat)))
        await chat.pilot.press("down", "enter")
        await failed(chat)
        await chat.until(lambda: "Esc loads shapes" in top(chat))
        chat.host.load_steps = list(DEFAULT_LOAD)
        await chat.pilot.press("escape")
        await chat.until(lambda: chat.app.engines.state is EngineState.READY)
        assert chat.app.engines.require_model().spec.name == "shapes"


async def test_a_switch_asks_before_it_stops_an_answer(chatting: StartChat) -> None:
    async with chatting(["half", Hold(asyncio.Event())]) as chat:
        await chat.send("go on")
        await chat.until(lambda: bool(chat.controller.exchanges) and chat.last.answer.text == "half")
        exchange = chat.last
        choose(chat, *DEFAULT_LOAD)
        await chat.until(lambda: bool(asked(chat)))
        assert exchange.is_running
        await chat.pilot.press("down", "enter")
        await chat.until(lambda: not exchange.is_running)
        assert isinstance(exchange.answer.outcome, Failed)
        name = resolve(chat.app.services.registry, OTHER).spec.name
        assert exchange.answer.outcome.failure.message == f"Stopped to load {name}."
        assert exchange.answer.text == "half"
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
        await chat.until(lambda: f"Stopped to load {name}." in top(chat))


@pytest.mark.usefixtures("full")
async def test_enter_typed_ahead_keeps_the_model(chatting: StartChat) -> None:
    async with chatting() as chat:
        choose(chat, *DEFAULT_LOAD)
        await chat.until(lambda: bool(asked(chat)))
        await chat.pilot.press("enter")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
        assert len(chat.host.engines) == 1 and chat.host.engines[0].alive


async def test_arguments_of_the_processor_stay_with_their_family(chatting: StartChat) -> None:
    def given() -> dict[str, object]:
        return processor_arguments(chat.controller.settings.sampling, {})

    async with chatting(["one"]) as chat:
        await chat.send("/set max_pixels 12544")
        await chat.until(lambda: given() == {"max_pixels": 12544})
        choose(chat, *DEFAULT_LOAD)
        await chat.until(lambda: given() == {})
        told = [note.message for note in chat.app._notifications]
        assert any(text.startswith("Another model family: max pixels 12544 → default.") for text in told)
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
        await chat.send('/set size {"longest_edge": 364}')
        await chat.until(lambda: given() == {"size": {"longest_edge": 364}})
        chat.app.models.load(resolve(chat.app.services.registry, "shapes"))
        await chat.until(lambda: given() == {"max_pixels": 12544})


async def test_a_file_is_read_while_the_screen_lives(chatting: StartChat, monkeypatch: pytest.MonkeyPatch) -> None:
    is_read, go = threading.Event(), threading.Event()

    def slow(path: Path, *, bytes_max: int) -> bytes:
        is_read.set()
        assert go.wait(20)
        return b'root ::= "a"'

    monkeypatch.setattr(dials, "read_whole", slow)
    async with chatting(["one"]) as chat:
        await chat.send("/set grammar @grammar.ebnf")
        await chat.until(is_read.is_set)  # by the event loop, which the reading does not hold
        assert not chat.controller.settings.sampling.extra
        go.set()
        await chat.until(lambda: "structured_outputs" in chat.controller.settings.sampling.extra)


async def running_elsewhere(host: ScriptedHost, name: str = "smolvlm") -> ScriptedEngine:
    """An engine that another process has loaded."""
    model = resolve(Registry.bundled(), name)
    engine = await host.open(model.spec, client="ask", keep_alive_s=None)
    async for _ in engine.load():
        pass
    return engine


@pytest.mark.usefixtures("full")
async def test_the_first_load_asks_when_the_engine_of_another_process_fills_the_memory(make_app: MakeApp) -> None:
    host = ScriptedHost()
    other = await running_elsewhere(host)
    app = make_app(host, initial_model="shapes")
    async with app.run_test(size=(100, 30)) as pilot:
        chat = Chat(app, host, pilot)
        await chat.until(lambda: app.key_queue.is_open)
        await pilot.press(*"typed")  # before the question, which does not get it
        await chat.until(lambda: f"Loaded outside this app: {other.spec.name} (0.7 GiB)." in asked(chat))
        await pilot.press("enter")  # the first answer is the safe one
        await chat.until(lambda: isinstance(app.screen, ChatScreen))
        assert host.engines == [other] and app.engines.state is EngineState.NONE
        assert chat.composer.text == "typed"
        app.models.load(resolve(app.services.registry, "shapes"))
        await chat.until(lambda: bool(asked(chat)))
        await pilot.press("down", "enter")
        await chat.until(lambda: app.engines.state is EngineState.READY)
        assert other.alive


@pytest.mark.usefixtures("full")
async def test_a_question_whose_dialog_is_closed_is_answered_with_no(make_app: MakeApp) -> None:
    host = ScriptedHost()
    other = await running_elsewhere(host)
    app = make_app(host, initial_model="shapes")
    async with app.run_test(size=(100, 30)) as pilot:
        chat = Chat(app, host, pilot)
        await chat.until(lambda: bool(asked(chat)))
        app.back_to_chat()  # as opening a conversation does
        await chat.until(lambda: app.engines.state is EngineState.NONE)
        assert host.engines == [other]


@pytest.mark.usefixtures("full")
async def test_a_switch_never_unloads_the_engine_of_another_process(chatting: StartChat) -> None:
    async with chatting() as chat:
        other = await running_elsewhere(chat.host, "qwen2_5_vl")
        choose(chat, *DEFAULT_LOAD)
        await chat.until(lambda: "shapes is unloaded first. Loaded outside this app: Qwen/Qwen2.5-VL" in asked(chat))
        await chat.pilot.press("down", "enter")
        await chat.until(lambda: len(chat.host.engines) == 3)
        assert [engine.alive for engine in chat.host.engines] == [False, True, True] and other.alive


async def test_a_load_that_fits_beside_another_process_s_engine_asks_nothing(make_app: MakeApp) -> None:
    host = ScriptedHost()
    await running_elsewhere(host)
    app = make_app(host, initial_model="shapes")
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: app.engines.state is EngineState.READY)
    assert len(host.engines) == 2


@pytest.mark.usefixtures("full")
async def test_an_engine_of_another_process_that_can_serve_the_model_is_used(make_app: MakeApp) -> None:
    host = ScriptedHost()
    other = await running_elsewhere(host, "shapes")
    app = make_app(host, initial_model="shapes")
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: app.engines.state is EngineState.READY)
    assert host.engines == [other] and other.attached
