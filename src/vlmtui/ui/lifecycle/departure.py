"""Leaving the app: in order, whatever asks for it."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec

from vlmtui.session.engine_controller import EngineController, EngineState
from vlmtui.text import one_line
from vlmtui.ui.lifecycle.conversation_holder import ConversationHolder
from vlmtui.ui.navigator import AppNavigator
from vlmtui.ui.services import Services
from vlmtui.ui.terminal.query import detach
from vlmtui.ui.view import View

if TYPE_CHECKING:
    from vlmtui.store.records import ConversationId

_log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class ExitReport(msgspec.Struct, frozen=True):
    """What is left behind when the app ends."""

    model: str | None
    """What the user calls the model that was loaded last."""
    stays: bool
    """Whether its engine stays loaded."""
    keep_alive_s: float | None
    """For how long, in seconds; None: for ever."""
    conversation: ConversationId | None = None
    """The one that was shown last, if anything of it is stored."""


class DepartureView(View, Protocol):
    """What leaving needs of the app."""

    def exit(self, result: ExitReport, return_code: int) -> None:
        """End the app."""

    def key_of(self, id: str) -> str:
        """The key of an action, as it is shown to people."""


class Departure:
    """Brings the conversation and the engine to rest, then ends the app."""

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
        """Leave when the process is asked to end, or its terminal goes."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)

    def ignore_signals(self) -> None:
        """The process ends anyway."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    def interrupt(self) -> None:
        """Tell how to quit; the second time within two seconds, quit."""
        now, again_s = time.monotonic(), self._services.delays.quit_again
        if now - self._interrupted_at <= again_s:
            self.leave()
            return
        self._interrupted_at = now
        self._view.tell(f"{self._view.key_of('quit')} quits; so does the same key, pressed again.", seconds=again_s)

    def leave(self, return_code: int = 0, *, hung_up: bool = False) -> None:
        """`hung_up`: nobody is there to ask, and a running answer goes on without us."""
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
            self._view.tell("Ending the load…")
        stays = await controller.leave()
        name = controller.model.spec.name if controller.model else None
        conversation = self._holder.chat.id if self._holder.chat is not None else None
        self._view.exit(ExitReport(name, stays, self._services.keep_alive_s, conversation), return_code)

    async def _leaves_unsaved(self) -> bool:
        """Whether the user wants to leave though something could not be written."""
        why = self._holder.trouble.message if self._holder.trouble else ""
        question = f"{one_line(why)} What was said since then is lost when you leave now."
        return await self._navigator.confirm(question, yes="Leave, and lose it", no="Stay", careful=True)

    def _on_signal(self, number: int) -> None:
        _log.info("leaving on %s", signal.Signals(number).name)
        if number == signal.SIGHUP:
            detach()
        is_asked = number == signal.SIGINT
        self.leave(return_code=0 if is_asked else 128 + number, hung_up=not is_asked)
