"""`vlmtui golden`: record prompts of models, and check later whether they are still the same."""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from vlmtui.bootstrap import Application, build
from vlmtui.cli.ask_engine import AskSetup, ready_engine, with_consent
from vlmtui.cli.interrupts import run_interruptible
from vlmtui.cli.output import note, print_error, print_json, print_warnings
from vlmtui.engine.interface import Engine
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.registry.match import Model, resolve
from vlmtui.session.generation import PromptMode
from vlmtui.session.golden import (
    CheckedGolden,
    GoldenPrompts,
    PromptToRecord,
    golden_files,
    golden_path,
    write_golden,
)
from vlmtui.session.lint import model_folder
from vlmtui.text import one_line

CANNOT = 2
"""Exit code: something could not be recorded or checked."""


def golden(arguments: argparse.Namespace) -> int:
    """Record or check. Exit codes: 0 recorded, or nothing moved; 1 something moved; 2 can't."""
    if arguments.action is None:
        raise VlmtuiError(ErrorKind.BAD_USAGE, "golden needs an action: record or check.", hint="See --help.")
    return run_interruptible(lambda: _record(arguments) if arguments.action == "record" else _check(arguments))


def golden_prompts(application: Application, *, trust: bool = False, with_engine: bool = False) -> GoldenPrompts:
    """Return what makes golden prompts."""

    @asynccontextmanager
    async def opened(model: Model) -> AsyncIterator[Engine]:
        setup = AskSetup(application, with_consent(model, trust=trust), keep_alive_given=False, as_json=True)
        async with ready_engine(setup) as (engine, _, _):
            yield engine

    return GoldenPrompts(
        application.registry, application.reader, application.paths.media, opened if with_engine else None, trust
    )


async def _record(arguments: argparse.Namespace) -> int:
    application = build()
    print_warnings(application.registry.warnings)
    prompts = golden_prompts(application, trust=arguments.trust_remote_code, with_engine=arguments.with_engine)
    folder, failed, written = Path(arguments.folder), 0, []
    for name in arguments.model:
        model = resolve(application.registry, name)
        wanted = _wanted(prompts, model, name, arguments, folder)
        made = await prompts.make(name, wanted, "engine" if arguments.with_engine else "processor")
        for prompt, one in zip(wanted, made, strict=True):
            if isinstance(one, VlmtuiError):
                failed += 1
                note(f"{name} · {prompt.case} · {prompt.mode}: not recorded")
                print_error(one)
                continue
            here = golden_path(folder, name, prompt.case, prompt.mode).parent
            local = model_folder(model) if Path(name).is_dir() else None
            named = msgspec.structs.replace(one, model=os.path.relpath(local, here)) if local is not None else one
            path = write_golden(folder, named, slug=name)
            written.append(str(path))
            if not arguments.json:
                print(one_line(str(path)))
    if arguments.json:
        print_json(written)
    return CANNOT if failed else 0


def _wanted(
    prompts: GoldenPrompts, model: Model, name: str, arguments: argparse.Namespace, folder: Path
) -> Sequence[PromptToRecord]:
    modes: list[PromptMode] = ["chat", "raw"] if arguments.mode == "both" else [arguments.mode]
    if arguments.question is None:
        return prompts.canned(model, arguments.case, modes)
    if len(arguments.case) != 1:
        raise VlmtuiError(ErrorKind.BAD_USAGE, "A question of your own needs one name: --case NAME.")
    files = [Path(one) for one in arguments.image]
    (case,) = arguments.case
    here = golden_path(folder, name, case, "chat").parent
    return [prompts.of_question(case, arguments.question, files, here, mode) for mode in modes]


async def _check(arguments: argparse.Namespace) -> int:
    application = build()
    print_warnings(application.registry.warnings)
    prompts = golden_prompts(application, trust=arguments.trust_remote_code, with_engine=arguments.with_engine)
    checked = await prompts.check(golden_files(Path(arguments.folder)))
    if arguments.json:
        print_json([check_json(one) for one in checked])
    else:
        for one in checked:
            for line in check_lines(one):
                print(line)
    moved, failed = sum(bool(one.moved) for one in checked), sum(one.error is not None for one in checked)
    note(f"{len(checked)} golden prompts: {len(checked) - moved - failed} as recorded, {moved} moved, {failed} failed.")
    return CANNOT if failed else 1 if moved else 0


def check_lines(checked: CheckedGolden) -> list[str]:
    """Return what moved, a line each; empty if nothing did."""
    title = one_line(checked.golden.title if checked.golden is not None else checked.path.name)
    if checked.error is not None:
        return [f"{title}: can't check: {one_line(str(checked.error))}"]
    return [f"{title}: {one.aspect.value}: {one_line(one.message)}" for one in checked.moved]


def check_json(checked: CheckedGolden) -> dict[str, object]:
    """Return one check for scripts."""
    golden = checked.golden
    return {
        "file": str(checked.path),
        "model": golden.model if golden is not None else None,
        "case": golden.case if golden is not None else None,
        "mode": golden.mode if golden is not None else None,
        "moved": [{"what": one.aspect.value, "message": one.message} for one in checked.moved],
        "error": str(checked.error) if checked.error is not None else None,
    }
