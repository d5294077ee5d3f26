"""Which model is loaded, and what is shown meanwhile."""

from __future__ import annotations

from functools import partial

from vlmtui.config.trust import TrustStore
from vlmtui.engine.machine import Machine
from vlmtui.errors import VlmtuiError
from vlmtui.registry.match import Model, resolve
from vlmtui.registry.routes import forget_installed
from vlmtui.session.engine_controller import EngineController, EngineState
from vlmtui.session.load_checks import LoadChecks, LoadOption, lacks_engine
from vlmtui.ui.lifecycle.conversation_holder import ConversationHolder
from vlmtui.ui.navigator import AppNavigator
from vlmtui.ui.services import Services
from vlmtui.ui.view import View


class ModelLoading:
    """Loads what the user chooses, after what has to be decided before."""

    def __init__(
        self,
        view: View,
        navigator: AppNavigator,
        services: Services,
        engine_controller: EngineController,
        holder: ConversationHolder,
    ) -> None:
        self._view = view
        self._navigator = navigator
        self._services = services
        self._engine_controller = engine_controller
        self._holder = holder
        self._checks = LoadChecks(TrustStore(services.paths))

    def begin(self) -> None:
        """Show the picker; where the command line names a model, load it."""
        model = self._initial_model()
        check = self._checks.first(model, None) if model is not None else None
        if model is None or check is not None or lacks_engine(self._services.paths, model):
            self._navigator.push_models()
            if model is not None:
                self.choose(model)
        else:
            self._start(model)
            self._navigator.push_loading(model)

    def choose(self, model: Model, machine: Machine | None = None, *, size_accepted: bool = False) -> None:
        """Load a model, after what has to be decided before."""
        model = self._checks.allowed(model)
        running = self._engine_controller.model
        is_known = running is not None and running.spec == model.spec
        check = None if is_known else self._checks.first(model, machine, size_accepted=size_accepted)
        if check is None and not is_known and lacks_engine(self._services.paths, model):
            self._offer_engine(model)
            return
        if check is None:
            self.load(model)
            return

        def go_on(option: LoadOption | None) -> None:
            if option is None or option.model is None:
                return
            if option.trusts_code:
                self._remember(option.model)
            self.choose(option.model, machine, size_accepted=True)

        self._navigator.show_before_load(model, check, go_on)

    def _offer_engine(self, model: Model) -> None:
        """Offer to install what could load it, and load it then."""

        def go_on(is_installed: bool | None) -> None:
            if is_installed:
                forget_installed()
                self.load(model)

        self._navigator.offer_engine(go_on)

    def choose_by_name(self, name: str) -> None:
        """The same for a family's name, a model id or a folder."""
        try:
            model = resolve(self._services.registry, name)
        except VlmtuiError as error:
            self._view.tell_error(error)
            return
        self.choose(model)

    def load(self, model: Model) -> None:
        """Load a model, or go on with it where it is loaded, without a question."""
        controller = self._engine_controller
        is_same = controller.model is not None and controller.model.spec == model.spec
        if is_same and controller.state is EngineState.READY:
            self._navigator.back_to_chat()
            return
        if not is_same or controller.state is not EngineState.LOADING:
            self._start(model)
        elif self._navigator.shows_a_load():
            return
        self._navigator.show_loading(model)

    def restart(self) -> None:
        """Load the same model again, after its engine died or failed to load."""
        controller = self._engine_controller
        if controller.model is not None and controller.state is not EngineState.LOADING:
            self._start(controller.model)

    def loaded(self) -> None:
        """The user has seen the load to its end: show the chat."""
        if self._navigator.shows_a_load():
            self._navigator.show_chat()

    def abort(self) -> None:
        """End the load, and go back to the picker."""
        self._view.start(self._abort, "abort")

    def _initial_model(self) -> Model | None:
        name, spec = self._services.initial_model, self._services.resume_spec
        if name is None and spec is None:
            return None
        try:
            if name is None and spec is not None:
                from vlmtui.session.resume import stored_model

                return stored_model(self._services.registry, spec, spec.name)
            return resolve(self._services.registry, name or "")
        except VlmtuiError as error:
            self._view.tell_error(error)
            return None

    def _remember(self, model: Model) -> None:
        try:
            self._checks.remember(model)
        except VlmtuiError as error:
            self._view.tell(str(error), severity="warning")

    def _start(self, model: Model) -> None:
        self._view.start(partial(self._load, model), "engine")

    async def _load(self, model: Model) -> None:
        if self._holder.chat is not None:
            await self._holder.chat.cancel(self._engine_controller.engine)
        await self._engine_controller.start(model)
        await self._engine_controller.watch()

    async def _abort(self) -> None:
        await self._engine_controller.abort()
        if self._navigator.shows_a_load():
            self._navigator.show_models()
