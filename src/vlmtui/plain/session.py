"""A session of plain mode: begins, takes lines, leaves. Lives in its own thread, beside the terminal's."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import ExitStack
from typing import Any

import msgspec

from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.plain.commands import REFUSED, Commands
from vlmtui.plain.output import PlainOutput
from vlmtui.plain.parts import Parts, PlainServices
from vlmtui.session.engine_controller import EngineController
from vlmtui.session.housekeeping import keep_house
from vlmtui.session.interrupted_answers import InterruptedAnswers
from vlmtui.store.records import ConversationId
from vlmtui.text import one_line
from vlmtui.ui.actions.slash import parse_slash


class PlainReport(msgspec.Struct, frozen=True):
    """What remains after the session."""

    model: str | None
    stays: bool
    """Whether the engine stays loaded."""
    conversation: ConversationId | None
    """The conversation shown last, if it is stored."""
    is_saved: bool = True
    """Whether everything could be stored."""


class NextLine(msgspec.Struct, frozen=True):
    """How the next line is read."""

    prompt: str
    prefill: str = ""
    """Words of the draft, to be changed or sent."""


class PlainSession:
    """Everything that plain mode does with a line."""

    def __init__(self, services: PlainServices, output: PlainOutput) -> None:
        controller = EngineController(
            services.host,
            keep_alive_s=services.settings.keep_alive_s,
            on_change=self._engine_changed,
            hang_s=services.settings.hang_s,
        )
        self._parts = Parts(services, output, controller)
        self._output = output
        self._commands = Commands(self._parts)
        self._interrupted = InterruptedAnswers(
            output,
            controller,
            self._parts.holder,
            host=services.host,
            store=services.store,
            registry=services.registry,
            show=self._show,
            load=self._commands.models.load,
            opens_another=services.resumed is not None,
        )
        self._going_on = ExitStack()
        """Ends when no answer of an earlier session goes on any more."""

    def interrupt(self) -> None:
        """Handle Ctrl+C while a command runs."""
        self._parts.work.interrupt()

    async def begin(self) -> NextLine | None:
        """Load the model and open the conversation of the start; complete answers that went on meanwhile."""
        for warning in self._parts.services.registry.warnings:
            self._output.tell(one_line(str(warning)), severity="warning")
        await self._run(self._commands.models.begin())
        resumed = self._parts.services.resumed
        if resumed is not None:
            await self._run(self._parts.services.store.run(lambda store: store.mark_interrupted()))
            await self._run(self._commands.conversations.open(resumed.conversation))
        with self._going_on:
            await self._run(self._interrupted.bring_back())
        self._parts.holder.tell_notice()
        services = self._parts.services
        self._parts.start(keep_house(services.store, services.paths, services.settings, self._output.tell_error))
        return self._next()

    async def take(self, line: str) -> NextLine | None:
        """Run a line: a command or a message. Return how the next one is read; None: the session is over."""
        chat = self._parts.holder.chat
        words = chat.draft.without_tokens(line) if chat is not None else line
        command = parse_slash(words.strip())
        if command is None:
            if line.strip() or (chat is not None and chat.draft.words.strip()):
                await self._run(self._send(line))
            return self._next()
        if command.action is None:
            hint = "/help lists them; // sends a text that begins with a slash."
            self._output.tell_error(bad_input(f"There is no command {one_line(command.argument)}.", hint=hint))
        elif command.action.id in REFUSED:
            self._output.tell(REFUSED[command.action.id])
        else:
            await self._run(self._commands.by_id[command.action.id](command.argument))
        return None if self._commands.is_leaving else self._next()

    async def leave(self, *, hung_up: bool = False, typed: str = "") -> PlainReport:
        """End the session: everything is stored. `hung_up`: the terminal is gone; a running answer continues in the
        engine. `typed`: a line that was not sent, which becomes the draft."""
        parts = self._parts
        if typed.strip() and parts.holder.chat is not None:
            self._commands.attachments.take_line(typed)
        is_saved = await parts.holder.settle(stops=not hung_up)
        controller = parts.controller
        name = controller.model.spec.name if controller.model is not None else None
        stays = await controller.leave()
        conversation = parts.holder.chat.id if parts.holder.chat is not None else None
        await parts.end_tasks()
        await parts.holder.close()
        return PlainReport(name, stays, conversation, is_saved)

    async def _send(self, line: str) -> None:
        chat = self._parts.chat
        await self._commands.messages.send(line if line.strip() else chat.draft.words)

    async def _run(self, work: Coroutine[Any, Any, object]) -> None:
        """Run a command, and tell its error."""
        try:
            if not await self._parts.work.run(work):
                self._output.tell("Stopped.")
        except VlmtuiError as error:
            self._output.tell_error(error)

    def _next(self) -> NextLine:
        chat = self._parts.holder.chat
        if chat is None:
            return NextLine("> ")
        tokens = chat.draft.only_tokens()
        editing = f"edit {chat.number_of(chat.editing)} " if chat.editing is not None else ""
        return NextLine(f"{editing}{tokens}> ", chat.draft.words.strip())

    async def _show(self, *, is_open: bool = False) -> None:
        """Show the conversation that was opened, or (`is_open`) only its last answer, which goes on as it arrives."""
        messages, chat = self._commands.messages, self._parts.chat
        if not is_open:
            messages.show_conversation()
        elif not messages.is_shown(chat.last):
            messages.show_conversation(newest=1)
        self._going_on.callback(chat.subscribe(messages.follow))
        self._going_on.enter_context(self._parts.work.stopping(self._stop_going_on))

    async def _stop_going_on(self) -> None:
        """Stop the answer that goes on, or the load of its engine."""
        chat, controller = self._parts.chat, self._parts.controller
        if chat.running is not None:
            await chat.cancel(controller.engine)
        else:
            await controller.abort()

    def _engine_changed(self) -> None:
        self._commands.models.engine_changed()
        self._interrupted.engine_changed()
