"""`vlmtui tour`: the app with the bundled model, and what to do next on every screen."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from vlmtui.bootstrap import build, open_app
from vlmtui.cli.app import why_plain
from vlmtui.cli.output import note, stay_note
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.files import write_private
from vlmtui.paths import bundled, bundled_model, private_dir
from vlmtui.session.async_store import AsyncStore
from vlmtui.session.tour import Tour

if TYPE_CHECKING:
    from vlmtui.session.resume import ResumePoint
    from vlmtui.store.store import Store

_PICTURES = ("circle.png", "two-shapes.png", "three-shapes.png")


def tour(arguments: argparse.Namespace) -> int:
    """Open the app with the tour. Raises VlmtuiError if there is no terminal."""
    why = why_plain()
    if why or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise VlmtuiError(
            ErrorKind.BAD_USAGE,
            "The tour needs a terminal with a screen on stdin and stdout.",
            detail=why,
            hint="`vlmtui --plain` is the chat in lines; `vlmtui help plain` tells its commands.",
        )
    application = build().for_tour()
    home = application.paths.state.parent
    os.chdir(_pictures(home / "pictures"))
    progress = Tour.read(home / "step.json")
    if arguments.again:
        progress.done = 0
    store = AsyncStore(application.paths)
    try:
        resumed = store.run_now(_newest) if progress.done else None
        model = bundled_model().name
        status, report = open_app(application, store, model=model, resumed=resumed, tour=progress)
    finally:
        store.close_now()
    if progress.step is not None:
        note(f"{progress.done} steps are done. `vlmtui tour` goes on with: {progress.step.title}.")
    if report is not None and report.stays and report.model is not None:
        note(stay_note(report.model, application.settings.keep_alive_s))
    return status


def _pictures(folder: Path) -> Path:
    """Return a folder with pictures to attach, in which files may be written."""
    for name in _PICTURES:
        if not (private_dir(folder) / name).exists():
            write_private(folder / name, (bundled("samples") / name).read_bytes())
    return folder


def _newest(store: Store) -> ResumePoint | None:
    from vlmtui.session.resume import resume_point

    newest = store.last()
    return resume_point(store, newest) if newest is not None else None
