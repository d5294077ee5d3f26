"""`vlmtui parity`: compare an engine with Transformers, stage by stage."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from vlmtui.bootstrap import Application, build
from vlmtui.cli.ask_engine import AskSetup, ready_engine, with_consent
from vlmtui.cli.interrupts import run_interruptible
from vlmtui.cli.output import note, print_error, print_json, print_warnings
from vlmtui.domain.backend_choice import BackendChoice, read_backend
from vlmtui.domain.engine import TRANSFORMERS_BACKEND, EngineInfo
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.files import write_output
from vlmtui.inspection.lint.finding import LintKind
from vlmtui.inspection.parity import ParitySide, Tolerance, compare_sides
from vlmtui.registry.engine_values import with_engine_args
from vlmtui.registry.match import Model, resolve
from vlmtui.registry.schema import KnownDifference
from vlmtui.session.generation import PromptMode
from vlmtui.session.golden import GoldenPrompts
from vlmtui.session.lint import lint_model
from vlmtui.session.parity import CASES, ParityPrompt, ParityReport, gather_sides
from vlmtui.session.parity_report import case_title, parity_json, parity_page, parity_verdict, where_to_look
from vlmtui.text import one_line

CANNOT = 2
"""Exit code: the engines could not be compared."""
_TOLERANCE = {"float32": 0.02}
_TOLERANCE_16_BITS = 0.25
_ENDINGS = (".html", ".json")
_MAX_TOKENS = 1024
_UNREADABLE = frozenset(kind for kind in LintKind if kind.value.startswith(("no_", "template_", "tokenizer_", "code_")))
"""What keeps a model's prompts from being made at all."""


class _Plan(msgspec.Struct, frozen=True):
    """What is loaded, and what both are asked."""

    application: Application
    model: Model
    reference: Model
    arguments: argparse.Namespace


def parity(arguments: argparse.Namespace) -> int:
    """Print each stage of each conversation. Return 0 if none differs, 1 if one does, 2 if it can't be told."""
    plan: _Plan | None = None
    try:
        _check(arguments)
        made = plan = _plan(arguments)
        with tempfile.TemporaryDirectory(prefix="vlmtui-parity-") as folder:
            return run_interruptible(lambda: _run(made, Path(folder).resolve()))
    except VlmtuiError as error:
        print_error(error)
        if plan is not None:
            _tell_faults(plan)
        return CANNOT


def _tell_faults(plan: _Plan) -> None:
    """Print what is wrong with the files of a model that could not be loaded or asked."""
    trust = plan.arguments.trust_remote_code
    try:
        findings = lint_model(plan.model, plan.application.reader, trust_remote_code=trust).findings
    except VlmtuiError:
        return  # the error that was printed says more
    for found in findings:
        if found.kind in _UNREADABLE:
            note(f"{found.kind.value}: {one_line(found.message)} {one_line(found.mend)}")


async def _run(plan: _Plan, folder: Path) -> int:
    report, arguments = await _compare(plan, folder), plan.arguments
    if arguments.export is not None:
        _export(Path(arguments.export), report)
    if arguments.json:
        print_json(parity_json(report))
    else:
        _print(report)
    note(parity_verdict(report))
    if report.first is not None:
        return 1
    return 0 if report.is_complete else CANNOT


def _check(arguments: argparse.Namespace) -> None:
    """Raise VlmtuiError(BAD_USAGE) for arguments that do not go together."""
    problem = ""
    if arguments.export is not None and Path(arguments.export).suffix.lower() not in _ENDINGS:
        problem = f"--export needs a name that ends in {' or '.join(_ENDINGS)}."
    elif arguments.image and arguments.question is None:
        problem = "--image needs --question."
    elif arguments.question is not None and arguments.case:
        problem = "--question and --case exclude each other."
    elif not 1 <= arguments.max_tokens <= _MAX_TOKENS:
        problem = f"--max-tokens must lie between 1 and {_MAX_TOKENS}, not {arguments.max_tokens}."
    elif any(one is not None and not 0 <= one < 1e6 for one in (arguments.tolerance, arguments.pixel_tolerance)):
        problem = "A tolerance must be 0 or more."
    if problem:
        raise VlmtuiError(ErrorKind.BAD_USAGE, problem)


def _plan(arguments: argparse.Namespace) -> _Plan:
    application = build({"keep_alive": "0"})
    print_warnings(application.registry.warnings)
    choice = read_backend(arguments.backend) if arguments.backend is not None else None
    model = with_engine_args(resolve(application.registry, arguments.model, choice), arguments.engine_arg)
    reference = resolve(
        application.registry, arguments.reference or arguments.model, BackendChoice(TRANSFORMERS_BACKEND)
    )
    if model.spec.backend == TRANSFORMERS_BACKEND and model.spec.model == reference.spec.model:
        message = f"{model.spec.name} runs in Transformers itself: there is nothing to compare."
        raise VlmtuiError(ErrorKind.BAD_USAGE, message, hint="Name another engine with --backend.")
    dtype = arguments.dtype or model.spec.engine_args.get("dtype")
    if arguments.dtype:
        model = _with_argument(model, "dtype", arguments.dtype)
    if dtype in ("float32", "bfloat16", "float16"):
        reference = _with_argument(reference, "dtype", dtype)
    trust = arguments.trust_remote_code
    return _Plan(application, with_consent(model, trust=trust), with_consent(reference, trust=trust), arguments)


