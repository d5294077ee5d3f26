"""The two prompts of a comparison: renders the left one; fills, saves and loads the right one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from textual.content import Content
from textual.message import Message
from textual.screen import Screen

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.generation import PromptReady
from vlmtui.domain.prompt import attachments_of
from vlmtui.errors import VlmtuiError
from vlmtui.inspection.prompt_turns import TurnPair, aligned, prompt_parts, raw_turns, rendered_turns
from vlmtui.session.comparison import RENDERED, CompareController
from vlmtui.session.difference import Difference
from vlmtui.session.engine_controller import EngineController
from vlmtui.session.raw_draft import SavedPrompts
from vlmtui.text import one_line
from vlmtui.ui.widgets.dialogs import ChoiceScreen, NameScreen

Result = TypeVar("Result")


class PromptsView(Protocol):
    """What the prompts need from their screen."""

    def post_message(self, message: Message) -> bool:
        """Post a message to the screen, unless it is closed."""

    def tell(self, text: str, error: VlmtuiError | None = None) -> None:
        """Show a line, or an error."""

    async def ask(self, screen: Screen[Result]) -> Result | None:
        """Show a dialog and wait for its result."""


class Prompts:
    """Renders and edits the prompts of a comparison. The screen runs its methods in workers, and shows what they
    post."""

    @dataclass
    class LeftPromptReady(Message):
        """The left prompt was rendered, or why not."""

        ready: PromptReady | None
        error: VlmtuiError | None = None

    @dataclass
    class RawPromptLoaded(Message):
        """Fill the editor with this text."""

        text: str
        origin: str
        saved_as: str = ""

    def __init__(
        self, view: PromptsView, controller: CompareController, engine_controller: EngineController, saved: SavedPrompts
    ) -> None:
        self._view = view
        self._controller = controller
        self._engine_controller = engine_controller
        self._saved = saved

    @dataclass
    class TurnsPaired(Message):
        """The turns of both prompts, in pairs."""

        pairs: Sequence[TurnPair]
        text: str
        """The raw prompt's."""

    async def pair_turns(self) -> None:
        """Find the turns of the left prompt that correspond to those of the raw prompt."""
        ready, text = self._controller.chat.prompt, self._controller.draft.text
        if ready is not None:
            pairs = await asyncio.to_thread(self._pairs, ready, text, self.attachments)
            self._view.post_message(self.TurnsPaired(pairs, text))

    def _pairs(self, ready: PromptReady, text: str, attachments: Sequence[Attachment]) -> Sequence[TurnPair]:
        controller, given = self._controller, self._controller.input
        special, bos = controller.special_tokens(), given.info.bos_token if given.info.adds_bos else None
        parts = prompt_parts(ready, attachments, given.attachments, given.family, special, added_bos=bos or "")
        raw = raw_turns(text, given.family, controller.placeholders(text))
        return aligned(rendered_turns(parts, given.family), raw)

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """The attachments in the order of the left prompt's placeholders."""
        try:
            return attachments_of(self._controller.chat_prompt())
        except VlmtuiError:
            return self._controller.input.attachments

    async def make(self) -> None:
        """Render the left prompt, and fill the editor unless the user has written in it."""
        controller, view = self._controller, self._view
        try:
            ready = await controller.render_chat(self._engine_controller.require_engine())
            view.post_message(self.LeftPromptReady(ready))
        except VlmtuiError as error:
            view.post_message(self.LeftPromptReady(None, error))
        if controller.draft.is_edited:
            return
        try:
            text, origin = await controller.template_text(self._engine_controller.require_engine)
        except VlmtuiError as error:
            view.tell("", error)
            made = controller.chat.rendered
            text, origin = (controller.text_of(made), RENDERED) if made else ("", "")
        view.post_message(self.RawPromptLoaded(text, origin))

    async def difference(self) -> Difference:
        """Compare the sent prompts; before that, the prompts that would be sent."""
        controller = self._controller
        if controller.raw.answer is None:
            try:
                engine = self._engine_controller.require_engine()
                controller.require_sendable()
                await controller.render_raw(engine)
            except VlmtuiError as error:
                return Difference(problem=error)
        return await asyncio.to_thread(controller.difference)

    async def fill(self) -> None:
        """Load the raw prompt from the registry's template, from the left side, or from a saved prompt."""
        names = await asyncio.to_thread(self._saved.names)
        lines = [Content("The registry's raw template"), Content("The chat template's text")]
        lines += [Content.assemble("Saved: ", one_line(name)) for name in names]
        at = await self._view.ask(ChoiceScreen("Load the raw prompt from", lines))
        if at is None:
            return
        name = "" if at < 2 else names[at - 2]
        try:
            if at == 0:
                text, origin = await self._controller.template_text(self._engine_controller.require_engine)
            elif at == 1:
                text, origin = await self._controller.rendered_text(self._engine_controller.require_engine())
            else:
                text, origin = await asyncio.to_thread(self._saved.load, name), ""
        except VlmtuiError as error:
            self._view.tell("", error)
            return
        self._view.post_message(self.RawPromptLoaded(text, origin, name))

    async def save(self) -> None:
        """Save the raw prompt under a name."""
        draft = self._controller.draft
        hint = "Overwrites an existing prompt of that name. {comparison.fill} loads it."
        name = await self._view.ask(NameScreen("Save the raw prompt as", value=draft.saved_as, hint=hint))
        if name is None:
            return
        text = draft.text
        try:
            name = await asyncio.to_thread(self._saved.save, name, text)
        except VlmtuiError as error:
            self._view.tell("", error)
            return
        draft.fill(text, saved_as=name)
        self._view.tell(f"Saved as {name}.")
