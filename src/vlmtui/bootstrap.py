"""The one place that wires everything together."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from vlmtui.config.settings import Settings, load_settings
from vlmtui.engine.host import WorkerHost
from vlmtui.paths import Paths
from vlmtui.registry.loader import Registry

if TYPE_CHECKING:
    from vlmtui.ui.app import ExitReport
    from vlmtui.ui.controllers.keeper import Keeper
    from vlmtui.ui.controllers.resuming import Resumed


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
    return Application(
        paths=paths,
        settings=settings or load_settings(paths, os.environ, command_line),
        registry=Registry.with_users(paths.families, cache=paths.cache),
        host=WorkerHost(paths),
    )


def build_host() -> WorkerHost:
    """The workers alone, for commands that must work whatever the settings say."""
    return WorkerHost(Paths.default())


def open_app(
    application: Application, keeper: Keeper, *, model: str | None, resumed: Resumed | None = None
) -> tuple[int, ExitReport | None]:
    """Run the terminal application until the user leaves it: its exit code, and what it leaves behind.

    `resumed`: the conversation to go on with; without `model`, its model is loaded."""
    from vlmtui.logs import log_to_file
    from vlmtui.ui.terminal import TerminalQuestion

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
            settings=application.settings,
            keeper=keeper,
            keep_alive_s=application.settings.keep_alive_s,
            initial_model=model or (resumed.model or None if resumed and resumed.spec is None else None),
            resume=resumed.conversation if resumed else None,
            resume_spec=resumed.spec if resumed else None,
        )
        app = VlmtuiApp(services, question)
        report = app.run()
    return app.return_code or 0, report
