"""Screenshots of the real app with the real bundled model, as SVG files in `screenshots/`.

`python tools/screenshots.py`. Loads the model once, then plays the same short session at every size.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path

from textual import events
from textual.pilot import Pilot

from vlmtui.config.settings import Settings
from vlmtui.domain.engine import LoadStage
from vlmtui.engine.host import WorkerHost
from vlmtui.paths import Paths, bundled, sample_image
from vlmtui.registry.loader import Registry
from vlmtui.ui.app import ExitReport, VlmtuiApp
from vlmtui.ui.controllers.engine import EngineState
from vlmtui.ui.controllers.keeper import Keeper
from vlmtui.ui.graphics import Graphics
from vlmtui.ui.screens.chat import ChatScreen
from vlmtui.ui.services import Services

OUT = Path(__file__).parents[1] / "screenshots"
SIZES = ((120, 40), (80, 24), (200, 60))
SAMPLES = bundled("samples")


async def until(pilot: Pilot[ExitReport | None], condition: Callable[[], bool], seconds: float = 300) -> None:
    """Let the app run until the condition holds."""
    for _ in range(int(seconds / 0.05)):
        if condition():
            await pilot.pause(0.4)
            return
        await pilot.pause(0.05)
    raise TimeoutError("the app never came that far")


def save(app: VlmtuiApp, name: str, theme: str = "") -> None:
    """Write what the screen shows."""
    columns, rows = app.size
    target = OUT / f"{name}{theme}-{columns}x{rows}.svg"
    # Where this copy of the project lies is nobody's business.
    target.write_text(app.export_screenshot(title="vlmtui").replace(str(OUT.parent), "/home/user"), encoding="utf-8")
    print(target.name, flush=True)


async def ask(app: VlmtuiApp, pilot: Pilot[ExitReport | None], text: str, *files: Path) -> None:
    """Attach files, ask, and wait for the end of the answer."""
    chat = app.chat_controller
    assert chat is not None
    for file in files:
        count = len(chat.staged)
        app.post_message(events.Paste(str(file)))
        await until(pilot, lambda count=count: len(chat.staged) > count)  # type: ignore[misc]
    if files:
        screen = app.screen
        assert isinstance(screen, ChatScreen)
        await until(pilot, lambda: screen.cost is not None)
        await pilot.pause(0.5)
        save(app, "attached")
    await pilot.press(*(" " if char == " " else char for char in text))
    turns = len(chat.exchanges)
    await pilot.press("enter")
    await until(pilot, lambda: len(chat.exchanges) > turns and chat.running is None)


async def session(paths: Paths, size: tuple[int, int], *, theme: str = "") -> None:
    """Picker, load, conversation, and the screens beside it."""
    settings = Settings(graphics="halfcell", theme=theme)
    services = Services(paths, Registry.bundled(), WorkerHost(paths), settings, Keeper(paths), keep_alive_s=120)
    app = VlmtuiApp(services)
    app.graphics = Graphics("halfcell")
    suffix = f"-{theme}" if theme else ""
    async with app.run_test(size=size) as pilot:
        await pilot.pause(1)
        save(app, "models", suffix)
        await pilot.press("enter")
        controller = app.engine_controller
        if not theme and size == SIZES[0]:
            await until(
                pilot, lambda: controller.progress is not None and controller.progress.stage is LoadStage.WEIGHTS
            )
            save(app, "loading")
        await until(pilot, lambda: controller.state is EngineState.READY and app.chat_controller is not None)
        await ask(app, pilot, "What is in this image?", sample_image())
        await ask(app, pilot, "What happens in this video?", next(SAMPLES.glob("*.mp4")))
        await ask(app, pilot, "What was in the first image?")
        save(app, "chat", suffix)
        if not theme:
            await ask(app, pilot, "Show me some Markdown.")
            save(app, "markdown")
            app.post_message(events.Paste(str(next(SAMPLES.glob("*.mp4")))))
            await until(pilot, lambda: bool(app.chat_controller and app.chat_controller.staged))
            app.run_action_id("frames")
            await pilot.pause(2.5)
            save(app, "frames")
            await pilot.press("escape")
            for key, name in (
                ("f9", "viewer"),
                ("f2", "settings"),
                ("f1", "help"),
                ("ctrl+o", "browser"),
                ("f4", "log"),
            ):
                await pilot.press(key)
                await pilot.pause(0.8)
                save(app, name)
                await pilot.press("escape")
                await pilot.pause(0.3)


async def main() -> None:
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        paths = Paths.below(Path(folder))
        for size in SIZES:
            await session(paths, size)
        await session(paths, SIZES[0], theme="light")
        for status in await WorkerHost(paths).running():
            await WorkerHost(paths).stop(status.pid)


if __name__ == "__main__":
    asyncio.run(main())
