"""The application: which screen is shown, the life of the engine, and how it all ends."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from typing import TYPE_CHECKING, Any

from rich.text import Text
from textual import on, work
from textual.app import App
from textual.binding import Binding
from textual.driver import Driver
from textual.screen import Screen
from textual.worker import WorkerFailed

from vlmtui import garbage
from vlmtui.config.trust import TrustStore
from vlmtui.engine.interface import Engine
from vlmtui.engine.machine import Machine
from vlmtui.errors import VlmtuiError
from vlmtui.registry.match import Model, resolve
from vlmtui.ui.actions import bindings
from vlmtui.ui.controllers.engine import EngineController, EngineState
from vlmtui.ui.controllers.obstacles import Obstacles, Way
from vlmtui.ui.graphics import Graphics
from vlmtui.ui.keeping import ExitReport, KeepingApp
from vlmtui.ui.messages import EngineChanged, EngineLogGrew
from vlmtui.ui.screens.models import ModelsScreen
from vlmtui.ui.services import Services
from vlmtui.ui.terminal import TerminalQuestion, detach
from vlmtui.ui.text import one_line
from vlmtui.ui.themes import THEMES, VARIABLES, theme_name

if TYPE_CHECKING:
    from textual.command import Provider

__all__ = ["ExitReport", "VlmtuiApp"]

_log = logging.getLogger(__name__)

_LOG_EVERY_S = 0.1
_STARTED_AFTER_S = 1.0
_TWICE_WITHIN_S = 2.0
_ALONE = 2
"""Screens on the stack when one of ours is shown alone: Textual's own empty one is below it."""
_LEAVING_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


def _commands() -> type[Provider]:
    from vlmtui.ui.palette import ActionCommands

    return ActionCommands


