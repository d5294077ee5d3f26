"""Opens every screen. The only module that knows all features; each is imported when first shown."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from textual.app import App
from textual.screen import Screen, SystemModalScreen

from vlmtui.errors import VlmtuiError
from vlmtui.registry.match import Model
from vlmtui.session.engine_controller import EngineController
from vlmtui.text import one_line
from vlmtui.ui.models.screen import ModelsScreen
from vlmtui.ui.services import Services
from vlmtui.ui.terminal.key_queue import ask_user

if TYPE_CHECKING:
    from vlmtui.domain.attachment import Attachment
    from vlmtui.domain.generation import GenerateRequest
    from vlmtui.domain.sampling import Sampling
    from vlmtui.media.folder import FolderView
    from vlmtui.session.answer_places import AnswerPlaces
    from vlmtui.session.compared_message import ComparedMessage
    from vlmtui.session.comparison import CompareController
    from vlmtui.session.conversation_holder import ConversationHolder
    from vlmtui.session.cost import EstimateTokens
    from vlmtui.session.fan_out import FanOut
    from vlmtui.session.lane_plan import Plan
    from vlmtui.session.lanes import InFlightRequest
    from vlmtui.session.lint import LintReport
    from vlmtui.session.load_checks import LoadCheck, LoadOption
    from vlmtui.session.model_view import ModelView
    from vlmtui.session.occlusion import OcclusionPlan
    from vlmtui.session.prompt_report import PromptReport
    from vlmtui.session.recent_folders import RecentFolders
    from vlmtui.session.settings import ChatSettings
    from vlmtui.session.side_engines import FindEngines
    from vlmtui.store.records import ConversationId
    from vlmtui.ui.chat.screen import ChatScreen
    from vlmtui.ui.navigation import FilesChoice, FramesChoice

_ALONE = 2
"""Height of the screen stack when one of our screens is shown alone: below it is Textual's empty default screen."""


class Controls(Protocol):
    """Requests of screens to the app, other than opening screens."""

    def restart_engine(self) -> None:
        """Load the same model again."""

    def load_model(self, model: Model) -> None:
        """Load a model, after a question where another is loaded."""

    def interrupt(self) -> None:
        """Show how to quit; quit if called twice."""

    def tell_error(self, error: VlmtuiError) -> None:
        """Show an error as a notification, with its remedy."""

    def run_action_id(self, id: str, argument: str = "") -> None:
        """Run an action of the table: the active screen's, or else the app's."""


