"""`vlmtui` without a command: the terminal application."""

from __future__ import annotations

import argparse
import gc
import sys

from vlmtui.bootstrap import build, open_app
from vlmtui.cli.output import note, stay_note
from vlmtui.cli.parser import APP_OPTIONS
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.registry.match import resolve


def app(arguments: argparse.Namespace) -> int:
    """Open the app. Raises VlmtuiError where there is no terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise VlmtuiError(
            ErrorKind.BAD_USAGE,
            "The app needs a terminal on stdin and stdout, and here is none.",
            hint="Use `vlmtui ask --image PATH QUESTION` in scripts; `vlmtui --help` lists the other commands.",
        )
    try:
        return _open(arguments)
    finally:
        gc.enable()


def _open(arguments: argparse.Namespace) -> int:
    application = build({name: getattr(arguments, f"app_{name}") for name in APP_OPTIONS})
    model: str | None = arguments.app_model
    if model is not None:
        resolve(application.registry, model)
    status, report = open_app(application, model=model)
    if report is not None and report.stays and report.model is not None:
        note(stay_note(report.model, report.keep_alive_s))
    return status
