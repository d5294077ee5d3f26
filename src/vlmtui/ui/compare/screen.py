"""The screen that compares the chat template's prompt with a raw prompt, and the answers to both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from textual import on, work
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from vlmtui.domain.conversation import Attachment, attachments_of
from vlmtui.domain.generation import PromptReady, usage_of
from vlmtui.errors import Remedy, VlmtuiError
from vlmtui.inspection.prompt_turns import TurnPair, aligned, prompt_parts, raw_turns, rendered_turns
from vlmtui.inspection.replay import Comparison
from vlmtui.session.comparison import (
    RENDERED,
    ComparedMessage,
    ComparedSide,
    Difference,
    PromptComparison,
    SavedPrompts,
)
from vlmtui.session.engines import EngineState
from vlmtui.session.lanes import InFlightRequest
from vlmtui.text import one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.compare.answers import AnswerPane, PictureStrip
from vlmtui.ui.compare.raw_prompt import RawEditor, RawPane
from vlmtui.ui.compare.sides import SidesScreen, View
from vlmtui.ui.compare.turns import AlignedTurns, PromptView
from vlmtui.ui.keys import error_text, with_keys, with_remedy
from vlmtui.ui.messages import EngineChanged
from vlmtui.ui.terminal.key_queue import ask_user, before_keys
from vlmtui.ui.widgets.dialogs import ChoiceScreen, NameScreen


class CompareScreen(SidesScreen):
    """On the left the chat template's prompt, on the right the raw prompt in an editor."""

    HINT = (
        "comparison.fix",
        "comparison.use",
        "comparison.inspect",
    )
    SCOPE = "comparison"
    BINDINGS = bindings(SCOPE)

    class BothEnded(Message):
        """Both answers have ended."""

    def __init__(
        self,
        comparison: PromptComparison,
        message: ComparedMessage,
        *,
        send: Callable[[], InFlightRequest],
        on_edit: Callable[[], None],
    ) -> None:
        """`send`: sends the draft as the conversation's next message. `on_edit`: called when the raw prompt changes."""
        self._left = PromptView(id="chat-prompt")
        self.pane = RawPane(comparison, id="raw-prompt")
        question, pictures = comparison.turns[-1].text, comparison.attachments
        super().__init__("Compare", question, pictures, {"chat": self._left, "raw": self.pane})
        self.comparison = comparison
        self.message = message
        self._send_draft = send
        self._on_edit = on_edit
        self._was_told_to_stop = False

    def document(self) -> Comparison | None:
        return self.comparison.document() if self.comparison.is_over else None

    # -- display

    @property
    def editor(self) -> RawEditor:
        return self.pane.editor

    def on_mount(self) -> None:
        self._turns = AlignedTurns(self._left, self.editor)
        self._saved = SavedPrompts(self.main_app.services.paths, self.comparison.family.family)
        draft = self.comparison.draft
        if draft.is_edited:
            self.pane.put(draft.text)
        self.show_settings(self.comparison.sampling)
        self.turn_to("raw" if self.is_narrow else "chat")
        self._make_prompts()

    @on(RawPane.Edited)
    def _edited(self) -> None:
        draft = self.comparison.draft
        known = f"saved as {draft.saved_as}" if draft.saved_as else draft.origin
        self.show_head("raw", "edited" if draft.is_edited else one_line(known))
        stale = "Stale: the raw prompt was edited after this answer. {comparison.send} sends again."
        told = with_keys(self.app, stale) if self.comparison.is_stale else ""
        self.answer_pane("raw").tell_stale(told)
        self._on_edit()

    @on(RawPane.Checked)
    def _checked(self) -> None:
        self.refresh_bindings()
        self._pair_turns()
        self.find_difference()

    @on(PromptView.Resized)
    @on(RawEditor.Resized)
    def _pane_resized(self) -> None:
        self.call_after_refresh(self._turns.resized)
        self.call_after_refresh(self.fit_prompts)

    @on(EngineChanged)
    def _engine_changed(self) -> None:
        if self.main_app.engines.state is EngineState.READY and self.comparison.chat.prompt is None:
            self._make_prompts()

    @on(BothEnded)
    def _both_ended(self) -> None:
        for pane in self.query(AnswerPane):
            pane.update_answer()
        self._pair_turns()
        self._show_state()
        self.find_difference()
        self._store()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        match action:
            case "send":
                return not self.comparison.is_running
            case "next_finding" | "fix":
                return self.is_mounted and bool(self.pane.findings)
            case _:
                return True

    # -- actions

    def action_send(self) -> None:
        if self.main_app.engines.state is EngineState.DEAD:
            self.main_app.tell("The model is loading again.")
            self.main_app.models.restart()
            return
        comparison = self.comparison
        try:
            comparison.require_sendable()
        except VlmtuiError as error:
            self._focus_raw()
            is_listed = error.remedy is Remedy.APPLY_FIX
            self.pane.refuse(
                with_remedy(self.app, "Not sent.", error.remedy) if is_listed else error_text(self.app, error)
            )
            return
        try:
            engine = self.main_app.engines.require_engine()
            comparison.prepare()
            in_flight = self._send_draft() if self.message.exchange is None else None
        except VlmtuiError as error:
            self.main_app.tell_error(error)
            return
        comparison.begin(engine, in_flight)
        self._was_told_to_stop = False
        for side in comparison.sides:
            if side.answer is not None:
                self.answer_pane(side.mode).begin(side.answer)
        self._show_state()
        self._answer()

    @work(group="stop")
    async def action_leave(self) -> None:
        """Stop running answers. If none is running, or if this was called before, return to the chat."""
        if self.comparison.is_running and not self._was_told_to_stop:
            self._was_told_to_stop = True
            await self.comparison.stop()
        else:
            self.dismiss()

    def action_use(self) -> None:
        self._use(self._focused_side())

    def action_inspect(self) -> None:
        known = self._focused_side().report(self.comparison.info)
        if known is None:
            self.main_app.tell("Its prompt is not rendered yet.", Remedy.COMPUTE_DIFFERENCE)
            return
        self.main_app.open_inspector(known)

    def action_next_finding(self) -> None:
        self._focus_raw()
        self.pane.visit()

    def action_fix(self) -> None:
        self._focus_raw()
        self.pane.fix()

    def action_fold(self) -> None:
        self._turns.fold()

    @before_keys
    async def action_fill(self) -> None:
        names = await asyncio.to_thread(self._saved.names)
        lines = [Content("From the record"), Content("From the chat template")]
        lines += [Content.assemble("Saved: ", one_line(name)) for name in names]
        at = await ask_user(self.app, ChoiceScreen("Load the raw prompt from", lines))
        if at is None:
            return
        name = "" if at < 2 else names[at - 2]
        try:
            if at == 0:
                text, origin = await self.comparison.template_text(self.main_app.engines.require_engine)
            elif at == 1:
                text, origin = await self.comparison.rendered_text(self.main_app.engines.require_engine())
            else:
                text, origin = await asyncio.to_thread(self._saved.load, name), ""
        except VlmtuiError as error:
            self.main_app.tell_error(error)
        else:
            self._fill(text, origin, name)

    @before_keys
    async def action_save(self) -> None:
        draft = self.comparison.draft
        hint = "Overwrites an existing prompt of that name. {comparison.fill} loads it."
        name = await ask_user(self.app, NameScreen("Save the raw prompt as", value=draft.saved_as, hint=hint))
        if name is None:
            return
        text = draft.text
        try:
            name = await asyncio.to_thread(self._saved.save, name, text)
        except VlmtuiError as error:
            self.main_app.tell_error(error)
        else:
            draft.fill(text, saved_as=name)
            self.main_app.tell(f"Saved as {name}.")

    # -- internals

    def landing(self, view: View) -> Widget:
        if view == "difference" or (view == "chat" and self.is_narrow):
            return super().landing(view)
        return self.editor

    def turn_to(self, view: View) -> None:
        super().turn_to(view)
        self.call_after_refresh(self._turns.resized)

    def _focus_raw(self) -> None:
        if self.view == "difference" or (self.is_narrow and self.view != "raw"):
            self.turn_to("raw")
        self.editor.focus()

    def _focused_side(self) -> ComparedSide:
        focused = self.focused
        in_raw = focused is not None and any(node.id == "raw-side" for node in focused.ancestors_with_self)
        return self.comparison.raw if in_raw else self.comparison.chat

    def _show_state(self) -> None:
        self.show_settings(self.comparison.sampling)
        self.refresh_bindings()

    # -- the prompts

    @work(group="prepare", exclusive=True)
    async def _make_prompts(self) -> None:
        """Render the left prompt, and fill the editor unless the user has written in it."""
        comparison = self.comparison
        try:
            self._show_left(await comparison.render_chat(self.main_app.engines.require_engine()))
        except VlmtuiError as error:
            self._left.tell(error_text(self.app, error))
        if comparison.draft.is_edited:
            return
        try:
            text, origin = await comparison.template_text(self.main_app.engines.require_engine)
        except VlmtuiError as error:
            self.main_app.tell_error(error)
            made = comparison.chat.rendered
            text, origin = (comparison.text_of(made), RENDERED) if made else ("", "")
        self._fill(text, origin)

    def _show_left(self, ready: PromptReady) -> None:
        self._pair_turns()
        self.query_one(PictureStrip).tell_tokens(ready, self._attachments)
        media = usage_of(ready).media_text
        self.show_head("chat", f"{len(ready.token_ids):,} tokens" + (f" ({media})" if media else ""))

    def _fill(self, text: str, origin: str, saved_as: str = "") -> None:
        self.comparison.draft.fill(text, origin, saved_as=saved_as)
        self.pane.put(text)

    @property
    def _attachments(self) -> tuple[Attachment, ...]:
        """The attachments in the order of the left prompt's placeholders."""
        try:
            return attachments_of(self.comparison.chat_prompt())
        except VlmtuiError:
            return self.comparison.attachments

    @work(group="turns", exclusive=True)
    async def _pair_turns(self) -> None:
        """Find which turns of the two prompts correspond, and align them."""
        ready, text = self.comparison.chat.prompt, self.comparison.draft.text
        if ready is not None:
            pairs = await asyncio.to_thread(self._pairs, ready, text, self._attachments)
            self._turns.show(pairs, text)

    def _pairs(self, ready: PromptReady, text: str, attachments: Sequence[Attachment]) -> Sequence[TurnPair]:
        comparison, family, special = self.comparison, self.comparison.family, self.comparison.special_tokens()
        bos = comparison.added_bos
        parts = prompt_parts(ready, attachments, comparison.attachments, family, special, added_bos=bos)
        raw = raw_turns(text, family, comparison.placeholders(text))
        return aligned(rendered_turns(parts, family), raw)

    # -- in the background

    @work(group="send")
    async def _answer(self) -> None:
        try:
            await self.comparison.answer()
        finally:
            self.post_message(self.BothEnded())

    @work(group="store")
    async def _store(self) -> None:
        try:
            await self.comparison.keep(self.message)
        except VlmtuiError as error:
            self.main_app.tell_error(error)

    @work(group="use")
    async def _use(self, side: ComparedSide) -> None:
        exchange = self.message.exchange
        if side.lane is None:
            self.main_app.tell("There is no answer to use yet.")
            return
        if exchange is not None and exchange.answer is side.lane.answer:
            self.main_app.tell("This chat already continues with that answer.")
            return
        try:
            await self.message.adopt(side.lane, self.main_app.engines.require_model())
        except VlmtuiError as error:
            self.main_app.tell_error(error)
            return
        exchange = self.message.exchange
        if exchange is not None:
            number, count = exchange.answer_siblings.position, exchange.answer_siblings.count
            self.main_app.tell(f"{side.mode.capitalize()} answer is now answer {number}/{count} of this chat.")

    @work(group="difference", exclusive=True)
    async def find_difference(self) -> None:
        """Compare the prompts as they would be sent now, and the answers."""
        comparison = self.comparison
        if comparison.is_running:
            return
        try:
            comparison.require_sendable()
            await comparison.render_raw(self.main_app.engines.require_engine)
        except VlmtuiError as error:
            self.show_difference(Difference(problem=error))
            return
        self.show_difference(await asyncio.to_thread(comparison.difference))
        self.call_after_refresh(self.fit_prompts)
