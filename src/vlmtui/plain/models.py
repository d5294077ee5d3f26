"""Chooses and loads models, with the progress in lines."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from vlmtui.config.trust import TrustStore
from vlmtui.domain.engine import LoadStage
from vlmtui.engine.interface import Engine
from vlmtui.engine.machine import Machine
from vlmtui.errors import ErrorKind, Remedy, VlmtuiError
from vlmtui.plain.parts import Parts, RunCommand
from vlmtui.registry.hub_cache import downloaded_models
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, resolve
from vlmtui.session.engine_controller import EngineState
from vlmtui.session.engines_beside import is_remote, names_of
from vlmtui.session.load_checks import LoadChecks
from vlmtui.session.model_choices import Choice, model_choices
from vlmtui.session.model_switch import MemoryNeed, memory_need
from vlmtui.session.resume import resumed_model
from vlmtui.text import one_line

_ADDRESSES = ("http://", "https://", "unix:")
_LISTED = 30


class Models:
    """The engine and its model."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._checks = LoadChecks(TrustStore(parts.services.paths))
        self._moved = asyncio.Event()
        self._stage: LoadStage | None = None
        self._told = EngineState.NONE
        """The engine's state as told last."""
        self._is_starting = False
        """Whether a load was started that the controller has not begun yet."""
        self._followed: Engine | None = None
        """The engine whose log is copied."""
        parts.controller.on_death = self._tell_death

    @property
    def commands(self) -> Mapping[str, RunCommand]:
        return {
            "models": self.pick,
            "engine": self.use_engine,
            "restart_engine": self.restart,
            "show_log": self.show_log,
            "cleanup": self.clean_up,
        }

    # -- commands

    async def begin(self) -> None:
        """Load the model that was named at the start, or say how to load one."""
        services = self._parts.services
        resumed = services.resumed
        if services.served is not None:
            await self.choose(services.served)
        elif services.model is not None:
            await self.choose(resolve(services.registry, services.model, services.backend))
        elif resumed is not None and resumed.names_a_model:
            await self.choose(resumed_model(services.registry, services.settings.engines, resumed))
        else:
            self._parts.output.tell("No model is loaded. /model lists the models, /model NAME loads one.")

    async def pick(self, argument: str) -> None:
        """Load a model by its name; without one, list the models."""
        if argument:
            await self.choose(resolve(self._parts.services.registry, argument))
        else:
            await self._list()

    async def use_engine(self, argument: str) -> None:
        """Use another engine: one that is loaded, a server by name or address, or a model here."""
        services, controller = self._parts.services, self._parts.controller
        if not argument:
            await self._list()
            return
        loaded = next((model for model in controller.models if argument in names_of(model)), None)
        if loaded is not None:
            await self.choose(loaded)
        elif argument.partition(" ")[0] not in services.settings.engines and not argument.startswith(_ADDRESSES):
            await self.pick(argument)
        else:
            from vlmtui.engine.remote_models import find_remote_model  # the HTTP client takes a while to import

            engine, _, name = argument.partition(" ")
            find = partial(find_remote_model, services.registry, services.settings.engines, engine)
            await self.choose(await asyncio.to_thread(find, name=name.strip() or None))

    async def restart(self, argument: str) -> None:
        """Load the same model again, unless its engine answers."""
        controller = self._parts.controller
        if controller.state in (EngineState.READY, EngineState.LOADING):
            self._parts.output.tell("The engine is running.")
            return
        self.load(controller.require_model())
        await self.wait_until_ready()

    async def show_log(self, argument: str) -> None:
        """Show what the engine is doing, and the newest lines of its log."""
        controller, output = self._parts.controller, self._parts.output
        controller.require_model()
        status = await controller.read_status()
        if status is not None:
            output.tell(
                f"{one_line(status.spec.name)}: {status.state}, {status.running} running, "
                f"{status.rss_bytes / 1e9:.1f} GB of memory."
            )
        lines = controller.log.newest(_LISTED)
        output.lines(one_line(line) for line in lines)
        if not lines:
            output.tell("The log is empty.")

    async def clean_up(self, argument: str) -> None:
        """Stop workers that are no longer usable."""
        output, cleanup = self._parts.output, self._parts.services.cleanup
        found = await cleanup.leftovers() if cleanup is not None else []
        if cleanup is None or not found:
            output.tell("There are no leftover workers.")
            return
        names = ", ".join(one_line(leftover.title) for leftover in found)
        if await output.confirm(f"Stop {names}?"):
            for leftover in found:
                await cleanup.end(leftover)
            output.tell(f"Stopped: {names}")

    # -- loading

    async def choose(self, model: Model) -> None:
        """Load a model after the checks before a load, and wait until it is ready. Raises VlmtuiError."""
        model = self._checks.allowed(model)
        controller, output = self._parts.controller, self._parts.output
        current = controller.model
        if current is not None and current.spec == model.spec and controller.state is EngineState.READY:
            output.tell(f"{one_line(model.spec.name)} is loaded already.")
            return
        machine = await asyncio.to_thread(Machine.measure)
        is_size_accepted = False
        while (check := self._checks.first(model, machine, size_accepted=is_size_accepted)) is not None:
            output.lines([one_line(check.title), *check.text.splitlines()])
            chosen = await output.choose([option.label for option in check.options])
            option = check.options[chosen] if chosen is not None else None
            if option is None or option.model is None:
                return
            if option.trusts_code:
                self._checks.remember(option.model)
            model, is_size_accepted = option.model, True
        is_beside = controller.state is EngineState.READY and not is_remote(model)
        need = await asyncio.to_thread(_need_beside, model) if is_beside else None
        keeps = need is None or need.fits
        if need is not None and not keeps and current is not None:
            name, former = one_line(model.spec.name), one_line(current.spec.name)
            if not await output.confirm(f"{name}: {need.text} Unload {former} to load it?"):
                return
        self.load(model, keep_former=keeps and controller.state is EngineState.READY)
        await self.wait_until_ready()

    def load(self, model: Model, *, keep_former: bool = False) -> None:
        """Start loading a model, or use it if it is loaded."""
        controller = self._parts.controller
        if controller.model is not None and controller.model.spec == model.spec and controller.is_loaded:
            return
        if controller.state is EngineState.LOADING and controller.model == model:
            return
        self._told, self._stage, self._is_starting = EngineState.NONE, None, True
        self._parts.output.tell(f"Loading {one_line(model.spec.name)}. Ctrl+C stops it.")
        self._parts.start(self._load(model, keep_former=keep_former))

    async def wait_until_ready(self) -> None:
        """Wait while a model loads; Ctrl+C stops the load. Raises VlmtuiError if it failed."""
        controller = self._parts.controller
        with self._parts.work.stopping(controller.abort):
            while self._is_starting or controller.state is EngineState.LOADING:
                await self._moved.wait()
        if controller.state is EngineState.NONE and controller.model is not None:
            raise VlmtuiError(ErrorKind.BAD_USAGE, "Loading was stopped.", remedy=Remedy.PICK_MODEL)
        controller.require_engine()

    def engine_changed(self) -> None:
        """Tell what changed: a stage of the load, or its end."""
        controller, output = self._parts.controller, self._parts.output
        self._is_starting = False
        self._moved.set()
        self._moved = asyncio.Event()
        progress, name = controller.progress, one_line(controller.model.spec.name) if controller.model else ""
        if controller.state is EngineState.LOADING and progress is not None and progress.stage is not self._stage:
            self._stage = progress.stage
            output.tell(f"  {progress.stage.label} … {progress.elapsed_s:.0f} s")
        engine = controller.engine
        if engine is not None and engine is not self._followed:
            self._followed = engine
            self._parts.start(controller.follow_log(engine, lambda: None))
        if controller.state is self._told:
            return
        self._told = controller.state
        info = controller.info
        if controller.state is EngineState.READY and info is not None:
            context = f"{info.max_model_len:,} tokens of context"
            output.tell(f"{name} is ready: {one_line(info.engine)} {one_line(info.engine_version)}, {context}.")
            output.lines(one_line(note) for note in info.notes)
        elif controller.state is EngineState.HUNG:
            output.tell(f"{name} does not answer.", severity="warning")

    async def _load(self, model: Model, *, keep_former: bool) -> None:
        controller, chat = self._parts.controller, self._parts.holder.chat
        if chat is not None and controller.model is not None:
            await chat.cancel(controller.engine, f"Stopped to load {one_line(model.spec.name)}.")
        await controller.start(model, keep_former=keep_former)
        await controller.watch()

    def _tell_death(self, error: VlmtuiError, loads_again: bool) -> None:
        """Tell that the engine died; an answer that it was writing tells it, too."""
        controller = self._parts.controller
        name = one_line(controller.model.spec.name) if controller.model is not None else "The engine"
        self._stage, self._told = None, EngineState.NONE
        remedy = None if loads_again else Remedy.RESTART_ENGINE
        again = " It is loading again." if loads_again else ""
        self._parts.output.tell(f"{name}: {one_line(error.message)}{again}", remedy, severity="warning")

    async def _list(self) -> None:
        """List the models, and load the one chosen by number."""
        output, services = self._parts.output, self._parts.services
        running = await services.host.running()
        here = await asyncio.to_thread(_downloaded, services.registry)
        current = self._parts.controller.model
        rows = model_choices(
            services.registry,
            running=running,
            current=current.spec if current is not None else None,
            downloaded=here,
        )
        shown = [row for row in rows if not row.closed][:_LISTED]
        if len(rows) > len(shown):
            output.tell(f"{len(shown)} of {len(rows)} models; `vlmtui models` lists all, /model NAME loads any.")
        chosen = await output.choose([_row(row) for row in shown])
        if chosen is not None:
            await self.choose(shown[chosen].model)


def _row(row: Choice) -> str:
    size = f", {row.parameters_b:g} B" if row.parameters_b else ""
    state = f", {row.state}" if row.state else ""
    return f"{one_line(row.model.spec.name)}{size}{state}"


def _downloaded(registry: Registry) -> list[Model]:
    found = []
    for cached in downloaded_models():
        with suppress(VlmtuiError):
            found.append(resolve(registry, cached.name))
    return found


def _need_beside(model: Model) -> MemoryNeed:
    return memory_need([model], Machine.measure())
