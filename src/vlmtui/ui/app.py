"""The Textual app: its screens, theme, key handling, and crash handling."""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial
from inspect import isawaitable
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, Literal

from rich.text import Text
from textual import events
from textual.actions import parse
from textual.app import App
from textual.css.query import NoMatches
from textual.driver import Driver
from textual.message import Message
from textual.reactive import Initialize, Reactive
from textual.screen import SystemModalScreen
from textual.widget import Widget
from textual.widgets import Input
from textual.worker import WorkerFailed, WorkType

from vlmtui.config.settings import config_file
from vlmtui.errors import Remedy, VlmtuiError
from vlmtui.registry.match import Model
from vlmtui.session.engines import AppEngines
from vlmtui.terminal import TerminalQuestion
from vlmtui.text import one_line, visible
from vlmtui.ui.actions import ACTIONS, bindings, method_of
from vlmtui.ui.departure import Departure
from vlmtui.ui.keys import KeyBindings, error_text, latin_key, spell_key, with_remedy
from vlmtui.ui.messages import EngineChanged, EngineLogGrew
from vlmtui.ui.model_loading import ModelLoading
from vlmtui.ui.services import ExitReport, Services
from vlmtui.ui.stored_conversations import StoredConversations
from vlmtui.ui.terminal.driver import NonBlockingDriver, PlainDriver, sends_frames
from vlmtui.ui.terminal.graphics import Graphics
from vlmtui.ui.terminal.key_queue import KeyQueue, Steps, ask_user, run_before_keys
from vlmtui.ui.terminal.themes import THEMES, VARIABLES, theme_name
from vlmtui.ui.widgets.line_editing import EDITS, LINE_EDITS, is_text_area

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import RenderableType
    from textual.binding import Binding
    from textual.command import Provider
    from textual.notifications import SeverityLevel
    from textual.screen import Screen
    from textual.theme import Theme

    from vlmtui.domain.conversation import Attachment
    from vlmtui.domain.generation import GenerateRequest
    from vlmtui.domain.template import TemplateVariables
    from vlmtui.engine.interface import Engine
    from vlmtui.media.folder import FolderView
    from vlmtui.registry.schema import Family
    from vlmtui.session.comparison import ComparedMessage, PromptComparison
    from vlmtui.session.cost import EstimateTokens
    from vlmtui.session.fan_out import FanOut
    from vlmtui.session.lanes import InFlightRequest
    from vlmtui.session.prompt_report import PromptReport
    from vlmtui.session.recovery import InterruptedAnswers
    from vlmtui.session.seeing import RoomImage, RoomMode
    from vlmtui.session.settings import ChatSettings
    from vlmtui.ui.attachments.browser import FilesChoice
    from vlmtui.ui.attachments.frames import FramesChoice
    from vlmtui.ui.chat.screen import ChatScreen
    from vlmtui.ui.widgets.attachment_view import AttachmentView

_log = logging.getLogger(__name__)
_WARNINGS_MAX = 3
_BATCH_FILE = "answers.jsonl"
"""The file that `/batch` shows by default; docs/batch.md uses this name."""
_NOTE_S = 4.0
_READ_PER_S = 20
"""Characters of a notification that people read in a second."""
_LEFTOVERS_AFTER_S = 1.0
_HOUSEKEEPING_AFTER_S = 10.0
_LOG_EVERY_S = 0.1
"""Least seconds between two messages to the screens about new lines of the engine's log."""


def _commands() -> type[Provider]:
    from vlmtui.ui.help import ActionCommands

    return ActionCommands


