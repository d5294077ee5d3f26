"""Compares the chat template with a raw prompt, for the draft or the last message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from textual.message import Message
from textual.timer import Timer

from vlmtui.errors import VlmtuiError
from vlmtui.session.compared_message import ComparedMessage
from vlmtui.session.comparison import CompareController
from vlmtui.session.comparison_setup import comparison_of_message, require_family
from vlmtui.session.conversation import Conversation
from vlmtui.session.engine_controller import EngineController
from vlmtui.session.engine_lanes import LaneEngines
from vlmtui.session.lanes import InFlightRequest
from vlmtui.session.raw_draft import RawDraft, RawDrafts
from vlmtui.session.side_engines import choose_side_engines, read_side_engines
from vlmtui.ui.actions import ActionMethods
from vlmtui.ui.chat.fan_outs import FanOuts
from vlmtui.ui.chat.prompt_cost import PromptCost
from vlmtui.ui.chat.turn_sender import TurnSender
from vlmtui.ui.chat.view import ChatView, compared
from vlmtui.ui.navigation import Navigator
from vlmtui.ui.services import Services

_WRITE_AFTER_S = 1.0
_NO_ENGINES: Mapping[str, str] = {}


class ComparisonsView(ChatView, Protocol):
    """What comparisons need from the chat screen."""

    def set_timer(self, delay: float, callback: Callable[[], None]) -> Timer:
        """Call back after `delay` seconds."""

    def take_composer_text(self) -> None:
        """Move text typed just now from the composer to the draft."""

    async def show_conversation(self) -> None:
        """Show the conversation after its turns changed."""


class Comparisons:
    """Opens comparisons, sends their message, and stores their raw prompt."""

    class ComparisonLeft(Message):
        """The comparison was closed."""

    def __init__(
        self,
        view: ComparisonsView,
        navigator: Navigator,
        sender: TurnSender,
        cost: PromptCost,
        services: Services,
        engine_controller: EngineController,
        chat: Conversation,
        fan_outs: FanOuts,
    ) -> None:
        self._view = view
        self._navigator = navigator
        self._sender = sender
        self._cost = cost
        self._services = services
        self._engine_controller = engine_controller
        self._chat = chat
        self._fan_outs = fan_outs
        self._raw_drafts = RawDrafts(services.paths)
        self._raw_timer: Timer | None = None

    @property
    def actions(self) -> ActionMethods:
        return {"compare": self.compare, "comparisons": self.look_at_stored}

    def compare(self, text: str = "") -> None:
        """Compare the chat template with a raw prompt, for the draft or the last message; with `raw=NAME` on an engine
        of its own; with `engine=A,B`, the answers of two engines."""
        try:
            engines, plan = read_side_engines(text)
        except VlmtuiError as error:
            self._view.tell_error(error)
            return
        if plan:
            self._fan_outs.fan_out(text)
            return
        self._view.take_composer_text()
        self._view.start_dialog(partial(self._compare, engines=engines))

    def look_at_stored(self) -> None:
        """Show the comparisons of the last message."""
        self._view.start_dialog(self._look_at_stored)

    def _controller(self, message: ComparedMessage, draft: RawDraft) -> CompareController:
        families = tuple(self._services.registry.values())
        return comparison_of_message(message, draft, self._engine_controller, families)

    def _send(self, message: ComparedMessage, controller: CompareController) -> InFlightRequest:
        """Send the draft as the conversation's next message, with the comparison's seed. Raises VlmtuiError."""
        self._cost.check_room()
        chat, engine_controller = self._chat, self._engine_controller
        written, text, was_editing = chat.draft.words, chat.draft.text, chat.editing is not None
        exchange = chat.begin(
            engine_controller.require_model(),
            engine_controller.info,
            seed=controller.sampling.seed,
            logprobs=controller.alternatives,
        )
        self._view.panel.take_text(written, text)
        self._sender.open_exchange(exchange, rebuild=was_editing)
        return message.sent(exchange)

    def _raw_edited(self) -> None:
        """Store the raw prompt within a second."""
        if self._raw_timer is None:
            self._raw_timer = self._view.set_timer(_WRITE_AFTER_S, self._write_raw)

    def _write_raw(self) -> None:
        self._view.start(self._store_raw, "raw")

    async def _store_raw(self) -> None:
        self._raw_timer = None
        try:
            await self._raw_drafts.write(self._chat.live)
        except VlmtuiError as error:
            self._view.tell_error(error)

    async def _compare(self, raw: str | None = None, engines: Mapping[str, str] = _NO_ENGINES) -> None:
        try:
            message = compared(self._view, self._chat)
            draft = await self._raw_drafts.of(self._chat.live)
            controller = self._controller(message, draft)
            if engines:
                await choose_side_engines(controller, engines, lambda names: self._engines(names, controller))
        except VlmtuiError as error:
            self._view.tell_error(error)
            return
        if raw is not None:
            draft.text, draft.filled, draft.origin, draft.saved_as = raw, "", "", ""
        was_draft = message.exchange is None
        await self._navigator.compare(
            controller,
            message,
            send=lambda controller: self._send(message, controller),
            on_edit=self._raw_edited,
            look=lambda: self._fan_outs.look_at(message),
            engines=lambda names: self._engines(names, controller),
        )
        if was_draft and message.exchange is not None and not controller.sends_draft:
            await self._view.show_conversation()
        self._write_raw()
        self._view.post_message(self.ComparisonLeft())

    async def _engines(self, names: Mapping[str, str], controller: CompareController) -> LaneEngines | None:
        return await self._fan_outs.engines_of(names, partial(require_family, family=controller.input.family))

    async def _look_at_stored(self) -> None:
        last = self._view.marked.exchange if self._view.marked is not None else self._chat.last
        if last is None:
            self._view.tell("There is no comparison yet.")
            return
        try:
            raw = await self._navigator.choose_comparison(ComparedMessage(self._chat, last))
        except VlmtuiError as error:
            self._view.tell_error(error)
            return
        if raw is not None:
            self._view.start_dialog(partial(self._compare, raw))
