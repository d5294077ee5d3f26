"""What the chat screen does to compare: opens the comparison of what is written, or of the last message."""

from __future__ import annotations

from dataclasses import dataclass

from textual import on, work
from textual.message import Message
from textual.timer import Timer

from vlmtui.domain.engine import GenerateRequest
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.ui.controllers.chat import ChatController, Exchange
from vlmtui.ui.controllers.chat_settings import ChatSettings
from vlmtui.ui.controllers.compare import Asked, CompareController
from vlmtui.ui.controllers.compared_side import Sent
from vlmtui.ui.controllers.compared_turn import ComparedTurn
from vlmtui.ui.controllers.engine import EngineController, engine_died
from vlmtui.ui.controllers.raw_draft import RawDraft, RawDrafts
from vlmtui.ui.screens.attaching import AttachingScreen
from vlmtui.ui.services import Services
from vlmtui.ui.widgets.composer import Composer

_WRITE_AFTER_S = 1.0


class ComparingScreen(AttachingScreen):
    """The comparison's part of the chat."""

    @dataclass
    class Compared(Message):
        """The comparison was left."""

        turn: ComparedTurn

    def __init__(self, services: Services, engine_controller: EngineController, chat: ChatController) -> None:
        super().__init__(services, engine_controller, chat)
        self._raw_drafts = RawDrafts(services.paths)
        self._raw_timer: Timer | None = None

    def open_exchange(self, exchange: Exchange, request: GenerateRequest, *, anew: bool) -> None:
        """Show an exchange that was begun, and let it be answered. `anew`: it takes an earlier one's place."""
        raise NotImplementedError

    async def show_answer_again(self, exchange: Exchange) -> None:
        """The exchange has another answer now: show it."""
        raise NotImplementedError

    @on(Compared)
    async def _compared(self, event: Compared) -> None:
        exchange = event.turn.exchange
        if exchange is not None and event.turn.has_adopted:
            await self.show_answer_again(exchange)
        self.ask_cost_soon()

    def action_compare(self) -> None:
        """The chat template against a raw prompt: of what is written, or of the last message once more."""
        # What was typed a moment ago may still be on its way to the draft.
        self.chat.draft.text = self.query_one(Composer).text
        self._compare()

    def action_comparisons(self) -> None:
        """Look at the comparisons of the last message."""
        self._look_at_kept()

    def _compare_controller(self, turn: ComparedTurn, draft: RawDraft) -> CompareController:
        info = self.engine_controller.info
        if info is None:
            raise self.engine_controller.error or engine_died()
        families = tuple(self.services.registry.values())
        asked = Asked(turn.turns(), self.model().family, info, self.chat.settings.sampling, families)
        return CompareController(asked, draft)

    def _send_compared(self, turn: ComparedTurn, controller: CompareController) -> Sent:
        """Send what is written as the conversation's next message, with the comparison's seed. Raises VlmtuiError."""
        self.need_room()
        chat = self.chat
        written, settings, was_editing = chat.draft.words, chat.settings, chat.editing is not None
        chat.settings = ChatSettings(settings.system_prompt, controller.sampling)
        try:
            exchange, request = chat.begin(self.model(), self.engine_controller.info)
        finally:
            chat.settings = settings
        exchange.request = request = controller.as_asked(request)
        turn.exchange = exchange
        self.panel.take_text(written)
        self.open_exchange(exchange, request, anew=was_editing)
        return Sent(request, exchange.answer, turn.until_begun, turn.until_over)

    def _raw_edited(self) -> None:
        """The raw prompt is written down within a second."""
        if self._raw_timer is None:
            self._raw_timer = self.set_timer(_WRITE_AFTER_S, self._write_raw)

    @work(group="raw")
    async def _write_raw(self) -> None:
        self._raw_timer = None
        try:
            await self._raw_drafts.write(self.chat.live)
        except VlmtuiError as error:
            self.tell_error(error)

    @work(group="modal")
    async def _compare(self, raw: str | None = None) -> None:
        from vlmtui.ui.screens.compare import CompareScreen

        try:
            if self.chat.running is not None:
                raise VlmtuiError(ErrorKind.BAD_USAGE, "An answer is under way: Esc stops it.")
            turn = ComparedTurn.of(self.chat)
            draft = await self._raw_drafts.of(self.chat.live)
            controller = self._compare_controller(turn, draft)
        except VlmtuiError as error:
            self.tell_error(error)
            return
        if raw is not None:
            draft.text, draft.filled, draft.origin = raw, "", ""
        screen = CompareScreen(
            self.services,
            self.engine_controller,
            controller,
            turn,
            lambda controller: self._send_compared(turn, controller),
            on_edit=self._raw_edited,
        )
        await self.app.push_screen_wait(screen)
        self._write_raw()
        self.post_message(self.Compared(turn))

    @work(group="modal")
    async def _look_at_kept(self) -> None:
        from vlmtui.ui.screens.kept_comparison import choose_kept

        exchanges = self.chat.exchanges
        if not exchanges:
            self.tell("There is no comparison yet.")
            return
        try:
            raw = await choose_kept(self, self.services, ComparedTurn(self.chat, exchanges[-1]))
        except VlmtuiError as error:
            self.tell_error(error)
            return
        if raw is not None:
            self._compare(raw)
