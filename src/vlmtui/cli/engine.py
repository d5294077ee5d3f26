"""Code shared by the commands that use an engine: its options, loading it and disconnecting from it, and Ctrl+C."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Self

import msgspec

from vlmtui.bootstrap import Application, build
from vlmtui.cli.output import LoadLine, note, stay_note
from vlmtui.domain.engine import REMOTE_BACKEND, EngineInfo, EngineReady, LoadFailed, LoadProgress, read_backend
from vlmtui.domain.sampling import PARAMETERS, Number, Sampling
from vlmtui.engine.interface import Engine, WhenChanged
from vlmtui.engine.machine import Machine
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.registry.match import EXAMPLE, Model, resolve, with_engine_args, with_preset, with_trust
from vlmtui.registry.routes import model_closed
from vlmtui.session.dials import with_default_parameters, with_parameters
from vlmtui.session.engines import is_remote, release
from vlmtui.session.lanes import HERE, find_engine
from vlmtui.session.models import memory_need
from vlmtui.text import one_line

_SETTINGS = ("model", "keep_alive", "system_prompt", *PARAMETERS)
_LOGPROBS = 20
"""Log-probabilities to ask for with --labels: vLLM's default limit."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def add_engine_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--engine",
        metavar="ENGINE",
        help="ask a vLLM server instead of an engine here: http://HOST:PORT, unix:/PATH, or a name in config.toml "
        "([engines.NAME]); --model is then one of its models, or the family of its only one",
    )
    group.add_argument(
        "--backend",
        metavar="BACKEND",
        help="what runs the model here: vllm, transformers, or another version, as in vllm==0.23.0 "
        "(default: the best route of the model's record)",
    )
    group.add_argument("--key-env", metavar="NAME", help="the environment variable with the server's key")
    group.add_argument(
        "--keep-alive",
        metavar="DUR",
        help="how long a model that this command loads stays afterwards: 5m, 90s, 0, forever (default: 5m)",
    )
    add_trust_option(group)
    add_engine_arg_option(group)


def add_trust_option(parser: argparse._ActionsContainer) -> None:
    text = "allow the model's repository to run its own Python code on this machine; off by default"
    parser.add_argument("--trust-remote-code", action="store_true", help=text)


def add_engine_arg_option(parser: argparse._ActionsContainer) -> None:
    text = "an additional vLLM engine argument, for example max_model_len=4096; may be repeated"
    parser.add_argument("--engine-arg", action="append", default=[], metavar="NAME=VALUE", help=text)
    add_preset_option(parser)


def add_preset_option(parser: argparse._ActionsContainer) -> None:
    text = f"{EXAMPLE}: load with the limits of vLLM's example scripts, for small GPUs (docs/seeds.md)"
    parser.add_argument("--preset", choices=(EXAMPLE,), help=text)


def add_labels_option(group: argparse._ArgumentGroup) -> None:
    text = "answer with one of these, and tell the probability of each from the same pass: --labels red,green,blue"
    group.add_argument("--labels", metavar="A,B,…", help=text)


def with_labels(arguments: argparse.Namespace, given: Sequence[str] | None) -> list[str]:
    """Return the parameters of --set with those of --labels, for which log-probabilities are asked, too. Raises
    VlmtuiError."""
    parameters = list(given or ())
    if arguments.labels is not None:
        labels = [one.strip() for one in arguments.labels.split(",")]
        if len(set(labels)) < 2 or not all(labels):
            raise VlmtuiError(ErrorKind.BAD_USAGE, "--labels needs two or more different labels: --labels yes,no.")
        parameters.append(f"choice={'|'.join(labels)}")
        arguments.logprobs = _LOGPROBS if arguments.logprobs is None else arguments.logprobs
    return parameters


class AskSetup(msgspec.Struct, frozen=True):
    """The application, the model to load, and options of the command."""

    application: Application
    model: Model
    as_json: bool
    when_changed: WhenChanged = WhenChanged.RELOAD
    is_exact: bool = False
    """See `EngineHost.open`."""


