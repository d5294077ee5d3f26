"""`vlmtui golden`, `replay` and `parity`: cases in, engines, and a table of the stages that differ.

One exit code for all: 0 nothing differs, 1 a stage differs, 2 something could not be compared.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path

import msgspec

from vlmtui.bootstrap import Application, build
from vlmtui.cli.ask_engine import AskSetup, ready_engine, with_consent
from vlmtui.cli.inputs import DOCUMENT_BYTES_MAX
from vlmtui.cli.interrupts import run_interruptible
from vlmtui.cli.lane_engines import models_on
from vlmtui.cli.output import note, print_error, print_json, print_table, print_warnings
from vlmtui.cli.replay import name_by_document, read_comparison, stored_file
from vlmtui.domain.backend_choice import BackendChoice, read_backend
from vlmtui.domain.engine import TRANSFORMERS_BACKEND, EngineInfo
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.inspection.build import fingerprint_of
from vlmtui.inspection.golden import By, Golden, read_golden
from vlmtui.inspection.replay import EngineFingerprint
from vlmtui.inspection.stages import CheckedSide, Stage, StageOutcome, Tolerance, where_to_look
from vlmtui.reading import read_whole
from vlmtui.registry.engine_values import with_engine_args
from vlmtui.registry.match import Model, resolve
from vlmtui.registry.schema import KnownDifference
from vlmtui.session.adapters import find_adapter, require_allowed, takes_adapter, with_adapters
from vlmtui.session.checking import (
    COMPARED,
    RECORDED,
    CheckCase,
    CheckResult,
    MakeSides,
    canned_cases,
    changed_fingerprint,
    comparison_cases,
    copied_beside,
    golden_case,
    golden_path,
    question_case,
    require_here,
    run_cases,
    sides_by_engine,
    sides_by_processor,
    text_of,
    with_fixed_length,
    write_golden,
)
from vlmtui.session.engine_names import HERE
from vlmtui.session.engines_beside import is_remote
from vlmtui.session.generation import PromptMode
from vlmtui.session.lint import model_folder
from vlmtui.text import one_line

DIFFERS = 1
"""Exit code: a stage differs."""
CANNOT = 2
"""Exit code: something could not be compared."""
_MARKS = {StageOutcome.SAME: "✓", StageOutcome.DIFFERS: "✗", StageOutcome.UNKNOWN: "–"}
_EXACT = Tolerance(logprobs=None)
_TOLERANCE, _TOLERANCE_16_BITS = 0.02, 0.25
_MAX_TOKENS = 1024


class Checks(msgspec.Struct, frozen=True):
    """What the cases of one command became, and the engines that answered them."""

    application: Application
    trust: bool
    results: list[CheckResult] = []
    engines: list[tuple[str, str, EngineInfo]] = []
    """Each engine as it was named, the name of its model, and its facts."""

    def by_engine(self, name: str, model: Model, folder: Path, *, is_asked: bool = True) -> MakeSides:
        """Return what loads an engine, has it make cases, and unloads it unless it was loaded before. `folder` takes
        its processor's values."""

        async def make(cases: Sequence[CheckCase]) -> list[CheckedSide]:
            setup = AskSetup(self.application, model, keep_alive_given=False, as_json=True)
            async with ready_engine(setup) as (engine, info, _):
                self.engines.append((name, model.spec.name, info))
                return await sides_by_engine(engine, cases, folder / str(len(self.engines)), is_asked=is_asked)

        return make

    def by_processor(self, model: Model) -> MakeSides:
        """Return what makes prompts with the model's own tokenizer and processor."""

        async def make(cases: Sequence[CheckCase]) -> list[CheckedSide]:
            return await asyncio.to_thread(sides_by_processor, self.application.reader, model, cases, trust=self.trust)

        return make

    def failed(self, path: Path, error: VlmtuiError) -> None:
        """Note a file that is no case."""
        self.results.append(CheckResult(file=str(path), error=text_of(error)))


Face = Callable[[Checks, argparse.Namespace, Path], Coroutine[None, None, int]]


def golden(arguments: argparse.Namespace) -> int:
    """Record prompts, or check whether they are as recorded."""
    if arguments.action is None:
        raise VlmtuiError(ErrorKind.BAD_USAGE, "golden needs an action: record or check.", hint="See --help.")
    return _run(_record if arguments.action == "record" else _check_golden, arguments)


def replay(arguments: argparse.Namespace) -> int:
    """Answer kept comparisons and golden prompts again."""
    return _run(_replay, arguments)


def parity(arguments: argparse.Namespace) -> int:
    """Compare an engine with Transformers."""
    return _run(_parity, arguments)


