"""Screenshots of the real app with the real bundled model, as SVG files in `screenshots/`.

`python tools/screenshots.py [120x40 ... seeing rooms chat batch]`. Loads the model once, then plays the same session
at every size, or at those that are named; `seeing` the screens about images, audio and reasoning, `rooms` the image
room, at every size; `chat` the chat and the comparison that README shows, `batch` the table of a batch.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from textual import events
from textual.pilot import Pilot

from portable_svg import portable_svg
from seeing_scenes import adapters, documents, recorded
from vlmtui.config.settings import Settings
from vlmtui.domain.engine import LoadStage
from vlmtui.engine.local.host import WorkerHost
from vlmtui.media.stage import stage
from vlmtui.paths import Paths, bundled, sample_image
from vlmtui.registry.loader import Registry
from vlmtui.session.async_store import AsyncStore
from vlmtui.session.engines import EngineState
from vlmtui.session.prompt_report import PromptReport
from vlmtui.session.seeing import RoomImage
from vlmtui.store.records import GenerationRecord
from vlmtui.ui.app import VlmtuiApp
from vlmtui.ui.batch import BatchScreen
from vlmtui.ui.chat.screen import ChatScreen
from vlmtui.ui.compare.fan_out import FanOutScreen
from vlmtui.ui.compare.screen import CompareScreen
from vlmtui.ui.conversations import ConversationsScreen
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.help import LeaderScreen
from vlmtui.ui.inspector.screen import InspectorScreen
from vlmtui.ui.models.screen import ModelsScreen
from vlmtui.ui.seeing.modes import ScoringMode
from vlmtui.ui.seeing.room import ImageRoom
from vlmtui.ui.services import ExitReport, Services
from vlmtui.ui.terminal.graphics import Graphics
from vlmtui.ui.widgets.dialogs import ChoiceScreen

OUT = Path(__file__).parents[1] / "screenshots"
SIZES = ((120, 40), (80, 24), (200, 60))
SAMPLES = bundled("samples")
PHOTOGRAPHS = Path(__file__).parent / "photographs"
RECORDED = (
    '[{"bbox_2d": [40, 0, 890, 1000], "label": "cat"}, {"bbox_2d": [300, 287, 459, 490], "label": "eye"}, '
    '{"bbox_2d": [652, 367, 758, 547], "label": "eye"}, {"point_2d": [581, 810], "label": "nose"}]'
)
"""An answer about `cat.jpg` in the format of Qwen3-VL."""
EARLIER = (
    ("two-shapes.png", ("What is in this image?", "How many shapes are there?")),
    ("moving-circle.mp4", ("What happens in this video?",)),
    ("banner.png", ("Describe this image.", "What colour is the circle?")),
    ("circle.png", ("What shape is this?",)),
)


async def until(pilot: Pilot[ExitReport | None], condition: Callable[[], bool], seconds: float = 300) -> None:
    """Let the app run until the condition holds."""
    for _ in range(int(seconds / 0.05)):
        if condition():
            await pilot.pause(0.4)
            return
        await pilot.pause(0.05)
    raise TimeoutError("the app never came that far")


def save(app: VlmtuiApp, name: str, theme: str = "") -> None:
    """Write the screen as an SVG file."""
    columns, rows = app.size
    target = OUT / f"{name}{theme}-{columns}x{rows}.svg"
    # Where this copy of the project lies is nobody's business.
    svg = portable_svg(app.export_screenshot(title="vlmtui").replace(str(OUT.parent), "/home/user"))
    target.write_text(svg, encoding="utf-8")
    print(target.name, flush=True)


async def attach(app: VlmtuiApp, pilot: Pilot[ExitReport | None], *files: Path) -> None:
    """Paste the paths of the files, and wait until their token counts are known."""
    chat, screen = app.conversation.require_chat(), app.screen
    assert isinstance(screen, ChatScreen)
    for file in files:
        count = len(chat.draft.attachments)
        app.post_message(events.Paste(str(file)))
        await until(pilot, lambda count=count: len(chat.draft.attachments) > count)  # type: ignore[misc]
    await until(pilot, lambda: screen.prompt_cost.cost is not None)
    await pilot.pause(0.5)


async def ask(app: VlmtuiApp, pilot: Pilot[ExitReport | None], text: str) -> None:
    """Ask, and wait for the end of the answer."""
    chat = app.conversation.require_chat()
    await pilot.press(*text)
    turns = len(chat.exchanges)
    await pilot.press("enter")
    await until(pilot, lambda: len(chat.exchanges) > turns and chat.running is None)


async def new_chat(app: VlmtuiApp, pilot: Pilot[ExitReport | None]) -> None:
    """Begin a new conversation."""
    app.run_action_id("new_chat")
    await until(pilot, lambda: not app.conversation.require_chat().exchanges)


async def earlier(app: VlmtuiApp, pilot: Pilot[ExitReport | None]) -> None:
    """Add older conversations, for the list of conversations."""
    for file, questions in EARLIER:
        await attach(app, pilot, SAMPLES / file)
        for question in questions:
            await ask(app, pilot, question)
        await new_chat(app, pilot)


async def first_pictures(app: VlmtuiApp, pilot: Pilot[ExitReport | None]) -> None:
    """Redraw the screenshots of the README: a chat, and a comparison."""
    await new_chat(app, pilot)
    await chat(app, pilot)
    save(app, "chat")
    await new_chat(app, pilot)
    await compare(app, pilot)


async def chat(app: VlmtuiApp, pilot: Pilot[ExitReport | None]) -> None:
    """Ask about two images, and about the first again."""
    for file in (sample_image(), SAMPLES / "two-shapes.png"):
        await attach(app, pilot, file)
        await ask(app, pilot, "What is in this image?")
    await ask(app, pilot, "What was in the first image?")


async def leader(app: VlmtuiApp, pilot: Pilot[ExitReport | None]) -> None:
    """Show which keys can follow Ctrl+X, below the chat."""
    await pilot.press("ctrl+x")
    await until(pilot, lambda: isinstance(app.screen, LeaderScreen))
    save(app, "leader")
    await pilot.press("escape")


async def compare(app: VlmtuiApp, pilot: Pilot[ExitReport | None]) -> None:
    """Compare the chat template with a raw prompt that lacks the turns."""
    question = "What is in this image?"
    await attach(app, pilot, SAMPLES / "three-shapes.png")
    await pilot.press(*question)
    app.run_action_id("compare")
    await until(pilot, lambda: isinstance(app.screen, CompareScreen))
    screen = app.screen
    assert isinstance(screen, CompareScreen)
    await until(pilot, lambda: screen.comparison.chat.rendered is not None and bool(screen.comparison.draft.text))
    image = screen.comparison.family.takes["image"].placeholder
    screen.editor.fill(image + question)
    await pilot.press("ctrl+r")
    await until(pilot, lambda: screen.comparison.is_over)
    await pilot.pause(0.5)
    save(app, "compare")
    screen.turn_to("difference")
    await until(pilot, lambda: screen.query_one("#difference", DocumentView).display)
    await pilot.pause(1)
    save(app, "difference")
    await pilot.press("escape")
    await until(pilot, lambda: isinstance(app.screen, ChatScreen))


async def inspect(app: VlmtuiApp, pilot: Pilot[ExitReport | None]) -> None:
    """Show the inspector's views of the last answer."""
    app.run_action_id("inspect")
    await until(pilot, lambda: isinstance(app.screen, InspectorScreen))
    screen = app.screen
    assert isinstance(screen, InspectorScreen)
    await until(pilot, lambda: screen.taken is not None)
    for number, name in ((2, "tokens"), (3, "media"), (1, "prompt")):
        await pilot.press(str(number))
        await pilot.pause(0.5)
        save(app, f"inspector-{name}")
    await pilot.press("percent_sign")
    await until(pilot, lambda: bool(screen.inspected.logprobs))
    await pilot.pause(1)
    save(app, "inspector-answer")
    await pilot.press("escape")
    await until(pilot, lambda: isinstance(app.screen, ChatScreen))


