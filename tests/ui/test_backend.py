"""The app on a real worker with another engine than vLLM: missing capabilities are switched off and named."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from textual import events
from textual.widgets import Input

from tests.support.hosts import patient_host
from tests.support.pictures import Easel
from tests.support.waiting import until, until_chat
from tests.worker.echo_backend import offer_echo
from vlmtui.config.settings import Settings
from vlmtui.domain.generation import Finished
from vlmtui.paths import Paths
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, resolve
from vlmtui.session.async_store import AsyncStore
from vlmtui.ui.app import VlmtuiApp
from vlmtui.ui.chat.comparisons import PlanScreen
from vlmtui.ui.chat.composer import Composer
from vlmtui.ui.chat.screen import ChatScreen
from vlmtui.ui.inspector.screen import InspectorScreen
from vlmtui.ui.services import Services

SAYS = "This engine (Echo) "


def echoing(registry: Registry) -> Model:
    """The bundled model's record, with an engine of another kind."""
    model = resolve(registry, "shapes")
    return Model(model.family, msgspec.structs.replace(model.spec, backend="echo", engine_args={}))


async def test_missing_capabilities_are_switched_off_and_named(
    short_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer_echo(short_path / "site", monkeypatch)
    paths, registry = Paths.below(short_path), Registry.bundled()
    host = patient_host(paths)
    app = VlmtuiApp(
        Services(
            paths=paths,
            registry=registry,
            host=host,
            settings=Settings(graphics="off"),
            store=AsyncStore(paths),
            keep_alive_s=0.0,
        )
    )

    def notes() -> str:
        return "\n".join(note.message for note in app._notifications)

    def texts() -> str:
        return "\n".join(strip.text.rstrip() for strip in app.screen._compositor.render_strips())

    async with app.run_test(size=(120, 40)) as pilot:
        app.models.load(echoing(registry))
        await until_chat(pilot)
        controller = app.conversation.chat
        assert controller is not None

        async def type_in(text: str) -> None:
            app.screen.query_one(Composer).insert(text)
            await pilot.pause()
            await pilot.press("enter")

        # An answer, and no log-probabilities or tokens of it.
        await type_in("hello there")
        await until(pilot, lambda: len(controller.exchanges) == 1 and not controller.exchanges[-1].is_running)
        answer = controller.exchanges[-1].answer
        assert (answer.text, answer.usage.completion_tokens) == ("hello there ", 2)
        assert isinstance(answer.outcome, Finished)
        await pilot.press("f12")
        await until(pilot, lambda: isinstance(app.screen, InspectorScreen) and bool(app.screen.query("#nothing")))
        await pilot.press("2")
        await until(pilot, lambda: SAYS + "doesn't report prompt tokens" in texts())
        await pilot.press("percent_sign")
        await until(pilot, lambda: SAYS + "doesn't report log-probabilities" in texts() + notes())
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, ChatScreen))

        # A picture: its cost is not counted, and no raw prompt takes it.
        picture = Easel(tmp_path).picture(("red", "circle", "left")).attachment.path
        app.post_message(events.Paste(picture))
        await until(pilot, lambda: len(controller.draft.attachments) == 1)
        await until(pilot, lambda: SAYS + "can't count tokens before sending" in texts())
        await pilot.press("f10")
        await until(pilot, lambda: SAYS + "doesn't accept images or videos in raw prompts" in notes())

        # Seeds cannot be chosen for a fan-out.
        await type_in("/fan")
        await until(pilot, lambda: isinstance(app.screen, PlanScreen))
        assert app.screen.query_one(Input).value == "temperature=0,0.7,1.2"
        app.screen.query_one(Input).value = "seed=1,2"
        await until(pilot, lambda: SAYS + "ignores seeds" in texts())
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, ChatScreen))
        await app.engines.abort()
    assert await host.running() == []
