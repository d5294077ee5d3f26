"""A newcomer's walk through the app at 80×24, with the real engine: for each command, the key that the screen shows at
that moment is pressed. A screenshot of every step is written into the test's temporary folder."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.support.hosts import patient_host
from tests.support.waiting import until, until_chat
from vlmtui.config.settings import Settings
from vlmtui.paths import Paths, bundled
from vlmtui.registry.loader import Registry
from vlmtui.session.async_store import AsyncStore
from vlmtui.ui.app import VlmtuiApp
from vlmtui.ui.chat.screen import ChatScreen
from vlmtui.ui.compare.screen import CompareScreen
from vlmtui.ui.help import LeaderScreen
from vlmtui.ui.services import Services

pytestmark = [pytest.mark.engine, pytest.mark.e2e]
QUESTION = "What is in this image?"
OTHER = "How many shapes are there?"
NAMES = {"esc": "escape", "←": "left", "→": "right", "%": "percent_sign", "?": "question_mark"}


class Newcomer:
    """Reads the screen, and presses only what it names."""

    def __init__(self, pilot: Pilot[Any], pictures: Path) -> None:
        self._pilot = pilot
        self._pictures = pictures

    @property
    def sees(self) -> str:
        return "\n".join(strip.text.rstrip() for strip in self._pilot.app.screen._compositor.render_strips())

    async def waits_for(self, words: str | Callable[[], bool]) -> None:
        """Wait, then take a picture."""
        await until(self._pilot, (lambda: words in self.sees) if isinstance(words, str) else words)
        number = len(list(self._pictures.glob("*.svg"))) + 1
        (self._pictures / f"walk-{number}.svg").write_text(self._pilot.app.export_screenshot(), encoding="utf-8")

    async def writes(self, text: str) -> None:
        await self._pilot.press(*text)

    async def follows(self, title: str) -> None:
        """Press the key that the screen shows for this; one letter is one behind the leader, which it shows, too."""
        await until(self._pilot, lambda: self._key_of(title) is not None)
        key = self._key_of(title)
        assert key is not None
        if len(key) == 1 and not isinstance(self._pilot.app.screen, LeaderScreen):
            assert "Ctrl+X" in self.sees
            await self._pilot.press("ctrl+x")
        await self._pilot.press(NAMES.get(key.lower(), key.lower() if len(key) > 1 else key))

    def _key_of(self, title: str) -> str | None:
        found = re.search(rf"(\S+)\s+{re.escape(title)}", self.sees)
        return found[1] if found else None


async def test_the_tour_works(loaded_worker: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bundled("samples"))
    services = Services(
        loaded_worker,
        Registry.bundled(),
        patient_host(loaded_worker),
        Settings(graphics="off"),
        AsyncStore(loaded_worker),
        keep_alive_s=None,
        initial_model="shapes",
    )
    app = VlmtuiApp(services)
    async with app.run_test(size=(80, 24)) as pilot:
        await until_chat(pilot)
        user = Newcomer(pilot, tmp_path)

        await user.follows("Attach")
        await user.waits_for("Type to filter")
        await user.writes("circle")
        await user.waits_for("2 of 5 files")
        await user.follows("Open")
        await user.waits_for("1 circle.png")
        await user.writes(QUESTION)
        await pilot.press("enter")  # sends in every chat
        await user.waits_for("A red circle")

        await user.follows("Compare")
        await user.waits_for("Raw prompt ·")
        screen = app.screen
        assert isinstance(screen, CompareScreen)
        await until(pilot, lambda: bool(screen.comparison.draft.text))
        whole = screen.comparison.draft.text
        await pilot.press("down", "delete", "delete", "delete")
        await user.waits_for(lambda: "! line 2" in user.sees or "✗ line 2" in user.sees)
        await user.follows("Fix")
        await user.waits_for(lambda: screen.comparison.draft.text == whole)

        await pilot.press("up", "up", "up", "down", "end", *["backspace"] * len(f"{QUESTION}<|im_end|>"))
        await user.writes(f"{OTHER}<|im_end|>")
        await user.follows("Send both")
        await user.waits_for(lambda: screen.comparison.is_over)
        await user.waits_for("Answers differ at token")

        await user.follows("Back")
        await user.waits_for(lambda: isinstance(app.screen, ChatScreen))
