"""Builds the application from its parts, and starts the app or plain mode."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from vlmtui.config.settings import Settings, load_settings
from vlmtui.engine.local.host import WorkerHost
from vlmtui.engine.local.model_reader import LocalModelReader
from vlmtui.paths import Paths, close_to_others
from vlmtui.registry.loader import Registry

if TYPE_CHECKING:
    from vlmtui.domain.engine import BackendChoice
    from vlmtui.registry.match import Model, Preset
    from vlmtui.session.async_store import AsyncStore
    from vlmtui.session.resume import ResumePoint
    from vlmtui.ui.services import ExitReport


class Application(msgspec.Struct, frozen=True):
    """The objects that most commands need: folders, settings, model families, and the host that starts workers."""

    paths: Paths
    settings: Settings
    registry: Registry
    host: WorkerHost

    @property
    def reader(self) -> LocalModelReader:
        """Reads tokenizers and chat templates without an engine."""
        return LocalModelReader(self.paths)


def build(
    command_line: Mapping[str, object] | None = None,
    *,
    settings: Settings | None = None,
    tell: Callable[[str], None] | None = None,
) -> Application:
    """Build the application. Raises VlmtuiError for invalid settings.

    `command_line`: the settings given on the command line, by name. `settings`: used instead of the command line, the
    environment and `config.toml`. `tell`: called with each warning about a user's own family record; None: no record is
    read yet.
    """
    paths = Paths.default()
    for folder in (paths.config, paths.families):
        close_to_others(folder)
    settings = settings or load_settings(paths, os.environ, command_line)
    registry = Registry.with_users(paths.families)
    if tell is not None:
        for warning in registry.warnings:
            tell(f"warning: {warning}")
    return Application(paths, settings, registry, WorkerHost(paths))


def key_warnings(settings: Settings) -> list[str]:
    """Return a warning for each invalid entry in the table `[keys]` of the user's `config.toml`."""
    if not settings.keys:
        return []
    from vlmtui.ui.keys import KeyBindings

    return KeyBindings(settings.keys).warnings


def open_chat(
    application: Application,
    store: AsyncStore,
    *,
    is_plain: bool,
    model: str | None,
    backend: BackendChoice | None = None,
    preset: Preset | None = None,
    served: Model | None = None,
    resumed: ResumePoint | None = None,
) -> tuple[int, ExitReport | None]:
    """Run the app or plain mode until the user quits; return the exit code and, for the shell, how to continue the
    conversation.

    `backend`: the kind of engine that loads `model`, with the engine arguments of `preset`. `served`: use this model of
    a vLLM server. `resumed`: the conversation to continue; its model is loaded unless `model` or `served` is given.
    """
    from vlmtui.logs import log_to_file
    from vlmtui.ui.services import Services

    log_to_file(application.paths.logs / "app.log")
    services = Services(
        paths=application.paths,
        registry=application.registry,
        host=application.host,
        reader=application.reader,
        settings=application.settings,
        store=store,
        keep_alive_s=application.settings.keep_alive_s,
        initial_model=model,
        initial_backend=backend,
        initial_preset=preset,
        served=served,
        resumed=resumed,
    )
    if is_plain:
        gc.enable()
        from vlmtui.plain.repl import run_plain

        return run_plain(services)
    from vlmtui.terminal import TerminalQuestion

    # The terminal replies while Textual is being imported.
    with TerminalQuestion().listen() as question:
        if application.settings.graphics not in ("off", "halfcell"):
            question.ask()
        from vlmtui.ui.app import VlmtuiApp

        app = VlmtuiApp(services, question)
        # Every module is here to stay. A full collection that looks at all of them holds up a key for 20 ms.
        gc.freeze()
        gc.enable()
        report = app.run()
    return app.return_code or 0, report
