"""`vlmtui doctor --model M`: asks the model about drawn pictures whose content is known."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

import msgspec

from vlmtui.bootstrap import build
from vlmtui.cli.ask_engine import AskSetup, ready_engine, with_consent
from vlmtui.cli.output import note, print_error, print_json, print_warnings
from vlmtui.domain.backend_choice import read_backend
from vlmtui.errors import VlmtuiError
from vlmtui.registry.match import resolve
from vlmtui.session.smoke import SmokeOutcome, SmokeResult, ask_smoke, sees, smoke_cases
from vlmtui.text import one_line

CANNOT = 2
"""Exit code: the model could not be asked."""


async def doctor_model(arguments: argparse.Namespace) -> int:
    """Print what was asked, seen and expected. Return 0 if the model sees and nothing that it should know is wrong,
    1 if not, 2 if it can't be asked."""
    try:
        results = await _ask_all(arguments)
    except VlmtuiError as error:
        print_error(error)
        return CANNOT
    does_see = sees(results)
    fit = does_see and not any(one.outcome in (SmokeOutcome.WRONG, SmokeOutcome.FAILED) for one in results)
    verdict = "This checkpoint sees." if does_see else "This checkpoint does not see: it names no lone shapes."
    if arguments.json:
        print_json({"ok": fit, "sees": does_see, "results": [msgspec.to_builtins(one) for one in results]})
    note(verdict)
    return 0 if fit else 1


async def _ask_all(arguments: argparse.Namespace) -> list[SmokeResult]:
    application = build({"keep_alive": "0"})
    print_warnings(application.registry.warnings)
    choice = read_backend(arguments.backend) if arguments.backend is not None else None
    model = with_consent(resolve(application.registry, arguments.model, choice), trust=arguments.trust_remote_code)
    sampling = application.settings.sampling.over(model.family.sampling)
    results: list[SmokeResult] = []
    with tempfile.TemporaryDirectory(prefix="vlmtui-doctor-") as folder:
        cases = await asyncio.to_thread(smoke_cases, Path(folder), application.paths.media)
        setup = AskSetup(application, model, keep_alive_given=False, as_json=arguments.json)
        async with ready_engine(setup) as (engine, _, _):
            for case in cases:
                results.append(await ask_smoke(engine, model.family, case, sampling))
                if not arguments.json:
                    _print(results[-1])
    return results


def _print(one: SmokeResult) -> None:
    print(f"{one.outcome.value:<12}  {one.skill:<8} {one_line(one.asked)}")
    print(f"{'':<14}seen      {one_line(one.seen)}")
    print(f"{'':<14}expected  {one.expected}", flush=True)