async def fan_out(app: VlmtuiApp, pilot: Pilot[ExitReport | None]) -> None:
    """Fan out the last message over eight seeds at two temperatures, the second of which is too high."""
    app.run_action_id("fan_out", "temperature=0.7,2 seed=1..8")
    await until(pilot, lambda: isinstance(app.screen, FanOutScreen))
    screen = app.screen
    assert isinstance(screen, FanOutScreen)
    await until(pilot, lambda: screen.differences is not None)
    save(app, "fan-out")
    await pilot.press("escape")
    await until(pilot, lambda: isinstance(app.screen, ChatScreen))


async def engines(app: VlmtuiApp, pilot: Pilot[ExitReport | None]) -> None:
    """Send the last message to two engines."""
    app.run_action_id("fan_out", "engine=here,transformers")
    await until(pilot, lambda: isinstance(app.screen, ChoiceScreen | FanOutScreen))
    if isinstance(app.screen, ChoiceScreen):  # where both do not fit at once
        save(app, "engines-memory")
        await pilot.press("enter")
    await until(pilot, lambda: isinstance(app.screen, FanOutScreen) and app.screen.differences is not None)
    save(app, "engines")
    await pilot.press("escape")
    await until(pilot, lambda: isinstance(app.screen, ChatScreen))


