"""Several engines in one app: switched without unloading, compared, listed with what they offer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from textual.widgets import OptionList, Static

import vlmtui.engine.remote_models
from tests.support.documents import written
from tests.support.scripted_engine import ScriptedHost
from tests.support.waiting import until
from tests.ui.conftest import Chat, MakeApp, StartChat, open_models
from tests.ui.test_fan_out import fan, fanned, texts
from vlmtui.config.settings import EngineSettings, Settings
from vlmtui.domain.engine import REMOTE_BACKEND
from vlmtui.engine.remote_models import Server
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.protocol.endpoint import ForeignSocket
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, resolve
from vlmtui.session.engines import EngineState
from vlmtui.ui.chat.frame import StatusBar
from vlmtui.ui.chat.screen import ChatScreen
from vlmtui.ui.compare.fan_out import FanOutScreen
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.models.screen import ModelList, ModelsScreen, row
from vlmtui.ui.services import ExitReport
from vlmtui.ui.widgets.dialogs import ChoiceScreen
from vlmtui.worker.backends.remote.probe import ServedModel, ServerFacts, SeveralModels

FACTS = ServerFacts(
    models=(
        ServedModel(id="qwen", root="Qwen/Qwen3-VL-8B-Instruct", max_model_len=32768),
        ServedModel(id="cats", root="/adapters/cats", parent="qwen"),
    ),
    version="0.32.0",
    latency_s=0.012,
    tokenizes=True,
    takes_ids=False,
    takes_template=False,
    takes_media_arguments=True,
    chat_template="{{ messages }}",
)
BOX = EngineSettings(url="http://box:8000")


def served(name: str, engine: str = "box") -> Model:
    """A model of a server, of the same family as the one here."""
    shapes = resolve(Registry.bundled(), "shapes")
    spec = msgspec.structs.replace(
        shapes.spec, backend=REMOTE_BACKEND, name=f"{name} at {engine}", model=name, engine_args={"url": BOX.url}
    )
    return msgspec.structs.replace(shapes, spec=spec)


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers as `box`; no other one does."""

    def find(registry: Registry, engines: Mapping[str, EngineSettings], engine: str, **options: object) -> Model:
        if engine.startswith("unix:") and options["allow_owner"] != "anna":
            raise ForeignSocket(engine, "anna")
        if "box" not in engine:
            raise VlmtuiError(ErrorKind.NO_NETWORK, f"Nothing listens at {engine}.", hint="Is it running?")
        return served("qwen")

    def look(registry: Registry, name: str, settings: EngineSettings) -> Server:
        if name != "box":
            error = VlmtuiError(ErrorKind.NO_NETWORK, "Nothing listens at http://far:1.")
            return Server(name, settings.url, error=error)
        return Server(name, settings.url, (served("qwen"), served("cats")), FACTS)

    monkeypatch.setattr(vlmtui.engine.remote_models, "find_remote_model", find)
    monkeypatch.setattr(vlmtui.engine.remote_models, "look_at_server", look)


def status(chat: Chat) -> str:
    return str(chat.screen.query_one(StatusBar).render())


async def use(chat: Chat, engine: str, model: str) -> None:
    """Type `/engine`, and wait until its model is ready in the chat."""
    await chat.send(f"/engine {engine}")
    controller = chat.app.engines
    await chat.until(
        lambda: (
            controller.state is EngineState.READY
            and controller.require_model().spec.name == model
            and isinstance(chat.app.screen, ChatScreen)
        )
    )


async def test_a_conversation_changes_between_engines_that_stay_loaded(chatting: StartChat, box: None) -> None:
    async with chatting(["One."], ["Two."], ["Three."]) as chat:
        await chat.say("first")
        await use(chat, BOX.url, "qwen at box")
        assert "+ shapes" in status(chat)
        await chat.say("second")
        await use(chat, "shapes", "shapes")
        assert "+ qwen at box" in status(chat)
        await chat.say("third")
        assert [one.spec.backend for one in chat.host.engines] == ["vllm", REMOTE_BACKEND]
        assert not any(one.was_shut_down for one in chat.host.engines)
        assert [len(one.requests) for one in chat.host.engines] == [2, 1]
        records = [exchange.record for exchange in chat.controller.exchanges]
        assert [one.model == "qwen" for one in records if one is not None] == [False, True, False]


