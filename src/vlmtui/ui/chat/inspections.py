"""The actions that inspect a message: its prompt and answer, and views of its images."""

from __future__ import annotations

from functools import partial

from vlmtui.domain.conversation import Attachment
from vlmtui.session.answer_places import places_of
from vlmtui.session.exchange import Exchange
from vlmtui.session.prompt_report import (
    exchange_numbered,
    family_of,
    made_here,
    prompt_again,
    report_of,
    request_again,
)
from vlmtui.session.seeing import ask_model_view, occlusion_plan
from vlmtui.text import one_line
from vlmtui.ui.chat.composer import Composer
from vlmtui.ui.chat.part import ChatPart, dialog


class Inspections(ChatPart):
    """Opens the inspector and the image views."""

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
        self._screen.panel.query_one(Composer).insert(known)

    @dialog
    async def action_where(self, number: str = "") -> None:
        known = await report_of(self._chat, self._exchange(number), self._engines.info)
        places = places_of(known, family_of(known, self._engines.model, self._screen.services.registry))
        self._app.open_places(places, [self._number_of(medium) for medium in places.media])

    @dialog
    async def action_seen(self, number: str = "") -> None:
        _, prompt = await prompt_again(self._chat, self._exchange(number), self._engines)
        views = await ask_model_view(self._engines.require_engine(), prompt, self._screen.services.paths.seen)
        self._app.open_model_view(views, [self._number_of(view.attachment) for view in views])

    @dialog
    async def action_heat(self, number: str = "") -> None:
        known, prompt = await prompt_again(self._chat, self._exchange(number), self._engines)
        plan = occlusion_plan(known, prompt, self._engines.require_engine())
        self._app.open_occlusion(plan, self._number_of(plan.image))

    def _exchange(self, number: str) -> Exchange:
        """Return the exchange with message `number`, or else the selected or the last. Raises VlmtuiError."""
        if not number and self._screen.marked is not None:
            return self._screen.marked.exchange
        return exchange_numbered(self._chat, number)

    def _number_of(self, attachment: Attachment) -> int:
        numbered = self._chat.attachments_by_number()
        return next((at for at, item in numbered.items() if item.sha256 == attachment.sha256), 1)
