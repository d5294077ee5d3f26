"""Quits the app cleanly: after a key, a signal, or the loss of the terminal."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from functools import partial
from typing import TYPE_CHECKING

from vlmtui.session.engines import EngineState
from vlmtui.terminal import detach
from vlmtui.text import one_line
from vlmtui.ui.keys import key_of
from vlmtui.ui.services import ExitReport

if TYPE_CHECKING:
    from vlmtui.ui.app import VlmtuiApp

_log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


class Departure:
    """Stores the conversation, disconnects from the engine, and ends the app."""

    def __init__(self, app: VlmtuiApp) -> None:
        self._app = app
        self._is_leaving = False
        self._interrupted_at = float("-inf")

    def watch_signals(self) -> None:
        """Quit on SIGTERM, SIGINT, and SIGHUP, which means that the terminal is gone."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)

    def ignore_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    def interrupt(self) -> None:
        """Show how to quit; quit if called twice within two seconds."""
        now, again_s = time.monotonic(), self._app.services.delays.quit_again
        if now - self._interrupted_at <= again_s:
            self.leave()
            return
        self._interrupted_at = now
        self._app.tell(f"Press {key_of(self._app, 'interrupt')} again to quit.", seconds=again_s)

    def leave(self, return_code: int = 0, *, hung_up: bool = False) -> None:
        """Quit. `hung_up`: the terminal is gone; the engine then continues a running answer."""
        if not self._is_leaving:
            self._is_leaving = True
            self._app.start_dialog(partial(self._leave, return_code, hung_up=hung_up))

    async def _leave(self, return_code: int, *, hung_up: bool) -> None:
        self._app.conversation.typed_ahead = self._app.key_queue.take_text()
        is_saved = await self._app.conversation.settle(stops=not hung_up)
        if not is_saved and not hung_up and not await self._confirm_unsaved():
            self._is_leaving = False
            return
        controller = self._app.engines
        if controller.state is EngineState.LOADING:
            self._app.tell("Stopping the load…")
        stays = await controller.leave()
        name = controller.model.spec.name if controller.model else None
        conversation = self._app.conversation.chat.id if self._app.conversation.chat is not None else None
        self._app.exit(ExitReport.of(name, stays, conversation), return_code)

    async def _confirm_unsaved(self) -> bool:
        """Ask whether to quit although messages could not be stored."""
        why = self._app.conversation.trouble.message if self._app.conversation.trouble else ""
        question = f"{one_line(why)} Messages since then are lost if you quit now."
        return await self._app.confirm(question, yes="Quit and lose them", no="Stay", careful=True)

    def _on_signal(self, number: int) -> None:
        _log.info("leaving on %s", signal.Signals(number).name)
        if number == signal.SIGHUP:
            detach()
        is_asked = number == signal.SIGINT
        self.leave(return_code=0 if is_asked else 128 + number, hung_up=not is_asked)
