"""The Textual app: its screens, theme, key handling, and crash handling."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text
from textual import events, on
from textual.actions import parse
from textual.app import App
from textual.driver import Driver
from textual.widgets import Input
from textual.worker import WorkerFailed, WorkType

from vlmtui.config.settings import config_file
from vlmtui.errors import Remedy, VlmtuiError
from vlmtui.registry.match import Model
from vlmtui.session.engine_controller import EngineController, EngineState
from vlmtui.text import one_line, visible
from vlmtui.ui.actions import ACTIONS, HasActions, bindings
from vlmtui.ui.keys import KeyBindings, error_text, key_of, spell_key, with_remedy
from vlmtui.ui.lifecycle.departure import Departure
from vlmtui.ui.lifecycle.engine_broadcast import EngineBroadcast
from vlmtui.ui.lifecycle.leftovers import Leftovers
from vlmtui.ui.lifecycle.model_loading import ModelLoading
from vlmtui.ui.lifecycle.removed_widgets import comes_of_removal
from vlmtui.ui.lifecycle.stored_conversations import StoredConversations
from vlmtui.ui.models.screen import ModelsScreen
from vlmtui.ui.navigator import AppNavigator
from vlmtui.ui.services import ExitReport, Services
from vlmtui.ui.terminal.graphics import Graphics, tones_of
from vlmtui.ui.terminal.key_queue import KeyQueue, run_before_keys
from vlmtui.ui.terminal.query import TerminalQuestion
from vlmtui.ui.terminal.seam import sends_frames
from vlmtui.ui.terminal.themes import THEMES, VARIABLES, begin_with_theme, theme_name
from vlmtui.ui.view import Steps
from vlmtui.ui.widgets.line_editing import EDITS, LINE_EDITS, is_text_area

if TYPE_CHECKING:
    from rich.console import RenderableType
    from textual.binding import Binding
    from textual.command import Provider
    from textual.notifications import SeverityLevel
    from textual.screen import Screen

    from vlmtui.session.conversation import Conversation
    from vlmtui.store.records import ConversationId
    from vlmtui.ui.conversations.screen import ConversationsScreen
    from vlmtui.ui.models.loading import LoadingScreen
    from vlmtui.ui.widgets.attachment_view import AttachmentView

_log = logging.getLogger(__name__)

_WARNINGS_MAX = 3
_ANSWERS = "answers.jsonl"
"""The results that `/batch` shows without a name, as docs/batch.md calls them."""
_STARTED_AFTER_S = 1.0
_HOUSE_KEPT_AFTER_S = 10.0


def _commands() -> type[Provider]:
    from vlmtui.ui.palette import ActionCommands

    return ActionCommands


class VlmtuiApp(App[ExitReport | None]):
    """The app: wires its parts together, and handles the messages and actions of all screens."""

    TITLE = "vlmtui"
    # A screen with its own styles makes Textual parse all styles again, so the first screens' styles are loaded here.
    CSS_PATH = ["app.tcss", "models/screen.tcss"]
    COMMANDS = {_commands}
    BINDINGS = bindings("app")

    def __init__(self, services: Services, question: TerminalQuestion | None = None) -> None:
        """`question`: a terminal query sent before this module was imported."""
        super().__init__()
        self.services = services
        self.engine_controller = controller = EngineController(
            services.host,
            keep_alive_s=services.keep_alive_s,
            on_change=self._engine_changed,
            hang_s=services.settings.hang_s,
        )
        self.key_bindings = KeyBindings(services.settings.keys)
        """The active key bindings."""
        self.set_keymap(self.key_bindings.keymap)
        for key in self.key_bindings.of("interrupt"):
            # Textual calls it for a key that no binding takes, as in dialogs, where the app's own do not act.
            setattr(self, f"key_{events.Key(key, None).name}", self.interrupt)
        self.graphics = Graphics()
        """How pictures are drawn; detected when the app runs in a terminal."""
        self.conversation = holder = services.conversation_holder(self, controller)
        self.navigator = navigator = AppNavigator(self, self, services, controller, holder)
        self.models = models = ModelLoading(self, navigator, services, controller, holder)
        self.stored = stored = StoredConversations(self, navigator, services, controller, holder, choose=models.choose)
        self._interrupted = services.interrupted_answers(self, controller, holder, show=stored.show, load=models.load)
        self._leftovers = Leftovers(self, navigator, services.cleanup)
        self._departure = Departure(self, navigator, services, controller, holder)
        self.key_queue = KeyQueue(self, super().on_event)
        self._broadcast = EngineBroadcast(self, controller)
        self._question = question
        for theme in THEMES:
            self.register_theme(theme)
        wanted = theme_name(services.settings.theme)
        begin_with_theme(self, wanted if wanted in self.available_themes else THEMES[0].name)

    def run(self, **options: Any) -> ExitReport | None:
        """Run in the terminal, after asking how it draws pictures. Restores the terminal on return."""
        paints = sends_frames(os.environ)
        setting = self.services.settings.graphics
        self.graphics = Graphics.detect(setting, self._question, tones=tones_of(self), paints=paints)
        return super().run(**options)

    def get_driver_class(self) -> type[Driver]:
        """Return the platform's driver; on Linux one that sends frames, and that a stalled terminal does not block."""
        found = super().get_driver_class()
        if found.__name__ != "LinuxDriver" or not sends_frames(os.environ):
            return found
        from vlmtui.ui.terminal.driver import NonBlockingDriver

        return NonBlockingDriver

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        """Show an update of the compositor; as frames where the driver writes those."""
        shows = getattr(self._driver, "show", None)
        if shows is not None and shows(screen, renderable):
            self.post_display_hook()
        else:
            super()._display(screen, renderable)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Return our own colours, for themes that lack them."""
        return dict(VARIABLES)

    async def on_event(self, event: events.Event) -> None:
        await self.key_queue.take(event)

    def on_mount(self) -> None:
        self._departure.watch_signals()
        if wrong := self.key_bindings.first_warnings(_WARNINGS_MAX):
            self.tell("\n".join([*wrong, f"({config_file(self.services.paths)})"]), seconds=15, severity="warning")
        # Output before this handler returns is discarded: it would be drawn twice.
        self.call_later(self._begin)
        self.set_timer(_STARTED_AFTER_S, self._leftovers.look)
        self.set_timer(_HOUSE_KEPT_AFTER_S, self.stored.keep_house)

    async def on_unmount(self) -> None:
        """Clean up however the app ended: stop a load, and leave a running answer to the engine."""
        self._departure.ignore_signals()
        if self.conversation.chat is not None:
            self.conversation.chat.answers.detach()
        await self.engine_controller.leave()
        await self.conversation.close()

    # -- what the parts use

    def tell(
        self,
        text: str,
        remedy: Remedy | None = None,
        *,
        seconds: float = 4.0,
        severity: SeverityLevel = "information",
    ) -> None:
        """Show a notification, if a screen is left to show it on."""
        if self.is_running:
            told = with_remedy(self, visible(text), remedy)
            self.notify(told, severity=severity, timeout=seconds, markup=False)

    def tell_error(self, error: VlmtuiError) -> None:
        """Show an error as a notification, with its remedy."""
        self.tell(error_text(self, error), seconds=15, severity="error")

    def start(self, steps: Steps, group: str, *, exclusive: bool = False) -> None:
        """Run `steps` in the background until the app ends."""
        work: WorkType[None] = steps
        self.run_worker(work, group=group, exclusive=exclusive)

    def start_dialog(self, steps: Steps) -> None:
        """As `start`, for steps that show a screen: further keys wait until it is shown."""
        run_before_keys(self, steps)

    def restart_engine(self) -> None:
        """Load the same model again, after its engine died or failed to load."""
        self.models.restart()

    def load_model(self, model: Model) -> None:
        """Load a model, after a question where another is loaded."""
        self.models.load(model)

    def interrupt(self) -> None:
        """Show how to quit; the second call within two seconds quits."""
        self._departure.interrupt()

    def run_action_id(self, id: str, argument: str = "") -> None:
        """Run an action of the table (palette, slash commands): the active screen's, or else the app's."""
        own = self.screen.actions.get(id) if isinstance(self.screen, HasActions) else None
        _, name, parameters = parse(ACTIONS[id].command)
        action = own or getattr(self.screen, f"action_{name}", None) or getattr(self, f"action_{name}", None)
        if action is None:
            self.tell("That is not possible here.", severity="warning")
        else:
            self.call_later(action, *parameters, *filter(None, [argument]))

    def key_of(self, id: str) -> str:
        """Return an action's key as shown to people."""
        return key_of(self, id)

    def get_key_display(self, binding: Binding) -> str:
        """Show the same key name in the footer, in sentences and in the help."""
        return spell_key(binding.key)

    @property
    def chat_controller(self) -> Conversation | None:
        """The conversation; None before a model was loaded."""
        return self.conversation.chat

    def open_conversation(self, conversation: ConversationId) -> None:
        """Open a stored conversation with the loaded model, or else with its own model."""
        self.stored.open(conversation)

    # -- requests of screens

    @on(ModelsScreen.ModelChosen)
    def _model_chosen(self, event: ModelsScreen.ModelChosen) -> None:
        self.models.choose(event.model, event.machine)

    @on(ModelsScreen.LeavePicker)
    def _leave_picker(self) -> None:
        if self.engine_controller.keeps_former:
            self.models.go_back()
        else:
            self.navigator.back_to_chat()

    def on_loading_screen_loaded(self) -> None:
        self.models.loaded()

    def on_loading_screen_typed_ahead(self, event: LoadingScreen.TypedAhead) -> None:
        self.conversation.typed_ahead = event.text

    def on_loading_screen_abort_wanted(self) -> None:
        self.models.abort()

    def on_loading_screen_former_wanted(self) -> None:
        self.models.go_back()

    def on_loading_screen_retry_wanted(self) -> None:
        self.models.restart()

    def on_conversations_screen_conversation_chosen(self, event: ConversationsScreen.ConversationChosen) -> None:
        self.open_conversation(event.id)

    def on_conversations_screen_new_chat_wanted(self) -> None:
        if self.navigator.leave_conversations():  # the key may arrive twice in a row
            self.call_later(self.run_action_id, "new_chat")

    def on_attachment_view_clicked(self, event: AttachmentView.Clicked) -> None:
        self.navigator.show_viewer(event.attachments, event.at, numbers=event.numbers)

    # -- actions

    def action_models(self, name: str = "") -> None:
        """Show the models over the chat; with a name, load that model at once."""
        if name:
            self.models.choose_by_name(name)
        else:
            self.navigator.offer_models()

    def action_engine(self, name: str = "") -> None:
        """Use another engine by its name or address; without one, show the models."""
        if name:
            self.models.choose_engine(name)
        else:
            self.navigator.offer_models()

    def action_conversations(self) -> None:
        """Show the list of conversations."""
        chat = self.conversation.chat
        self.navigator.show_conversations(open_id=chat.id if chat is not None else None)

    def action_batch(self, file: str = "") -> None:
        """Show the results of a batch."""
        self.start_dialog(lambda: self.navigator.show_batch(Path(file.strip() or _ANSWERS).expanduser()))

    def action_undelete(self) -> None:
        """Restore the conversation deleted last."""
        self.stored.undelete()

    def action_cleanup(self) -> None:
        """Stop workers that are no longer usable."""
        self._leftovers.clean_up()

    def action_show_log(self) -> None:
        """Show the engine's log over the current screen."""
        self.navigator.show_log()

    def action_restart_engine(self) -> None:
        """Load the same model again, unless its engine answers."""
        if self.engine_controller.state in (EngineState.DEAD, EngineState.HUNG, EngineState.NONE):
            self.restart_engine()
        else:
            self.tell("The engine is running.")

    def action_edit(self, name: str) -> None:
        """Run an editing command in the focused text field."""
        if is_text_area(self.focused):
            EDITS[name](self.focused)
        elif isinstance(self.focused, Input):
            LINE_EDITS[name](self.focused)

    def action_leader(self) -> None:
        """Show the keys that work after the leader, or close that strip."""
        self.navigator.show_leader()

    def action_help(self) -> None:
        """Show every key and command, the current screen's first; close the help if it is open."""
        self.navigator.show_help()

    def action_help_quit(self) -> None:
        """Ctrl+C with nothing to copy or stop: show how to quit; quit if pressed twice within two seconds."""
        self.interrupt()

    async def action_quit(self) -> None:
        """Quit cleanly."""
        self._departure.leave()

    def export_screenshot(self, *, title: str | None = None, simplify: bool = False) -> str:
        """Return an SVG of the screen that shows each character as it is. Fira Code, which Textual names and has loaded
        from the network, draws `<|im_start|>` with ligatures."""
        from vlmtui.ui.terminal.screenshot import portable_svg

        return portable_svg(super().export_screenshot(title=title, simplify=simplify))

    def _begin(self) -> None:
        self.models.begin()
        self.call_after_refresh(self.start, self._read_records, "records")
        self.call_after_refresh(self.start, self._begin_conversation, "conversation")

    async def _read_records(self) -> None:
        """After the first paint: read the families, and tell the errors of the user's own."""
        await asyncio.to_thread(self.services.registry.read)
        for warning in self.services.registry.warnings:
            self.tell(one_line(str(warning)), seconds=15, severity="warning")

    async def _begin_conversation(self) -> None:
        """After the first paint: open the conversation to continue, and fetch answers finished meanwhile. With a
        damaged database, ask first whether a backup takes its place."""
        try:
            await self.stored.resume()
            await self._interrupted.bring_back()
        except VlmtuiError as error:
            if self.services.store.damage is not None:
                self.stored.offer_backup(self._begin_conversation)
                return
            self.tell_error(error)
        self.conversation.tell_notice()

    # -- the engine

    def _engine_changed(self) -> None:
        self._interrupted.engine_changed()
        if self.is_running:
            self._broadcast.engine_changed()

    def _handle_exception(self, error: Exception) -> None:
        """Log an unexpected error with its traceback, and exit with one sentence for the user."""
        if isinstance(error, WorkerFailed) and isinstance(error.error, Exception):
            error = error.error  # contains the traceback
        is_ending = self.return_code is not None
        if is_ending or comes_of_removal(error, self.screen_stack if self.is_running else ()):
            # A screen removed while it is being composed does not find its widgets.
            _log.warning("while %s", "the app ended" if is_ending else "a widget was removed", exc_info=error)
            return
        _log.critical("the app failed", exc_info=error)
        summary = one_line(f"{type(error).__name__}: {error}")[:200]
        log = self.services.paths.logs / "app.log"
        told = Text(f"vlmtui stopped because of an internal error: {summary} (details: {log})")
        # Textual shows an error that tells how it looks so, and any other with its traceback.
        setattr(error, "__rich__", lambda: told)  # noqa: B010 - an error has no such attribute
        super()._handle_exception(error)
