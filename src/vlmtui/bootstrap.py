"""The one place that wires everything together."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from vlmtui.config.settings import Settings, load_settings
from vlmtui.engine.local.host import WorkerHost
from vlmtui.engine.local.workers import LocalWorkers
from vlmtui.paths import Paths, close_to_others
from vlmtui.registry.loader import Registry

if TYPE_CHECKING:
    from pathlib import Path

    from vlmtui.engines.records import ChosenEngine
    from vlmtui.session.async_store import AsyncStore
    from vlmtui.session.resume import ResumePoint
    from vlmtui.ui.app import ExitReport


class Application(msgspec.Struct, frozen=True):
    """What every command needs."""

    paths: Paths
    settings: Settings
    registry: Registry
    host: WorkerHost


def build(command_line: Mapping[str, object] | None = None, *, settings: Settings | None = None) -> Application:
    """Wire the application; `command_line` holds settings by name, and `settings` stands in for all sources of them.

    Raises VlmtuiError for wrong settings.
    """
    paths = Paths.default()
    for folder in (paths.config, paths.families):  # as earlier versions made them
        close_to_others(folder)
    return Application(
        paths=paths,
        settings=settings or load_settings(paths, os.environ, command_line),
        registry=Registry.with_users(paths.families, cache=paths.cache),
        host=WorkerHost(paths),
    )


def build_for(engine: ChosenEngine, runtime: Path) -> Application:
    """The application with a host that loads models in that very engine; `runtime` is the folder of its sockets, where
    no worker of another engine is met."""
    from vlmtui.engine.local.launcher import Launcher, program_of

    application = build(settings=Settings(keep_alive="0"))
    paths = msgspec.structs.replace(application.paths, runtime=runtime)
    host = WorkerHost(paths, Launcher(lambda spec: program_of(engine)))
    return msgspec.structs.replace(application, paths=paths, host=host)


def build_workers() -> LocalWorkers:
    """The running workers alone, for commands that must work whatever the settings say."""
    return WorkerHost(Paths.default()).workers


def open_app(
    application: Application, store: AsyncStore, *, model: str | None, resumed: ResumePoint | None = None
) -> tuple[int, ExitReport | None]:
    """Run the terminal application until the user leaves it: its exit code, and what it leaves behind.

    `resumed`: the conversation to go on with; without `model`, its model is loaded."""
    from vlmtui.logs import log_to_file
    from vlmtui.ui.terminal.query import TerminalQuestion

    log_to_file(application.paths.logs / "app.log")
    # The terminal answers while Textual is imported.
    with TerminalQuestion() as question:
        if application.settings.graphics not in ("off", "halfcell"):
            question.ask()
        from vlmtui.ui.app import VlmtuiApp
        from vlmtui.ui.services import Services

        services = Services(
            paths=application.paths,
            registry=application.registry,
            host=application.host,
            cleanup=application.host.workers,
            settings=application.settings,
            store=store,
            keep_alive_s=application.settings.keep_alive_s,
            initial_model=model or (resumed.model or None if resumed and resumed.spec is None else None),
            resume=resumed.conversation if resumed else None,
            resume_spec=resumed.spec if resumed else None,
        )
        app = VlmtuiApp(services, question)
        report = app.run()
    return app.return_code or 0, report
