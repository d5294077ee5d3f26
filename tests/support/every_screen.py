"""Runs the app with a scripted engine in this terminal, and opens every screen that an action opens, with an image in
the conversation. Writes the screens' names into the file `seen`.

    python -m tests.support.every_screen FOLDER"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from textual.pilot import Pilot

from tests.support.scripted_engine import ScriptedHost
from tests.support.toy_prompts import use_chat_template
from tests.support.videos import write_video
from tests.support.waiting import until, until_chat
from vlmtui.config.settings import load_settings
from vlmtui.paths import Paths
from vlmtui.registry.loader import Registry
from vlmtui.session.async_store import AsyncStore
from vlmtui.ui.actions import SCOPES
from vlmtui.ui.app import VlmtuiApp
from vlmtui.ui.chat.composer import Composer
from vlmtui.ui.seeing.room import ImageRoom
from vlmtui.ui.services import ExitReport, Services
from vlmtui.ui.widgets.dialogs import ChoiceScreen, NameScreen

BOXES = '[{"bbox_2d": [250, 250, 750, 750], "label": "cat"}, {"point_2d": [900, 900], "label": "dog"}]'
LEAVE = ("quit", "interrupt", "new_chat", "stop", "restart_engine", "cleanup", "leave_out_oldest")
"""Actions that end what the others need."""
PAUSE_S = 0.02
_TURNS = 6
"""Pauses in which an action may open a screen."""


def make_files(folder: Path) -> dict[str, str]:
    """Write the files that actions open, and return the arguments of these actions."""
    folder.mkdir(parents=True, exist_ok=True)
    Image.linear_gradient("L").convert("RGB").resize((96, 64)).save(folder / "cat.png")
    image = Image.open(folder / "cat.png")
    write_video(folder / "clip.mp4", [np.asarray(image)] * 8)
    result = {"id": "a", "line": 1, "key": "k", "question": "What?", "answer": "A cat.", "usage": {}}
    (folder / "answers.jsonl").write_text(json.dumps(result) + "\n")
    return {
        "batch": str(folder / "answers.jsonl"),
        "fan_out": "seed=1,2",
        "save": str(folder / "saved.md"),
        "set": "temperature 0.5",
        "system": "Be brief.",
        "locate": "circle",
    }


async def tour(pilot: Pilot[ExitReport | None], folder: Path, seen: set[str]) -> None:
    app, arguments = pilot.app, make_files(folder)
    assert isinstance(app, VlmtuiApp)
    note(app, seen)
    await until_chat(pilot)
    chat = app.conversation.require_chat()
    screen = app.chat_screen()
    assert screen is not None
    for name in ("cat.png", "clip.mp4"):
        screen.sources.attach_files([folder / name])
        await until(pilot, lambda: len(chat.draft.attachments) > 0 and not chat.draft.pending)
        screen.query_one(Composer).insert("What is this?")
        await pilot.press("enter")
        await until(pilot, lambda: bool(chat.exchanges) and not chat.exchanges[-1].is_running)
    screen.sources.attach_files([folder / "clip.mp4", folder / "cat.png"])
    for id in [action.id for scope in ("chat", "app") for action in SCOPES[scope].actions if action.id not in LEAVE]:
        for argument in dict.fromkeys(("", arguments.get(id, ""))):
            app.run_action_id(id, argument)
            await shown(pilot, seen)
    for dialog in (NameScreen("Save", value="a.png"), ChoiceScreen("Really?", ["Yes"])):
        app.push_screen(dialog)
        await shown(pilot, seen)


async def shown(pilot: Pilot[ExitReport | None], seen: set[str]) -> None:
    """Let the app draw what an action opened, and return to the chat."""
    app = pilot.app
    assert isinstance(app, VlmtuiApp)
    chat = app.chat_screen()
    for _ in range(_TURNS):
        await pilot.pause(PAUSE_S)
        if app.screen is not chat:
            break
    await pilot.pause(PAUSE_S)
    note(app, seen)
    await pilot.press("tab")
    for digit in "123456" if isinstance(app.screen, ImageRoom) else "":
        await pilot.press(digit)
        await pilot.pause(PAUSE_S)
    while app.screen is not chat:
        app.pop_screen()


def note(app: VlmtuiApp, seen: set[str]) -> None:
    seen |= {type(screen).__name__ for screen in app.screen_stack}


def main(folder: Path) -> int:
    use_chat_template(pytest.MonkeyPatch())
    seen: set[str] = set()
    paths = Paths.below(folder)
    services = Services(
        paths=paths,
        registry=Registry.bundled(),
        host=ScriptedHost(answers=[[BOXES]] * 20),
        settings=load_settings(paths, os.environ),
        store=AsyncStore(paths),
        keep_alive_s=0,
        initial_model="shapes",
    )
    app = VlmtuiApp(services)

    async def pilot(found: Pilot[ExitReport | None]) -> None:
        await tour(found, folder / "files", seen)
        found.app.exit()

    app.run(auto_pilot=pilot)
    (folder / "seen").write_text("\n".join(sorted(seen)))
    return app.return_code or 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