class VlmtuiApp(App[ExitReport | None]):
    """The app. Holds what screens share, opens screens, and handles the messages and actions that all screens have in
    common."""

    TITLE = "vlmtui"
    # The first screen's styles are loaded here: a screen with styles of its own makes Textual parse all styles again.
    CSS_PATH = ["app.tcss", "chat/screen.tcss"]
    COMMANDS = {_commands}
    BINDINGS = bindings("app")

    def __init__(self, services: Services, question: TerminalQuestion | None = None) -> None:
        """`question`: questions about the terminal's abilities that were sent to it before this module was imported;
        None: none were sent."""
        self.services = services
        super().__init__()
        self.engines = controller = AppEngines(
            services.host,
            keep_alive_s=services.keep_alive_s,
            on_change=self._engine_changed,
            hang_s=services.settings.hang_s,
        )
        self.key_bindings = KeyBindings(services.settings.keys)
        self.set_keymap(self.key_bindings.keymap)
        for key in self.key_bindings.of("interrupt"):
            # Textual calls `key_…` for keys without a binding. In dialogs the app's own bindings are not active.
            setattr(self, f"key_{events.Key(key, None).name}", self.interrupt)
        self.graphics = Graphics()
        """How images are drawn; `run` detects it."""
        self.conversation = services.conversation_holder(self, controller)
        self.models = ModelLoading(self)
        self.stored = StoredConversations(self)
        self._interrupted: InterruptedAnswers | None = None
        self._departure = Departure(self)
        self.key_queue = KeyQueue(self, self._deliver, is_open=False)
        self._is_begun = False
        """True once the conversation to continue is open, if there is one."""
        self._logged_engine: Engine | None = None
        """The engine whose log lines the app collects."""
        self._is_log_due = False
        self._question = question
        self.typed_before = b""
        """What was typed before the app read the terminal; the driver takes it."""

    def first_theme(self) -> str:
        """Return the name of the settings' theme."""
        wanted = theme_name(self.services.settings.theme)
        return wanted if wanted in self.available_themes else THEMES[0].name

    # A theme that is set later makes Textual parse all styles again.
    theme: Reactive[str] = Reactive(Initialize(first_theme))

    @property
    def available_themes(self) -> dict[str, Theme]:
        """Return Textual's themes and vlmtui's, by name."""
        return {**super().available_themes, **{theme.name: theme for theme in THEMES}}

    def run(self, **options: Any) -> ExitReport | None:
        """Run in the terminal, after finding out how it draws images. Restores the terminal on return."""
        paints = sends_frames(os.environ)
        setting = self.services.settings.graphics
        self.graphics = Graphics.detect(setting, self._question, coloured=not self.no_color, paints=paints)
        if self._question is not None:
            self.typed_before = self._question.take_typed()
        return super().run(**options)

    def get_driver_class(self) -> type[Driver]:
        """Return Textual's driver; on Linux one that loses no key typed before it starts and, as a rule, sends only
        changed cells and never waits for the terminal."""
        found = super().get_driver_class()
        if found.__name__ != "LinuxDriver" or not sends_frames({}):
            return found
        return NonBlockingDriver if sends_frames(os.environ) else PlainDriver

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        """Send an update of the compositor to the terminal: through vlmtui's driver if it can send this update,
        otherwise as Textual does."""
        shows = getattr(self._driver, "show", None)
        if shows is not None and shows(screen, renderable):
            self.post_display_hook()
        else:
            super()._display(screen, renderable)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Return the colours `$muted` and `$faint`, for themes that do not define them."""
        return dict(VARIABLES)

    async def on_event(self, event: events.Event) -> None:
        await self.key_queue.take(event)

    async def _deliver(self, event: events.Event) -> None:
        """Give an event to Textual. A Cyrillic or Greek letter that no text field takes becomes the Latin letter of its
        key."""
        if isinstance(event, events.Key) and self.screen_stack:
            target = self.focused or self.screen
            if not target.check_consume_key(event.key, event.character):
                event = latin_key(event)
        await super().on_event(event)

    def get_default_screen(self) -> Screen[None]:
        """Return the lowest screen, the chat. Textual's own empty screen would delay the first paint."""
        return self.new_chat(self.models.look_up_first())

    def on_mount(self) -> None:
        self._departure.watch_signals()
        if wrong := self.key_bindings.first_warnings(_WARNINGS_MAX):
            self.tell("\n".join([*wrong, f"({config_file(self.services.paths)})"]), severity="warning")
        # Textual discards output before this handler returns, so a screen shown here would be drawn twice.
        self.call_later(self._begin)
        self.set_timer(_LEFTOVERS_AFTER_S, partial(self.start, self.models.look_for_leftovers, "leftovers"))
        self.set_timer(_HOUSEKEEPING_AFTER_S, self.stored.keep_house)

    async def on_unmount(self) -> None:
        """Clean up, however the app ended. A load is stopped; the engine continues a running answer."""
        self._departure.ignore_signals()
        if self.conversation.chat is not None:
            self.conversation.chat.answers.detach()
        await self.engines.leave()
        await self.conversation.close()

    # -- for screens and parts

    def tell(
        self,
        text: str,
        remedy: Remedy | None = None,
        *,
        seconds: float = 0.0,
        severity: SeverityLevel = "information",
    ) -> None:
        """Show a notification, as `notify` does. `remedy`: append a sentence about what the user can do. Does nothing
        while the app ends."""
        if self.is_running:
            told = with_remedy(self, visible(text), remedy)
            self.notify(told, severity=severity, timeout=seconds or None, markup=False)

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = True,
    ) -> None:
        """Show a notification for four seconds, or for as long as it takes to read; see Textual's `notify`."""
        seconds = max(_NOTE_S, len(message) / _READ_PER_S) if timeout is None else timeout
        super().notify(message, title=title, severity=severity, timeout=seconds, markup=markup)

    def tell_error(self, error: VlmtuiError) -> None:
        """Show an error as a notification, with a sentence about what the user can do if the error has a remedy."""
        self.tell(error_text(self, error), severity="error")

    def start(self, steps: Steps, group: str, *, exclusive: bool = False) -> None:
        """Run a coroutine function in the background. `exclusive`: first cancel the others of this group."""
        work: WorkType[None] = steps
        self.run_worker(work, group=group, exclusive=exclusive)

    def start_dialog(self, steps: Steps) -> None:
        """Run a coroutine function that shows a screen. Further keys wait until it is shown."""
        run_before_keys(self, steps)

    def interrupt(self) -> None:
        """Show how to quit; the second call within two seconds quits."""
        self._departure.interrupt()

    def run_action_id(self, id: str, argument: str = "") -> None:
        """Run the action with this id, for the palette or a slash command. Calls the screen's method for it, or else
        the app's."""
        _, name, parameters = parse(ACTIONS[id].command)
        action = method_of(self.screen, name) or method_of(self, name)
        if action is None:
            self.tell("That is not possible here.", severity="warning")
        else:
            self.call_later(self.perform, partial(action, *parameters, *filter(None, [argument])))

    async def perform(self, action: Callable[[], object]) -> None:
        """Call a function, and await it if needed; show a VlmtuiError as a notification."""
        try:
            result = action()
            if isawaitable(result):
                await result
        except VlmtuiError as error:
            self.tell_error(error)

    def get_key_display(self, binding: Binding) -> str:
        """Return a key's name for Textual's footer, the same as in sentences and in the help."""
        return spell_key(binding.key)

    # -- screens

    async def confirm(self, question: str, *, yes: str, no: str = "No", careful: bool = False) -> bool:
        """Ask a question; return whether the answer is `yes`. `careful`: `no` is first, so that Enter chooses it."""
        answers = [no, yes] if careful else [yes, no]
        chosen = await self.choose(question, answers)
        return chosen is not None and answers[chosen] == yes

    async def choose(self, title: str, lines: Sequence[str], *, text: str = "") -> int | None:
        """Let the user choose a line; return its index, None if cancelled. `text`: shown below the title."""
        from vlmtui.ui.widgets.dialogs import ChoiceScreen

        return await ask_user(self, ChoiceScreen(title, lines, text=text))

    async def choose_files(self, folder: Path, *, look: FolderView, estimate: EstimateTokens | None) -> FilesChoice:
        """Let the user choose files, starting in `folder`. `look` contains the user's changes afterwards."""
        from vlmtui.ui.attachments.browser import BrowserScreen, FilesChoice

        browser = BrowserScreen(folder, look=look, estimate=estimate)
        paths = await ask_user(self, browser)
        return FilesChoice(tuple(paths or ()), browser.folder)

    async def choose_frames(self, video: Attachment, *, takes_video: bool, most_images: int) -> FramesChoice | None:
        """Let the user choose the frames of a video; None if cancelled."""
        from vlmtui.ui.attachments.frames import FramesScreen

        return await ask_user(self, FramesScreen(video, takes_video=takes_video, most_images=most_images))

    def open_images(self, images: Sequence[RoomImage], at: int = 0, mode: RoomMode = "sent") -> None:
        """Open the image room. `at`: the index of the first image to show."""
        from vlmtui.session.prompt_report import family_of
        from vlmtui.ui.seeing.room import ImageRoom

        def family(report: PromptReport) -> Family | None:
            return family_of(report, self.engines.model, self.services.registry)

        engine, store = self.engines.require_engine, self.services.paths.seen
        self.push_screen(ImageRoom(images, at, mode, engine=engine, family=family, store=store, folder=Path.cwd()))

    def open_inspector(self, report: PromptReport, *, again: Callable[[], GenerateRequest] | None = None) -> None:
        """Show a prompt and its answer. `again`: returns a request that renders the prompt again."""
        from vlmtui.ui.inspector.screen import InspectorScreen

        self.push_screen(InspectorScreen(report, again=again))

    async def open_comparison(
        self,
        comparison: PromptComparison,
        message: ComparedMessage,
        *,
        send: Callable[[], InFlightRequest],
        on_edit: Callable[[], None],
    ) -> None:
        """Compare the chat template with a raw prompt, until the user leaves."""
        from vlmtui.ui.compare.screen import CompareScreen

        await ask_user(self, CompareScreen(comparison, message, send=send, on_edit=on_edit))

    async def choose_comparison(self, message: ComparedMessage) -> str | None:
        """Let the user look at the stored comparisons of a message. Return a raw prompt that the user wants to send
        again, or None. Raises VlmtuiError."""
        from vlmtui.ui.compare.sides import choose_stored_comparison

        return await choose_stored_comparison(self, message)

    async def open_fan_out(self, fan_out: FanOut) -> int | Literal["new_plan"] | None:
        """Show the answers of a fan-out. Return the index of the answer to continue with; `new_plan` if the user wants
        to plan another fan-out; None if the user closes the screen."""
        from vlmtui.ui.compare.fan_out import FanOutScreen

        return await ask_user(self, FanOutScreen(fan_out))

    async def edit_settings(
        self, settings: ChatSettings, model: Model | None, variables: TemplateVariables | None
    ) -> ChatSettings | None:
        """Let the user change the conversation's settings; None if cancelled."""
        from vlmtui.ui.settings import SettingsScreen

        return await ask_user(self, SettingsScreen(settings, model, variables))

    def chat_screen(self) -> ChatScreen | None:
        """Return the chat screen, if it is on the stack."""
        from vlmtui.ui.chat.screen import ChatScreen

        stack = self.screen_stack if self.is_running else []
        return next((screen for screen in stack if isinstance(screen, ChatScreen)), None)

    def take_keys(self) -> None:
        """Let the composer take what was typed before it was there, once it shows the conversation to continue: opening
        that replaces the composer's text."""
        screen = self.chat_screen()
        if self._is_begun and screen is not None and screen.is_filled:
            self.key_queue.open(screen.composer_text)

    def conversation_begun(self) -> None:
        """Note that from now on only the user replaces the conversation on the screen."""
        if not self._is_begun:
            self._is_begun = True
            self.take_keys()

    def back_to_chat(self) -> None:
        """Close the screens above the chat."""
        self.go_back_to(self.screen_stack[0])

    def go_back_to(self, screen: Screen[Any]) -> None:
        """Close the screens above `screen`."""
        while self.screen is not screen:
            self.screen.dismiss(None)  # who waits for its result gets none

    def new_chat(self, model: Model | None = None) -> ChatScreen:
        """Return a new screen for the conversation. `model`: the model that will answer."""
        from vlmtui.ui.chat.screen import ChatScreen

        return ChatScreen(self, self.conversation.require_chat(model))

    def on_attachment_view_clicked(self, event: AttachmentView.Clicked) -> None:
        from vlmtui.session.seeing import RoomImage

        numbers: Sequence[int | None] = event.numbers or [None] * len(event.attachments)
        self.open_images([RoomImage(*one) for one in zip(event.attachments, numbers, strict=True)], event.at)

    # -- actions

    def action_models(self, name: str = "") -> None:
        """Show the list of models; with a name, load that model."""
        from vlmtui.ui.models.screen import ModelsScreen

        if name:
            self.models.choose_by_name(name)
        elif not isinstance(self.screen, ModelsScreen):
            self.push_screen(ModelsScreen(self.services, self.engines))

    def action_engine(self, name: str = "") -> None:
        """Use the engine with this name or address; without one, show the list of models."""
        if name:
            self.models.choose_engine(name)
        else:
            self.action_models()

    def action_conversations(self) -> None:
        self.start_dialog(self._show_conversations)

    async def _show_conversations(self) -> None:
        from vlmtui.ui.conversations import ConversationsScreen

        chat = self.conversation.chat
        if chat is not None:
            await chat.recorder.flush()  # the list then has the open conversation as it is now
        if not isinstance(self.screen, ConversationsScreen):
            open_id = chat.id if chat is not None else None
            self.push_screen(ConversationsScreen(self.services.store, open_id=open_id))

    def action_batch(self, file: str = "") -> None:
        self.start_dialog(partial(self._open_batch, Path(file.strip() or _BATCH_FILE).expanduser()))

    async def _open_batch(self, output: Path) -> None:
        from vlmtui.session.batch.media_desk import MediaDesk
        from vlmtui.session.batch.results import ResultTable
        from vlmtui.ui.batch import BatchScreen

        paths = self.services.paths
        try:
            table = await asyncio.to_thread(ResultTable, output)
            desk = await asyncio.to_thread(MediaDesk, paths.cache)
        except VlmtuiError as error:
            self.tell_error(error)
            return
        self.push_screen(
            BatchScreen(table, desk, paths.thumbnails, show_inspector=self.open_inspector, show_images=self.open_images)
        )

    def action_cleanup(self) -> None:
        self.start_dialog(self.models.clean_up)

    def action_show_log(self) -> None:
        """Show the engine's log over the current screen, or close it."""
        from vlmtui.ui.models.log import LogScreen

        if isinstance(self.screen, LogScreen):
            self.screen.dismiss()
        else:
            self.push_screen(LogScreen(self.engines))

    def action_restart_engine(self) -> None:
        if self.engines.model is None:
            self.action_models()
        else:
            self.models.restart()

    def action_edit(self, name: str) -> None:
        if is_text_area(self.focused):
            EDITS[name](self.focused)
        elif isinstance(self.focused, Input):
            LINE_EDITS[name](self.focused)

    def action_leader(self) -> None:
        from vlmtui.ui.help import show_leader

        show_leader(self)

    def action_help(self) -> None:
        """Show every key and command, the current screen's first, or close the help."""
        from vlmtui.ui.help import HelpScreen

        screen = self.screen
        if isinstance(screen, HelpScreen):
            screen.dismiss()
        elif not isinstance(screen, SystemModalScreen):
            first = getattr(screen.focused, "SCOPE", "")
            self.push_screen(HelpScreen(getattr(screen, "SCOPE", ""), first=first))

    def action_help_quit(self) -> None:
        """Handle Ctrl+C when there is nothing to copy or stop: show how to quit; quit if it was pressed twice within
        two seconds."""
        self.interrupt()

    async def action_quit(self) -> None:
        self._departure.leave()

    def _begin(self) -> None:
        self.models.begin()
        self.call_after_refresh(self.start, self._read_records, "records")
        self.call_after_refresh(self.start, self._begin_conversation, "conversation")

    async def _read_records(self) -> None:
        """Read the model families' records, and show errors in records that the user has added. Runs after the first
        paint."""
        await asyncio.to_thread(self.services.registry.read)
        for warning in self.services.registry.warnings:
            self.tell(one_line(str(warning)), severity="warning")

    async def _begin_conversation(self) -> None:
        """Open the conversation to continue, and fetch answers that the engine finished meanwhile. If the database is
        damaged, first offer to replace it with a backup. Runs after the first paint."""
        try:
            await self.stored.resume()
            if self._interrupted is None:
                self._interrupted = self.services.interrupted_answers(
                    self.conversation, show=self.stored.show, load=self.models.load
                )
            await self._interrupted.bring_back()
        except VlmtuiError as error:
            if self.services.store.damage is not None:
                self.stored.offer_backup(self._begin_conversation)
                return
            self.tell_error(error)
        self.conversation_begun()
        self.conversation.tell_notice()

    # -- the engine

    def _engine_changed(self) -> None:
        """Post EngineChanged to the screens, and collect the log of a new engine."""
        if self._interrupted is not None:
            self._interrupted.engine_changed()
        if not self.is_running:
            return
        engine = self.engines.engine
        if engine is not None and engine is not self._logged_engine:
            self._logged_engine = engine
            self.start(partial(self.engines.follow_log, engine, self._log_grew), "engine-log", exclusive=True)
        self._post_to_screens(EngineChanged)

    def _log_grew(self) -> None:
        """Post EngineLogGrew to the screens after 0.1 s; one message stands for all lines until then."""
        if not self._is_log_due:
            self._is_log_due = True
            self.set_timer(_LOG_EVERY_S, self._post_log_grew)

    def _post_log_grew(self) -> None:
        self._is_log_due = False
        self._post_to_screens(EngineLogGrew)

    def _post_to_screens(self, kind: type[Message]) -> None:
        for screen in self.screen_stack:
            screen.post_message(kind())

    def _handle_exception(self, error: Exception) -> None:
        """Log an unexpected exception with its traceback, and end the app with a sentence for the user."""
        if isinstance(error, WorkerFailed) and isinstance(error.error, Exception):
            error = error.error  # it has the traceback
        is_ending = self.return_code is not None
        if is_ending or comes_of_removal(error, self.screen_stack if self.is_running else ()):
            # A screen removed while it is being composed does not find its widgets.
            _log.warning("while %s", "the app ended" if is_ending else "a widget was removed", exc_info=error)
            return
        _log.critical("the app failed", exc_info=error)
        summary = one_line(f"{type(error).__name__}: {error}")[:200]
        log = self.services.paths.logs / "app.log"
        told = Text(f"vlmtui stopped because of an internal error: {summary} (details: {log})")
        # Textual prints an exception with `__rich__` by calling that, and any other with its traceback.
        setattr(error, "__rich__", lambda: told)  # noqa: B010 - an error has no such attribute
        super()._handle_exception(error)


def comes_of_removal(error: Exception, stack: Sequence[Screen[Any]]) -> bool:
    """Return whether the error only means that a widget lacks its children because it is being removed.

    Textual does not compose a widget that is being removed, but still calls its `on_mount` and delayed callbacks. The
    traceback then has a frame whose `self` is this widget, and the widget is on none of the screens in `stack`, the
    open screens.
    """
    if not isinstance(error, NoMatches):
        return False
    ran = (frame.f_locals.get("self") for frame, _ in walk_tb(error.__traceback__))
    widgets = (one for one in ran if isinstance(one, Widget))
    return any(not any(screen in widget.ancestors_with_self for screen in stack) for widget in widgets)
