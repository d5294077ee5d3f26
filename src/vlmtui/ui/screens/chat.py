"""The conversation with the loaded model."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

from textual import on, work
from textual.app import ComposeResult
from textual.message import Message
from textual.widgets import Static

from vlmtui.domain.conversation import Turn
from vlmtui.domain.engine import Finished, GenerateRequest
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.protocol.messages import Status
from vlmtui.ui.actions import bindings
from vlmtui.ui.controllers.chat import ChatController, Exchange
from vlmtui.ui.controllers.chat_settings import ChatSettings
from vlmtui.ui.controllers.engine import EngineController, EngineState, engine_died
from vlmtui.ui.controllers.history import PromptHistory
from vlmtui.ui.controllers.slash import with_setting
from vlmtui.ui.messages import EngineChanged
from vlmtui.ui.screens.keeping import KeepingScreen
from vlmtui.ui.services import Services
from vlmtui.ui.text import one_line
from vlmtui.ui.widgets.composer import Composer
from vlmtui.ui.widgets.composer_panel import ComposerPanel
from vlmtui.ui.widgets.key_bar import KeyBar
from vlmtui.ui.widgets.status_bar import StatusBar
from vlmtui.ui.widgets.transcript import Transcript
from vlmtui.ui.widgets.welcome import Welcome

_STATUS_EVERY_S = 3.0


class ChatScreen(KeepingScreen):
    """Transcript, what is staged, composer, status."""

    CSS_PATH = "chat.tcss"
    BINDINGS = [*bindings("chat")]

    @dataclass
    class AnswerOver(Message):
        """An exchange has its outcome."""

        exchange: Exchange

    @dataclass
    class StatusKnown(Message):
        """What the engine says of itself; None when it does not answer."""

        status: Status | None

    def __init__(self, services: Services, engine_controller: EngineController, chat: ChatController) -> None:
        super().__init__(services, engine_controller, chat)
        self._status: Status | None = None
        self._possible: object = None
        """What decides which actions are possible, as the footer shows them."""
        self._stands = asyncio.Event()
        """Set once the screen shows its conversation."""

    def compose(self) -> ComposeResult:
        paths = self.services.paths
        yield Transcript(cache=paths.cache / "thumbnails", id="transcript")
        yield Static("↓ more below · Ctrl+End", id="more")
        yield Static(id="editing", markup=False)
        yield ComposerPanel(PromptHistory(paths.state / "prompts.jsonl"), self.chat.draft, paths)
        yield StatusBar(id="status", markup=False)
        yield KeyBar()

    async def on_mount(self) -> None:
        self.query_one(Composer).focus()
        if self.chat.exchanges:
            await self._transcript.add(*self.chat.exchanges, media_above=self.chat.attachments_above)
        await self._show_hint()
        self.show_editing()
        self.tell_limits()
        self._show_status()
        self._ask_status()
        self.set_interval(_STATUS_EVERY_S, self._ask_status)
        self._stands.set()

    @on(ComposerPanel.MessageWritten)
    def _message_written(self) -> None:
        self._send()

    @on(ComposerPanel.CommandGiven)
    def _command_given(self, event: ComposerPanel.CommandGiven) -> None:
        action, argument = event.command
        if action is None:
            hint = "/help lists them; // sends a text that begins with a slash."
            self.tell_error(bad_input(f"There is no command {one_line(argument)}.", hint=hint))
            return
        self.panel.clear_words()
        # The composer tells the draft of it too late for the command.
        self.chat.draft.text = self.query_one(Composer).text
        self.call_app("run_action_id", action.id, argument)

    @on(Composer.ScrollWanted)
    def _scroll_wanted(self, event: Composer.ScrollWanted) -> None:
        if event.pages < 0:
            self._transcript.scroll_page_up()
        else:
            self._transcript.scroll_page_down()

    @on(Composer.Interrupted)
    def _interrupted(self) -> None:
        self.call_app("run_action_id", "help_quit")

    @on(Transcript.EndSeen)
    def _end_seen(self, event: Transcript.EndSeen) -> None:
        self.query_one("#more").set_class(not event.is_seen, "-shown")

    @on(Transcript.OlderWanted)
    async def _older_wanted(self, event: Transcript.OlderWanted) -> None:
        await self.chat.load_older(event.limit)
        await self._transcript.add_older(self.chat.exchanges)

    @on(AnswerOver)
    def _answer_over(self, event: AnswerOver) -> None:
        self._transcript.finish(event.exchange)
        if isinstance(event.exchange.answer.outcome, Finished):
            self.engine_controller.answered()
        self.ask_cost_soon()
        self._show_status()

    @on(StatusKnown)
    def _status_known(self, event: StatusKnown) -> None:
        self._status = event.status
        self._show_status()

    @on(EngineChanged)
    def _engine_changed(self) -> None:
        self._show_status()
        if self.engine_controller.state is EngineState.READY:
            self._ask_status()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        match action:
            case "stop":
                return self.chat.running is not None
            case "leave_edit":
                return self.chat.editing is not None and self.chat.running is None
            case "new_chat":
                return self.chat.running is None
            case "restart_engine":
                return self.engine_controller.state in (EngineState.DEAD, EngineState.HUNG, EngineState.NONE)
            case _:
                return True

    @work
    async def action_stop(self) -> None:
        """Stop the running answer; what has come stays."""
        await self.chat.cancel(self.engine_controller.engine)

    async def action_regenerate(self) -> None:
        """Ask for another answer to the last turn."""
        suspect = await self.chat.suspect_again()
        if not self.is_attached:  # left while the store was asked
            return
        if suspect is not None and self.chat.running is None:
            self.ask_first(suspect, self._regenerate)
        else:
            self._regenerate()

    async def action_new_chat(self) -> None:
        """Start over with the same model; what is staged and written stays."""
        if self.chat.running is not None:
            self.tell("An answer is under way: Esc stops it.")
            return
        self.chat.clear()
        await self.show_conversation()

    async def show_conversation(self) -> None:
        """Show what the conversation is now. May be called before the screen stands, and waits for that; one that was
        left while the store was asked has nothing to show."""
        await self._stands.wait()
        if not self.is_attached:
            return
        transcript = self._transcript
        await transcript.clear()
        if self.chat.exchanges:
            await transcript.add(*self.chat.exchanges, media_above=self.chat.attachments_above)
        await self._show_hint()
        if self.query_one(Composer).text != self.chat.draft.text:
            self.show_draft()
        self.show_editing()
        self.ask_cost_soon()
        self._show_status()

    async def show_answer_again(self, exchange: Exchange) -> None:
        """The exchange has another answer now."""
        await self._stands.wait()
        await self._transcript.restart(exchange)
        self._show_status()

    def action_copy_answer(self) -> None:
        """Copy the last answer, through the terminal (OSC 52)."""
        text = next((item.answer.text for item in reversed(self.chat.exchanges) if item.answer.text), "")
        if not text:
            self.tell("There is no answer to copy yet.")
            return
        self.app.copy_to_clipboard(text)
        self.tell(f"Copied {len(text):,} characters.")

    def action_toggle_thinking(self) -> None:
        """Fold the newest thinking block, or unfold it."""
        if not self._transcript.toggle_thinking():
            self.tell("No answer here shows its thinking.")

    def action_jump_end(self) -> None:
        """To the newest text, and follow it."""
        self._transcript.show_end()

    def action_restart_engine(self) -> None:
        """Load the model again."""
        self.call_app("restart_engine")

    def action_settings(self) -> None:
        """System prompt and sampling."""
        self._edit_settings()

    def action_system(self, text: str = "") -> None:
        """Set the system prompt; empty removes it."""
        self.chat.settings = ChatSettings(text, self.chat.settings.sampling)
        self.tell("The system prompt is set." if text else "There is no system prompt now.")

    def action_set(self, text: str = "") -> None:
        """Set one sampling parameter, as in `temperature 0.7`."""
        try:
            sampling = with_setting(self.chat.settings.sampling, text)
        except VlmtuiError as error:
            self.tell_error(error)
            return
        self.chat.settings = ChatSettings(self.chat.settings.system_prompt, sampling)
        self.tell(f"Set: {text}")

    def action_help_quit(self) -> None:
        """Ctrl+C: stops a running answer, else the app's own hint."""
        if self.chat.running is not None:
            self.action_stop()
        else:
            self.call_app("action_help_quit")

    @property
    def _transcript(self) -> Transcript:
        return self.query_one(Transcript)

    def _need_engine(self) -> None:
        """Raises VlmtuiError when no engine is ready: what is on the screen is not to be lost to a request in vain."""
        if self.engine_controller.state is EngineState.LOADING:
            raise VlmtuiError(ErrorKind.ENGINE_BUSY, "The model is still loading.")
        if self.engine_controller.state is not EngineState.READY:
            raise self.engine_controller.error or engine_died()

    def _send(self, *, is_sure: bool = False) -> None:
        """Send the draft; when that cannot be, everything stays as it is."""
        written, was_editing = self.chat.draft.words, self.chat.editing is not None
        try:
            if self.chat.running is not None:
                raise VlmtuiError(ErrorKind.BAD_USAGE, "An answer is under way: Esc stops it.")
            self._need_engine()
            self.need_room()
            suspect = self.chat.suspect(Turn("user", self.chat.draft.parts))
            if suspect is not None and not is_sure:
                self.ask_first(suspect, partial(self._send, is_sure=True))
                return
            exchange, request = self.chat.begin(self.model(), self.engine_controller.info)
        except VlmtuiError as error:
            self.tell_error(error)
            return
        self.panel.take_text(written)
        self.show_editing()
        self._open_exchange(exchange, request, anew=was_editing)

    @work(group="exchange")
    async def _regenerate(self) -> None:
        try:
            self._need_engine()
            exchange, request = self.chat.again(self.model(), self.engine_controller.info)
        except VlmtuiError as error:
            self.tell_error(error)
            return
        self._answer(exchange, request)
        await self.show_answer_again(exchange)

    def open_exchange(self, exchange: Exchange, request: GenerateRequest, *, anew: bool) -> None:
        """Show an exchange that was begun, and let it be answered. `anew`: it takes an earlier one's place."""
        self.show_editing()
        self._open_exchange(exchange, request, anew=anew)

    @work(group="exchange")
    async def _open_exchange(self, exchange: Exchange, request: GenerateRequest, *, anew: bool) -> None:
        """`anew`: what was said after the message that was edited is not shown any more."""
        self._answer(exchange, request)
        await self._show_hint()
        if anew:
            await self._transcript.clear()
            await self._transcript.add(*self.chat.exchanges, media_above=self.chat.attachments_above)
        else:
            await self._transcript.add(exchange)
        self._show_status()

    @work(group="answer")
    async def _answer(self, exchange: Exchange, request: GenerateRequest) -> None:
        engine = self.engine_controller.engine
        assert engine is not None
        try:
            await self.chat.record()
            await self.chat.answer(engine, exchange, request)
        finally:
            self.post_message(self.AnswerOver(exchange))

    @work(group="status", exclusive=True)
    async def _ask_status(self) -> None:
        engine = self.engine_controller.engine
        if engine is None or self.engine_controller.state is not EngineState.READY:
            return
        try:
            self.post_message(self.StatusKnown(await engine.status()))
        except VlmtuiError:
            self.post_message(self.StatusKnown(None))

    @work(group="modal")
    async def _edit_settings(self) -> None:
        from vlmtui.ui.screens.settings import SettingsScreen

        changed = await self.app.push_screen_wait(SettingsScreen(self.chat.settings))
        if changed is not None:
            self.chat.settings = changed

    async def _show_hint(self) -> None:
        """What one can do, while nothing was said yet."""
        model, transcript = self.engine_controller.model, self._transcript
        transcript.show_empty(not self.chat.exchanges)
        if self.chat.exchanges:
            await transcript.query(Welcome).remove()
        elif model is not None and not transcript.query(Welcome):
            await transcript.mount(Welcome(model))

    def _show_status(self) -> None:
        controller = self.engine_controller
        answering = self.chat.running is not None
        self.panel.set_class(answering, "-busy")
        self.query_one(StatusBar).show(
            model=controller.model.spec.name if controller.model else "no model",
            state=controller.state,
            progress=controller.progress,
            answering=answering,
            info=controller.info,
            status=self._status,
            context_used=self.chat.context_used,
        )
        # Textual's footer never lets go of the keys that it showed before: only where they may be others.
        possible = (answering, controller.state, self.chat.editing is not None)
        if possible != self._possible:
            self._possible = possible
            self.refresh_bindings()


def initial_settings(services: Services, base: Sampling | None) -> ChatSettings:
    """A conversation's first settings: the user's own over the model's record."""
    return ChatSettings(services.settings.system_prompt, services.settings.sampling.over(base))
