"""What the chat screen does with attachments: looking at them, changing them, telling what they cost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Literal

import msgspec
from textual import on, work
from textual.message import Message
from textual.timer import Timer

from vlmtui.domain.attachment import Attachment, Modality, VideoSampling
from vlmtui.engine.session import render
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.media.source import restage
from vlmtui.ui.controllers.chat import ChatController
from vlmtui.ui.controllers.cost import Cost, Estimate, cost_of, estimate_of
from vlmtui.ui.controllers.draft import Token
from vlmtui.ui.controllers.engine import EngineController, EngineState
from vlmtui.ui.messages import EngineChanged
from vlmtui.ui.screens.sources import SourcesScreen
from vlmtui.ui.services import Services
from vlmtui.ui.text import one_line
from vlmtui.ui.widgets.composer_panel import ComposerPanel

_COST_AFTER_S = 0.4
"""How long nothing has to change before the cost is asked for."""
_LONG_TEXT = 2000
"""Characters from which a text alone is worth a count."""
_REMEDIES = "F6 smaller images · F7 fewer frames · F8 forget the oldest attachments"

_ANIMATIONS = ("GIF", "WEBP", "PNG", "AVIF")

Outcome = Cost | Estimate | VlmtuiError | None


class AttachingScreen(SourcesScreen):
    """The attachments' half of the chat."""

    @dataclass
    class Counted(Message):
        """What the message would cost, or why it cannot be sent; None: nothing to tell."""

        outcome: Outcome

    def __init__(self, services: Services, engine_controller: EngineController, chat: ChatController) -> None:
        super().__init__(services, engine_controller)
        self.chat = chat
        self.cost: Cost | None = None
        """Of the message as it is now; None: not known."""
        self._counted: object = None
        self._cost_timer: Timer | None = None

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

    @on(ComposerPanel.FileRefused)
    def _file_refused(self, event: ComposerPanel.FileRefused) -> None:
        self.tell_error(event.error)

    @on(ComposerPanel.FileTaken)
    def _file_taken(self, event: ComposerPanel.FileTaken) -> None:
        """An attachment of which one could have taken something else."""
        item, name = event.attachment, one_line(event.attachment.name)
        if item.pages > 1:
            self.tell(f"{name} has {item.pages} pages: page {item.page} is attached. /page takes another.")
        elif item.modality == "video" and item.format in _ANIMATIONS:
            self.tell(f"{name} moves: it is attached as a video. /still takes its first frame.")

    @on(ComposerPanel.DraftChanged)
    def _draft_changed(self) -> None:
        estimate = self._estimate()
        self.panel.bar.tell_estimates(estimate.tokens if estimate else {})
        if not self.chat.draft.text:  # sent, or taken back
            self._tell(None)
        self.ask_cost_soon()

    @on(EngineChanged)
    def _engine_moved(self) -> None:
        """An estimate becomes a count, or the other way round."""
        self.ask_cost_soon()

    @on(Counted)
    def _counted_now(self, event: Counted) -> None:
        self._tell(event.outcome)

    def _tell(self, outcome: Outcome) -> None:
        bar = self.panel.bar
        self.cost = outcome if isinstance(outcome, Cost) else None
        match outcome:
            case Cost():
                bar.tell_tokens(outcome.tokens)
                hint = f" {_REMEDIES}" if outcome.is_too_much else ""
                bar.tell_cost(outcome.text + hint, too_much=outcome.is_too_much)
            case Estimate():
                bar.tell_cost(outcome.text)
            case VlmtuiError():
                hint = f" {_REMEDIES}" if outcome.kind is ErrorKind.CONTEXT_TOO_LONG else ""
                bar.tell_cost(one_line(outcome.message) + hint, too_much=True)
            case None:
                bar.tell_cost("")

    def action_view(self, number: str = "") -> None:
        """Show an attachment as large as the screen, by its number; without one, the newest."""
        from vlmtui.ui.screens.viewer import ViewerScreen

        sent = [item for exchange in self.chat.exchanges for item in exchange.user.attachments]
        numbered = dict(enumerate(sent, 1)) | {
            token.number: token.attachment for token in self.chat.draft.tokens if token.attachment is not None
        }
        wanted = int(number) if number.isdecimal() else max(numbered, default=0) if not number else 0
        if wanted not in numbered:
            problem = f"There is no attachment {one_line(number)}." if number else "Nothing is attached yet."
            self.tell_error(bad_input(problem, hint="Ctrl+O attaches a file."))
            return
        at = list(numbered).index(wanted)
        numbers = list(numbered)
        self.app.push_screen(ViewerScreen(list(numbered.values()), at, cache=self.thumbnails, numbers=numbers))

    def action_frames(self, number: str = "") -> None:
        """Choose which frames of a video of the message are sent, by its number; without one, of the last."""
        tokens = [token for token in self.chat.draft.tokens if token.attachment and token.attachment.sampling]
        chosen = [token for token in tokens if not number or str(token.number) == number]
        if chosen:
            self._choose_frames(chosen[-1])
        else:
            self.tell(f"The message has no video {one_line(number)}".rstrip() + ".")

    def action_drop_attachment(self, number: str = "") -> None:
        """Remove an attachment of the message, by its number; without one, the last."""
        tokens = self.chat.draft.tokens
        wanted = int(number) if number.isdecimal() else tokens[-1].number if tokens and not number else 0
        if not self.panel.detach(wanted) and (number or tokens):
            self.tell_error(bad_input(f"No attachment {one_line(number)} is staged.", hint="Their numbers are above."))

    def action_move_left(self) -> None:
        """Move the attachment beside the cursor one word to the left."""
        self._move(-1)

    def action_move_right(self) -> None:
        """Move the attachment beside the cursor one word to the right."""
        self._move(1)

    def action_still(self, number: str = "") -> None:
        """Take an animation of the message as a still picture, by its number; without one, the last."""
        self._restage(number, lambda item: item.modality == "video" and bool(item.source), still=True)

    def action_page(self, text: str = "") -> None:
        """Take another page of a document of the message, as in `2`, or `2 5` for page 2 of attachment 5."""
        page, _, number = text.partition(" ")
        if page.isdecimal():
            self._restage(number.strip(), lambda item: item.pages > 1, page=int(page), still=True)
        else:
            self.tell_error(bad_input("/page takes the number of a page."))

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

    def _ask_cost(self) -> None:
        """The same question is not asked twice. What is told of a message with attachments counts all of its words; a
        text alone is counted anew once it has grown by some sentences."""
        draft, history = self.chat.draft, [(id(item), item.is_blind) for item in self.chat.exchanges]
        is_ready = self.engine_controller.state is EngineState.READY
        written = draft.words if draft.attachments else len(draft.words) // 500
        question = (draft.attachments, written, history, is_ready, self.chat.running is None)
        if question != self._counted and not draft.pending:
            self._counted = question
            self._count()

    @work(group="cost", exclusive=True)
    async def _count(self) -> None:
        asked, outcome = self.chat.draft.attachments, await self._outcome()
        if asked == self.chat.draft.attachments:  # else the message was sent, or is another one: it is asked anew
            self.post_message(self.Counted(outcome))

    async def _outcome(self) -> Outcome:
        draft, engine = self.chat.draft, self.engine_controller.engine
        info = self.engine_controller.info
        if self.chat.running is not None or not (draft.attachments or len(draft.words) >= _LONG_TEXT):
            return None
        try:
            prompt = self.chat.preview(self.model().family)
            if engine is None or info is None or self.engine_controller.state is not EngineState.READY:
                return self._estimate()
            tokens = draft.tokens
            return cost_of(await render(engine, prompt), tokens, info.max_model_len)
        except VlmtuiError as error:
            return error

    def _estimate(self) -> Estimate | None:
        """What the model's record says of the message's attachments; None: nothing."""
        model = self.engine_controller.model
        return None if model is None else estimate_of(model, self.chat.draft.tokens)

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

    @work(group="stage")
    async def _change_one(self, token: Token, change: Callable[[Attachment], Attachment]) -> None:
        assert token.attachment is not None
        try:
            changed = await asyncio.to_thread(change, token.attachment)
        except VlmtuiError as error:
            self.tell_error(error)
            return
        self.panel.replace(token.number, changed)

    def _move(self, step: Literal[-1, 1]) -> None:
        if not self.panel.move_token(step):
            self.app.bell()

    def _restage(self, number: str, fits: Callable[[Attachment], bool], *, page: int = 1, still: bool) -> None:
        tokens = [token for token in self.chat.draft.tokens if token.attachment and fits(token.attachment)]
        chosen = [token for token in tokens if not number or str(token.number) == number]
        if chosen:
            again = partial(restage, store=self.services.paths.media, page=page, still=still)
            self._change_one(chosen[-1], again)
        else:
            self.tell("The message has nothing that this could be done with.")

    @work(group="modal")
    async def _choose_frames(self, token: Token) -> None:
        # NumPy and libav take a while to import, so that is done off the event loop.
        sheet = await asyncio.to_thread(import_module, "vlmtui.media.sheet")
        from vlmtui.ui.screens.frames import FramesScreen

        assert token.attachment is not None
        model = self.engine_controller.model
        takes = model.family.takes if model is not None else {}
        most = takes["image"].max_items if "image" in takes else 0
        takes_video = "video" in takes or not takes
        screen = FramesScreen(token.attachment, cache=self.thumbnails, takes_video=takes_video, most_images=most)
        choice = await self.app.push_screen_wait(screen)
        if choice is None:
            return
        sampled = msgspec.structs.replace(token.attachment, sampling=choice.sampling)
        if not choice.as_images:
            self.panel.replace(token.number, sampled)
            return
        try:
            images = await asyncio.to_thread(sheet.frames_as_images, sampled, self.services.paths.media, most=most)
        except VlmtuiError as error:
            self.tell_error(error)
            return
        self.panel.replace_with_several(token.number, images)
