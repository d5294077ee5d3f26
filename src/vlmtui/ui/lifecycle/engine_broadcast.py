"""Tells the screens what the engine does: its state, and new lines of its log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from textual.message import Message
from textual.screen import Screen

from vlmtui.engine.interface import Engine
from vlmtui.session.engine_controller import EngineController
from vlmtui.ui.messages import EngineChanged, EngineLogGrew
from vlmtui.ui.view import Steps

_LOG_EVERY_S = 0.1
"""New lines of the log are told at most this often."""


class ScreenStack(Protocol):
    """The app as the broadcast uses it."""

    @property
    def screen_stack(self) -> Sequence[Screen[Any]]:
        """The open screens."""

    def start(self, steps: Steps, group: str, *, exclusive: bool = False) -> None:
        """Run `steps` in the background. `exclusive` cancels other steps of the group."""

    def set_timer(self, delay: float, callback: Callable[[], None]) -> object:
        """Call `callback` once, after `delay` seconds."""


class EngineBroadcast:
    """Posts `EngineChanged` and `EngineLogGrew` to every open screen, and follows the log of the current engine."""

    def __init__(self, app: ScreenStack, engine_controller: EngineController) -> None:
        self._app = app
        self._engine_controller = engine_controller
        self._followed: Engine | None = None
        self._log_waits = False

    def engine_changed(self) -> None:
        """Tell the screens that the engine's state changed; begin to follow the log of a new engine."""
        engine = self._engine_controller.engine
        if engine is not None and engine is not self._followed:
            self._followed = engine
            self._app.start(self._follow_log, "engine-log", exclusive=True)
        self._post(EngineChanged)

    async def _follow_log(self) -> None:
        if self._followed is not None:
            await self._engine_controller.follow_log(self._followed, self._log_grew)

    def _log_grew(self) -> None:
        """Tell the screens soon about new log lines, once for many lines."""
        if not self._log_waits:
            self._log_waits = True
            self._app.set_timer(_LOG_EVERY_S, self._tell_log)

    def _tell_log(self) -> None:
        self._log_waits = False
        self._post(EngineLogGrew)

    def _post(self, kind: type[Message]) -> None:
        for screen in self._app.screen_stack:
            screen.post_message(kind())