async def test_a_server_of_several_models_lets_the_user_choose(
    chatting: StartChat, box: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(registry: Registry, engines: Mapping[str, EngineSettings], engine: str, **options: object) -> Model:
        if options["name"] is None:
            raise SeveralModels(["qwen", "cats"], "")
        return served(str(options["name"]), engine)

    monkeypatch.setattr(vlmtui.engine.remote_models, "find_remote_model", find)
    async with chatting() as chat:
        await chat.send("/engine box:8000")
        await chat.until(lambda: isinstance(chat.app.screen, ChoiceScreen) and has_focus(chat))
        await chat.pilot.press("down", "enter")
        await chat.until(lambda: chat.app.engines.require_model().spec.name == "cats at box:8000")


async def test_a_socket_of_another_user_is_used_only_after_a_yes(chatting: StartChat, box: None) -> None:
    async with chatting(["One."], ["Two."]) as chat:
        await chat.send("/engine unix:/tmp/box.sock")
        await chat.until(lambda: isinstance(chat.app.screen, ChoiceScreen) and has_focus(chat))
        question = str(chat.app.screen.query_one(Static).render())
        assert "belongs to another user of this machine: anna" in question
        await chat.pilot.press("enter")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
        assert [one.spec.backend for one in chat.host.engines] == ["vllm"]
        await chat.send("/engine unix:/tmp/box.sock")
        await chat.until(lambda: isinstance(chat.app.screen, ChoiceScreen) and has_focus(chat))
        await chat.pilot.press("down", "enter")
        await chat.until(lambda: [one.spec.backend for one in chat.host.engines] == ["vllm", REMOTE_BACKEND])


async def test_two_engines_are_compared_and_the_answer_of_one_is_used(chatting: StartChat, box: None) -> None:
    async with chatting(["A", " cat."], ["A", " dog."], ["Yes."]) as chat:
        await chat.write("What is this?")
        screen = await fan(chat, f"engine=here,{BOX.url}")
        assert texts(screen) == ["A cat.", "A dog."]
        here, there = chat.host.engines
        assert [len(here.requests), len(there.requests)] == [1, 1]
        assert here.requests[0].prompt == there.requests[0].prompt
        assert here.requests[0].sampling.seed == there.requests[0].sampling.seed
        document = screen.fan_out.document()
        assert [side.label for side in document.sides] == ["here", BOX.url]
        await chat.pilot.press("down", "enter")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen) and len(chat.controller.exchanges) == 1)
        assert chat.last.answer is not None and chat.last.answer.text == "A dog."
        assert chat.last.record is not None and chat.last.record.model == "qwen"


async def test_quitting_says_nothing_of_how_long_a_servers_model_stays_loaded(chatting: StartChat, box: None) -> None:
    async with chatting(["One."]) as chat:
        await chat.send("/engine http://box:8000")
        await chat.until(lambda: chat.app.engines.state is EngineState.READY and len(chat.host.engines) == 2)
        chat.app.exit(ExitReport.of("qwen", await chat.host.engine.status(), None))
        assert chat.app.return_value == ExitReport("qwen", stays=False, keep_alive_s=0.0)


async def test_an_engine_that_is_not_there_is_named(chatting: StartChat, box: None) -> None:
    async with chatting(["One."]) as chat:
        await chat.send("/engine http://far")
        await chat.until(lambda: "Nothing listens at http://far." in chat.notes)
        await chat.send("/engine nowhere")
        await chat.until(lambda: "nowhere" in chat.notes)
        await chat.write("Hi")
        chat.app.run_action_id("compare", "engine=here,http://far")
        await chat.until(lambda: "Nothing listens at http://far." in chat.notes)
        assert chat.app.engines.state is EngineState.READY
        assert chat.composer.text == "Hi" or chat.controller.draft.text == "Hi"


def has_focus(chat: Chat) -> bool:
    """Return whether the lines of a dialog wait for a key."""
    return any(lines.highlighted == 0 for lines in chat.app.screen.query(OptionList))


async def loads_with(chat: Chat, plan: str, way: str) -> FanOutScreen:
    """Give a plan over engines, and choose how those that are not loaded are loaded."""
    await chat.write("What is this?")
    chat.app.run_action_id("compare", plan)
    await chat.until(lambda: isinstance(chat.app.screen, ChoiceScreen) and has_focus(chat))
    assert "Needs about" in str(chat.app.screen.query_one(".title", Static).render())
    lines = chat.app.screen.query_one(OptionList)
    at = next(at for at, line in enumerate(lines.options) if way in str(line.prompt))
    await chat.pilot.press(*["down"] * at, "enter")
    await chat.until(lambda: isinstance(chat.app.screen, FanOutScreen) and fanned(chat).differences is not None)
    await chat.pilot.pause()
    return fanned(chat)


