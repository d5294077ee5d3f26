"""Several engines in one app: switched without unloading, compared, listed with what they offer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

import vlmtui.engine.remote_models
from tests.support.scripted_engine import ScriptedHost
from tests.support.waiting import until
from tests.ui.conftest import Chat, MakeApp, StartChat
from tests.ui.test_fan_out import fan, of
from vlmtui.config.engines import EngineSettings
from vlmtui.config.settings import Settings
from vlmtui.domain.engine import REMOTE_BACKEND
from vlmtui.engine.remote_models import Server
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, resolve
from vlmtui.session.engine_controller import EngineState
from vlmtui.ui.chat.screen import ChatScreen
from vlmtui.ui.chat.status_bar import StatusBar
from vlmtui.ui.compare.answer_grid import AnswerTile
from vlmtui.ui.models.model_details import ModelDetails
from vlmtui.ui.models.model_list import ModelList
from vlmtui.ui.models.screen import ModelsScreen
from vlmtui.worker.backends.remote.probe import ServedModel, ServerFacts

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
    controller = chat.app.engine_controller
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


async def test_two_engines_are_compared_and_the_answer_of_one_is_used(chatting: StartChat, box: None) -> None:
    async with chatting(["A", " cat."], ["A", " dog."], ["Yes."]) as chat:
        await chat.write("What is this?")
        screen = await fan(chat, "engine=here,box")
        panes = list(screen.query(AnswerTile))
        assert [of(pane, ".text > Static") for pane in panes] == ["A cat.", "A dog."]
        here, there = chat.host.engines
        assert [len(here.requests), len(there.requests)] == [1, 1]
        assert here.requests[0].prompt == there.requests[0].prompt
        assert here.requests[0].sampling.seed == there.requests[0].sampling.seed
        document = screen.fan_out.document()
        assert [side.label for side in document.sides] == ["here", "box"]
        await chat.pilot.press("right", "enter")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen) and len(chat.controller.exchanges) == 1)
        assert chat.last.answer is not None and chat.last.answer.text == "A dog."
        assert chat.last.record is not None and chat.last.record.model == "qwen"


async def test_an_engine_that_is_not_there_is_named(chatting: StartChat, box: None) -> None:
    async with chatting(["One."]) as chat:
        await chat.send("/engine http://far")
        await chat.until(lambda: "Nothing listens at http://far." in chat.notes)
        await chat.send("/engine nowhere")
        await chat.until(lambda: "nowhere" in chat.notes)
        await chat.write("Hi")
        chat.app.run_action_id("compare", "engine=here,far")
        await chat.until(lambda: "Nothing listens at far." in chat.notes)
        assert chat.app.engine_controller.state is EngineState.READY
        assert chat.composer.text == "Hi" or chat.controller.draft.text == "Hi"


async def test_the_picker_lists_the_models_of_servers_and_what_they_offer(
    make_app: MakeApp, box: None, tmp_path: Path
) -> None:
    settings = Settings(engines={"box": BOX, "far": EngineSettings(url="http://far:1")})
    app = make_app(ScriptedHost(), settings=settings)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, ModelsScreen) and len(app.screen.servers) == 2)
        screen = app.screen
        assert isinstance(screen, ModelsScreen)
        rows = screen.query_one(ModelList).rows
        names = [row.model.spec.name for row in rows if row.server is not None]
        assert names == ["qwen at box", "cats at box"]
        assert rows[0].bundled and rows[0].server is None, "what runs here without anything comes first"
        assert "far: Nothing listens" in str(screen.query_one("#silent").render())
        await pilot.press(*"qwen at box")
        await until(pilot, lambda: "vLLM 0.32.0" in str(screen.query_one(ModelDetails).render()))
        told = str(screen.query_one(ModelDetails).render())
        assert "32k tokens" in told and "--enable-scale-out switches it on" in told and "12 ms" in told
        await pilot.press("enter")
        await until(pilot, lambda: app.engine_controller.state is EngineState.READY)
        assert app.engine_controller.require_model().spec.name == "qwen at box"
