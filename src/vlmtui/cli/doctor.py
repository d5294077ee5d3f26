"""`vlmtui doctor`: checks this machine, and finally has a real model answer a real question."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence

import msgspec

from vlmtui.bootstrap import Application, build
from vlmtui.cli.ask_engine import AskSetup, ready_engine
from vlmtui.cli.checks import Check, machine_checks
from vlmtui.cli.engine_checks import only_transformers
from vlmtui.cli.interrupts import run_interruptible
from vlmtui.cli.output import is_tty, note, print_json
from vlmtui.cli.picture_check import way_rows
from vlmtui.config.settings import Settings
from vlmtui.domain.backend_choice import BackendChoice
from vlmtui.domain.conversation import user_turn
from vlmtui.domain.engine import TRANSFORMERS_BACKEND
from vlmtui.errors import VlmtuiError
from vlmtui.media.images import stage_image
from vlmtui.paths import Paths, bundled
from vlmtui.registry.match import DEFAULT_MODEL, resolve
from vlmtui.session.generation import Answer
from vlmtui.session.lanes import Lane, Lanes, lane_spec
from vlmtui.text import visible

_SAMPLE = "two-shapes.png"
_SEEN = ("yellow star", "top left", "blue square", "right")
"""What the sample shows, in the order in which the model mentions it."""
_QUESTION = "What is in this image?"
_NARROWEST = 66
"""Columns that the lines take at least: the table of pictures needs them."""
_COLOURS = {"ok": "32", "warn": "33", "fail": "31"}


def doctor(arguments: argparse.Namespace) -> int:
    if arguments.model is not None:
        from vlmtui.cli.doctor_model import doctor_model

        return run_interruptible(lambda: doctor_model(arguments))
    if arguments.report:
        return run_interruptible(lambda: _report(as_json=arguments.json))
    return run_interruptible(lambda: _doctor(as_json=arguments.json))


async def _report(*, as_json: bool) -> int:
    """Print facts that may be published. What is wrong with this machine is no failure of the report."""
    from vlmtui.cli.report import as_text, make_report

    paths = Paths.default()
    checks = [*machine_checks(paths), await _check_engine(paths, as_json=True)]
    report = make_report(paths, checks, os.environ)
    if as_json:
        print_json(msgspec.to_builtins(report))
    else:
        print(as_text(report))
        note("It contains no paths, names, addresses, keys, prompts or messages of errors.")
    return 0


def _fresh_application() -> Application:
    """Return an application with the default settings, whose engine is unloaded at once."""
    return build(settings=Settings(keep_alive="0"))


async def _check_engine(paths: Paths, *, as_json: bool) -> Check:
    choice = BackendChoice(TRANSFORMERS_BACKEND) if only_transformers(paths) else None
    return await check_engine(_fresh_application, as_json=as_json, choice=choice)


async def _doctor(*, as_json: bool) -> int:
    paths = Paths.default()
    checks: list[Check] = []
    for check in machine_checks(paths):
        checks.append(check)
        if not as_json:
            _print(check)
    engine = await _check_engine(paths, as_json=as_json)
    checks.append(engine)
    fit = all(check.status != "fail" for check in checks)
    if as_json:
        report = {"ok": fit, "checks": [msgspec.to_builtins(check) for check in checks]}
        print_json(report)
    else:
        _print(engine)
        print(_verdict(checks))
    return 0 if fit else 1


def _verdict(checks: Sequence[Check]) -> str:
    failed, warned = ([check.name for check in checks if check.status == status] for status in ("fail", "warn"))
    if failed:
        return f"This machine is not fit yet; failed: {', '.join(failed)}."
    return f"This machine is fit; warnings: {', '.join(warned)}." if warned else "This machine is fit."


async def check_engine(
    build_application: Callable[[], Application], *, as_json: bool, choice: BackendChoice | None = None
) -> Check:
    """Load the bundled model, or use a running one, and ask it about a picture with known content. `choice`: in this
    kind of engine."""
    try:
        application = build_application()
        model = resolve(application.registry, DEFAULT_MODEL, choice)
        image = stage_image(bundled("samples") / _SAMPLE, application.paths.media)
        sampling = application.settings.sampling.over(model.family.sampling)
        spec = lane_spec(model.family, [user_turn(_QUESTION, [image])], sampling)
        setup = AskSetup(application, model, keep_alive_given=False, as_json=as_json)
        async with ready_engine(setup) as (engine, _, load_s):
            lanes = Lanes([Lane(spec, engine)])
            await lanes.run()
    except VlmtuiError as error:
        return Check("engine", "fail", _joined(error), error.hint, error.kind)
    return _judge(lanes[0].answer, load_s)


def _judge(answer: Answer, load_s: float) -> Check:
    if answer.failure is not None:
        return Check("engine", "fail", _joined(answer.failure.error()), answer.failure.hint, answer.failure.kind)
    said = answer.text.strip()
    if not tells_what_is_there(said):
        hint = (
            "The engine runs but computes wrong results: its build may not fit this machine. Try another vLLM or torch."
        )
        return Check("engine", "fail", f"the bundled model is wrong about {_SAMPLE}: {said!r}", hint)
    ttft = answer.timings.ttft_s if answer.timings else None
    first = "" if ttft is None else f", first token after {ttft:.2f} s"
    return Check("engine", "ok", f"loaded in {load_s:.1f} s{first}; described the picture correctly: {said}")


def tells_what_is_there(answer: str) -> bool:
    """Whether the answer names both shapes of the sample and their places, in order."""
    place = 0
    for words in _SEEN:
        place = answer.lower().find(words, place)
        if place < 0:
            return False
        place += len(words)
    return True


def _joined(error: VlmtuiError) -> str:
    lines = error.detail.strip().splitlines()
    return f"{error.message} ({lines[-1]})" if lines else error.message


def _print(check: Check) -> None:
    is_shown = is_tty(sys.stdout)
    coloured = is_shown and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    width = max(shutil.get_terminal_size().columns, _NARROWEST) if is_shown else sys.maxsize
    for line in printed_check(check, width, coloured=coloured):
        print(line, flush=True)


def printed_check(check: Check, width: int, *, coloured: bool = False) -> Iterator[str]:
    """Return a check's lines of at most `width` columns, but for words that are longer."""
    first, *others = _wrapped(f"{check.status:<4}  {check.name:<10} ", check.message, width)
    yield f"\x1b[{_COLOURS[check.status]}m{check.status:<4}\x1b[0m{first[4:]}" if coloured else first
    yield from others
    if check.hint and check.status != "ok":
        yield from _wrapped(f"{'':<17}→ ", check.hint, width)
    for left, text in way_rows(check.table):
        yield from _wrapped(f"{'':<6}{left}", text, width)


def _wrapped(left: str, text: str, width: int) -> list[str]:
    return textwrap.wrap(
        visible(text),
        width,
        initial_indent=left,
        subsequent_indent=" " * len(left),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [left.rstrip()]
