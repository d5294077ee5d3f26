"""What the chat screen does with prompts and answers: looking into them, and asking one message several ways."""

from __future__ import annotations

from functools import partial

from textual import work

from vlmtui.engine.interface import Engine
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.ui.controllers.chat import ChatController
from vlmtui.ui.controllers.compared_turn import ComparedTurn
from vlmtui.ui.controllers.engine import EngineController, EngineState, engine_died
from vlmtui.ui.controllers.fan_out import FanOutController, choose
from vlmtui.ui.controllers.fan_plan import Plan, parse_plan
from vlmtui.ui.controllers.past_prompt import inspected, numbered, request_again
from vlmtui.ui.screens.comparing import ComparingScreen
from vlmtui.ui.services import Services
from vlmtui.ui.widgets.composer import Composer


class InspectingScreen(ComparingScreen):
    """The inspection's part of the chat."""

    def __init__(self, services: Services, engine_controller: EngineController, chat: ChatController) -> None:
        super().__init__(services, engine_controller, chat)
        self._fanned: tuple[FanOutController, ComparedTurn] | None = None
        """The newest fan-out of which no answer was chosen, and what it asked."""

    async def show_conversation(self) -> None:
        """The conversation has other turns: show them."""
        raise NotImplementedError

    def action_inspect(self, number: str = "") -> None:
        """Look into the prompt and the answer of a message, by its number; without one, of the last."""
        self._inspect(number)

    def action_fan_out(self, text: str = "") -> None:
        """Ask what is written, or else the last message, several ways at once; without a plan, a form asks for it."""
        # What was typed a moment ago may still be on its way to the draft.
        self.chat.draft.text = self.query_one(Composer).text
        self._fan_out(text)

    def engine_now(self) -> Engine | None:
        """The engine, where one is ready."""
        controller = self.engine_controller
        return controller.engine if controller.state is EngineState.READY else None

    @work(group="modal")
    async def _inspect(self, number: str) -> None:
        from vlmtui.ui.screens.inspector import InspectorScreen

        try:
            at, exchange = numbered(self.chat, number)
            known = await inspected(self.chat, at, exchange, self.engine_controller.info)
        except VlmtuiError as error:
            self.tell_error(error)
            return
        model = self.engine_controller.model
        again = partial(request_again, exchange, known, model.family) if model and known.recipe else None
        cache = self.services.paths.cache / "thumbnails"
        self.app.push_screen(InspectorScreen(known, cache=cache, engine=self.engine_now, again=again))

    @work(group="modal")
    async def _fan_out(self, text: str) -> None:
        try:
            if self.chat.running is not None:
                raise VlmtuiError(ErrorKind.BAD_USAGE, "An answer is under way: Esc stops it.")
            compared = ComparedTurn.of(self.chat)
            controller = self._earlier(compared) if not text else None
            if controller is None:
                plan = await self._plan(text, compared)
                controller = self._controller(plan, compared) if plan is not None else None
        except VlmtuiError as error:
            self.tell_error(error)
            return
        if controller is not None:
            await self._show_fanned(controller, compared)

    async def _show_fanned(self, controller: FanOutController, compared: ComparedTurn) -> None:
        from vlmtui.ui.screens.fan_out import FanOutScreen

        self._fanned = (controller, compared)
        screen = FanOutScreen(controller, paths=self.services.paths, engine=self.engine_now)
        chosen = await self.app.push_screen_wait(screen)
        if chosen is None:
            return
        if chosen == "anew":
            self._fanned = None
            self._fan_out("")
            return
        try:
            await choose(controller, chosen, compared, self.model())
        except VlmtuiError as error:
            self.tell_error(error)
            return
        self._fanned = None
        await self.show_conversation()

    def _earlier(self, compared: ComparedTurn) -> FanOutController | None:
        """A fan-out of the same turn that no answer was chosen from."""
        if self._fanned is None:
            return None
        controller, before = self._fanned
        same = before.exchange is compared.exchange and before.turns() == compared.turns()
        return controller if same else None

    async def _plan(self, text: str, compared: ComparedTurn) -> Plan | None:
        if text:
            return parse_plan(text)
        from vlmtui.ui.screens.fan_form import FanFormScreen

        question = compared.turns()[-1].text
        return await self.app.push_screen_wait(FanFormScreen(question, self.chat.settings.sampling))

    def _controller(self, plan: Plan, compared: ComparedTurn) -> FanOutController:
        info = self.engine_controller.info
        if self.engine_now() is None or info is None:
            raise self.engine_controller.error or engine_died()
        if compared.exchange is None:
            self.need_room()
        return FanOutController(plan, self.model().family, compared.turns(), self.chat.settings.sampling, info)
