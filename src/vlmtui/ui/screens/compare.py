"""The chat template against a raw prompt: written, checked, sent at the same time, and compared."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.message import Message
from textual.widget import Widget

from vlmtui.engine.interface import Engine
from vlmtui.engine.session import PromptMode
from vlmtui.errors import VlmtuiError
from vlmtui.inspection.guard import Finding
from vlmtui.inspection.replay import Comparison
from vlmtui.ui.controllers.compare import CompareController
from vlmtui.ui.controllers.compare_difference import Difference
from vlmtui.ui.controllers.compared_side import ComparedSide, Sent, inspected_side
from vlmtui.ui.controllers.compared_turn import ComparedTurn
from vlmtui.ui.controllers.engine import EngineController, EngineState
from vlmtui.ui.screens.prompts import PromptsScreen
from vlmtui.ui.screens.sides import SIDES_BINDINGS, View
from vlmtui.ui.services import Services
from vlmtui.ui.text import one_line
from vlmtui.ui.widgets.compare_pane import AnswerPane, PromptPane
from vlmtui.ui.widgets.raw_pane import RawPane

_STOP_KEYS: dict[PromptMode, str] = {"chat": "F9", "raw": "F10"}
_LOGPROBS = "Ask for log-probabilities, or no more."


class CompareScreen(PromptsScreen):
    """Left what the chat template makes of the conversation, right the raw prompt in an editor."""

    HINT = "Alt+L logprobs · Alt+U use answer · Alt+X inspect · Alt+K kept · Ctrl+S save"
    BINDINGS = [
        Binding(
            "ctrl+r,f5,ctrl+enter", "send", "Send both", id="compare.send", tooltip="Ask both at once.", priority=True
        ),
        *SIDES_BINDINGS,
        Binding("f7", "next_finding", "Finding", id="compare.finding", tooltip="To the next finding.", priority=True),
        Binding("f8", "fix", "Fix", id="compare.fix", tooltip="Mend what the guard has found.", priority=True),
        Binding("f9", "stop('chat')", "Stop chat", id="compare.stop_chat", tooltip="Stop the left.", priority=True),
        Binding("f10", "stop('raw')", "Stop raw", id="compare.stop_raw", tooltip="Stop the right.", priority=True),
        Binding("ctrl+o", "fill", "Fill", id="compare.fill", tooltip="Begin the raw prompt anew.", priority=True),
        Binding("ctrl+s", "save", "Save", id="compare.save", tooltip="Save it by a name.", show=False, priority=True),
        Binding(
            "alt+l",
            "logprobs",
            "Log-probabilities",
            id="compare.logprobs",
            tooltip=_LOGPROBS,
            show=False,
            priority=True,
        ),
        Binding("l", "logprobs", show=False, id="compare.logprobs_too", tooltip=_LOGPROBS),
        Binding("f12,alt+x", "inspect", "Inspect", id="compare.inspect", tooltip="Look into a side.", show=False),
        Binding("alt+k", "kept", "Kept", id="compare.kept", tooltip="Earlier ones.", show=False, priority=True),
        Binding("alt+u", "use", "Use answer", id="compare.use", tooltip="Go on with it.", show=False, priority=True),
        Binding("escape", "leave", "Back", id="compare.leave", tooltip="Stop both; back to the chat.", priority=True),
    ]

    class Over(Message):
        """Both have their outcome."""

    def __init__(
        self,
        services: Services,
        engine_controller: EngineController,
        controller: CompareController,
        turn: ComparedTurn,
        send: Callable[[CompareController], Sent],
        *,
        on_edit: Callable[[], None] = lambda: None,
    ) -> None:
        """`send` sends the draft as the conversation's next message; `on_edit` is told that the raw text changed."""
        super().__init__(services, engine_controller, controller, on_edit)
        self.turn = turn
        self.comparisons_kept = 0
        """How many were stored since the screen was opened."""
        self._send_draft = send
        self._was_told_to_stop = False

    # -- what is shown

    def chat_side(self) -> ComposeResult:
        yield PromptPane(id="chat-prompt")
        yield AnswerPane(_STOP_KEYS["chat"], id="chat-answer")

    def raw_side(self) -> ComposeResult:
        yield RawPane(self.controller, id="raw-prompt")
        yield AnswerPane(_STOP_KEYS["raw"], id="raw-answer")

    def landing(self, view: View) -> Widget:
        match view:
            case "difference":
                return self.query_one("#difference")
            case "raw":
                return self.editor
            case "chat":
                return self.query_one("#chat-prompt").children[-1] if self.is_narrow else self.editor

    @on(Over)
    def _over(self) -> None:
        for pane in self.query(AnswerPane):
            pane.update_answer()
        for side in self.controller.sides:
            if side.mode == "chat" and side.answer is not None and side.answer.prompt is not None:
                self.query_one("#chat-prompt", PromptPane).show(self.runs(side.answer.prompt))
        self._show_state()
        if self.view == "difference":
            self.difference_wanted()
        if any(side.answer and side.answer.text for side in self.controller.sides):
            self._keep()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        match action:
            case "stop":
                return self._side(parameters[0]).is_running
            case "send":
                return not self.controller.is_running
            case "next_finding" | "fix":
                return self.is_mounted and bool(self.pane.findings)
            case _:
                return True

    # -- what is done

    def action_send(self) -> None:
        """Ask both at the same time."""
        if self.engine_controller.state is EngineState.DEAD:
            self.post_message(self.Told("The model is loaded again."))
            getattr(self.app, "restart_engine")()  # noqa: B009  (a screen does not import the app)
            return
        controller = self.controller
        try:
            engine = self.ready_engine()
            findings = controller.prepare()
            sent = self._send_draft(controller) if self.turn.exchange is None else None
        except VlmtuiError as error:
            self.tell_error(error)
            return
        controller.begin(sent)
        self._was_told_to_stop = False
        self._show_begun(findings)
        self._answer(engine)

    @work(group="stop")
    async def action_stop(self, mode: PromptMode) -> None:
        """Stop one side; what has come stays."""
        engine = self.engine_controller.engine
        if engine is not None:
            await self.controller.stop(engine, mode)

    @work(group="stop")
    async def action_leave(self) -> None:
        """Stop what is being answered; with nothing to stop, or once more, back to the chat."""
        engine = self.engine_controller.engine
        if self.controller.is_running and engine is not None and not self._was_told_to_stop:
            self._was_told_to_stop = True
            await self.controller.stop(engine, "chat", "raw")
        else:
            self.dismiss()

    def action_logprobs(self) -> None:
        """Ask for log-probabilities with the next answers, or no more."""
        self.controller.logprobs = not self.controller.logprobs
        self._show_state()
        if self.controller.logprobs:
            self.post_message(self.Told("Log-probabilities come with the next answers; the first such take seconds."))

    def action_kept(self) -> None:
        """Look at an earlier comparison of this turn."""
        self._show_kept()

    def action_use(self) -> None:
        """Go on with the answer of the side that has the focus."""
        self._use(self._focused_side())

    def action_inspect(self) -> None:
        """Look into the prompt and the answer of the side that has the focus."""
        from vlmtui.ui.screens.inspector import InspectorScreen

        known = inspected_side(self._focused_side(), self.controller.asked.info)
        if known is None:
            self.notify("Its prompt was not made yet: F6 shows the difference, and makes it.", markup=False)
            return
        cache = self.services.paths.cache / "thumbnails"
        self.app.push_screen(InspectorScreen(known, cache=cache, engine=lambda: self.engine_controller.engine))

    def document(self) -> Comparison | None:
        return self.controller.document() if self.controller.is_over else None

    def difference_wanted(self) -> None:
        self._find_difference()

    # -- the rest

    def _focused_side(self) -> ComparedSide:
        focused = self.focused
        in_raw = focused is not None and any(node.id == "raw-side" for node in focused.ancestors_with_self)
        return self.controller.raw if in_raw else self.controller.chat

    def _side(self, mode: object) -> ComparedSide:
        return self.controller.raw if mode == "raw" else self.controller.chat

    def _show_begun(self, findings: Sequence[Finding]) -> None:
        """The answers are about to come; what was found wrong with the raw prompt stands beside its own."""
        mark = ""
        if findings:
            first = one_line(findings[0].message)
            more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
            mark = f"! Sent all the same: {first}{more}"
        for side in self.controller.sides:
            if side.answer is not None:
                told = mark if side.mode == "raw" else ""
                self.query_one(f"#{side.mode}-answer", AnswerPane).begin(side.answer, mark=told)
        self._show_state()

    def _show_state(self) -> None:
        extra = ("log-probabilities",) if self.controller.logprobs else ()
        self.show_settings(self.controller.sampling, *extra)
        self.refresh_bindings()

    # -- in the background

    @work(group="send")
    async def _answer(self, engine: Engine) -> None:
        try:
            await self.controller.answer(engine)
        finally:
            self.post_message(self.Over())

    @work(group="keep")
    async def _keep(self) -> None:
        try:
            document = await asyncio.to_thread(self.controller.document)
            await self.turn.keep(document, self.controller.asked.attachments)
            self.comparisons_kept += 1
        except VlmtuiError as error:
            self.post_message(self.Told("", error))

    @work(group="difference", exclusive=True)
    async def _find_difference(self) -> None:
        """Of what was sent; before that, of the prompts as they would be sent."""
        controller = self.controller
        problem: VlmtuiError | None = None
        if controller.raw.answer is None:
            try:
                engine = self.ready_engine()
                controller.require_sendable()
                await controller.render_raw(engine)
            except VlmtuiError as error:
                problem = error
        difference = await asyncio.to_thread(controller.difference) if problem is None else Difference(problem=problem)
        self.post_message(self.DifferenceKnown(difference))

    @work(group="modal", exclusive=True)
    async def _show_kept(self) -> None:
        from vlmtui.ui.screens.kept_comparison import choose_kept

        try:
            text = await choose_kept(self, self.services, self.turn)
        except VlmtuiError as error:
            self.post_message(self.Told("", error))
            return
        if text is not None:
            self.post_message(self.Filled(text, "earlier comparison"))

    @work(group="use")
    async def _use(self, side: ComparedSide) -> None:
        answer, request, model = side.answer, side.request, self.engine_controller.model
        if answer is None or request is None or model is None or answer.outcome is None or not answer.text:
            self.post_message(self.Told("There is no answer to go on with yet."))
            return
        if self.turn.exchange is not None and self.turn.exchange.answer is answer:
            self.post_message(self.Told("It is the conversation's answer already."))
            return
        try:
            await self.turn.adopt(answer, request, side.mode, model, self.engine_controller.info)
        except VlmtuiError as error:
            self.post_message(self.Told("", error))
            return
        self.post_message(self.Told("It is the conversation's answer now."))