def add_reload_option(group: argparse._ActionsContainer) -> None:
    """Add --reload, for a command that does not load a model again by itself (see `when_changed`)."""
    text = "load the model again if its files have changed since the running engine loaded them; without it, refuse"
    group.add_argument("--reload", action="store_true", help=text)


def when_changed(arguments: argparse.Namespace) -> WhenChanged:
    """Return what the command does about an engine whose model's files have changed."""
    return WhenChanged.RELOAD if getattr(arguments, "reload", True) else WhenChanged.REFUSE


def prepare(arguments: argparse.Namespace) -> AskSetup:
    """Read the settings, and find the command's model. Raises VlmtuiError if the model cannot be used."""
    application = build({name: getattr(arguments, name) for name in _SETTINGS}, tell=note)
    if arguments.engine is not None:
        from vlmtui.engine.remote_models import find_remote_model

        engines, key_env = application.settings.engines, arguments.key_env
        model = find_remote_model(
            application.registry, engines, arguments.engine, key_env=key_env, name=arguments.model
        )
    else:
        choice = read_backend(arguments.backend) if arguments.backend is not None else None
        model = resolve(application.registry, application.settings.model, choice)
        model = with_engine_args(with_preset(model, arguments.preset), arguments.engine_arg)
        model = with_consent(model, trust=arguments.trust_remote_code)
    return AskSetup(application, model, arguments.json, when_changed(arguments))


def sampling_of(application: Application, model: Model, given: list[str] | None, **example: Number) -> Sampling:
    """Return the sampling: --set (`given`) overrides `example`, which overrides the settings, and these the record of
    the model's family. Raises VlmtuiError."""
    settings, family = application.settings, model.family
    parameters = settings.parameters_of(family.family, model.spec.name)
    sampling = with_default_parameters(settings.sampling.over(family.sampling), family, parameters)
    return with_parameters(msgspec.structs.replace(sampling, **example), family, given or [])


def with_consent(model: Model, *, trust: bool) -> Model:
    """Return the model, allowed to run its repository's own Python code if `trust` is set.

    Raises VlmtuiError if the model cannot run here, or needs such code and `trust` is not set. Downloads nothing.
    """
    if error := model_closed(model.family, model.spec):
        raise error
    if model.family.trust_remote_code and not trust:
        raise VlmtuiError(
            ErrorKind.REMOTE_CODE_REFUSED,
            f"{model.spec.name} needs to run Python code from its own repository on this machine.",
            hint="Read the code, then allow it with --trust-remote-code.",
        )
    return with_trust(model) if trust else model


@asynccontextmanager
async def ready_engine(setup: AskSetup) -> AsyncIterator[tuple[Engine, EngineInfo, float]]:
    """Yield a ready engine, its facts, and the seconds until it was ready (near 0 if it was running already).

    If cancelled (Ctrl+C) while the engine loads, stop it, unless it was running already.
    """
    started = time.monotonic()
    engine = await open_loaded(setup, client="ask")
    try:
        assert engine.info is not None
        yield engine, engine.info, time.monotonic() - started
    finally:
        await leave_engine(engine, setup)


