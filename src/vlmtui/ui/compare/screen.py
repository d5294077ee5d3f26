"""The comparison of the chat template with a raw prompt: editing, checking, sending, comparing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from textual import on, work
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from vlmtui.domain.generation import usage_of
from vlmtui.errors import Remedy, VlmtuiError
from vlmtui.inspection.findings import Finding
from vlmtui.session.compared_message import ComparedMessage
from vlmtui.session.comparison import CompareController, ComparedSide
from vlmtui.session.engine_controller import EngineController, EngineState
from vlmtui.session.generation import PromptMode
from vlmtui.session.lanes import InFlightRequest
from vlmtui.session.prompt_report import PromptReport
from vlmtui.session.raw_draft import SavedPrompts
from vlmtui.session.side_engines import FindEngines
from vlmtui.text import one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.compare.aligned_turns import AlignedTurns
from vlmtui.ui.compare.compare_pane import AnswerPane, PromptPane
from vlmtui.ui.compare.findings_list import warning_of
from vlmtui.ui.compare.kept_answers import KeptAnswers
from vlmtui.ui.compare.picture_strip import PictureStrip
from vlmtui.ui.compare.prompts import Prompts, Result
from vlmtui.ui.compare.raw_editor import RawEditor
from vlmtui.ui.compare.raw_pane import RawPane
from vlmtui.ui.compare.side_engines import SideEngines
from vlmtui.ui.compare.sides import SidesScreen, View
from vlmtui.ui.keys import error_text, with_keys
from vlmtui.ui.messages import EngineChanged
from vlmtui.ui.services import Services
from vlmtui.ui.terminal.key_queue import ask_user, run_before_keys
from vlmtui.ui.widgets.dialogs import NameScreen


class CompareScreen(SidesScreen):
    """On the left the chat template's prompt, on the right the raw prompt in an editor."""

    HINT = (
        "comparison.look",
        "comparison.fix",
        "comparison.use",
        "comparison.inspect",
        "comparison.logprobs",
        "comparison.earlier",
    )
    SCOPE = "comparison"
    BINDINGS = bindings(SCOPE)

    class BothEnded(Message):
        """Both sides have an outcome."""

    def __init__(
        self,
        services: Services,
        engine_controller: EngineController,
        controller: CompareController,
        message: ComparedMessage,
        send: Callable[[CompareController], InFlightRequest],
        *,
        on_edit: Callable[[], None],
        look: Callable[[], Awaitable[bool]],
        engines: FindEngines,
        show_inspector: Callable[[PromptReport], None],
    ) -> None:
        """`send` sends the draft as the conversation's next message; `on_edit` is called after edits of the raw
        text; `look` sends it without its pictures, and returns whether one of those answers was used; `engines` finds
        those of the sides."""
        super().__init__(
            services,
            "Compare",
            controller.input.question,
            chat=[PromptPane(id="chat-prompt"), AnswerPane("comparison.stop_chat", id="chat-answer")],
            raw=[RawPane(controller, id="raw-prompt"), AnswerPane("comparison.stop_raw", id="raw-answer")],
            document=lambda: controller.document() if controller.is_over else None,
            landing=self._landing_of,
            pictures=controller.input.attachments,
        )
        self.engine_controller = engine_controller
        self.controller = controller
        self.message = message
        saved = SavedPrompts(services.paths, controller.input.family.family)
        self._prompts = Prompts(self, controller, engine_controller, saved)
        self._engines = SideEngines(self, controller, engines)
        self._kept = KeptAnswers(self, message, controller, engine_controller)
        self._send_draft = send
        self._on_edit = on_edit
        self._look = look
        self._show_inspector = show_inspector
        self._was_told_to_stop = False

    # -- display

    @property
    def editor(self) -> RawEditor:
        return self.pane.editor

    @property
    def pane(self) -> RawPane:
        return self.query_one(RawPane)

    def on_mount(self) -> None:
        self._turns = AlignedTurns(self.query_one("#chat-prompt", PromptPane), self.editor)
        draft = self.controller.draft
        if draft.is_edited:
            self.pane.put(draft.text)
        self.show_settings(self.controller.sampling)
        self.turn_to("chat")
        self._make_prompts()

    @on(Prompts.LeftPromptReady)
    def _prompt_made(self, event: Prompts.LeftPromptReady) -> None:
        pane = self.query_one("#chat-prompt", PromptPane)
        if event.ready is not None:
            self._pair_turns()
            self.query_one(PictureStrip).tell_tokens(event.ready, self._prompts.attachments)
            media = usage_of(event.ready).media_text
            self._engines.told("chat", f"{len(event.ready.token_ids):,} tokens" + (f" ({media})" if media else ""))
            self._show_heads()
        elif event.error is not None:
            pane.tell(error_text(self.app, event.error))

    @on(Prompts.RawPromptLoaded)
    def _filled(self, event: Prompts.RawPromptLoaded) -> None:
        self.controller.draft.fill(event.text, event.origin, saved_as=event.saved_as)
        self.pane.put(event.text)

    @on(RawPane.Edited)
    def _edited(self) -> None:
        draft = self.controller.draft
        known = f"saved as {draft.saved_as}" if draft.saved_as else draft.origin
        origin = "your text" if draft.is_edited else known
        self._engines.told("raw", one_line(origin))
        self._show_heads()
        stale = "Stale: the raw prompt was edited after this answer. {comparison.send} sends again."
        told = with_keys(self.app, stale) if self.controller.is_stale else ""
        self.query_one("#raw-answer", AnswerPane).tell_stale(told)
        self._on_edit()

    @on(RawPane.Checked)
    def _checked(self) -> None:
        self.refresh_bindings()
        self._pair_turns()

    @on(Prompts.TurnsPaired)
    def _turns_paired(self, event: Prompts.TurnsPaired) -> None:
        self._turns.show(event.pairs, event.text)

    @on(PromptPane.Resized)
    @on(RawEditor.Resized)
    def _pane_resized(self) -> None:
        self.call_after_refresh(self._turns.resized)

    @on(RawPane.NoFix)
    def _no_fix(self) -> None:
        self.tell("This finding has no fix: edit the text.")

    @on(EngineChanged)
    def _engine_changed(self) -> None:
        if self.engine_controller.state is EngineState.READY and self.controller.chat.prompt is None:
            self._make_prompts()

    @on(SidesScreen.DifferenceWanted)
    def _difference_wanted(self) -> None:
        self._find_difference()

    @on(BothEnded)
    def _over(self) -> None:
        for pane in self.query(AnswerPane):
            pane.update_answer()
        self._pair_turns()
        self._show_state()
        self._show_heads()
        self._find_difference()
        self._store()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        match action:
            case "stop":
                return self._side(parameters[0]).is_running
            case "send" | "engine":
                return not self.controller.is_running
            case "next_finding" | "fix":
                return self.is_mounted and bool(self.pane.findings)
            case _:
                return True

    # -- actions

    def action_send(self) -> None:
        """Send both prompts at the same time."""
        if self.engine_controller.state is EngineState.DEAD:
            self.tell("The model is loading again.")
            self.call_later(self.run_action, "app.restart_engine")
            return
        controller = self.controller
        try:
            engine = self.engine_controller.require_engine()
            findings = controller.prepare()
            is_draft = self.message.exchange is None and controller.sends_draft
            in_flight = self._send_draft(controller) if is_draft else None
        except VlmtuiError as error:
            self.tell_error(error)
            return
        controller.begin(engine, in_flight)
        self._was_told_to_stop = False
        self._show_begun(findings)
        self._answer()

    @work(group="stop")
    async def action_stop(self, mode: PromptMode) -> None:
        """Stop one side; keep the partial answer."""
        await self.controller.stop(mode)

    @work(group="stop")
    async def action_leave(self) -> None:
        """Stop running answers; if there are none, or if pressed again, return to the chat."""
        if self.controller.is_running and not self._was_told_to_stop:
            self._was_told_to_stop = True
            await self.controller.stop("chat", "raw")
        else:
            self.dismiss()

    def action_logprobs(self) -> None:
        """Request log-probabilities with the next answers, or stop requesting them."""
        self.controller.logprobs = not self.controller.logprobs
        self._show_state()
        if self.controller.logprobs:
            self.tell("The next answers include log-probabilities; the first ones take some seconds more.")

    def action_stored(self) -> None:
        """Show the earlier comparisons of this turn."""
        run_before_keys(self, self._show_stored, exclusive=True)

    def action_use(self) -> None:
        """Continue the conversation with the focused side's answer."""
        self._use(self._focused_side())

    def action_inspect(self) -> None:
        """Inspect the prompt and the answer of the focused side."""
        known = self._focused_side().report(self.controller.input.info)
        if known is None:
            self.tell("Its prompt is not rendered yet.", remedy=Remedy.SHOW_DIFFERENCE)
            return
        self._show_inspector(known)

    def action_look(self) -> None:
        """Send the same message without its pictures, and with changed ones."""
        run_before_keys(self, self._show_look, exclusive=True)

    def action_engine(self) -> None:
        """Choose the engine of the focused side."""
        run_before_keys(self, self._choose_engine, exclusive=True)

    def action_next_finding(self) -> None:
        """Move the cursor to the next finding."""
        self._look_at_raw()
        self.pane.visit()

    def action_fix(self) -> None:
        """Apply the fix of the visited finding, or of the first one."""
        self._look_at_raw()
        self.pane.fix()

    def action_find(self) -> None:
        """Find text in the raw prompt."""
        run_before_keys(self, self._find, exclusive=True)

    def action_fold(self) -> None:
        """Show equal earlier turns in one line, or whole."""
        self._turns.fold()

    def action_fill(self) -> None:
        """Load the raw prompt from the registry's template, from the left side, or from a saved prompt."""
        run_before_keys(self, self._prompts.fill, exclusive=True)

    def action_save(self) -> None:
        """Save the raw prompt under a name."""
        run_before_keys(self, self._prompts.save, exclusive=True)

    # -- internals

    async def ask(self, screen: Screen[Result]) -> Result | None:
        """Show a dialog and wait for its result. Only in the steps of `run_before_keys`."""
        return await ask_user(self.app, screen)

    def _landing_of(self, view: View) -> Widget:
        match view:
            case "difference":
                return self.query_one("#difference")
            case "raw":
                return self.editor
            case "chat":
                return self.query_one("#chat-prompt").children[-1] if self.is_narrow else self.editor

    def _look_at_raw(self) -> None:
        if self.view == "difference" or (self.is_narrow and self.view != "raw"):
            self.turn_to("raw")
        self.editor.focus()

    def _focused_side(self) -> ComparedSide:
        focused = self.focused
        in_raw = focused is not None and any(node.id == "raw-side" for node in focused.ancestors_with_self)
        return self.controller.raw if in_raw else self.controller.chat

    def _side(self, mode: object) -> ComparedSide:
        return self.controller.raw if mode == "raw" else self.controller.chat

    def _show_begun(self, findings: Sequence[Finding]) -> None:
        """Show the answers that are starting, the raw one with the findings about its prompt."""
        for side in self.controller.sides:
            if side.answer is not None:
                told = warning_of(findings) if side.mode == "raw" else ""
                pane = self.query_one(f"#{side.mode}-answer", AnswerPane)
                pane.begin(side.answer, mark=told, waits_for=side.waits_for)
        self.query_one("#divergence").remove_class("-filled")
        self._show_state()

    def _show_state(self) -> None:
        extra = ("log-probabilities",) if self.controller.logprobs else ()
        self.show_settings(self.controller.sampling, *extra)
        self.refresh_bindings()

    def _show_heads(self) -> None:
        for side in self.controller.sides:
            self.query_one(f"#{side.mode}-head", Static).update(self._engines.head(side))

    # -- in the background

    async def _choose_engine(self) -> None:
        await self._engines.choose(self._focused_side().mode)
        self._show_heads()

    @work(group="prepare", exclusive=True)
    async def _make_prompts(self) -> None:
        await self._prompts.make()

    @work(group="turns", exclusive=True)
    async def _pair_turns(self) -> None:
        await self._prompts.pair_turns()

    @work(group="send")
    async def _answer(self) -> None:
        try:
            await self.controller.answer()
        finally:
            self.post_message(self.BothEnded())

    @work(group="store")
    async def _store(self) -> None:
        await self._kept.store()

    @work(group="difference", exclusive=True)
    async def _find_difference(self) -> None:
        """Compare the sent prompts; before that, the prompts that would be sent."""
        self.post_message(self.DifferenceKnown(await self._prompts.difference()))

    async def _find(self) -> None:
        hint = "Enter goes to the next one, after the last to the first; capitals do not matter."
        text = await self.ask(NameScreen("Find in the raw prompt", value=self.pane.sought, hint=hint))
        if text is None:
            return
        self._look_at_raw()
        if not self.pane.find(text):
            self.tell(f"The raw prompt has no “{text}”.")

    async def _show_look(self) -> None:
        try:
            was_taken = await self._look()
        except VlmtuiError as error:
            self.tell_error(error)
            return
        if was_taken:
            self.dismiss()

    async def _show_stored(self) -> None:
        from vlmtui.ui.compare.stored_comparison import choose_stored_comparison

        try:
            text = await choose_stored_comparison(self.app, self.services, self.message)
        except VlmtuiError as error:
            self.tell_error(error)
            return
        if text is not None:
            self.post_message(Prompts.RawPromptLoaded(text, "earlier comparison"))

    @work(group="use")
    async def _use(self, side: ComparedSide) -> None:
        await self._kept.use(side)
