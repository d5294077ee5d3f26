"""The two prompts of a comparison: the left one is read, the right one is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from textual import on, work
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from vlmtui.domain.engine import PromptReady
from vlmtui.engine.interface import Engine
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.inspection.columns import Run
from vlmtui.ui.controllers.compare import RENDERED, CompareController
from vlmtui.ui.controllers.engine import EngineController, EngineState, engine_died
from vlmtui.ui.controllers.folded_prompt import attachments_of, folded_runs
from vlmtui.ui.controllers.raw_draft import SavedPrompts
from vlmtui.ui.messages import EngineChanged
from vlmtui.ui.screens.asking import ChoiceScreen, NameScreen
from vlmtui.ui.screens.sides import SidesScreen
from vlmtui.ui.services import Services
from vlmtui.ui.text import one_line
from vlmtui.ui.widgets.compare_pane import PromptPane
from vlmtui.ui.widgets.raw_editor import RawEditor
from vlmtui.ui.widgets.raw_pane import RawPane


class PromptsScreen(SidesScreen):
    """Makes the left prompt; fills, checks and saves the right one."""

    @dataclass
    class PromptMade(Message):
        """The left prompt is there, or why it is not."""

        ready: PromptReady | None
        error: VlmtuiError | None = None

    @dataclass
    class Filled(Message):
        """The editor is to begin with this text."""

        text: str
        origin: str

    def __init__(
        self,
        services: Services,
        engine_controller: EngineController,
        controller: CompareController,
        on_edit: Callable[[], None],
    ) -> None:
        """`on_edit` is told that the raw prompt changed."""
        super().__init__(services, "Compare", controller.asked.question)
        self.engine_controller = engine_controller
        self.controller = controller
        self._on_edit = on_edit
        self._saved = SavedPrompts(services.paths, controller.asked.family.family)

    @property
    def editor(self) -> RawEditor:
        return self.pane.editor

    @property
    def pane(self) -> RawPane:
        return self.query_one(RawPane)

    def on_mount(self) -> None:
        draft = self.controller.draft
        if draft.is_edited:
            self.pane.put(draft.text)
        self.show_settings(self.controller.sampling)
        self.turn_to("chat")
        self._prepare()

    @on(PromptMade)
    def _prompt_made(self, event: PromptMade) -> None:
        pane = self.query_one("#chat-prompt", PromptPane)
        if event.ready is not None:
            pane.show(self.runs(event.ready))
            images = sum(span.tokens for span in event.ready.media)
            told = f" · {len(event.ready.token_ids):,} tokens" + (f" ({images:,} image)" if images else "")
            head = Content.assemble("Chat template", (told, "not bold $muted"))
            self.query_one("#chat-head", Static).update(head)
        elif event.error is not None:
            pane.tell(str(event.error))

    @on(Filled)
    def _filled(self, event: Filled) -> None:
        self.controller.draft.fill(event.text, event.origin)
        self.pane.put(event.text)

    @on(RawPane.Edited)
    def _edited(self) -> None:
        draft = self.controller.draft
        origin = "your text" if draft.is_edited else draft.origin
        self.query_one("#raw-head", Static).update(
            Content.assemble("Raw prompt", (f" · {one_line(origin)}" if origin else "", "not bold $muted"))
        )
        self._on_edit()

    @on(RawPane.Checked)
    def _checked(self) -> None:
        self.refresh_bindings()

    @on(RawPane.NoFix)
    def _no_fix(self) -> None:
        self.post_message(self.Told("There is no fix for that: change the text."))

    @on(EngineChanged)
    def _engine_changed(self) -> None:
        if self.engine_controller.state is EngineState.READY and self.controller.chat.prompt is None:
            self._prepare()

    def action_next_finding(self) -> None:
        """Put the cursor where the next finding is."""
        self._look_at_raw()
        self.pane.visit()

    def action_fix(self) -> None:
        """Make the edit that mends the finding: the one that was visited, or the first."""
        self._look_at_raw()
        self.pane.fix()

    def action_fill(self) -> None:
        """Begin the raw prompt anew: from the registry, from the left, or from one that was saved."""
        self._fill()

    def action_save(self) -> None:
        """Save the raw prompt by a name."""
        self._save()

    def runs(self, ready: PromptReady) -> list[Run]:
        asked = self.controller.asked
        try:
            attachments = attachments_of(self.controller.chat_prompt())
        except VlmtuiError:
            attachments = asked.attachments
        return folded_runs(ready, attachments, asked.attachments, self.controller.special_tokens())

    def _look_at_raw(self) -> None:
        if self.view == "difference" or (self.is_narrow and self.view != "raw"):
            self.turn_to("raw")
        self.editor.focus()

    def ready_engine(self) -> Engine:
        """Raises VlmtuiError when none is ready."""
        controller = self.engine_controller
        if controller.state is EngineState.LOADING:
            raise VlmtuiError(ErrorKind.ENGINE_BUSY, "The model is still loading.")
        if controller.state is not EngineState.READY or controller.engine is None:
            raise controller.error or engine_died()
        return controller.engine

    @work(group="prepare", exclusive=True)
    async def _prepare(self) -> None:
        """Make the left prompt, and fill the editor where nobody has written in it."""
        try:
            self.post_message(self.PromptMade(await self.controller.render_chat(self.ready_engine())))
        except VlmtuiError as error:
            self.post_message(self.PromptMade(None, error))
        if self.controller.draft.is_edited:
            return
        try:
            text, origin = await self.controller.template_text(self.ready_engine)
        except VlmtuiError as error:
            self.post_message(self.Told("", error))
            made = self.controller.chat.rendered
            text, origin = (self.controller.text_of(made), RENDERED) if made else ("", "")
        self.post_message(self.Filled(text, origin))

    @work(group="modal", exclusive=True)
    async def _fill(self) -> None:
        names = await asyncio.to_thread(self._saved.names)
        lines = [Content("The registry's raw template"), Content("The chat template's text")]
        lines += [Content.assemble("Saved: ", one_line(name)) for name in names]
        at = await self.app.push_screen_wait(ChoiceScreen("Begin the raw prompt with", lines))
        if at is None:
            return
        try:
            if at == 0:
                text, origin = await self.controller.template_text(self.ready_engine)
            elif at == 1:
                text, origin = await self.controller.rendered_text(self.ready_engine())
            else:
                name = names[at - 2]
                text, origin = await asyncio.to_thread(self._saved.load, name), f"saved as {name}"
        except VlmtuiError as error:
            self.post_message(self.Told("", error))
            return
        self.post_message(self.Filled(text, origin))

    @work(group="modal", exclusive=True)
    async def _save(self) -> None:
        origin = self.controller.draft.origin
        value = origin.removeprefix("saved as ") if origin.startswith("saved as ") else ""
        hint = "One of that name is replaced. Ctrl+O begins with it."
        name = await self.app.push_screen_wait(NameScreen("Save the raw prompt as", value=value, hint=hint))
        if name is None:
            return
        text = self.controller.draft.text
        try:
            name = await asyncio.to_thread(self._saved.save, name, text)
        except VlmtuiError as error:
            self.post_message(self.Told("", error))
            return
        self.controller.draft.fill(text, f"saved as {name}")
        self.post_message(self.Told(f"Saved as {name}."))