def _run(face: Face, arguments: argparse.Namespace) -> int:
    """Run a command with a folder for its processors' values. Return its exit code."""
    try:
        application = build({"keep_alive": "0"})
        print_warnings(application.registry.warnings)
        checks = Checks(application, trust=arguments.trust_remote_code)
        with tempfile.TemporaryDirectory(prefix="vlmtui-check-") as folder:
            return run_interruptible(partial(face, checks, arguments, Path(folder).resolve()))
    except VlmtuiError as error:
        print_error(error)
        return CANNOT


# -- golden prompts


async def _record(checks: Checks, arguments: argparse.Namespace, folder: Path) -> int:
    application, target, failed = checks.application, Path(arguments.folder), 0
    written = []
    by: By = "engine" if arguments.with_engine else "processor"
    for name in arguments.model:
        model = resolve(application.registry, name)
        cases = _cases(model, name, arguments, application.paths.media, target)
        for case, side in zip(cases, await _maker(checks, model, by, folder)(cases), strict=True):
            if side.error:
                failed += 1
                note(f"{name} · {case.title}: not recorded\nvlmtui: {side.error}")
                continue
            path = golden_path(target, name, case.case, case.mode)
            local = model_folder(model) if Path(name).is_dir() else None
            called = os.path.relpath(local, path.parent) if local is not None else name
            write_golden(path, case, side, model=called, by=by)
            written.append(str(path))
            if not arguments.json:
                print(one_line(str(path)))
    if arguments.json:
        print_json(written)
    return CANNOT if failed else 0


def _cases(
    model: Model, name: str, arguments: argparse.Namespace, media: Path, target: Path | None = None
) -> list[CheckCase]:
    """Return the canned conversations, or the question, that the command names. target: the folder of golden files;
    None: they are not recorded."""
    modes: list[PromptMode] = ["chat", "raw"] if arguments.mode == "both" else [arguments.mode]
    if arguments.question is None:
        if arguments.image:
            raise VlmtuiError(ErrorKind.BAD_USAGE, "--image needs --question.")
        usual = COMPARED if target is None else RECORDED
        return canned_cases(model, arguments.case, modes, media, usual=usual)
    if target is not None and len(arguments.case) != 1:
        raise VlmtuiError(ErrorKind.BAD_USAGE, "A question of your own needs one name: --case NAME.")
    case = arguments.case[0] if arguments.case else "question"
    here = golden_path(target, name, case, "chat").parent if target is not None else Path.cwd()
    images = [Path(one) for one in arguments.image]
    if target is not None:
        images = [copied_beside(path, here) for path in images]
    return [question_case(model.family, case, mode, arguments.question, images, here, media) for mode in modes]


def _maker(checks: Checks, model: Model, by: By, folder: Path) -> MakeSides:
    if by == "processor":
        return checks.by_processor(model)
    return checks.by_engine(by, with_consent(model, trust=checks.trust), folder, is_asked=False)


async def _check_golden(checks: Checks, arguments: argparse.Namespace, folder: Path) -> int:
    groups: dict[tuple[str, By], list[CheckCase]] = {}
    models: dict[str, Model] = {}
    root = Path(arguments.folder)
    paths = sorted(root.glob("*/*.json")) or sorted(root.glob("*.json"))
    if not paths:
        raise bad_input(f"{root} has no golden prompts.", hint="`vlmtui golden record` makes them.")
    for path in paths:
        try:
            found = read_golden(path)
            if found.by == "engine" and not arguments.with_engine:
                raise VlmtuiError(ErrorKind.NO_ENGINE, "An engine made this prompt.", hint="Use --with-engine.")
            name = _named(found.model, path, arguments.model)
            model = models.setdefault(name, resolve(checks.application.registry, name))
            require_here(model)
            case = golden_case(model.family, found, path, checks.application.paths.media)
        except VlmtuiError as error:
            checks.failed(path, error)
            continue
        groups.setdefault((name, found.by), []).append(case)
    for (name, by), cases in groups.items():
        checks.results.extend(await run_cases(cases, {by: _maker(checks, models[name], by, folder)}, lambda: _EXACT))
    return _report(checks, arguments)


def _named(name: str, path: Path, allowed: Sequence[str]) -> str:
    """Return the model of a golden file. A folder, relative to the file, is read only where the person names it.
    Raises VlmtuiError."""
    if not (Path(name).is_absolute() or name.startswith(".")):
        return name_by_document(name)
    model = (path.parent / name).resolve()
    if not any(model == Path(one).expanduser().resolve() for one in allowed):
        shown = shlex.quote(os.path.relpath(model))
        message = f"The golden prompt names the model folder {one_line(name)}, which no file can have read by itself."
        raise bad_input(message, hint=f"If it is yours, add --model {one_line(shown)}.")
    return str(model)


# -- replay