async def batch(app: VlmtuiApp, pilot: Pilot[ExitReport | None], paths: Paths) -> None:
    """Ask the loaded model about every sample with `vlmtui batch`, and show the results."""
    answers = paths.data / "answers.jsonl"
    command = [sys.executable, "-m", "vlmtui", "--data-dir", str(paths.data.parent), "batch", "-o", str(answers)]
    command += ["--image", "*.png", "--prompt", "What is in this image?"]
    await asyncio.to_thread(lambda: subprocess.run(command, cwd=SAMPLES, capture_output=True, check=True))
    app.run_action_id("batch", str(answers))
    await until(pilot, lambda: isinstance(app.screen, BatchScreen))
    await pilot.pause(1)
    save(app, "batch")
    await pilot.press("escape")
    await until(pilot, lambda: isinstance(app.screen, ChatScreen))


async def rooms(app: VlmtuiApp, pilot: Pilot[ExitReport | None]) -> None:
    """Show the last message's image in the modes of the image room, and a recorded answer's boxes."""

    async def drawn() -> ImageRoom:
        await until(pilot, lambda: isinstance(app.screen, ImageRoom))
        room = app.screen
        assert isinstance(room, ImageRoom)
        await until(pilot, lambda: room.shown is not None and room.shown == room.wanted)
        return room

    app.run_action_id("image", "1")
    room = await drawn()
    await pilot.press("k", "k", "l", "g", "g", "k", "l")
    for key, name in (("", "image"), ("3", "seen"), ("4", "heat"), ("6", "blind")):
        await pilot.press(*filter(None, (key,)))
        await drawn()
        mode = room.mode
        if isinstance(mode, ScoringMode):
            await pilot.press("r")
            await until(pilot, lambda mode=mode: mode.found is not None)  # type: ignore[misc]
            await pilot.press("right", "right")
            await drawn()
        save(app, name)
    await pilot.press("escape")
    await until(pilot, lambda: isinstance(app.screen, ChatScreen))
    image = stage(PHOTOGRAPHS / "cat.jpg", app.services.paths.media)
    recipe = GenerationRecord(model="Qwen/Qwen3-VL-4B-Instruct", family="qwen3_vl")
    report = PromptReport(title="exchange 1", answer=RECORDED, attachments=(image,), recipe=recipe)

    async def recorded_report() -> PromptReport:
        return report

    app.open_images([RoomImage(image, 1, recorded_report)], mode="boxes")
    await drawn()
    save(app, "boxes")
    await pilot.press("escape")
    await until(pilot, lambda: isinstance(app.screen, ChatScreen))


async def seeing(app: VlmtuiApp, pilot: Pilot[ExitReport | None]) -> None:
    """Show the image room; pages of a document, a LoRA adapter; recorded reasoning and audio."""
    await rooms(app, pilot)
    await new_chat(app, pilot)
    await documents(app, pilot, until, save)
    await adapters(app, pilot, until, save)
    await recorded(app, pilot, until, save, PHOTOGRAPHS / "cat.jpg", RECORDED)
    await new_chat(app, pilot)


