"""Loads and switches models in the app. Asks about trust and memory first."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from vlmtui.config.trust import TrustStore
from vlmtui.domain.engine import can_serve, labels
from vlmtui.engine.interface import Leftover
from vlmtui.engine.machine import Machine, gib
from vlmtui.errors import Remedy, VlmtuiError
from vlmtui.protocol.endpoint import ForeignSocket
from vlmtui.registry.match import Model, resolve
from vlmtui.session.engines import EngineState, is_remote, names_of
from vlmtui.session.models import LoadCheck, LoadChecks, memory_need
from vlmtui.text import counted, one_line

if TYPE_CHECKING:
    from vlmtui.ui.app import VlmtuiApp
    from vlmtui.worker.backends.remote.probe import SeveralModels


class ModelLoading:
    """Loads the model that the user chooses, and finds workers that no longer answer."""

    def __init__(self, app: VlmtuiApp) -> None:
        self._app = app
        self._checks = LoadChecks(TrustStore(app.services.paths))
        self.first: Model | None = None
        """The model with which the app begins."""
        self.first_error: VlmtuiError | None = None
        """Why the model with which the app was to begin is not loaded."""
        self._times_file = app.services.paths.state / "loads.json"
        self.last_load_s: float | None = None
        """How long the last load of the model that loads now took; None: unknown."""
        app.engines.on_death = self._tell_death
        app.engines.on_outdated = lambda error: app.tell(str(error), error.remedy, severity="warning")

    def look_up_first(self) -> Model | None:
        """Return the model to begin with: that of the command line or of the conversation to continue."""
        try:
            self.first = self._app.services.first_model()
        except VlmtuiError as error:
            self.first_error = error
        return self.first

    def begin(self) -> None:
        """Load the model to begin with, if there is one."""
        if self.first is not None and self._checks.first(self._checks.allowed(self.first), None) is None:
            self.choose(self.first)
        elif self.first is not None:
            self._app.start(partial(self._choose_in_a_pause, self.first), "first model")
        elif self.first_error is not None:
            self._app.tell_error(self.first_error)

    async def _choose_in_a_pause(self, model: Model) -> None:
        """Load a model after a question. What the user is typing is not the answer."""
        await self._app.key_queue.pause()
        self.choose(model)

    def choose(self, model: Model, machine: Machine | None = None, *, size_accepted: bool = False) -> None:
        """Load a model. Ask the user first if the model brings its own code that is not trusted yet, or if it may not
        fit into memory."""
        model = self._checks.allowed(model)
        check = (
            None if self._app.engines.serves(model) else self._checks.first(model, machine, size_accepted=size_accepted)
        )
        if check is None:
            self.load(model)
            return

        self._app.start_dialog(partial(self._ask_before_load, model, machine, check))

    def choose_by_name(self, name: str) -> None:
        """Load a model by the name of a family, a repository id or a folder."""
        try:
            model = resolve(self._app.services.registry, name)
        except VlmtuiError as error:
            self._app.tell_error(error)
            return
        self.choose(model)

    def choose_engine(self, name: str) -> None:
        """Use another engine. `name`: the model of a loaded engine, a server's name or address, or a model to load."""
        from vlmtui.engine.remote_models import is_address

        engine, engines = name.partition(" ")[0], self._app.services.settings.engines
        loaded = next((model for model in self._app.engines.models if name in names_of(model)), None)
        if loaded is not None:
            self.choose(loaded)
        elif engine not in engines and not is_address(engine):
            self.choose_by_name(name)
        else:
            self._app.start(partial(self._connect, name), "engine-by-name", exclusive=True)

    def load(self, model: Model) -> None:
        """Load a model, or use it if it is loaded and up to date. Asks before another model is unloaded, and if another
        process's engine may hold the memory that the model needs."""
        controller, former = self._app.engines, self._app.engines.former
        is_same = controller.serves(model)
        if former is not None and can_serve(former.spec, model.spec) and controller.keeps_former:
            self.go_back()
        elif not is_same and (controller.state is EngineState.READY or controller.keeps_former):
            self._app.start_dialog(partial(self._switch, model))
            return
        elif not is_same or controller.is_to_restart:
            self._start(model, asks=True)
        self._app.back_to_chat()

    def restart(self) -> None:
        """Load the same model again. Asks first if its engine answers, and its files have not changed."""
        controller = self._app.engines
        if controller.model is None or controller.state is EngineState.LOADING:
            return
        if controller.is_to_restart:
            self._start(controller.model)
        elif controller.outdated is not None:
            self._app.tell(str(controller.outdated))
        else:
            self._app.start_dialog(partial(self._restart_running, controller.model))

    async def _restart_running(self, model: Model) -> None:
        status, chat = await self._app.engines.read_status(), self._app.conversation.chat
        name = one_line(model.spec.name)
        told = [f"{name} is running. Load it again?"]
        if chat is not None and chat.running is not None:
            told.append("That stops the answer.")
        if status is not None and status.clients > 1:
            told.append(f"It disconnects {counted(status.clients - 1, 'other program')}.")
        if await self._app.confirm(" ".join(told), yes=f"Load {name} again", no=f"Keep {name}", careful=True):
            self._start(model)

    def go_back(self) -> None:
        """Use the previous model again, while another model loads or after that. If the previous model was unloaded,
        load it again."""
        former = self._app.engines.former
        if former is not None and self._app.engines.keeps_former:
            self._app.start(self._go_back, "engine")
        elif former is not None:
            self.load(former)

    async def _ask_before_load(self, model: Model, machine: Machine | None, check: LoadCheck) -> None:
        """Show the question in `check`, and continue with the user's choice, which may be another model."""
        text = f"{one_line(model.spec.name)}\n\n{check.text}"
        chosen = await self._app.choose(check.title, [option.label for option in check.options], text=text)
        option = None if chosen is None else check.options[chosen]
        if option is None or option.model is None:
            return
        if option.trusts_code:
            self._remember(option.model)
        self.choose(option.model, machine, size_accepted=True)

    async def _connect(self, name: str, *, allow_owner: str | None = None) -> None:
        from vlmtui.engine.remote_models import find_remote_model  # the HTTP client takes a while to import
        from vlmtui.worker.backends.remote.probe import SeveralModels

        engine, _, model = name.partition(" ")
        services = self._app.services
        find = partial(find_remote_model, services.registry, services.settings.engines, engine)
        try:
            found = await asyncio.to_thread(find, name=model.strip() or None, allow_owner=allow_owner)
        except SeveralModels as error:
            self._app.start_dialog(partial(self._choose_served, engine, error))
        except ForeignSocket as error:
            self._app.start_dialog(partial(self._ask_for_owner, name, error))
        except VlmtuiError as error:
            self._app.tell_error(error)
        else:
            self.choose(found)

    async def _choose_served(self, engine: str, error: SeveralModels) -> None:
        """Let the user choose one of a server's models."""
        chosen = await self._app.choose(f"Models of {one_line(engine)}", [one_line(name) for name in error.names])
        if chosen is not None:
            self._app.start(partial(self._connect, f"{engine} {error.names[chosen]}"), "engine-by-name", exclusive=True)

    async def _ask_for_owner(self, name: str, error: ForeignSocket) -> None:
        question = f"{one_line(error.message)} It would get your key, messages and files."
        if await self._app.confirm(question, yes=f"Trust {error.owner}", no="Don't connect", careful=True):
            self._app.start(partial(self._connect, name, allow_owner=error.owner), "engine-by-name", exclusive=True)

    def _tell_death(self, error: VlmtuiError, loads_again: bool) -> None:
        """Notify the user that the engine died, unless a running answer already shows that. `loads_again`: the model is
        loading again."""
        chat, model = self._app.conversation.chat, self._app.engines.model
        last = chat.last if chat is not None else None
        if model is None or (last is not None and last.needed(self._app.engines.info)):
            return
        name = one_line(model.spec.name)
        cause = error.message if name in error.message else f"{name}: {error.message}"
        told = f"{cause} {name} is loading again." if loads_again else cause
        remedy = None if loads_again else Remedy.RESTART_ENGINE
        self._app.tell(one_line(told), remedy, severity="warning")

    def _remember(self, model: Model) -> None:
        try:
            self._checks.remember(model)
        except VlmtuiError as error:
            self._app.tell(str(error), severity="warning")

    async def _switch(self, model: Model) -> None:
        """Load another model. Ask first if an answer is running, or if the model may not fit into memory beside the
        loaded models, and beside the engines of other processes, which stay loaded."""
        controller, chat = self._app.engines, self._app.conversation.chat
        former = controller.former if controller.keeps_former else None
        loaded = [*controller.models, *([former] if former is not None else [])]
        in_the_way = [] if is_remote(model) else [one for one in loaded if not is_remote(one)]
        question = await self._memory_question(model, in_the_way)
        name, asked, yes = one_line(model.spec.name), [question] if question else [], "Load"
        if question and in_the_way:
            yes = f"Unload {_names(in_the_way)} and load"
        if chat is not None and chat.running is not None:
            asked.insert(0, "Still answering.")
            yes = "Stop the answer and load"
        kept = _names(in_the_way if question else loaded[:1])
        no = f"Keep {kept}" if kept else f"Don't load {name}"
        if not asked or await self._app.confirm(" ".join(asked), yes=f"{yes} {name}", no=no, careful=True):
            self._start(model, keep_former=not question)
            self._app.back_to_chat()

    async def _may_open(self, model: Model) -> bool:
        """Return whether to load a model: ask if it may not fit into memory beside the engines of other processes."""
        question = await self._memory_question(model)
        if not question:
            return True
        await self._app.key_queue.pause()  # what the user is typing is not the answer
        if self._app.engines.model is not model or self._app.engines.state is not EngineState.LOADING:
            return False  # the user has stopped it meanwhile
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        async def ask() -> None:
            name = one_line(model.spec.name)
            is_yes = False
            try:
                is_yes = await self._app.confirm(question, yes=f"Load {name}", no=f"Don't load {name}", careful=True)
            finally:
                answer.set_result(is_yes)

        self._app.start_dialog(ask)
        return await answer

    async def _memory_question(self, model: Model, in_the_way: Sequence[Model] = ()) -> str:
        """Return the question before the load of a model that may not fit into memory beside the app's models
        `in_the_way`, which are unloaded first, and the engines of other processes, which are not; empty if it fits."""
        others = [] if is_remote(model) else await self._app.engines.others(model)
        if not in_the_way and not others:
            return ""
        need = await asyncio.to_thread(lambda: memory_need([model], Machine.measure()))
        if need.fits:
            return ""
        *theirs, name = [one_line(label) for label in labels([*(other.spec for other in others), model.spec])]
        together = " and ".join([*(one_line(one.spec.name) for one in in_the_way), *theirs, name])
        asked = [f"There may not be enough memory for {together} together."]
        asked.append(f"{name} {need.text[0].lower()}{need.text[1:]}")
        if in_the_way:
            asked.append(f"{_names(in_the_way)} {'is' if len(in_the_way) == 1 else 'are'} unloaded first.")
        if others:
            sizes = [gib(other.rss_bytes if other.gpu_bytes is None else other.gpu_bytes) for other in others]
            held = ", ".join(f"{label} ({size})" for label, size in zip(theirs, sizes, strict=True))
            asked.append(f"Loaded outside this app: {held}. `vlmtui stop MODEL` unloads an engine.")
        return " ".join(asked)

    def _start(self, model: Model, *, keep_former: bool = False, asks: bool = False) -> None:
        self._app.start(partial(self._load, model, keep_former=keep_former, asks=asks), "engine")

    async def _load(self, model: Model, *, keep_former: bool, asks: bool) -> None:
        from vlmtui.session.load_times import note_load

        controller, chat = self._app.engines, self._app.conversation.chat
        if chat is not None and controller.model is not None:
            again = " again" if controller.serves(model) else ""
            await chat.cancel(controller.engine, f"Stopped to load {one_line(model.spec.name)}{again}.")
        self.last_load_s = None
        self._app.start(partial(self._look_up_last_load, model), "last load", exclusive=True)
        may_open = partial(self._may_open, model) if asks else None
        if await controller.start(model, keep_former=keep_former, may_open=may_open):
            if controller.progress is not None and controller.info is not None:
                await asyncio.to_thread(note_load, self._times_file, model.spec, controller.info.load_s)
            for text in controller.info.notes if controller.info is not None else ():
                self._app.tell(text)
            if (screen := self._app.chat_screen()) is not None:
                screen.attachments.tell_limits()
            await controller.watch()

    async def _look_up_last_load(self, model: Model) -> None:
        from vlmtui.session.load_times import last_load_s

        self.last_load_s = await asyncio.to_thread(last_load_s, self._times_file, model.spec)

    async def _go_back(self) -> None:
        if await self._app.engines.go_back():
            await self._app.engines.watch()

    async def abort(self) -> None:
        """Stop the load, and go back to the previous model if it is still loaded; after a failed load, also if it must
        be loaded again."""
        controller = self._app.engines
        if controller.keeps_former or controller.state is EngineState.DEAD:
            self.go_back()
        else:
            await controller.abort()

    async def look_for_leftovers(self) -> None:
        """Warn the user if workers that no longer answer, left behind by earlier runs, hold memory."""
        found = await self._leftovers()
        if found:
            names = ", ".join(one_line(leftover.title) for leftover in found)
            text = f"Unusable workers of earlier sessions hold memory: {names}. /cleanup stops them."
            self._app.tell(text, seconds=30, severity="warning")

    async def clean_up(self) -> None:
        """Stop workers that earlier runs left behind and that no longer answer. Asks the user first."""
        found = await self._leftovers()
        if not found:
            if found is not None:
                self._app.tell("There are no leftover workers.")
            return
        names = ", ".join(one_line(leftover.title) for leftover in found)
        if not await self._app.confirm(f"Stop {names}?", yes="Stop them"):
            return
        for leftover in found:
            try:
                await self._app.services.host.end(leftover)
            except VlmtuiError as error:
                self._app.tell_error(error)
        self._app.tell(f"Stopped: {names}")

    async def _leftovers(self) -> list[Leftover] | None:
        """Return workers that earlier runs left behind and that no longer answer. After an error, show it and return
        None."""
        try:
            return await self._app.services.host.leftovers()
        except VlmtuiError as error:
            self._app.tell_error(error)
            return None


def _names(models: Sequence[Model]) -> str:
    return " and ".join(one_line(model.spec.name) for model in models)