class VlmtuiApp(KeepingApp):
    """Picker, loading screen, chat."""

    TITLE = "vlmtui"
    # A screen that brings styles of its own has all styles parsed again: those of the first come with the app's.
    CSS_PATH = ["app.tcss", "screens/models.tcss"]
    COMMANDS = {_commands}
    BINDINGS = [
        *bindings("app"),
        Binding("f3", "models", show=False, id="models", tooltip="Pick another model."),
        Binding("ctrl+c", "help_quit", show=False, system=True),
    ]

    def __init__(self, services: Services, question: TerminalQuestion | None = None) -> None:
        """`question` is one that was asked of the terminal before this module was imported."""
        super().__init__()
        self.services = services
        self.engine_controller = EngineController(
            services.host,
            keep_alive_s=services.keep_alive_s,
            on_change=self._engine_changed,
            hang_s=services.settings.hang_s,
        )
        self.obstacles = Obstacles(TrustStore(services.paths))
        self.graphics = Graphics()
        """How pictures are drawn; asked of the terminal when the app runs in one."""
        self._question = question
        self._followed: Engine | None = None
        self._log_waits = False
        self._leaving = False
        self._interrupted_at = float("-inf")
        for theme in THEMES:
            self.register_theme(theme)
        wanted = theme_name(services.settings.theme)
        self._begin_with_theme(wanted if wanted in self.available_themes else THEMES[0].name)

    def _begin_with_theme(self, name: str) -> None:
        """As `theme = name`, but nothing is shown yet: a dark theme, like Textual's own, is there before the styles are
        made, and they are not made twice."""
        if self.available_themes[name].dark:
            self.set_reactive(App.theme, name)
            self.stylesheet.set_variables(self.get_css_variables())
        else:
            self.theme = name

    def run(self, **options: Any) -> ExitReport | None:
        """Run in the terminal, after asking it how it draws pictures. The terminal is whole again on return."""
        self.graphics = Graphics.detect(self.services.settings.graphics, self._question)
        return super().run(**options)

    def get_driver_class(self) -> type[Driver]:
        """Textual's own for this platform, but one that a terminal which stalls does not stop."""
        found = super().get_driver_class()
        if found.__name__ != "LinuxDriver":
            return found
        from vlmtui.ui.driver import PatientDriver

        return PatientDriver

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Our own colours, for themes that do not have them."""
        return dict(VARIABLES)

    def on_mount(self) -> None:
        loop = asyncio.get_running_loop()
        for number in _LEAVING_SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)
        self.set_timer(_STARTED_AFTER_S, garbage.go_on)
        for warning in self.services.registry.warnings:
            self.notify(one_line(str(warning)), severity="warning", timeout=15, markup=False)
        # Nothing that is shown before this handler returns gets to the terminal: it would be drawn twice.
        self.call_later(self._begin)
        self.set_timer(_STARTED_AFTER_S, self.look_for_leftovers)

    def _begin(self) -> None:
        model = self._initial_model()
        obstacle = self.obstacles.first(model, None) if model is not None else None
        if model is None or obstacle is not None:
            self.push_screen(ModelsScreen(self.services, self.engine_controller))
            if model is not None:
                self._choose(model, None)
        else:
            self._load(model)
            self.push_screen(self._loading_screen(model))
        self.call_after_refresh(self.begin_keeping)

    async def on_unmount(self) -> None:
        """Whatever ended the app: a load that is under way ends with it, and a running answer goes on without it."""
        loop = asyncio.get_running_loop()
        for number in _LEAVING_SIGNALS:
            loop.remove_signal_handler(number)
        if self.chat_controller is not None:
            self.chat_controller.detach()
        await self.engine_controller.leave()
        await self.close_keeper()

    def load(self, model: Model) -> None:
        self._open(model)

    def choose(self, model: Model) -> None:
        self._choose(model, None)

    def show_chat(self) -> None:
        self._show_alone(self._chat_screen())

    @on(ModelsScreen.ModelChosen)
    def _model_chosen(self, event: ModelsScreen.ModelChosen) -> None:
        self._choose(event.model, event.machine)

    def _choose(self, model: Model, machine: Machine | None, *, size_accepted: bool = False) -> None:
        """Load a model, after what has to be decided before."""
        model = self.obstacles.allowed(model)
        running = self.engine_controller.model
        known = running is not None and running.spec == model.spec
        obstacle = None if known else self.obstacles.first(model, machine, size_accepted=size_accepted)
        if obstacle is None:
            self._open(model)
            return

        def go_on(way: Way | None) -> None:
            if way is None or way.model is None:
                return
            if way.trusts:
                self._remember(way.model)
            self._choose(way.model, machine, size_accepted=True)

        from vlmtui.ui.screens.before_load import BeforeLoadScreen

        self.push_screen(BeforeLoadScreen(one_line(model.spec.name), obstacle), go_on)

    def _remember(self, model: Model) -> None:
        try:
            self.obstacles.remember(model)
        except VlmtuiError as error:
            self.notify(one_line(str(error)), severity="warning", markup=False)

    def _open(self, model: Model) -> None:
        controller = self.engine_controller
        same = controller.model is not None and controller.model.spec == model.spec
        if same and controller.state is EngineState.READY:
            self._back_to_chat()
            return
        if not same or controller.state is not EngineState.LOADING:
            self._load(model)
        elif self._shows_a_load():
            return
        self._show_alone(self._loading_screen(model))

    @on(ModelsScreen.LeavePicker)
    def _leave_picker(self) -> None:
        self._back_to_chat()

    def on_loading_screen_loaded(self) -> None:
        if self._shows_a_load():
            self._show_alone(self._chat_screen())

    def on_loading_screen_abort_wanted(self) -> None:
        self._abort()

    def on_loading_screen_retry_wanted(self) -> None:
        self.restart_engine()

    def restart_engine(self) -> None:
        """Load the same model again, after its engine died or failed to load."""
        if self.engine_controller.model is not None and self.engine_controller.state is not EngineState.LOADING:
            self._load(self.engine_controller.model)

    def run_action_id(self, id: str, argument: str = "") -> None:
        """Run an action of the table (palette, slash commands): the active screen's own, else the app's."""
        action = getattr(self.screen, f"action_{id}", None) or getattr(self, f"action_{id}", None)
        if action is None:
            self.notify("That is not possible here.", severity="warning", markup=False)
        elif argument:
            self.call_later(action, argument)
        else:
            self.call_later(action)

    def action_models(self, name: str = "") -> None:
        """Show the picker over the chat; with a name, load that model at once."""
        if name:
            try:
                model = resolve(self.services.registry, name)
            except VlmtuiError as error:
                self.notify(one_line(str(error)), severity="error", markup=False)
                return
            self.post_message(ModelsScreen.ModelChosen(model))
        elif not isinstance(self.screen, ModelsScreen) and not self._shows_a_load():
            self.push_screen(ModelsScreen(self.services, self.engine_controller))

    def action_show_log(self) -> None:
        """Show the engine's log over whatever is there."""
        from vlmtui.ui.screens.log import LogScreen

        if not isinstance(self.screen, LogScreen):
            self.push_screen(LogScreen(self.engine_controller))

    def action_help(self) -> None:
        """Show every key and command."""
        from vlmtui.ui.screens.help import HelpScreen

        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen())

    def action_help_quit(self) -> None:
        """Ctrl+C with nothing to copy or stop: a hint, and twice within two seconds the end."""
        now = time.monotonic()
        if now - self._interrupted_at <= _TWICE_WITHIN_S:
            self._leave()
            return
        self._interrupted_at = now
        self.notify("Ctrl+Q quits.", timeout=_TWICE_WITHIN_S, markup=False)

    async def action_quit(self) -> None:
        """Leave in order."""
        self._leave()

    def _initial_model(self) -> Model | None:
        name, spec = self.services.initial_model, self.services.resume_spec
        if name is None and spec is None:
            return None
        try:
            if name is None and spec is not None:
                from vlmtui.ui.controllers.resuming import stored_model

                return stored_model(self.services.registry, spec, spec.name)
            return resolve(self.services.registry, name or "")
        except VlmtuiError as error:
            self.notify(one_line(str(error)), severity="error", timeout=10, markup=False)
            return None

    def _chat_screen(self) -> Screen[Any]:
        from vlmtui.ui.screens.chat import ChatScreen

        return ChatScreen(self.services, self.engine_controller, self.chat())

    def _loading_screen(self, model: Model) -> Screen[Any]:
        from vlmtui.ui.screens.loading import LoadingScreen

        return LoadingScreen(self.engine_controller, model)

    def _shows_a_load(self) -> bool:
        """Whether that is the screen on top; False while the app ends, when there is none."""
        from vlmtui.ui.screens.loading import LoadingScreen

        return bool(self.screen_stack) and isinstance(self.screen_stack[-1], LoadingScreen)

    def _back_to_chat(self) -> None:
        """The chat below the picker, or a new one where there is none."""
        if len(self.screen_stack) > _ALONE:
            self.pop_screen()
        else:
            self._show_alone(self._chat_screen())

    def _show_alone(self, screen: Screen[Any]) -> None:
        """Show a screen instead of all others."""
        while len(self.screen_stack) > _ALONE:
            self.pop_screen()
        self.switch_screen(screen)

    def _engine_changed(self) -> None:
        self.engine_moved()
        if not self.is_running:
            return
        engine = self.engine_controller.engine
        if engine is not None and engine is not self._followed:
            self._followed = engine
            self._follow_log(engine)
        for screen in self.screen_stack:
            screen.post_message(EngineChanged())

    def _log_grew(self) -> None:
        """A line came: tell the screens soon, once for many lines."""
        if not self._log_waits:
            self._log_waits = True
            self.set_timer(_LOG_EVERY_S, self._tell_log)

    def _tell_log(self) -> None:
        self._log_waits = False
        for screen in self.screen_stack:
            screen.post_message(EngineLogGrew())

    @work(group="engine")
    async def _load(self, model: Model) -> None:
        if self.chat_controller is not None:
            await self.chat_controller.cancel(self.engine_controller.engine)
        await self.engine_controller.start(model)
        await self.engine_controller.watch()

    @work(group="engine-log", exclusive=True)
    async def _follow_log(self, engine: Engine) -> None:
        await self.engine_controller.follow_log(engine, self._log_grew)

    @work(group="abort")
    async def _abort(self) -> None:
        await self.engine_controller.abort()
        if self._shows_a_load():
            self._show_alone(ModelsScreen(self.services, self.engine_controller))

    @work(group="leave")
    async def _leave(self, return_code: int = 0, *, hung_up: bool = False) -> None:
        """`hung_up`: nobody is there to ask, and a running answer goes on without us."""
        if self._leaving:
            return
        self._leaving = True
        if not await self.bring_to_rest(stops=not hung_up) and not hung_up and not await self.leave_unsaved():
            self._leaving = False
            return
        controller = self.engine_controller
        if controller.state is EngineState.LOADING:
            self.notify("Ending the load…", markup=False)
        stays = await controller.leave()
        name = controller.model.spec.name if controller.model else None
        chat = self.chat_controller.conversation if self.chat_controller is not None else None
        self.exit(ExitReport(name, stays, self.services.keep_alive_s, chat), return_code=return_code)

    def _on_signal(self, number: int) -> None:
        _log.info("leaving on %s", signal.Signals(number).name)
        if number == signal.SIGHUP:
            detach()
        is_asked = number == signal.SIGINT
        self._leave(return_code=0 if is_asked else 128 + number, hung_up=not is_asked)

    def _handle_exception(self, error: Exception) -> None:
        """The app's edge: an error nobody expected goes to the log with its traceback, one sentence to the user."""
        if isinstance(error, WorkerFailed) and isinstance(error.error, Exception):
            error = error.error  # which has the traceback
        if self._exit:
            # A screen that is taken down while it is being built finds its widgets gone.
            _log.warning("while the app ended", exc_info=error)
            return
        _log.critical("the app failed", exc_info=error)
        self._return_code = 1
        if self._exception is None:
            self._exception = error
            summary = one_line(f"{type(error).__name__}: {error}")[:200]
            log = self.services.paths.logs / "app.log"
            self.panic(Text(f"vlmtui stopped because of an error of its own: {summary} (details: {log})"))
            self._exception_event.set()
