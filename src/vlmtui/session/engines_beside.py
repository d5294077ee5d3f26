"""Engines that stay loaded besides the app's current one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from vlmtui.domain.engine import REMOTE_BACKEND
from vlmtui.engine.interface import Engine
from vlmtui.errors import VlmtuiError
from vlmtui.registry.match import Model


class EnginesBeside:
    """Models and their engines, in the order in which they were left. One that goes away by itself is forgotten."""

    def __init__(self, on_gone: Callable[[], None]) -> None:
        """`on_gone` is called after an engine was forgotten because it went away."""
        self._on_gone = on_gone
        self._found: list[tuple[Model, Engine]] = []
        self._watches: dict[int, asyncio.Task[None]] = {}
        """By the `id` of the engine."""

    @property
    def models(self) -> tuple[Model, ...]:
        return tuple(model for model, _ in self._found)

    def add(self, model: Model, engine: Engine) -> None:
        self._found.append((model, engine))
        self._watches[id(engine)] = asyncio.ensure_future(self._watch(engine))

    def get(self, model: Model) -> Engine | None:
        return next((engine for other, engine in self._found if other.spec == model.spec), None)

    def take(self, model: Model) -> Engine | None:
        """Return the engine with this model and forget it; None if there is none."""
        engine = self.get(model)
        self._forget([engine] if engine is not None else [])
        return engine

    def take_local(self) -> list[Engine]:
        """Return the engines that take memory of this machine, and forget them."""
        return self._forget([engine for model, engine in self._found if not is_remote(model)])

    def take_all(self) -> list[Engine]:
        return self._forget([engine for _, engine in self._found])

    def _forget(self, engines: list[Engine]) -> list[Engine]:
        for engine in engines:
            self._watches.pop(id(engine)).cancel()
        self._found = [one for one in self._found if one[1] not in engines]
        return engines

    async def _watch(self, engine: Engine) -> None:
        await engine.closed()
        del self._watches[id(engine)]
        self._found = [one for one in self._found if one[1] is not engine]
        self._on_gone()
        await engine.close()


def names_of(model: Model) -> tuple[str, ...]:
    """What an engine that is loaded is called: `qwen at box`, `box`; `shapes`."""
    name = model.spec.name
    return (name, name.rpartition(" at ")[2]) if is_remote(model) else (name,)


def is_remote(model: Model) -> bool:
    """Whether it takes no memory of this machine."""
    return model.spec.backend == REMOTE_BACKEND


async def release(engine: Engine, *, hung: bool) -> None:
    """Stop an engine, unless others use it and it does not hang: then only disconnect."""
    shared = False
    if not hung:
        with suppress(VlmtuiError):
            shared = (await engine.status()).clients > 1
    await (engine.close() if shared else engine.shutdown())
