"""Quitting the app cleanly, whatever triggers it."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from functools import partial
from typing import TYPE_CHECKING, Protocol

from vlmtui.session.conversation_holder import ConversationHolder
from vlmtui.session.engine_controller import EngineController, EngineState
from vlmtui.text import one_line
from vlmtui.ui.navigator import AppNavigator
from vlmtui.ui.services import ExitReport, Services
from vlmtui.ui.terminal.query import detach
from vlmtui.ui.view import View

if TYPE_CHECKING:
    pass

_log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class DepartureView(View, Protocol):
    """What quitting needs from the app."""

    def exit(self, result: ExitReport, return_code: int) -> None:
        """End the app."""

    def key_of(self, id: str) -> str:
        """Return an action's key as shown to people."""


class Departure:
    """Settles the conversation and the engine, then ends the app."""

    def __init__(
        self,
        view: DepartureView,
        navigator: AppNavigator,
        services: Services,
        engine_controller: EngineController,
        holder: ConversationHolder,
    ) -> None:
        self._view = view
        self._navigator = navigator
        self._services = services
        self._engine_controller = engine_controller
        self._holder = holder
        self._is_leaving = False
        self._interrupted_at = float("-inf")

    def watch_signals(self) -> None:
        """Quit on SIGTERM and when the terminal disappears."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)

    def ignore_signals(self) -> None:
        """Ignore further signals while quitting."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    def interrupt(self) -> None:
        """Show how to quit; quit if called twice within two seconds."""
        now, again_s = time.monotonic(), self._services.delays.quit_again
        if now - self._interrupted_at <= again_s:
            self.leave()
            return
        self._interrupted_at = now
        self._view.tell(f"{self._view.key_of('quit')} quits; so does pressing the same key again.", seconds=again_s)

    def leave(self, return_code: int = 0, *, hung_up: bool = False) -> None:
        """Quit. `hung_up`: the terminal is gone; a running answer continues in the engine."""
        if not self._is_leaving:
            self._is_leaving = True
            self._view.start_dialog(partial(self._leave, return_code, hung_up=hung_up))

    async def _leave(self, return_code: int, *, hung_up: bool) -> None:
        is_saved = await self._holder.settle(stops=not hung_up)
        if not is_saved and not hung_up and not await self._leaves_unsaved():
            self._is_leaving = False
            return
        controller = self._engine_controller
        if controller.state is EngineState.LOADING:
            self._view.tell("Stopping the load…")
        stays = await controller.leave()
        name = controller.model.spec.name if controller.model else None
        conversation = self._holder.chat.id if self._holder.chat is not None else None
        self._view.exit(ExitReport(name, stays, self._services.keep_alive_s, conversation), return_code)

    async def _leaves_unsaved(self) -> bool:
        """Return whether the user wants to quit although something could not be stored."""
        why = self._holder.trouble.message if self._holder.trouble else ""
        question = f"{one_line(why)} Messages since then are lost if you quit now."
        return await self._navigator.confirm(question, yes="Quit and lose them", no="Stay", careful=True)

    def _on_signal(self, number: int) -> None:
        _log.info("leaving on %s", signal.Signals(number).name)
        if number == signal.SIGHUP:
            detach()
        is_asked = number == signal.SIGINT
        self.leave(return_code=0 if is_asked else 128 + number, hung_up=not is_asked)