class AppNavigator:
    """Implements `navigation.Navigator` for the features, and shows their screens for the app."""

    def __init__(
        self,
        app: App[Any],
        controls: Controls,
        services: Services,
        engine_controller: EngineController,
        holder: ConversationHolder,
    ) -> None:
        self._app = app
        self._controls = controls
        self._services = services
        self._engine_controller = engine_controller
        self._holder = holder

    # -- for the features

    def restart_engine(self) -> None:
        self._controls.restart_engine()

    def load_model(self, model: Model) -> None:
        self._controls.load_model(model)

    def interrupt(self) -> None:
        self._controls.interrupt()

    def run_action(self, id: str, argument: str = "") -> None:
        self._controls.run_action_id(id, argument)

    async def confirm(self, question: str, *, yes: str, no: str = "No", careful: bool = False) -> bool:
        from vlmtui.ui.widgets.confirm import ConfirmScreen

        is_sure = await ask_user(self._app, ConfirmScreen(question, yes=yes, no=no, careful=careful))
        return is_sure is True

    async def choose(self, title: str, lines: Sequence[str]) -> int | None:
        from textual.content import Content

        from vlmtui.ui.widgets.dialogs import ChoiceScreen

        return await ask_user(self._app, ChoiceScreen(title, [Content(line) for line in lines]))

    async def choose_files(
        self, folder: Path, *, recent: RecentFolders, look: FolderView, estimate: EstimateTokens | None
    ) -> FilesChoice:
        from vlmtui.ui.attachments.browser import BrowserScreen
        from vlmtui.ui.navigation import FilesChoice

        browser = BrowserScreen(folder, recent=recent, look=look, estimate=estimate)
        paths = await ask_user(self._app, browser)
        return FilesChoice(tuple(paths or ()), browser.folder)

    async def choose_frames(self, video: Attachment, *, takes_video: bool, most_images: int) -> FramesChoice | None:
        from vlmtui.ui.attachments.frames import FramesScreen

        cache = self._services.paths.thumbnails
        return await ask_user(
            self._app, FramesScreen(video, cache=cache, takes_video=takes_video, most_images=most_images)
        )

    def show_viewer(
        self, attachments: Sequence[Attachment], at: int = 0, *, numbers: Sequence[int] | None = None
    ) -> None:
        from vlmtui.ui.attachments.viewer import ViewerScreen

        cache = self._services.paths.thumbnails
        self._app.push_screen(ViewerScreen(list(attachments), at, cache=cache, numbers=numbers))

    def show_inspector(self, report: PromptReport, *, again: Callable[[], GenerateRequest] | None = None) -> None:
        from vlmtui.ui.inspector.screen import InspectorScreen

        self._app.push_screen(
            InspectorScreen(
                report,
                cache=self._services.paths.thumbnails,
                engine=self._engine_controller.require_engine,
                again=again,
                show_viewer=self.show_viewer,
                lint=self._lint(self._engine_controller.model),
            )
        )

    def show_lint(self, model: Model) -> None:
        from vlmtui.ui.inspector.lint_screen import LintScreen

        self._app.push_screen(LintScreen(model.spec.name, self._lint(model)))

    def _lint(self, model: Model | None) -> Callable[[], LintReport] | None:
        """Return what checks the model's template, which blocks; None if nothing can."""
        from vlmtui.session.lint import lint_model

        reader = self._services.reader
        if reader is None or model is None:
            return None
        return partial(lint_model, model, reader, trust_remote_code=model.spec.trust_remote_code)

    def show_places(self, places: AnswerPlaces, numbers: Sequence[int]) -> None:
        from vlmtui.ui.seeing.places_screen import PlacesScreen

        self._app.push_screen(PlacesScreen(places, numbers, folder=Path.cwd()))

    def show_model_view(self, views: Sequence[ModelView], numbers: Sequence[int]) -> None:
        from vlmtui.ui.seeing.model_view_screen import ModelViewScreen

        self._app.push_screen(ModelViewScreen(views, numbers))

    def show_occlusion(self, plan: OcclusionPlan, number: int) -> None:
        from vlmtui.ui.seeing.occlusion_screen import OcclusionScreen

        engine, store = self._engine_controller.require_engine, self._services.paths.seen
        self._app.push_screen(OcclusionScreen(plan, engine, store=store, folder=Path.cwd(), number=number))

    async def compare(
        self,
        controller: CompareController,
        message: ComparedMessage,
        *,
        send: Callable[[CompareController], InFlightRequest],
        on_edit: Callable[[], None],
        look: Callable[[], Awaitable[bool]],
        engines: FindEngines,
    ) -> None:
        from vlmtui.ui.compare.screen import CompareScreen

        await ask_user(
            self._app,
            CompareScreen(
                self._services,
                self._engine_controller,
                controller,
                message,
                send,
                on_edit=on_edit,
                look=look,
                engines=engines,
                show_inspector=self.show_inspector,
            ),
        )

    async def choose_comparison(self, message: ComparedMessage) -> str | None:
        from vlmtui.ui.compare.stored_comparison import choose_stored_comparison

        return await choose_stored_comparison(self._app, self._services, message)

    async def plan_fan_out(
        self, question: str, sampling: Sampling, *, no_seeds: str, system: str, has_pictures: bool
    ) -> Plan | None:
        from vlmtui.ui.compare.fan_form import FanFormScreen

        return await ask_user(
            self._app,
            FanFormScreen(question, sampling, no_seeds=no_seeds, system=system, has_pictures=has_pictures),
        )

    async def fan_out(self, fan_out: FanOut, changed: str) -> int | Literal["new_plan", "look"] | None:
        from vlmtui.ui.compare.fan_out import FanOutScreen

        paths = self._services.paths
        return await ask_user(
            self._app,
            FanOutScreen(
                fan_out,
                changed=changed,
                media=paths.media,
                cache=paths.thumbnails,
                show_inspector=self.show_inspector,
            ),
        )

    async def edit_settings(self, settings: ChatSettings, model: Model | None) -> ChatSettings | None:
        from vlmtui.ui.settings.screen import SettingsScreen

        return await ask_user(self._app, SettingsScreen(settings, model))

    # -- for the app

    def chat_screen(self) -> ChatScreen | None:
        """Return the chat screen, if it is on the stack."""
        from vlmtui.ui.chat.screen import ChatScreen

        stack = self._app.screen_stack if self._app.is_running else []
        return next((screen for screen in stack if isinstance(screen, ChatScreen)), None)

    def shows_a_load(self) -> bool:
        """Return whether the loading screen is on top; False while the app ends."""
        from vlmtui.ui.models.loading import LoadingScreen

        stack = self._app.screen_stack
        return bool(stack) and isinstance(stack[-1], LoadingScreen)

    def push_models(self) -> None:
        """Show the models over the current screen."""
        self._app.push_screen(self._new_models())

    def push_loading(self, model: Model) -> None:
        """Show the loading screen over the current screen."""
        self._app.push_screen(self._new_loading(model))

    def show_models(self) -> None:
        """Show only the models."""
        self._show_alone(self._new_models())

    def show_loading(self, model: Model) -> None:
        """Show only the loading screen."""
        self._show_alone(self._new_loading(model))

    def show_chat(self) -> None:
        """Show only the chat."""
        self._show_alone(self.new_chat())

    def back_to_chat(self) -> None:
        """Return to the chat below, or open a new one."""
        screen = self.chat_screen()
        if screen is None:
            self.show_chat()
        else:
            self.go_back_to(screen)

    def go_back_to(self, screen: Screen[Any]) -> None:
        """Close the screens above `screen`."""
        while self._app.screen is not screen:
            self._app.pop_screen()

    def offer_models(self) -> None:
        """Show the models over the current screen, unless they or the loading screen are shown."""
        if not isinstance(self._app.screen, ModelsScreen) and not self.shows_a_load():
            self.push_models()

    def show_before_load(self, model: Model, check: LoadCheck, go_on: Callable[[LoadOption | None], None]) -> None:
        """Show the decision to make before a model is loaded."""
        from vlmtui.ui.models.before_load import BeforeLoadScreen

        self._app.push_screen(BeforeLoadScreen(one_line(model.spec.name), check), go_on)

    def show_log(self) -> None:
        """Show the engine's log over the current screen, or close it."""
        from vlmtui.ui.models.log import LogScreen

        if isinstance(self._app.screen, LogScreen):
            self._app.screen.dismiss()
        else:
            self._app.push_screen(LogScreen(self._engine_controller))

    def show_leader(self) -> None:
        """Show the keys that work after the leader, or close that strip."""
        from vlmtui.ui.help.leader_screen import show_leader

        show_leader(self._app)

    def show_help(self) -> None:
        """Show every key and command, the current screen's first, or close the help."""
        from vlmtui.ui.help.screen import HelpScreen

        screen = self._app.screen
        if isinstance(screen, HelpScreen):
            screen.dismiss()
        elif not isinstance(screen, SystemModalScreen):
            first = getattr(screen.focused, "SCOPE", "")
            self._app.push_screen(HelpScreen(getattr(screen, "SCOPE", ""), first=first))

    def show_conversations(self, *, open_id: ConversationId | None) -> None:
        """Show the list of conversations, unless a model is loading. `open_id`: the conversation of the chat."""
        from vlmtui.ui.conversations.screen import ConversationsScreen
        from vlmtui.ui.models.loading import LoadingScreen

        if not isinstance(self._app.screen, ConversationsScreen | LoadingScreen):
            cache = self._services.paths.thumbnails
            self._app.push_screen(ConversationsScreen(self._services.store, cache=cache, open_id=open_id))

    async def show_batch(self, output: Path) -> None:
        """Show the results of a batch in a file. Says why if the file cannot be read."""
        from vlmtui.session.batch.results import ResultTable
        from vlmtui.ui.batch.screen import BatchScreen

        try:
            table = await asyncio.to_thread(ResultTable, output)
        except VlmtuiError as error:
            self._controls.tell_error(error)
            return
        self._app.push_screen(BatchScreen(table, show_inspector=self.show_inspector))

    def leave_conversations(self) -> bool:
        """Close the list; False if it was closed already."""
        from vlmtui.ui.conversations.screen import ConversationsScreen

        is_shown = isinstance(self._app.screen, ConversationsScreen)
        if is_shown:
            self._app.pop_screen()
        return is_shown

    def new_chat(self) -> Screen[None]:
        """Return a new screen for the conversation."""
        from vlmtui.ui.chat.screen import ChatScreen

        return ChatScreen(self._services, self, self._engine_controller, self._holder.require_chat())

    def _new_models(self) -> Screen[None]:
        return ModelsScreen(self._services, self._engine_controller)

    def _new_loading(self, model: Model) -> Screen[None]:
        from vlmtui.ui.models.loading import LoadingScreen

        return LoadingScreen(self._engine_controller, model, typed=self._holder.typed_ahead)

    def _show_alone(self, screen: Screen[None]) -> None:
        """Show a screen instead of all others."""
        while len(self._app.screen_stack) > _ALONE:
            self._app.pop_screen()
        self._app.switch_screen(screen)
