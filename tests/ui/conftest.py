"""Fixtures: the app with a scripted engine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from PIL import Image
from textual import events
from textual.app import App
from textual.dom import DOMNode
from textual.pilot import Pilot
from textual.screen import Screen

from portable_svg import portable_svg
from tests.support.scripted_engine import ScriptedHost, Step
from tests.support.waiting import until, until_chat
from vlmtui.config.settings import Settings
from vlmtui.engine.machine import Gpu, Machine
from vlmtui.paths import Paths
from vlmtui.registry import routes
from vlmtui.registry.loader import Registry
from vlmtui.registry.schema import Family
from vlmtui.session.async_store import AsyncStore
from vlmtui.session.conversation import Conversation
from vlmtui.session.exchange import Exchange
from vlmtui.session.resume import ResumePoint
from vlmtui.store.records import ConversationId
from vlmtui.ui.app import VlmtuiApp
from vlmtui.ui.chat.blocks import AnswerBlock
from vlmtui.ui.chat.composer import Composer
from vlmtui.ui.chat.screen import ChatScreen
from vlmtui.ui.chat.transcript import Transcript
from vlmtui.ui.help import LeaderScreen
from vlmtui.ui.models.screen import ModelsScreen
from vlmtui.ui.services import Delays, ExitReport, Services

GIB = 2**30
MACHINE = Machine(gpus=(Gpu("Test GPU", free=24 * GIB, total=24 * GIB),), ram_free=32 * GIB)
"""The hardware that every test pretends to have."""
MEASURE: object = Machine.__dict__["measure"]
"""The real `Machine.measure`."""

AppPilot = Pilot[ExitReport | None]
MakeApp = Callable[..., VlmtuiApp]

_NAMES = ("Qwen2.5-VL", "InternVL3", "LLaVA-OneVision", "Pixtral", "MiniCPM-V", "Gemma 3", "Molmo", "SmolVLM")
_SIZES = (None, 2.2, 7.6, 14.8, 72.7)
_CONTEXTS = (4096, 32768, 131072)


def answers_of(node: DOMNode) -> list[AnswerBlock]:
    """Return the answers in the transcript."""
    blocks = [block for view in node.query(Transcript) for block in view.document.blocks]
    return [block for block in blocks if isinstance(block, AnswerBlock)]


async def open_models(pilot: AppPilot) -> None:
    """Open the list of models over the chat, once that takes keys."""
    app = pilot.app
    assert isinstance(app, VlmtuiApp)
    await until(pilot, lambda: app.key_queue.is_open)
    app.run_action_id("models")
    await until(pilot, lambda: isinstance(app.screen, ModelsScreen))


@dataclass
class Chat:
    """The app, which shows its chat screen."""

    app: VlmtuiApp
    host: ScriptedHost
    pilot: AppPilot

    @property
    def screen(self) -> ChatScreen:
        assert isinstance(self.app.screen, ChatScreen)
        return self.app.screen

    @property
    def controller(self) -> Conversation:
        assert self.app.conversation.chat is not None
        return self.app.conversation.chat

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
        """Return the text of the newest answer; `screen_text` is its visible part."""
        return answers_of(self.screen)[-1].parts.answer

    def answer_lines(self) -> str:
        """Return the lines of the newest answer as they are laid out, with its marks and failure."""
        return "\n".join(line.plain for line in answers_of(self.screen)[-1].lines)

    def screen_text(self) -> str:
        """Return the screen, line by line."""
        return "\n".join(strip.text.rstrip() for strip in self.screen._compositor.render_strips())

    async def until(self, condition: Callable[[], bool]) -> None:
        await until(self.pilot, condition)

    async def write(self, text: str) -> None:
        self.composer.insert(text)
        await self.pilot.pause()

    async def send(self, text: str) -> None:
        await self.write(text)
        await self.pilot.press("enter")

    async def say(self, text: str) -> None:
        """Send a message, and wait for the end of the answer."""
        count = len(self.controller.exchanges)
        await self.send(text)
        await self.until(lambda: len(self.controller.exchanges) > count and not self.last.is_running)
        await self.until(lambda: answers_of(self.screen)[-1].answer.outcome is not None)

    async def lead(self, *keys: str) -> None:
        """Press the leader and keys, and wait until the strip of leader keys is gone."""
        await self.pilot.press("ctrl+x")
        await self.until(lambda: isinstance(self.app.screen, LeaderScreen))
        await self.pilot.press(*keys)
        await self.until(lambda: not isinstance(self.app.screen, LeaderScreen))

    async def paste(self, text: str) -> None:
        self.app.post_message(events.Paste(text))
        await self.pilot.pause()


StartChat = Callable[..., AbstractAsyncContextManager[Chat]]


class PlainChat(Screen[None]):
    """A widget with the text of `plain_chat`."""

    SCOPE = "chat"
    is_filled = True
    composer_text = ""
    stopped = 0
    attached = ""
    landed: tuple[object, str] = (None, "")

    @property
    def attachments(self) -> PlainChat:
        return self

    async def land(self, turn: object, words: str) -> None:
        self.landed = turn, words

    def tell_limits(self) -> None:
        pass

    def action_stop(self) -> None:
        self.stopped += 1

    def action_attach(self, path: str = "") -> None:
        self.attached = path


@pytest.fixture(autouse=True)
def portable_screenshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make equal screens give equal snapshots."""
    export = App.export_screenshot
    monkeypatch.setattr(App, "export_screenshot", lambda app, **options: portable_svg(export(app, **options)))