async def conversations(app: VlmtuiApp, pilot: Pilot[ExitReport | None]) -> None:
    """Show the list of conversations."""
    app.run_action_id("conversations")
    await until(pilot, lambda: isinstance(app.screen, ConversationsScreen))
    screen = app.screen
    assert isinstance(screen, ConversationsScreen)
    await until(pilot, lambda: bool(screen.conversations.entries))
    await pilot.press("down")
    await pilot.pause(1)
    save(app, "conversations")
    await pilot.press("escape")
    await until(pilot, lambda: isinstance(app.screen, ChatScreen))


async def beside(app: VlmtuiApp, pilot: Pilot[ExitReport | None]) -> None:
    """Show the screens around an unsent message with attachments."""
    await attach(app, pilot, PHOTOGRAPHS / "coffee.jpg", PHOTOGRAPHS / "cat.jpg", SAMPLES / "moving-circle.mp4")
    save(app, "attached")
    app.run_action_id("frames")
    await pilot.pause(2.5)
    save(app, "frames")
    await pilot.press("escape")
    for key, name in (("f2", "settings"), ("f1", "help"), ("ctrl+o", "browser"), ("f4", "log")):
        await pilot.press(key)
        await pilot.pause(0.8)
        save(app, name)
        await pilot.press("escape")
        await pilot.pause(0.3)


async def session(
    paths: Paths, size: tuple[int, int], *, theme: str = "", only: Callable[..., Awaitable[None]] | None = None
) -> None:
    """Play a session: list of models, load, conversation, and the other screens. `only`: one scene about an image."""
    settings = Settings(graphics="halfcell", theme=theme)
    services = Services(paths, Registry.bundled(), WorkerHost(paths), settings, AsyncStore(paths), keep_alive_s=120)
    app = VlmtuiApp(services)
    app.graphics = Graphics("halfcell")
    suffix = f"-{theme}" if theme else ""
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.key_queue.is_open)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ModelsScreen))
        await pilot.pause(1)
        if only is None:
            save(app, "models", suffix)
        await pilot.press("enter")
        controller = app.engines
        if only is None and not theme and size == SIZES[0]:
            await until(
                pilot, lambda: controller.progress is not None and controller.progress.stage is LoadStage.WEIGHTS
            )
            save(app, "loading")
        await until(pilot, lambda: controller.state is EngineState.READY and app.conversation.chat is not None)
        if only is not None:
            await attach(app, pilot, SAMPLES / "three-shapes.png")
            await ask(app, pilot, "What is in this image?")
            await only(app, pilot)
            return
        if not theme and size == SIZES[0]:
            await earlier(app, pilot)
        await chat(app, pilot)
        save(app, "chat", suffix)
        if not theme:
            await leader(app, pilot)
            await new_chat(app, pilot)
            await ask(app, pilot, "Show me some Markdown.")
            save(app, "markdown")
            await beside(app, pilot)
            app.conversation.require_chat().draft.clear()
            await new_chat(app, pilot)
            for scene in (compare, inspect, fan_out):
                await scene(app, pilot)
            if size == SIZES[0]:
                await engines(app, pilot)
                await batch(app, pilot, paths)
            for scene in (seeing, conversations):
                await scene(app, pilot)


async def main(*names: str) -> None:
    OUT.mkdir(exist_ok=True)
    sizes = [size for size in SIZES if not names or "{}x{}".format(*size) in names]
    with tempfile.TemporaryDirectory() as folder:
        paths = Paths.below(Path(folder))
        for size in sizes:
            await session(paths, size)
            await stop(paths)  # a worker that takes an adapter would not be loaded again for it
        for size in SIZES:
            for scene in (seeing, rooms, leader):
                if scene.__name__ in names:
                    await session(paths, size, only=scene)
        if "chat" in names:
            await session(paths, SIZES[0], only=first_pictures)
        if "batch" in names:
            await session(paths, SIZES[0], only=partial(batch, paths=paths))
        if not names:
            await session(paths, SIZES[0], theme="light")
        await stop(paths)


async def stop(paths: Paths) -> None:
    host = WorkerHost(paths)
    for worker in await host.find_all():
        await host.stop(worker.endpoint)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
