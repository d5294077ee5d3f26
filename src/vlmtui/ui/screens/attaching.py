"""What the chat screen does with files: attaching, looking at them, changing them, telling what they cost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from textual import on, work
from textual.message import Message
from textual.screen import Screen
from textual.timer import Timer

from vlmtui.domain.attachment import Attachment, Modality, VideoSampling
from vlmtui.engine.session import render
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.registry.match import Model
from vlmtui.ui.controllers.chat import ChatController
from vlmtui.ui.controllers.cost import Cost, cost_of
from vlmtui.ui.controllers.draft import Token
from vlmtui.ui.controllers.engine import EngineController, EngineState
from vlmtui.ui.services import Services
from vlmtui.ui.text import one_line
from vlmtui.ui.widgets.composer_panel import ComposerPanel

_COST_AFTER_S = 0.4
"""How long nothing has to change before the cost is asked for."""
_LONG_TEXT = 2000
"""Characters from which a text alone is worth a count."""
_REMEDIES = "F6 smaller images · F7 fewer frames · F8 forget the oldest attachments"

Outcome = Cost | VlmtuiError | None


class AttachingScreen(Screen[None]):
    """The attachments' half of the chat."""

    @dataclass
    class Counted(Message):
        """What the message would cost, or why it cannot be sent; None: nothing to tell."""

        outcome: Outcome

    def __init__(self, services: Services, engine_controller: EngineController, chat: ChatController) -> None:
        super().__init__()
        self.services = services
        self.engine_controller = engine_controller
        self.chat = chat
        self.cost: Cost | None = None
        """Of the message as it is now; None: not known."""
        self._counted: object = None
        self._cost_timer: Timer | None = None
        self._folder = Path.cwd()

    @property
    def panel(self) -> ComposerPanel:
        return self.query_one(ComposerPanel)

    def model(self) -> Model:
        """The loaded model. Raises VlmtuiError when there is none."""
        model = self.engine_controller.model
        if model is None:
            raise VlmtuiError(ErrorKind.BAD_USAGE, "No model is loaded.", hint="F3 picks one.")
        return model

    def need_room(self) -> None:
        """Raises VlmtuiError when it is known that the message is too long for the model."""
        if self.cost is not None and self.cost.is_too_much:
            raise VlmtuiError(ErrorKind.CONTEXT_TOO_LONG, self.cost.text, hint=_REMEDIES)

    def prepare_panel(self) -> None:
        """Attachments are counted over the conversation, and videos sampled as the model's record says."""
        self.panel.numbers_above = self.chat.attachments_sent
        model = self.engine_controller.model
        if model is not None:
            self.panel.sampling = VideoSampling(num_frames=model.spec.num_frames)

    def attach_files(self, paths: Sequence[Path]) -> None:
        """Put them where the cursor is."""
        self._folder = paths[-1].parent
        self.panel.attach(paths)

    @on(ComposerPanel.FileRefused)
    def _file_refused(self, event: ComposerPanel.FileRefused) -> None:
        self.tell_error(event.error)

    @on(ComposerPanel.DraftChanged)
    def _draft_changed(self) -> None:
        self.ask_cost_soon()

    @on(Counted)
    def _counted_now(self, event: Counted) -> None:
        outcome, bar = event.outcome, self.panel.bar
        self.cost = outcome if isinstance(outcome, Cost) else None
        match outcome:
            case Cost():
                bar.tell_tokens(outcome.tokens)
                hint = f" {_REMEDIES}" if outcome.is_too_much else ""
                bar.tell_cost(outcome.text + hint, too_much=outcome.is_too_much)
            case VlmtuiError():
                hint = f" {_REMEDIES}" if outcome.kind is ErrorKind.CONTEXT_TOO_LONG else ""
                bar.tell_cost(one_line(outcome.message) + hint, too_much=True)
            case None:
                bar.tell_cost("")

    def action_attach(self, text: str = "") -> None:
        """Stage the files that `text` names; without it, choose them in the file browser."""
        if not text:
            self._browse()
            return
        from vlmtui.media.paths import parse_paths

        self.attach_files(parse_paths(text) or [Path(text).expanduser()])

    def action_drop_attachment(self, number: str = "") -> None:
        """Remove an attachment of the message, by its number; without one, the last."""
        tokens = self.chat.draft.tokens
        wanted = int(number) if number.isdecimal() else tokens[-1].number if tokens and not number else 0
        if not self.panel.detach(wanted) and (number or tokens):
            self.tell_error(bad_input(f"No attachment {one_line(number)} is staged.", hint="Their numbers are above."))

    def action_smaller(self, number: str = "") -> None:
        """Halve the sides of the message's images, or of the one with that number."""
        self._change("image", number, self._smaller)

    def action_fewer_frames(self, number: str = "") -> None:
        """Halve the frames of the message's videos, or of the one with that number."""
        from vlmtui.media.smaller import fewer_frames

        self._change("video", number, fewer_frames)

    def action_forget_oldest(self) -> None:
        """Send the oldest attachments of the conversation no more."""
        exchange = self.chat.forget_oldest()
        if exchange is None:
            self.tell("No earlier attachment is left to forget.")
            return
        names = ", ".join(one_line(item.name) for item in exchange.user.attachments)
        self.tell(f"Not sent any more: {names}")
        self.ask_cost_soon()

    def ask_cost_soon(self) -> None:
        """Once nothing has changed for a while, ask the engine what the message would cost."""
        if self._cost_timer is not None:
            self._cost_timer.stop()
        self._cost_timer = self.set_timer(_COST_AFTER_S, self._ask_cost)

    def tell(self, text: str) -> None:
        self.notify(one_line(text), timeout=4, markup=False)

    def tell_error(self, error: VlmtuiError) -> None:
        self.notify(one_line(str(error)), severity="error", timeout=10, markup=False)

    def _ask_cost(self) -> None:
        """The same question is not asked twice; a text is counted anew once it has grown by some sentences."""
        draft, history = self.chat.draft, [(id(item), item.is_blind) for item in self.chat.exchanges]
        is_ready = self.engine_controller.state is EngineState.READY
        question = (draft.attachments, len(draft.words) // 500, history, is_ready, self.chat.running is None)
        if question != self._counted and not draft.pending:
            self._counted = question
            self._count()

    @work(exit_on_error=False, group="cost", exclusive=True)
    async def _count(self) -> None:
        self.post_message(self.Counted(await self._outcome()))

    async def _outcome(self) -> Outcome:
        draft, engine = self.chat.draft, self.engine_controller.engine
        info = self.engine_controller.info
        if self.chat.running is not None or not (draft.attachments or len(draft.words) >= _LONG_TEXT):
            return None
        try:
            prompt = self.chat.preview(self.model().family)
            if engine is None or info is None or self.engine_controller.state is not EngineState.READY:
                return None
            tokens = draft.tokens
            return cost_of(await render(engine, prompt), tokens, info.max_model_len)
        except VlmtuiError as error:
            return error

    def _smaller(self, attachment: Attachment) -> Attachment:
        from vlmtui.media.smaller import smaller_image

        return smaller_image(attachment, self.services.paths.media)

    def _change(self, modality: Modality, number: str, change: Callable[[Attachment], Attachment]) -> None:
        tokens = [token for token in self.chat.draft.tokens if token.attachment]
        chosen = [token for token in tokens if token.attachment and token.attachment.modality == modality]
        if number:
            chosen = [token for token in chosen if str(token.number) == number]
        if not chosen:
            self.tell(f"The message has no {modality} {one_line(number)}".strip() + ".")
        for token in chosen:
            self._change_one(token, change)

    @work(exit_on_error=False, group="stage")
    async def _change_one(self, token: Token, change: Callable[[Attachment], Attachment]) -> None:
        assert token.attachment is not None
        try:
            changed = await asyncio.to_thread(change, token.attachment)
        except VlmtuiError as error:
            self.tell_error(error)
            return
        self.panel.replace(token.number, changed)

    @work(exit_on_error=False, group="modal")
    async def _browse(self) -> None:
        from vlmtui.ui.screens.browser import BrowserScreen

        browser = BrowserScreen(self._folder, cache=self.services.paths.cache / "thumbnails")
        paths = await self.app.push_screen_wait(browser)
        self._folder = browser.folder
        if paths:
            self.attach_files(paths)