async def test_another_engine_of_the_same_model_is_loaded_beside(chatting: StartChat) -> None:
    async with chatting(["A", " cat."], ["A", " dog."]) as chat:
        screen = await loads_with(chat, 'engine=here,"here dtype=bfloat16"', "Load beside")
        assert texts(screen) == ["A cat.", "A dog."]
        labels = [screen.about(kind) for kind in screen.fan_out.kinds()]
        assert all(
            f"vLLM 0.32.0 · {dtype} · cpu" in label
            for dtype, label in zip(("float32", "bfloat16"), labels, strict=True)
        )
        assert labels[1].startswith("here dtype=bfloat16 · ")
        here, other = chat.host.engines
        assert other.spec.engine_args["dtype"] == "bfloat16" and not here.was_shut_down
        assert len(chat.app.engines.models) == 2
        await chat.pilot.press("escape")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
        await chat.until(lambda: "+ shapes (dtype=bfloat16" in status(chat))


async def test_without_memory_one_is_loaded_after_the_other_and_the_first_again(chatting: StartChat) -> None:
    async with chatting(["A", " cat."], ["A", " dog."], ["Again."]) as chat:
        screen = await loads_with(chat, "engine=transformers,here", "One after the other")
        assert texts(screen) == ["A dog.", "A cat."]
        first, other, *_ = chat.host.engines
        assert first.was_shut_down and other.spec.backend == "transformers"
        controller = chat.app.engines
        await chat.until(lambda: controller.state is EngineState.READY and len(chat.host.engines) == 3)
        assert controller.require_model().spec.backend == "vllm" and other.was_shut_down
        await chat.pilot.press("escape")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
        await chat.say("And now?")
        assert chat.last.answer is not None and chat.last.answer.text == "Again."


async def test_cancelling_the_question_about_memory_loads_nothing(chatting: StartChat) -> None:
    async with chatting(["One."]) as chat:
        await chat.write("What is this?")
        chat.app.run_action_id("compare", "engine=here,transformers")
        await chat.until(lambda: isinstance(chat.app.screen, ChoiceScreen) and has_focus(chat))
        await chat.pilot.press("escape")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
        assert len(chat.host.engines) == 1 and chat.composer.text == "What is this?"


async def test_the_picker_lists_the_models_and_features_of_servers(
    make_app: MakeApp, box: None, tmp_path: Path
) -> None:
    settings = Settings(engines={"box": BOX, "far": EngineSettings(url="http://far:1")})
    app = make_app(ScriptedHost(), settings=settings)
    async with app.run_test(size=(120, 40)) as pilot:
        await open_models(pilot)
        await until(pilot, lambda: isinstance(app.screen, ModelsScreen) and len(app.screen.servers) == 2)
        screen = app.screen
        assert isinstance(screen, ModelsScreen)
        rows = screen.query_one(ModelList).choices
        names = [row.model.spec.name for row in rows if row.server is not None]
        assert names == ["qwen at box", "cats at box"]
        shown = [row(one, 70).plain for one in rows if one.server is not None]
        assert all("12 ms" in one and one.rstrip().endswith("server") for one in shown)
        assert rows[0].bundled and rows[0].server is None, "what runs here without anything comes first"
        models = screen.query_one(ModelList)
        lines = [models.render_line(y).text.strip() for y in range(models.virtual_size.height)]
        at = next(number for number, line in enumerate(lines) if line.startswith("qwen at box"))
        await pilot.click(ModelList, offset=(5, at))
        assert isinstance(app.screen, ModelsScreen), "the first click shows the details"
        assert models.chosen is not None and models.chosen.model.spec.name == names[0]
        assert "▌" in models.render_line(at).text
        assert "far: Nothing listens" in str(screen.query_one("#errors").render())
        await pilot.press(*"qwen at box")
        await until(pilot, lambda: "vLLM 0.32.0" in written(screen.query_one("#side", DocumentView)))
        told = written(screen.query_one("#side", DocumentView))
        assert "32k tokens" in told and "--enable-scale-out switches it on" in told and "12 ms" in told
        await pilot.press("enter")
        await until(pilot, lambda: app.engines.state is EngineState.READY)
        assert app.engines.require_model().spec.name == "qwen at box"
