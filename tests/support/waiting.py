"""Waits for an app in a test."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from textual.pilot import Pilot

from vlmtui.session.engines import EngineState
from vlmtui.ui.chat.screen import ChatScreen

_TURNS = 400
_PATIENCE_S = 60.0


async def until(pilot: Pilot[Any], condition: Callable[[], bool]) -> None:
    """Let the app run until the condition holds, then until its widgets have processed their messages. Allows for busy
    machines, where the app's turns are rare or its threads slow."""
    turns, deadline = 0, time.monotonic() + _PATIENCE_S
    while not condition():
        if turns >= _TURNS and time.monotonic() > deadline:
            raise AssertionError(f"it never came to hold; the screen is {pilot.app.screen}")
        # Not `pilot.pause`: that gives each widget a message, every time.
        await asyncio.sleep(0.01)
        turns += 1
    if turns:
        await pilot.pause(0)


async def until_chat(pilot: Pilot[Any]) -> None:
    """Let the app run until the user can write to the model."""

    def is_ready() -> bool:
        screen = pilot.app.screen
        if not isinstance(screen, ChatScreen) or screen.engines.state is not EngineState.READY:
            return False
        return screen.is_filled and screen.main_app.key_queue.is_open

    await until(pilot, is_ready)