async def _replay(checks: Checks, arguments: argparse.Namespace, folder: Path) -> int:
    groups: dict[str, list[CheckCase]] = {}
    models: dict[str, Model] = {}
    for path in _json_files([Path(one) for one in arguments.files]):
        try:
            name, cases = _recorded_cases(checks, path, arguments, models)
        except VlmtuiError as error:
            checks.failed(path, error)
            continue
        groups.setdefault(name, []).extend(cases)
    names = list(dict.fromkeys(arguments.on or [HERE]))
    for name, cases in groups.items():
        setup = AskSetup(checks.application, models[name], keep_alive_given=False, as_json=True)
        adapters = [find_adapter(one) for one in dict.fromkeys(case.request.adapter for case in cases) if one]
        found = await asyncio.to_thread(models_on, names, setup, arguments)
        if not arguments.model and not all(map(is_remote, found)) and model_folder(models[name]) is None:
            message = f"{name} is not downloaded, which no file can have fetched by itself."
            checks.failed(Path(cases[0].file), bad_input(message, hint=f"If you want it, add --model {name}."))
            continue
        engines = {}
        for engine, model in zip(names, found, strict=True):
            takes_all = is_remote(model) or all(takes_adapter(model.spec, one) for one in adapters)
            engines[engine] = checks.by_engine(engine, model if takes_all else with_adapters(model, *adapters), folder)
        checks.results.extend(await run_cases(cases, engines, lambda: _EXACT))
    made_by = next((case.made_by for cases in groups.values() for case in cases if case.made_by is not None), None)
    return _report(checks, arguments, then=made_by)


def _recorded_cases(
    checks: Checks, path: Path, arguments: argparse.Namespace, models: dict[str, Model]
) -> tuple[str, list[CheckCase]]:
    """Return the name of a file's model, and its cases. Raises VlmtuiError."""
    media = checks.application.paths.media
    is_golden = b'"vlmtui-comparison' not in read_whole(path, bytes_max=DOCUMENT_BYTES_MAX)[:400]
    recorded = read_golden(path) if is_golden else read_comparison(path)
    if arguments.model:
        name: str = arguments.model
    else:
        name = name_by_document(recorded.model)
    if name not in models:
        models[name] = with_consent(resolve(checks.application.registry, name), trust=checks.trust)
    if isinstance(recorded, Golden):
        case = golden_case(models[name].family, recorded, path, media)
        assert case.recorded is not None
        return name, [msgspec.structs.replace(case, recorded=msgspec.structs.replace(case.recorded, text=""))]
    for side in recorded.sides:
        if side.adapter:
            require_allowed(side.adapter, arguments.adapter)
    files = {item.sha256: str(stored_file(media, item)) for item in recorded.attachments}
    return name, comparison_cases(path, recorded, files)


def _json_files(given: Sequence[Path]) -> list[Path]:
    """Return the files, those of folders sorted. Raises VlmtuiError for a folder without any."""
    found: list[Path] = []
    for path in given:
        inside = sorted(one for one in path.rglob("*.json") if one.is_file()) if path.is_dir() else [path]
        if not inside:
            raise bad_input(f"{path} has no JSON files.", hint="`ask --export` and `golden record` write them.")
        found += inside
    return found


# -- parity


async def _parity(checks: Checks, arguments: argparse.Namespace, folder: Path) -> int:
    if not 1 <= arguments.max_tokens <= _MAX_TOKENS:
        message = f"--max-tokens must lie between 1 and {_MAX_TOKENS}, not {arguments.max_tokens}."
        raise VlmtuiError(ErrorKind.BAD_USAGE, message)
    if any(one is not None and not 0 <= one < 1e6 for one in (arguments.tolerance, arguments.pixel_tolerance)):
        raise VlmtuiError(ErrorKind.BAD_USAGE, "A tolerance must be 0 or more.")
    model, reference = _pair(checks, arguments)
    cases = [
        with_fixed_length(case, arguments.max_tokens)
        for case in _cases(model, model.spec.name, arguments, checks.application.paths.media)
    ]

    def tolerance() -> Tolerance:
        """The number formats are known once the engines were loaded."""
        is_exact = all(info.dtype == "float32" for _, _, info in checks.engines)
        own = _TOLERANCE if is_exact else _TOLERANCE_16_BITS
        return Tolerance(arguments.pixel_tolerance, own if arguments.tolerance is None else arguments.tolerance)

    engines = {
        "reference": checks.by_engine("reference", reference, folder),
        "engine": checks.by_engine("engine", model, folder),
    }
    checks.results.extend(await run_cases(cases, engines, tolerance))
    if any(one.error for one in checks.results):
        note(f"`vlmtui lint {arguments.model}` says whether the model's files are the reason.")
    own = next((info for name, _, info in checks.engines if name == "engine"), None)
    is_same = own is not None and own.engine == "vLLM" and reference.spec.model == model.spec.model
    known = [one for one in model.family.differences if is_same and own and one.device in ("", own.device)]
    return _report(checks, arguments, known=known)