@pytest.fixture(autouse=True)
def plain_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every test the same machine and terminal."""
    monkeypatch.setattr(Machine, "measure", classmethod(lambda cls: MACHINE))
    monkeypatch.setattr(routes, "vllm_version", lambda: "0.32.0")
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.fixture
def make_app(tmp_path: Path) -> Iterator[MakeApp]:
    """`make_app(host, registry=…, settings=…, initial_model=…)`: the app, with its folders below a temporary one."""

    def make(
        host: ScriptedHost | None = None,
        *,
        registry: Registry | None = None,
        settings: Settings | None = None,
        initial_model: str | None = None,
        keep_alive_s: float | None = 300.0,
        resume: ConversationId | ResumePoint | None = None,
        delays: Delays | None = None,
    ) -> VlmtuiApp:
        host = host or ScriptedHost()
        return VlmtuiApp(
            Services(
                paths=Paths.below(tmp_path),
                registry=registry or Registry.bundled(),
                host=host,
                settings=settings or Settings(graphics="off"),
                store=AsyncStore(Paths.below(tmp_path)),
                keep_alive_s=keep_alive_s,
                initial_model=initial_model,
                resumed=ResumePoint(resume) if isinstance(resume, str) else resume,
                delays=delays or Delays(),
            )
        )

    yield make


@pytest.fixture
def plain_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the chat by an empty screen."""

    def chat_screen(app: VlmtuiApp) -> PlainChat | None:
        stack = app.screen_stack
        return next((screen for screen in stack if isinstance(screen, PlainChat)), None)

    monkeypatch.setattr(VlmtuiApp, "new_chat", lambda app, model=None: PlainChat())
    monkeypatch.setattr(VlmtuiApp, "chat_screen", chat_screen)


@pytest.fixture
def chatting(make_app: MakeApp) -> StartChat:
    """`async with chatting(answer, …, size=…, keys=…) as chat`: the chat screen, its engine ready to give those
    answers; `keys` as in `config.toml`."""

    @asynccontextmanager
    async def start(
        *answers: list[Step],
        size: tuple[int, int] = (100, 30),
        delays: Delays | None = None,
        keys: dict[str, object] | None = None,
    ) -> AsyncIterator[Chat]:
        host = ScriptedHost(answers=list(answers))
        settings = Settings(graphics="off", keys=keys or {})
        app = make_app(host, initial_model="shapes", delays=delays, settings=settings)
        async with app.run_test(size=size) as pilot:
            await until_chat(pilot)
            await pilot.pause()
            yield Chat(app, host, pilot)

    return start


def picture(folder: Path, name: str = "cat.png") -> Path:
    """Return a small image file."""
    path = folder / name
    Image.new("RGB", (32, 24), "red").save(path)
    return path


@pytest.fixture
def eighty_families() -> Registry:
    """Return a registry of a realistic size: the bundled family and 79 invented ones."""
    shapes = Registry.bundled()["shapes"]
    return Registry({"shapes": shapes, **{f"family{n}": _invented(shapes, n) for n in range(79)}})


def _invented(shapes: Family, number: int) -> Family:
    title = f"{_NAMES[number % len(_NAMES)]} {1 + number // len(_NAMES)}"
    name = title.replace(" ", "-")
    takes = {modality: how for modality, how in shapes.takes.items() if modality == "image" or number % 3}
    return msgspec.structs.replace(
        shapes,
        family=f"family{number}",
        title=title,
        models=(f"org/{name}-7B-Instruct", f"org/{name}-72B-Instruct"),
        architectures=(title.replace(" ", "") + "ForConditionalGeneration",),
        takes=takes,
        parameters_b=_SIZES[number % len(_SIZES)],
        context=_CONTEXTS[number % len(_CONTEXTS)],
        licence="Apache-2.0",
        note="" if number % 2 else "Reads documents and video.",
    )
