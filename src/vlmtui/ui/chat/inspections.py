"""Inspects the prompt and the answer of a message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.prompt import Prompt
from vlmtui.errors import Remedy, VlmtuiError
from vlmtui.registry.loader import Registry
from vlmtui.session.answer_places import AnswerPlaces, ShownMedium, badges_of, places_of
from vlmtui.session.conversation import Conversation
from vlmtui.session.engines import AppEngines
from vlmtui.session.prompt_report import (
    PromptReport,
    exchange_numbered,
    family_of,
    made_here,
    prompt_again,
    report_of,
    request_again,
)
from vlmtui.session.seeing import ask_model_view, occlusion_plan
from vlmtui.text import one_line
from vlmtui.ui.actions import ActionMethods
from vlmtui.ui.chat.composer import Composer
from vlmtui.ui.chat.transcript import TranscriptView
from vlmtui.ui.navigation import Navigator
from vlmtui.ui.widgets.thumbnails import ThumbnailMarks


class Inspections:
    """Opens the inspector."""

    def __init__(
        self,
        view: TranscriptView,
        navigator: Navigator,
        engine_controller: AppEngines,
        chat: Conversation,
        registry: Registry,
        seen: Path,
    ) -> None:
        """`seen`: the folder for what the model sees."""
        self._view = view
        self._navigator = navigator
        self._engine_controller = engine_controller
        self._chat = chat
        self._registry = registry
        self._seen = seen

    @property
    def actions(self) -> ActionMethods:
        return {
            "inspect": partial(self._start, self._inspect),
            "lint": self.show_lint,
            "where": partial(self._start, self._show_places),
            "boxes": partial(self._start, self._mark_thumbnails),
            "locate": self.write_location_prompt,
            "seen": partial(self._start, self._show_model_view),
            "heat": partial(self._start, self._show_occlusion),
        }

    def inspect(self, number: str = "") -> None:
        """Inspect the prompt and the answer of message `number`, or else of the selected message or the last."""
        self._start(self._inspect, number)

    def show_lint(self) -> None:
        """Check the chat template of the loaded model."""
        try:
            model = self._engine_controller.require_model()
        except VlmtuiError as error:
            self._view.tell_error(error)
            return
        self._navigator.show_lint(model)

    def write_location_prompt(self, what: str = "") -> None:
        """Write the prompt into the message by which the model's family is asked where something is, or when in a
        video."""
        model = self._engine_controller.model
        grounding = model.family.grounding if model is not None else None
        media = {item.modality for item in self._chat.draft.attachments}
        known = grounding.prompt_about(media, what or "each object") if grounding is not None else ""
        if not known:
            name = model.family.title if model is not None else "this model"
            self._view.tell(f"No record says how {one_line(name)} is asked for places.")
            return
        self._view.panel.query_one(Composer).insert(known)

    def _start(self, show: Callable[[str], Awaitable[None]], number: str = "") -> None:
        """Start what is shown of message `number`, or else of the selected message or the last, and say why it can't
        be."""
        if not number and self._view.marked is not None:
            number = str(self._chat.number_of(self._view.marked.exchange))

        async def told() -> None:
            try:
                await show(number)
            except VlmtuiError as error:
                self._view.tell_error(error)

        self._view.start_dialog(told)

    async def _inspect(self, number: str) -> None:
        controller = self._engine_controller
        exchange = exchange_numbered(self._chat, number)
        known = await report_of(self._chat, exchange, controller.info)
        model = controller.model
        again = partial(request_again, self._chat, exchange, known, model.family) if model and known.recipe else None
        self._navigator.show_inspector(made_here(known, family_of(known, model, self._registry)), again=again)

    async def _show_places(self, number: str) -> None:
        places = await self._places(number)
        self._navigator.show_places(places, [self._number_of(medium) for medium in places.media])

    async def _mark_thumbnails(self, number: str) -> None:
        """Draw the places that an answer names on the pictures of its prompt in the transcript, or remove them."""
        places = await self._places(number)
        if places.image.modality == "video":
            self._view.tell("Moments of a video are drawn on their frames.", Remedy.DRAW_PLACES)
            return
        placed, badges = places.placed, badges_of(places.marks)

        def marks_of(attachment: Attachment) -> ThumbnailMarks | None:
            if attachment not in places.media:
                return None
            here = places.marks_on(ShownMedium(attachment))
            return ThumbnailMarks(tuple(placed[at] for at in here), tuple(badges[at] for at in here))

        if not self._view.transcript.mark_pictures(marks_of):
            self._view.tell("The picture is not on the screen.", Remedy.DRAW_PLACES)

    async def _show_model_view(self, number: str) -> None:
        _, prompt = await self._prompt(number)
        views = await ask_model_view(self._engine_controller.require_engine(), prompt, self._seen)
        self._navigator.show_model_view(views, [self._number_of(view.attachment) for view in views])

    async def _show_occlusion(self, number: str) -> None:
        known, prompt = await self._prompt(number)
        plan = occlusion_plan(known, prompt, self._engine_controller.require_engine())
        self._navigator.show_occlusion(plan, self._number_of(plan.image))

    async def _prompt(self, number: str) -> tuple[PromptReport, Prompt]:
        """Return what is known of a message's answer, and its prompt for the loaded model. Raises VlmtuiError."""
        return await prompt_again(self._chat, exchange_numbered(self._chat, number), self._engine_controller)

    async def _places(self, number: str) -> AnswerPlaces:
        """Return where the answer to a message points. Raises VlmtuiError."""
        exchange = exchange_numbered(self._chat, number)
        known = await report_of(self._chat, exchange, self._engine_controller.info)
        return places_of(known, family_of(known, self._engine_controller.model, self._registry))

    def _number_of(self, attachment: Attachment) -> int:
        numbered = self._chat.attachments_by_number()
        return next((at for at, item in numbered.items() if item.sha256 == attachment.sha256), 1)