def _with_argument(model: Model, name: str, value: object) -> Model:
    spec = msgspec.structs.replace(model.spec, engine_args={**model.spec.engine_args, name: value})
    return msgspec.structs.replace(model, spec=spec)


async def _compare(plan: _Plan, folder: Path) -> ParityReport:
    """Ask the reference, unload it, ask the engine, and compare."""
    prompts = _prompts(plan)
    sides: list[list[ParitySide]] = []
    infos: list[EngineInfo] = []
    for name, model in (("reference", plan.reference), ("engine", plan.model)):
        setup = AskSetup(plan.application, model, keep_alive_given=False, as_json=True)
        async with ready_engine(setup) as (engine, info, _):
            infos.append(info)
            tokens = plan.arguments.max_tokens
            sides.append(await gather_sides(engine, plan.model.family, prompts, folder / name, tokens=tokens))
    theirs, ours = sides
    tolerance = Tolerance(plan.arguments.pixel_tolerance, _logprob_tolerance(plan.arguments, infos))
    cases = [
        await asyncio.to_thread(compare_sides, prompt.case, prompt.mode, one, other, tolerance)
        for prompt, one, other in zip(prompts, ours, theirs, strict=True)
    ]
    reference, own = infos
    if reference.dtype != own.dtype:
        note(f"note: the number formats differ: {own.dtype}, and {reference.dtype}. --dtype sets both.")
    return ParityReport(
        model=plan.model.spec.name,
        family=plan.model.family.family,
        engine=_facts(own),
        reference=_facts(reference)
        + ("" if plan.reference.spec.model == plan.model.spec.model else f", {plan.reference.spec.name}"),
        cases=tuple(cases),
        known=_known(plan, own),
    )


def _known(plan: _Plan, own: EngineInfo) -> tuple[KnownDifference, ...]:
    """Return the record's differences of this engine, where both sides have the same checkpoint."""
    if own.engine != "vLLM" or plan.reference.spec.model != plan.model.spec.model:
        return ()
    return tuple(one for one in plan.model.family.differences if one.device in ("", own.device))


def _prompts(plan: _Plan) -> list[ParityPrompt]:
    """Return the conversations. Raises VlmtuiError for an unknown one, or for a file that can't be opened."""
    arguments = plan.arguments
    modes: Sequence[PromptMode] = ("chat", "raw") if arguments.mode == "both" else (arguments.mode,)
    application = plan.application
    maker = GoldenPrompts(application.registry, application.reader, application.paths.media)
    if arguments.question is not None:
        files = [Path(one) for one in arguments.image]
        made = [maker.of_question("question", arguments.question, files, Path.cwd(), mode) for mode in modes]
    else:
        known = {one.case for one in maker.canned(plan.model, (), modes)}
        made = maker.canned(plan.model, arguments.case or [one for one in CASES if one in known], modes)
    if not made:
        raise VlmtuiError(ErrorKind.BAD_INPUT, f"{plan.model.spec.name} can have none of the canned conversations.")
    return [ParityPrompt(one.case, one.mode, one.turns) for one in made]


def _logprob_tolerance(arguments: argparse.Namespace, infos: Sequence[EngineInfo]) -> float:
    if arguments.tolerance is not None:
        return float(arguments.tolerance)
    return max(_TOLERANCE.get(info.dtype, _TOLERANCE_16_BITS) for info in infos)


def _facts(info: EngineInfo) -> str:
    return f"{info.engine} {info.engine_version}, {info.dtype}, {info.device}"


def _print(report: ParityReport) -> None:
    print(one_line(f"{report.model}: {report.engine} against {report.reference}"))
    for case in report.cases:
        print(one_line(case_title(case)))
        for stage in case.stages:
            print(f"    {stage.stage.value:<12} {stage.outcome.value:<12} {one_line(stage.message)}")
            if stage == case.first:
                print(f"    {'':<12} {'':<12} {where_to_look(stage)}")
        for error in case.errors:
            print(f"    {'failed':<12} {one_line(error)}")


def _export(path: Path, report: ParityReport) -> None:
    text = msgspec.json.format(msgspec.json.encode(parity_json(report)), indent=2) + b"\n"
    write_output(path, text if path.suffix.lower() == ".json" else parity_page(report).encode())
    note(f"Written: {path}")