async def open_loaded(setup: AskSetup, *, client: str) -> Engine:
    """Return a ready engine; call `leave_engine` in the end. Raises VlmtuiError. If cancelled while the engine loads,
    stop it, unless it was running already."""
    engine = await setup.application.host.open(
        setup.model.spec,
        client=client,
        keep_alive_s=setup.application.settings.keep_alive_s,
        when_changed=setup.when_changed,
        is_exact=setup.is_exact,
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(_abandon, engine, setup)
        await _load(engine)
        stack.pop_all()
    return engine


async def _abandon(engine: Engine, setup: AskSetup) -> None:
    if engine.info is None and not engine.attached:
        if sys.stderr.isatty():
            note(f"Stopping the load of {engine.spec.name}…")
        await engine.shutdown()
    else:
        await leave_engine(engine, setup)


async def _load(engine: Engine) -> EngineInfo:
    async with LoadLine(engine.spec.name, sys.stderr).running() as line:
        async for event in engine.load():
            match event:
                case LoadProgress():
                    line.show(event)
                case EngineReady(info=info):
                    for text in info.notes:
                        note(f"note: {text}")
                    return info
                case LoadFailed(failure=failure):
                    raise failure.error()
    raise VlmtuiError(ErrorKind.INTERNAL, "The engine stopped loading without an error message.")


async def leave_engine(engine: Engine, setup: AskSetup) -> None:
    """Disconnect, and print how long a model on this machine stays loaded. With a keep-alive of 0, wait until it is
    unloaded."""
    try:
        status = await engine.status()
    except VlmtuiError:
        await engine.close()
        return
    if status.keep_alive_s == 0 and status.clients <= 1:
        await engine.shutdown()
        return
    await engine.close()
    if engine.spec.backend != REMOTE_BACKEND and (sys.stderr.isatty() or not setup.as_json):
        note(stay_note(engine.spec.name, status.keep_alive_s))


class CommandEngines:
    """The engines of a command, kept loaded together if memory allows: an `EngineSource` (`vlmtui.session.lanes`). As a
    context manager, it disconnects from all of them on exit."""

    def __init__(self, setup: AskSetup, *, one_by_one: bool) -> None:
        """`one_by_one`: never have two engines loaded on this machine."""
        self._setup = setup
        self._one_by_one = one_by_one
        self._opened: list[tuple[AskSetup, Engine]] = []

    async def has_room(self, model: Model) -> bool:
        """See `EngineSource`. Prints how much memory the model needs."""
        local = [one.model for one, _ in self._opened if not is_remote(one.model)]
        if not local or is_remote(model) or self._loaded(model) is not None:
            return True
        need = await asyncio.to_thread(lambda: memory_need([model], Machine.measure()))
        fits = need.fits and not self._one_by_one
        how = "loaded as well" if fits else "loaded after the earlier answers, instead of the models loaded for them"
        note(f"{one_line(model.spec.name)} is {how}. {need.text}")
        return fits

    async def open(self, model: Model) -> Engine:
        if (loaded := self._loaded(model)) is not None:
            return loaded
        setup = msgspec.structs.replace(self._setup, model=model, is_exact=True)
        engine = await open_loaded(setup, client="ask")
        self._opened.append((setup, engine))
        return engine

    async def make_room(self) -> None:
        local = [engine for one, engine in self._opened if not is_remote(one.model)]
        self._opened = [one for one in self._opened if is_remote(one[0].model)]
        for engine in local:
            if engine.attached:  # another command or the app has started it
                await engine.close()
            else:
                await release(engine, by_force=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        opened, self._opened = self._opened, []
        for setup, engine in opened:
            await leave_engine(engine, setup)

    def _loaded(self, model: Model) -> Engine | None:
        return next((engine for setup, engine in self._opened if setup.model.spec == model.spec), None)


def models_on(
    names: Sequence[str], application: Application, home: Model | None, arguments: argparse.Namespace
) -> list[Model]:
    """Return the model of each engine that --on names. `home`: the model that `here`, `vllm` and `transformers` refer
    to. Raises VlmtuiError."""
    servers, registry = application.settings.engines, application.registry
    found = []
    for name in names:
        model = find_engine(name, home, registry, servers, key_env=arguments.key_env)
        own = name == HERE or is_remote(model)
        found.append(model if own else with_consent(model, trust=arguments.trust_remote_code))
    return found


def run_interruptible(work: Callable[[], Coroutine[None, None, int]]) -> int:
    """Run a command's coroutine function. Return its exit code, or 128 + n if signal n ended it.

    The first signal cancels it and waits for its cleanup; further signals are ignored.
    """
    return asyncio.run(_run(work))


async def _run(work: Callable[[], Coroutine[None, None, int]]) -> int:
    loop = asyncio.get_running_loop()
    task = loop.create_task(work())
    received: list[signal.Signals] = []

    def interrupt(number: signal.Signals) -> None:
        if not received:
            received.append(number)
            task.cancel()

    for number in _SIGNALS:
        loop.add_signal_handler(number, interrupt, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not received:
            raise
        return 128 + received[0]
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
