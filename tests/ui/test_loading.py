"""The chat while its model loads: one reads, attaches and writes; the card tells how far it is."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.scripted_engine import DEFAULT_LOAD, Hold, LoadStep, ScriptedHost
from tests.support.waiting import until
from tests.ui.conftest import AppPilot, MakeApp
from vlmtui.domain.engine import LoadFailed, LoadProgress, LoadSpec, LoadStage
from vlmtui.domain.generation import Failure
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import Paths
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import resolve
from vlmtui.session.answer_line import clock_text
from vlmtui.session.engines import EngineState
from vlmtui.session.load_times import last_load_s, note_load
from vlmtui.store.store import Store
from vlmtui.ui.app import VlmtuiApp
from vlmtui.ui.chat.composer import Composer
from vlmtui.ui.chat.frame import LoadCard
from vlmtui.ui.chat.screen import ChatScreen
from vlmtui.ui.models.log import LogScreen, LogView
from vlmtui.ui.models.screen import ModelsScreen

OUT_OF_MEMORY = Failure(
    kind=ErrorKind.OUT_OF_MEMORY,
    message="The GPU does not have enough free memory [/x].",
    detail="torch.OutOfMemoryError: CUDA out of memory.",
    hint="Lower gpu_memory_utilization.",
)


def held_load(until: asyncio.Event, *then: LoadStep) -> list[LoadStep]:
    """A load that stops at 43 % of its weights."""
    return [
        LoadProgress(stage=LoadStage.ENVIRONMENT, elapsed_s=0.0),
        LoadProgress(stage=LoadStage.CONFIG, elapsed_s=1.5),
        LoadProgress(stage=LoadStage.WEIGHTS, elapsed_s=2.0, fraction=0.43, detail="2 of 5 shards"),
        Hold(until),
        *then,
    ]


async def loading(app: VlmtuiApp, pilot: AppPilot) -> LoadCard:
    """Return the card, once the weights are being read."""

    def reading() -> bool:
        progress = app.engines.progress
        return isinstance(app.screen, ChatScreen) and progress is not None and progress.fraction == 0.43

    await until(pilot, reading)
    await pilot.pause()
    return app.screen.query_one(LoadCard)


async def test_the_card_has_the_stage_the_time_left_and_the_keys(make_app: MakeApp) -> None:
    app = make_app(ScriptedHost(load=held_load(asyncio.Event())), initial_model="shapes")
    spec = resolve(Registry.bundled(), "shapes").spec
    note_load(app.services.paths.state / "loads.json", spec, 108)
    async with app.run_test() as pilot:
        card = await loading(app, pilot)
        app.screen.query_one(LoadCard)._clock = lambda: app.engines.started_at + 12
        card.show()
        assert str(card.content).splitlines() == [
            "◐ Loading shapes · Weights  ━━━━━─────── ·43%  2 of 5 shards".replace("·43", " 43"),
            "0:12 · ~1:36 left (last time 1:48) · Ctrl+X g l log · Esc stops it",
        ]
        await pilot.press(*"hello", "enter", *"more")
        await until(pilot, lambda: app.screen.query_one(Composer).text == "more")
        await until(pilot, lambda: "Esc stops it" not in str(card.content))  # Esc takes the message back


def test_the_time_of_a_load_is_stored_by_model(tmp_path: Path) -> None:
    file = tmp_path / "state" / "loads.json"
    one, other = (LoadSpec(name=name, model=name) for name in ("org/one", "org/other"))
    note_load(file, one, 90.0)
    assert last_load_s(file, one) == 90.0 and last_load_s(file, other) is None
    file.write_text('{"org/one vllm": "soon"}')
    assert last_load_s(file, one) is None


async def test_a_load_is_timed(make_app: MakeApp) -> None:
    app = make_app(ScriptedHost(), initial_model="shapes")
    spec = resolve(Registry.bundled(), "shapes").spec
    async with app.run_test() as pilot:
        await until(pilot, lambda: last_load_s(app.services.paths.state / "loads.json", spec) is not None)
        await until(pilot, lambda: [card.display for card in app.screen.query(LoadCard)] == [False])


async def test_the_log_is_one_key_away_and_not_torn_away_when_the_engine_is_ready(make_app: MakeApp) -> None:
    go = asyncio.Event()
    host = ScriptedHost(load=held_load(go))
    app = make_app(host, initial_model="shapes")
    async with app.run_test() as pilot:
        await loading(app, pilot)
        host.engine.add_log("[/x] \x1b]0;title\x07 \x1b[31mred\x1b[0m")
        await pilot.press("f4")
        await until(pilot, lambda: isinstance(app.screen, LogScreen))
        log, view = app.screen, app.screen.query_one(LogView)
        await until(pilot, lambda: view.render_line(2).text.strip() == "[/x] ␛]0;title␇ red")
        go.set()
        await until(pilot, lambda: app.engines.state is EngineState.READY)
        await pilot.pause()
        assert app.screen is log


async def test_escape_stops_the_load_and_the_text_stays(make_app: MakeApp) -> None:
    host = ScriptedHost(load=held_load(asyncio.Event()))
    app = make_app(host, initial_model="shapes")
    async with app.run_test() as pilot:
        card = await loading(app, pilot)
        await pilot.press(*"half", "escape")
        await until(pilot, lambda: app.engines.state is EngineState.NONE and host.engine.was_shut_down)
        assert not host.engine.alive and not card.display
        assert app.screen.query_one(Composer).text == "half"
        await pilot.press(*" a mess")
        app.action_help_quit()
        app.action_help_quit()
        await until(pilot, lambda: app.return_value is not None)
    store = Store.open(app.services.paths.data, app.services.paths.media)
    found = store.last()
    assert found is not None and store.draft(found).text == "half a mess"
    store.close()


async def test_a_failed_load_says_what_to_do_and_is_retried_with_a_key(make_app: MakeApp) -> None:
    go = asyncio.Event()
    host = ScriptedHost(answers=[["one"]], load=held_load(go, LoadFailed(OUT_OF_MEMORY)))
    app = make_app(host, initial_model="shapes")
    async with app.run_test() as pilot:
        card = await loading(app, pilot)
        await pilot.press(*"hello", "enter", *"more")
        go.set()
        await until(pilot, lambda: "Can't load shapes" in str(card.content))
        for part in (OUT_OF_MEMORY.message, OUT_OF_MEMORY.detail, OUT_OF_MEMORY.hint, "Ctrl+X g r loads it again"):
            assert part in str(card.content)
        assert app.screen.query_one(Composer).text == "more"
        host.load_steps = list(DEFAULT_LOAD)
        await pilot.press("f5")
        chat = app.conversation.require_chat()
        await until(pilot, lambda: [one.sent_user.text for one in chat.exchanges] == ["hello"])
        assert app.screen.query_one(Composer).text == "more" and not card.display


async def test_a_failed_start_is_reported_in_the_chat(make_app: MakeApp) -> None:
    host = ScriptedHost()
    host.refuse = VlmtuiError(ErrorKind.NO_ENGINE, "vLLM is not installed.", hint="pip install 'vlmtui[cpu]'")
    app = make_app(host, initial_model="shapes")
    async with app.run_test() as pilot:
        await until(pilot, lambda: app.engines.state is EngineState.DEAD)
        await until(
            pilot, lambda: "vLLM is not installed." in "".join(str(card.content) for card in app.screen.query(LoadCard))
        )
        await pilot.press("f3")
        await until(pilot, lambda: isinstance(app.screen, ModelsScreen))


async def test_a_stored_conversation_is_read_before_its_model_is_there(make_app: MakeApp, tmp_path: Path) -> None:
    paths = Paths.below(tmp_path)
    store = Store.open(paths.data, paths.media)
    conversation = store.new_conversation(title="An old talk", model="no/such-model")
    store.close()
    app = make_app(ScriptedHost(), resume=conversation)
    async with app.run_test(size=(120, 30)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, ChatScreen))
        await until(pilot, lambda: app.conversation.require_chat().id == conversation)
        assert app.engines.model is None
        assert "Enter or Ctrl+X m lists them" in str(app.screen.query_one("WelcomePanel").render())


async def test_a_sample_image_and_its_question_are_one_key_away(make_app: MakeApp) -> None:
    app = make_app(ScriptedHost(load=held_load(asyncio.Event())), initial_model="shapes")
    async with app.run_test() as pilot:
        await loading(app, pilot)
        await pilot.press("tab")
        chat, composer = app.conversation.require_chat(), app.screen.query_one(Composer)
        await until(pilot, lambda: composer.text == "[Image #1] What is in this image?")
        await until(pilot, lambda: [one.name for one in chat.draft.attachments] == ["circle.png"])
        await pilot.press("tab")
        assert composer.text == "[Image #1] What is in this image?", "only in an empty chat"


def test_the_clock() -> None:
    assert [clock_text(seconds) for seconds in (0, 7.9, 760, 3723)] == ["0:00", "0:07", "12:40", "1:02:03"]
