"""Remote servers: their models with family and load spec, and their metrics."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from vlmtui.config.settings import EngineSettings
from vlmtui.domain.engine import REMOTE_BACKEND, LoadSpec
from vlmtui.domain.metrics import EngineMetrics
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.inspection.placeholders import placeholder_texts
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, family_of_name, resolve
from vlmtui.registry.schema import Family
from vlmtui.registry.unlisted import unlisted_family
from vlmtui.text import one_line

if TYPE_CHECKING:
    from vlmtui.worker.backends.remote.http_api import ServerApi
    from vlmtui.worker.backends.remote.probe import ServedModel, ServerFacts

_LOOK_S = 5.0
"""The most seconds that `look_at_server` waits."""
_UNLISTED_NOTE = (
    "Its family is unknown: the server's own template makes the prompts, and tokens can't be estimated. "
    "`/engine ADDRESS FAMILY` or --model FAMILY names the family."
)


@dataclass(frozen=True)
class Server:
    """A server: its models and features, or why it did not answer."""

    name: str
    """Its name in the settings, or its address."""
    address: str
    models: tuple[Model, ...] = ()
    """The models that it serves; LoRA adapters follow their base model."""
    facts: ServerFacts | None = None
    """Its models and features; None if it did not answer."""
    error: VlmtuiError | None = None
    """Why it did not answer."""


def find_remote_model(
    registry: Registry,
    engines: Mapping[str, EngineSettings],
    engine: str,
    *,
    key_env: str | None = None,
    name: str | None = None,
    allow_owner: str | None = None,
) -> Model:
    """Ask a server for its models, and return one of them. Blocking. Raises VlmtuiError.

    engine: a name in `engines`, or an address. name: the model's name on the server; or, for a server with one model,
    the name of its family. key_env: the environment variable with the server's API key. allow_owner: another user who
    may own the server's Unix socket; without it, such a socket raises ForeignSocket."""
    settings = engine_settings(engines, engine, key_env=key_env)
    if allow_owner is not None:
        settings = msgspec.structs.replace(settings, allow_owner=allow_owner)
    return asyncio.run(_find(registry, engine, settings, name))


def engine_settings(
    engines: Mapping[str, EngineSettings], engine: str, *, key_env: str | None = None
) -> EngineSettings:
    """Return the settings of a server by its name in `engines` or its address. Raises VlmtuiError(BAD_INPUT)."""
    found = engines.get(engine)
    if found is None and not is_address(engine):
        known = f" Known: {', '.join(engines)}." if engines else ""
        hint = f"Write an address (http://HOST:PORT), or [engines.{engine}] in config.toml.{known}"
        raise bad_input(f"No engine is called {engine!r}.", hint=hint)
    found = found or EngineSettings(url=engine if _SCHEME.match(engine) else f"http://{engine}")
    return msgspec.structs.replace(found, api_key_env=key_env, api_key_file=None) if key_env else found


_SCHEME = re.compile(r"https?://|unix:")


def is_address(text: str) -> bool:
    """Return True if a text is meant as a server's address: `http://HOST`, `unix:/PATH` or `HOST:PORT`."""
    return bool(_SCHEME.match(text) or "://" in text or re.fullmatch(r"(\[[\da-fA-F:]+\]|[\w.-]+):\d{1,5}(/.*)?", text))


def look_at_server(registry: Registry, name: str, settings: EngineSettings) -> Server:
    """Ask a server for its models and features. Blocks for up to `_LOOK_S` seconds. If that fails, the returned `error`
    says why."""
    return asyncio.run(_look(registry, name, settings))


def fetch_metrics(settings: EngineSettings) -> EngineMetrics:
    """Ask a server for its metrics. Blocks for up to ten seconds. Raises VlmtuiError."""
    return asyncio.run(_ask_for_metrics(settings))


def known_remote_model(
    registry: Registry, engines: Mapping[str, EngineSettings], address: str, *, model: str, family: str | None
) -> Model:
    """Return a model of the server in `engines` that has this address, with the API key of that entry. Contacts no
    server. `model`, `family`: the names in a stored conversation. Raises VlmtuiError if no entry has the address."""
    from vlmtui.worker.backends.remote.options import server_address

    def normal(text: str) -> str:
        try:
            return server_address(text).shown
        except VlmtuiError:
            return ""

    wanted = normal(address)
    found = next(((name, one) for name, one in engines.items() if wanted and normal(one.url) == wanted), None)
    if found is None:
        known = f" Known here: {', '.join(engines)}." if engines else ""
        raise bad_input(
            f"This conversation was made with {one_line(model)} at {one_line(address)}, a server that config.toml does "
            "not have: it was not contacted.",
            hint=f"Choose a model in the list, or start with --engine ADDRESS.{known}",
        )
    name, settings = found
    named = settings.family or family
    record = registry.get(named or "") or _family_of(registry, model)
    return _remote_model(name, settings, model, record)


