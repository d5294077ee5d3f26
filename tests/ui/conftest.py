"""The app on a scripted engine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from textual.pilot import Pilot
from textual.screen import Screen

from tests.support.scripted_engine import ScriptedHost
from vlmtui.config.settings import Settings
from vlmtui.paths import Paths
from vlmtui.registry.loader import Registry
from vlmtui.registry.schema import Family
from vlmtui.ui.app import ExitReport, VlmtuiApp
from vlmtui.ui.machine import Gpu, Machine
from vlmtui.ui.services import Services

GIB = 2**30
MACHINE = Machine(gpus=(Gpu("Test GPU", free=24 * GIB, total=24 * GIB),), ram_free=32 * GIB)
"""What every test's machine has."""

AppPilot = Pilot[ExitReport | None]
MakeApp = Callable[..., VlmtuiApp]
Until = Callable[[AppPilot, Callable[[], bool]], Awaitable[None]]

_NAMES = ("Qwen2.5-VL", "InternVL3", "LLaVA-OneVision", "Pixtral", "MiniCPM-V", "Gemma 3", "Molmo", "SmolVLM")
_SIZES = (None, 2.2, 7.6, 14.8, 72.7)
_CONTEXTS = (4096, 32768, 131072)
_TURNS = 400


class PlainChat(Screen[None]):
    """What `plain_chat` shows."""

    stopped = 0
    attached = ""

    def action_stop(self) -> None:
        self.stopped += 1

    def action_attach(self, path: str = "") -> None:
        self.attached = path


@pytest.fixture(autouse=True)
def plain_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same machine and terminal for every test."""
    monkeypatch.setattr(Machine, "measure", classmethod(lambda cls: MACHINE))
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
    ) -> VlmtuiApp:
        return VlmtuiApp(
            Services(
                paths=Paths.below(tmp_path),
                registry=registry or Registry.bundled(),
                host=host or ScriptedHost(),
                settings=settings or Settings(graphics="off"),
                keep_alive_s=keep_alive_s,
                initial_model=initial_model,
            )
        )

    yield make


@pytest.fixture
def plain_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty screen in the chat's place."""
    monkeypatch.setattr(VlmtuiApp, "_chat_screen", lambda app: PlainChat())


@pytest.fixture
def until() -> Until:
    """`await until(pilot, condition)`: let the app run until the condition holds."""

    async def wait(pilot: AppPilot, condition: Callable[[], bool]) -> None:
        for _ in range(_TURNS):
            if condition():
                return
            await pilot.pause(0.01)
        raise AssertionError(f"it never came to hold; the screen is {pilot.app.screen}")

    return wait


@pytest.fixture
def eighty_families() -> Registry:
    """A registry as large as the real one is meant to be: the bundled family and 79 invented ones."""
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
