"""The engines of one command that asks several: `--on here --on transformers`."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from vlmtui.cli.ask_engine import AskSetup, leave_engine, open_loaded, with_consent
from vlmtui.cli.output import note
from vlmtui.engine.interface import Engine
from vlmtui.engine.machine import Machine
from vlmtui.registry.match import Model
from vlmtui.session.engine_names import HERE, find_engine
from vlmtui.session.engines_beside import is_remote, release
from vlmtui.session.model_switch import memory_need
from vlmtui.text import one_line


class CommandEngines:
    """An `EngineSource`: engines stay loaded beside each other while memory allows."""

    def __init__(self, setup: AskSetup, *, one_by_one: bool) -> None:
        """`one_by_one`: never load two on this machine at once."""
        self._setup = setup
        self._one_by_one = one_by_one
        self._opened: list[tuple[AskSetup, Engine]] = []

    async def has_room(self, model: Model) -> bool:
        """See `EngineSource`. Prints what the model needs."""
        local = [one.model for one, _ in self._opened if not is_remote(one.model)]
        if not local or is_remote(model) or self._loaded(model) is not None:
            return True
        need = await asyncio.to_thread(lambda: memory_need([model], Machine.measure()))
        fits = need.fits and not self._one_by_one
        how = "loaded as well" if fits else "loaded after the answers before it, in place of what is loaded"
        note(f"{one_line(model.spec.name)} is {how}. {need.text}")
        return fits

    async def open(self, model: Model) -> Engine:
        """See `EngineSource`."""
        if (loaded := self._loaded(model)) is not None:
            return loaded
        setup = AskSetup(self._setup.application, model, self._setup.keep_alive_given, self._setup.as_json)
        engine = await open_loaded(setup, client="ask")
        self._opened.append((setup, engine))
        return engine

    async def make_room(self) -> None:
        """See `EngineSource`."""
        local = [engine for one, engine in self._opened if not is_remote(one.model)]
        self._opened = [one for one in self._opened if is_remote(one[0].model)]
        for engine in local:
            await release(engine, hung=False)

    async def leave(self) -> None:
        """Disconnect from all engines."""
        opened, self._opened = self._opened, []
        for setup, engine in opened:
            await leave_engine(engine, setup)

    def _loaded(self, model: Model) -> Engine | None:
        return next((engine for setup, engine in self._opened if setup.model.spec == model.spec), None)


@asynccontextmanager
async def command_engines(setup: AskSetup, *, one_by_one: bool) -> AsyncIterator[CommandEngines]:
    """Yield the engines of a command; leave them at its end."""
    engines = CommandEngines(setup, one_by_one=one_by_one)
    try:
        yield engines
    finally:
        await engines.leave()


def models_on(names: Sequence[str], setup: AskSetup, arguments: argparse.Namespace) -> list[Model]:
    """Return the model behind each engine's name. Raises VlmtuiError."""
    application, home = setup.application, setup.model
    servers, registry = application.settings.engines, application.registry
    found = []
    for name in names:
        model = find_engine(name, home, registry, servers, key_env=arguments.key_env)
        own = name == HERE or is_remote(model)
        found.append(model if own else with_consent(model, trust=arguments.trust_remote_code))
    return found