async def _find(registry: Registry, engine: str, settings: EngineSettings, name: str | None) -> Model:
    facts, address = await _ask(settings, None if name in registry else name)
    wanted = name or settings.model
    is_family = wanted is not None and wanted in registry and wanted not in {model.id for model in facts.models}
    served = facts.model(settings.model if is_family else wanted)
    family = registry[wanted] if is_family and wanted else None
    return _model(registry, _server_name(engine, address), settings, served, facts, family)


async def _look(registry: Registry, name: str, settings: EngineSettings) -> Server:
    try:
        async with asyncio.timeout(_LOOK_S):
            facts, address = await _ask(settings)
        called = _server_name(name, address)
        own = [model for model in facts.models if model.parent is None]
        ordered = [one for model in own for one in (model, *(x for x in facts.models if x.parent == model.id))]
        ordered += [model for model in facts.models if model not in ordered]
        models = tuple(_model(registry, called, settings, served, facts, None) for served in ordered)
    except TimeoutError:
        error = VlmtuiError(ErrorKind.NO_NETWORK, f"{settings.url} did not answer within {_LOOK_S:.0f} s.")
        return Server(name, settings.url, error=error)
    except VlmtuiError as error:
        return Server(name, settings.url, error=error)
    return Server(name, address, models, facts)


async def _ask(settings: EngineSettings, named: str | None = None) -> tuple[ServerFacts, str]:
    """Return the server's facts, and its address for display. Raises VlmtuiError."""
    from vlmtui.worker.backends.remote.probe import probe

    async with _connected(settings) as api:
        return await probe(api, named or settings.model), api.shown


async def _ask_for_metrics(settings: EngineSettings) -> EngineMetrics:
    from vlmtui.worker.backends.remote.probe import ask_for_metrics

    async with _connected(settings) as api:
        return await ask_for_metrics(api)


@asynccontextmanager
async def _connected(settings: EngineSettings) -> AsyncIterator[ServerApi]:
    from vlmtui.worker.backends.remote.http_api import ServerApi  # the HTTP client takes a while to import
    from vlmtui.worker.backends.remote.options import server_options

    api = ServerApi(server_options(settings.arguments()))
    try:
        yield api
    finally:
        await api.close()


def _server_name(engine: str, address: str) -> str:
    """Return the server's name: the one in the settings, or its address."""
    return address if is_address(engine) else engine


def _model(
    registry: Registry,
    called: str,
    settings: EngineSettings,
    served: ServedModel,
    facts: ServerFacts,
    family: Family | None,
) -> Model:
    if family is None and settings.family is not None:
        family = _named_family(registry, settings.family)
    if family is None:
        parents = [model for model in facts.models if model.id == served.parent]
        names = [name for model in (served, *parents) for name in (model.root, model.id)]
        family = _family_of(registry, *names)
    return _remote_model(called, settings, served.id, family)


def _remote_model(called: str, settings: EngineSettings, served: str, family: Family) -> Model:
    """Return a server's model. Its engine arguments are those of `settings`, written by the user."""
    video = family.takes.get("video")
    spec = LoadSpec(
        model=served,
        name=f"{served} at {called}",
        backend=REMOTE_BACKEND,
        family=family.family or None,
        engine_args={
            **settings.arguments(),
            "model": served,
            "placeholders": placeholder_texts(family),
            **({"thinking": msgspec.to_builtins(family.thinking.tags)} if family.thinking is not None else {}),
        },
        typed=("model", *sorted(settings.arguments())),
        num_frames=(video.frames if video else None) or 8,
    )
    return Model(family, spec)


def _named_family(registry: Registry, name: str) -> Family:
    """Return the family that a server's table in `config.toml` names. Raises VlmtuiError(MODEL_UNKNOWN)."""
    try:
        return resolve(registry, name).family
    except VlmtuiError as error:
        message = f"Unknown family of the server in config.toml: {one_line(name)!r}."
        raise VlmtuiError(error.kind, message, hint=error.hint) from error


def _family_of(registry: Registry, *names: str) -> Family:
    """Return the first family that matches a name, by the rules for models on this machine; without one, the record of
    a model that no family has."""
    unlisted = unlisted_family(names[-1])
    for name in filter(None, names):
        with suppress(VlmtuiError):
            found = resolve(registry, name, folders=False)  # a server names no folder of this machine
            if found.listed:
                return found.family
            unlisted = found.family
        with suppress(VlmtuiError):
            if (family := family_of_name(registry, name.rstrip("/").rpartition("/")[2])) is not None:
                return family
    return msgspec.structs.replace(unlisted, note=_UNLISTED_NOTE)
