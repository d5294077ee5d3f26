"""`vlmtui` without a command: opens the app or plain mode."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from vlmtui.bootstrap import build, open_chat
from vlmtui.cli.main import APP_OPTIONS
from vlmtui.cli.output import note, stay_note
from vlmtui.domain.engine import read_backend
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.registry.match import resolve
from vlmtui.session.async_store import AsyncStore
from vlmtui.text import is_number, one_line

if TYPE_CHECKING:
    from vlmtui.session.resume import ResumePoint
    from vlmtui.store.store import Store


def app(arguments: argparse.Namespace) -> int:
    """Open the app or plain mode. Raises VlmtuiError if the app has no terminal; plain mode needs none."""
    if getattr(arguments, "app_plain", None):
        if sys.stdin.isatty():
            note("Plain mode; /help lists its commands.")
        return _open(arguments, is_plain=True)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise VlmtuiError(
            ErrorKind.BAD_USAGE,
            "The app needs a terminal on stdin and stdout.",
            hint="Use `vlmtui ask --image PATH QUESTION` in scripts; `vlmtui --help` lists the other commands.",
        )
    if why := why_plain():
        note(f"Plain mode, as {why}; /help lists its commands.")
        return _open(arguments, is_plain=True)
    return _open(arguments, is_plain=False)


def why_plain() -> str:
    """Return why the environment asks for plain mode; empty if it does not."""
    if os.environ.get("ACCESSIBLE", "0") not in ("", "0"):
        return "ACCESSIBLE is set"
    return "this terminal is dumb (TERM)" if os.environ.get("TERM") in ("dumb", "unknown") else ""


def _open(arguments: argparse.Namespace, *, is_plain: bool) -> int:
    application = build({name: getattr(arguments, f"app_{name}") for name in APP_OPTIONS})
    model: str | None = arguments.app_model
    choice = read_backend(arguments.app_backend) if arguments.app_backend is not None else None
    served = None
    if arguments.app_engine is not None:
        from vlmtui.engine.remote_models import find_remote_model
        from vlmtui.worker.backends.remote.probe import SeveralModels

        engine, engines = arguments.app_engine, application.settings.engines
        find = partial(find_remote_model, application.registry, engines, engine, key_env=arguments.app_key_env)
        try:
            served = find(name=model)
        except SeveralModels as error:
            if not sys.stdin.isatty():
                raise
            served = find(name=_chosen(error.names, f"Models of {engine}:"))
    elif model is not None:
        resolve(application.registry, model, choice)
    elif choice is not None or arguments.app_preset is not None:
        given = "--preset" if choice is None else "--backend"
        raise VlmtuiError(ErrorKind.BAD_USAGE, f"{given} needs a model.", hint="Add --model MODEL.")
    store = AsyncStore(application.paths)
    try:
        resumed = _resumed_conversation(store, arguments)
        status, report = open_chat(
            application,
            store,
            is_plain=is_plain,
            model=model,
            backend=choice,
            preset=arguments.app_preset,
            served=served,
            resumed=resumed,
        )
    finally:
        store.close_now()
    if report is not None and report.conversation is not None:
        note(f"Continue with: vlmtui{' --plain' if is_plain else ''} --resume {report.conversation}")
    if report is not None and report.stays and report.model is not None:
        note(stay_note(report.model, application.settings.keep_alive_s))
    return status


def _chosen(names: Sequence[str], title: str) -> str:
    """Let the user choose one of these names by its number."""
    lines = [f"  {number}  {one_line(name)}" for number, name in enumerate(names, 1)]
    note("\n".join([one_line(title), *lines]))
    while True:
        given = input(f"Number, 1 to {len(names)}: ").strip()
        if is_number(given) and 1 <= int(given) <= len(names):
            return names[int(given) - 1]


def _resumed_conversation(store: AsyncStore, arguments: argparse.Namespace) -> ResumePoint | None:
    """Return the conversation of --continue or --resume; None without these options. Raises VlmtuiError if there is no
    such conversation."""
    if not arguments.app_continue and arguments.app_resume is None:
        return None
    from vlmtui.session.resume import resume_point

    def find(store: Store) -> ResumePoint:
        if arguments.app_continue:
            wanted = store.last()
        else:
            from vlmtui.cli.conversations import find_conversation  # imports every export format

            wanted = find_conversation(store, arguments.app_resume)
        if wanted is None:
            raise bad_input("There is no conversation to continue yet.")
        return resume_point(store, wanted)

    return store.run_now(find)
