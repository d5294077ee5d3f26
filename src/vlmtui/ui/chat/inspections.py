"""The actions that inspect a message: its prompt and answer, and its images."""

from __future__ import annotations

from functools import partial

import msgspec

from vlmtui.domain.conversation import Attachment
from vlmtui.errors import Remedy, bad_input
from vlmtui.paths import sample_image
from vlmtui.registry.match import DEFAULT_MODEL
from vlmtui.session.exchange import Exchange
from vlmtui.session.prompt_report import (
    PromptReport,
    exchange_numbered,
    family_of,
    made_here,
    report_of,
    request_again,
)
from vlmtui.session.seeing import RoomImage, RoomMode
from vlmtui.text import one_line
from vlmtui.ui.chat.composer import Composer
from vlmtui.ui.chat.part import ChatPart, dialog


class Inspections(ChatPart):
    """Opens the inspector and the image room."""

    @dialog
    async def action_inspect(self, number: str = "") -> None:
        """Inspect the prompt and the answer of message `number`, or else of the selected message or the last."""
        engines, exchange = self._engines, self._exchange(number)
        known = await report_of(self._chat, exchange, engines.info)
        model = engines.model
        again = partial(request_again, self._chat, exchange, known, model.family) if model and known.recipe else None
        self._app.open_inspector(made_here(known, family_of(known, model, self._screen.services.registry)), again=again)

    def action_locate(self, what: str = "") -> None:
        """Insert the prompt that the model family's TOML record gives for locating `what` in an image or video."""
        model = self._engines.model
        grounding = model.family.grounding if model is not None else None
        media = {item.modality for item in self._chat.draft.attachments}
        known = grounding.prompt_about(media, what or "each object") if grounding is not None else ""
        if not known:
            name = model.family.title if model is not None else "this model"
            self._app.tell(f"The registry has no prompt for locating objects with {one_line(name)}.")
            return
        if model is not None and model.family.family == DEFAULT_MODEL:
            self._app.tell("The adapter bundled:boxes locates one shape an image, as in the sample.")
            if not self._chat.attachments_by_number():
                self._screen.panel.attach([sample_image()])
        self._screen.panel.query_one(Composer).insert(known)

    def action_image(self, number: str = "") -> None:
        """Open the image room at image `number`, or else at an image of the selected message, or at the newest one."""
        self._open_room("sent", number)

    def action_seen(self, number: str = "") -> None:
        self._open_room("seen", number)

    def action_heat(self, number: str = "") -> None:
        self._open_room("heat", number)

    def action_boxes(self, number: str = "") -> None:
        self._open_room("boxes", number)

    def action_blind(self, number: str = "") -> None:
        self._open_room("blind", number)

    def open_image(self, attachment: Attachment) -> None:
        """Open the image room at an image of the transcript or of the draft."""
        images, _ = self._images()
        same = [at for at, one in enumerate(images) if one.attachment is attachment]
        self._app.open_images(images if same else [RoomImage(attachment)], same[0] if same else 0)

    def _open_room(self, mode: RoomMode, number: str) -> None:
        images, newest = self._images()
        marked = self._screen.marked
        own = marked.exchange.user.attachments if marked is not None else ()
        if number:
            fits = [at for at, one in enumerate(images) if str(one.number) == number]
        elif own:
            fits = [at for at, one in enumerate(images) if one.attachment is own[0]]
        else:
            is_about_answer = marked is not None or (mode != "sent" and newest >= 0)
            fits = [newest if is_about_answer else len(images) - 1]
        if not fits or fits[0] < 0:
            problem = f"There is no image {one_line(number)}." if number else "Nothing is attached yet."
            raise bad_input(problem, remedy=Remedy.ATTACH_FILE)
        self._app.open_images(images, fits[0], mode)

    def _images(self) -> tuple[list[RoomImage], int]:
        """Return the conversation's images, and the index of the newest one in the prompt of the selected or else the
        last answer; -1 if it has none. The images of that prompt are about its answer, later ones about their own."""
        everything, marked = self._chat.branch.all, self._screen.marked
        answered = marked.exchange if marked is not None else everything[-1] if everything else None
        numbers = {id(item): number for number, item in self._chat.attachments_by_number().items()}
        images, newest = list[RoomImage](), -1
        about = partial(self._report, answered) if answered is not None else None
        for exchange in everything:
            report = about or partial(self._report, exchange)
            images += [RoomImage(item, numbers.get(id(item)), report) for item in exchange.user.attachments]
            if exchange is answered:
                about, newest = None, len(images) - 1
        return [*images, *(RoomImage(item, number) for number, item in self._chat.draft.numbered.items())], newest

    async def _report(self, exchange: Exchange) -> PromptReport:
        known, model = await report_of(self._chat, exchange, self._engines.info), self._engines.model
        if known.request is not None or model is None or known.recipe is None:
            return known
        return msgspec.structs.replace(known, request=request_again(self._chat, exchange, known, model.family))

    def _exchange(self, number: str) -> Exchange:
        """Return the exchange with message `number`, or else the selected or the last. Raises VlmtuiError."""
        if not number and self._screen.marked is not None:
            return self._screen.marked.exchange
        return exchange_numbered(self._chat, number)