def _pair(checks: Checks, arguments: argparse.Namespace) -> tuple[Model, Model]:
    """Return the model on its engine, and in Transformers. Raises VlmtuiError."""
    registry = checks.application.registry
    choice = read_backend(arguments.backend) if arguments.backend is not None else None
    model = with_engine_args(resolve(registry, arguments.model, choice), arguments.engine_arg)
    reference = resolve(registry, arguments.reference or arguments.model, BackendChoice(TRANSFORMERS_BACKEND))
    if model.spec.backend == TRANSFORMERS_BACKEND and model.spec.model == reference.spec.model:
        message = f"{model.spec.name} runs in Transformers itself: there is nothing to compare."
        raise VlmtuiError(ErrorKind.BAD_USAGE, message, hint="Name another engine with --backend.")
    dtype = arguments.dtype or model.spec.engine_args.get("dtype")
    if arguments.dtype:
        model = with_engine_args(model, [f"dtype={dtype}"])
    if dtype in ("float32", "bfloat16", "float16"):
        reference = with_engine_args(reference, [f"dtype={dtype}"])
    return with_consent(model, trust=checks.trust), with_consent(reference, trust=checks.trust)


# -- the table


def _report(
    checks: Checks,
    arguments: argparse.Namespace,
    *,
    then: EngineFingerprint | None = None,
    known: Sequence[KnownDifference] = (),
) -> int:
    """Print the results; return the exit code. then: what answered when the answers were recorded."""
    results = checks.results
    failed = sum(bool(one.error) for one in results)
    differing = sum(one.first is not None for one in results)
    if arguments.json:
        print_json(_as_json(checks))
    elif results:
        stages = [stage for stage in Stage if any(one.stage is stage for result in results for one in result.stages)]
        head = ["file", "case", "engine", *(stage.value for stage in stages)]
        print_table(head, [_row(one, stages) for one in results])
        for line in (*(line for one in results for line in _details(one)), *_engine_lines(checks, then)):
            print(line)
    note(f"{len(results)} compared: {len(results) - differing - failed} the same, {differing} differ, {failed} failed.")
    first = next((stage.value for stage in Stage for one in results if one.first and one.first.stage is stage), "")
    for one in known:
        if one.stage == first:
            note(f"This is known: {one.why}")
    return CANNOT if failed or not results else DIFFERS if differing else 0


def _row(result: CheckResult, stages: Sequence[Stage]) -> list[str]:
    outcomes = {one.stage: _MARKS[one.outcome] for one in result.stages}
    marks = ["failed" if result.error and not outcomes else outcomes.get(stage, "") for stage in stages]
    return ["/".join(Path(result.file).parts[-2:]), result.case, result.engine, *marks]


def _details(result: CheckResult) -> list[str]:
    """Return a line for each stage that differs, with where to look for the first, and for what failed."""
    title = one_line(" · ".join(filter(None, (Path(result.file).name, result.case, result.engine))))
    lines = []
    for one in result.stages:
        if one.outcome is StageOutcome.DIFFERS:
            where = f" {where_to_look(one)}" if one == result.first and where_to_look(one) else ""
            lines.append(f"{title}: {one.stage.value}: {one_line(one.message)}.{where}")
    return [*lines, f"{title}: failed: {one_line(result.error)}"] if result.error else lines


def _engine_lines(checks: Checks, then: EngineFingerprint | None) -> list[str]:
    """Return each engine's facts, and what its fingerprint has that the recorded one, or the first one, has not."""
    lines = []
    for name, _, info in checks.engines:
        now = fingerprint_of(info)
        lines.append(f"{one_line(name)}: {one_line(now.model)} · {now.facts}")
        changed = changed_fingerprint(then, now) if then is not None else {}
        lines += [f"  {key}: {_told(old)} → {_told(new)}" for key, (old, new) in changed.items()]
        then = then or now
    return lines


def _told(value: object) -> str:
    return "default" if value is None else one_line(str(value))


def _as_json(checks: Checks) -> dict[str, object]:
    return {
        "same": bool(checks.results) and not any(one.error or one.first for one in checks.results),
        "engines": [
            {"engine": name, "model": model, "fingerprint": msgspec.to_builtins(fingerprint_of(info))}
            for name, model, info in checks.engines
        ],
        "results": [
            {
                **msgspec.to_builtins(one),
                "same": one.first is None and not one.error,
                "first_difference": one.first.stage.value if one.first is not None else None,
            }
            for one in checks.results
        ],
    }
