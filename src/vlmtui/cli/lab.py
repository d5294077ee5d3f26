"""`vlmtui golden`, `replay` and `parity`: make the prompts or answers of cases again, and print where they differ.

A case is a conversation and a prompt mode, chat or raw. A stage is what can differ: prompt text, token ids, pixels, ….
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
from typing import NamedTuple

import msgspec

from vlmtui.bootstrap import Application, build
from vlmtui.cli.engine import (
    AskSetup,
    add_engine_arg_option,
    add_reload_option,
    add_trust_option,
    models_on,
    ready_engine,
    run_interruptible,
    when_changed,
    with_consent,
)
from vlmtui.cli.output import note, print_error, print_json, print_table
from vlmtui.domain.engine import TRANSFORMERS_BACKEND, BackendChoice, EngineInfo, read_backend
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.inspection.build import fingerprint_of
from vlmtui.inspection.golden import By, Golden, read_golden
from vlmtui.inspection.stages import CheckedSide, Stage, StageOutcome, Tolerance, where_to_look
from vlmtui.reading import is_file, is_folder
from vlmtui.registry.hub_cache import model_folder
from vlmtui.registry.match import Model, resolve, with_engine_args, with_preset
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
    golden_folder,
    name_by_document,
    question_case,
    read_record,
    require_here,
    run_cases,
    sides_by_engine,
    sides_by_processor,
    text_of,
    with_fixed_length,
    write_golden,
)
from vlmtui.session.engines import is_remote
from vlmtui.session.generation import PromptMode
from vlmtui.session.lanes import HERE
from vlmtui.text import one_line

DIFFERS = 1
"""Exit code: a stage differs."""
CANNOT = 2
"""Exit code: a case could not be compared."""
_EXIT_CODES = "exit codes: 0 nothing differs, 1 a stage differs, 2 something can't be compared"
_MARKS = {StageOutcome.SAME: "✓", StageOutcome.DIFFERS: "✗", StageOutcome.UNKNOWN: "–"}
_EXACT = Tolerance(logprobs=None)
_TOLERANCE, _TOLERANCE_OF_16_BITS = 0.02, 0.25
_MAX_TOKENS = 1024


# -- the arguments


def fill_golden(golden: argparse.ArgumentParser) -> None:
    golden.description = (
        "Record a model's prompts as small JSON files (text, token ids, tokens and sizes of images), and check later "
        "whether they are still the same: after an upgrade, or in CI."
    )
    golden.set_defaults(action=None)
    actions = golden.add_subparsers(metavar="ACTION")
    record = actions.add_parser("record", help="write golden prompts", description="Write golden prompts.")
    record.add_argument("folder", metavar="DIR", help="the target; each model gets a folder in it")
    record.add_argument("--model", metavar="M", action="append", required=True, help="a model; may be repeated")
    _add_cases(record)
    check = actions.add_parser(
        "check",
        help="report the prompts that changed",
        description="Make the prompts again and compare them: text, token ids, tokens and sizes of images.",
        epilog=_EXIT_CODES,
    )
    check.add_argument("folder", metavar="DIR", help="the folder with the golden prompts")
    check.add_argument(
        "--model",
        metavar="FOLDER",
        action="append",
        default=[],
        help="a local model that golden prompts may name (others are not read); may be repeated",
    )
    for action, name in ((record, "record"), (check, "check")):
        action.add_argument(
            "--with-engine",
            action="store_true",
            help="load the engine: prompts are made by vLLM instead of the model's own processor",
        )
        _add_common(action)
        action.set_defaults(action=name)


def fill_replay(replay: argparse.ArgumentParser) -> None:
    replay.description = (
        "Answer saved comparisons (`ask --export FILE.json`, Compare) and golden prompts again on one or several "
        "engines, one after the other, and report what differs from the file: prompt, pixels, the answer's first "
        "differing token and its log-probability. Golden prompts have no answer: the first engine's is the base."
    )
    replay.epilog = _EXIT_CODES
    replay.add_argument("files", metavar="FILE", nargs="+", help="a document or golden file, or a folder of them")
    replay.add_argument(
        "--on",
        action="append",
        metavar="ENGINE",
        help="an engine: here, transformers, vllm==X.Y.Z, a model, or a server; engine arguments may follow, as in "
        "'here dtype=bfloat16'; may be repeated (here)",
    )
    replay.add_argument("--model", metavar="M", help="run this model instead of the recorded one")
    replay.add_argument("--key-env", metavar="NAME", help="the environment variable with a server's key")
    replay.add_argument(
        "--adapter", metavar="FOLDER", help="the LoRA adapter that a comparison's answer used, or a folder above it"
    )
    _add_common(replay)


def fill_parity(parity: argparse.ArgumentParser) -> None:
    parity.description = (
        "Run the same prompts and weights in an engine and in Hugging Face Transformers, and report the first stage "
        "at which they differ: prompt text, token ids, image tokens, pixels, the next token's probabilities, the "
        "greedy answer. Each is loaded in its own process, one after the other."
    )
    parity.epilog = _EXIT_CODES
    parity.add_argument("model", metavar="FAMILY", help="a family, a repository id or a local folder")
    parity.add_argument("--backend", metavar="NAME", help="what runs the model (default: the choice of its record)")
    parity.add_argument("--reference", metavar="MODEL", help="the checkpoint for Transformers (default: the same)")
    _add_cases(parity)
    parity.add_argument("--max-tokens", metavar="N", type=int, default=8, help="tokens of each greedy answer (8)")
    parity.add_argument(
        "--dtype", choices=("float32", "bfloat16", "float16"), help="number format of both (default: the model's)"
    )
    add_engine_arg_option(parity)
    parity.add_argument(
        "--tolerance", metavar="X", type=float, help="allowed difference of log-probabilities (0.02; 16 bits: 0.25)"
    )
    parity.add_argument(
        "--pixel-tolerance",
        metavar="X",
        type=float,
        default=1e-3,
        help="allowed difference of processed pixels (0.001)",
    )
    _add_common(parity)


def _add_cases(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--mode", choices=("chat", "raw", "both"), default="chat", help="chat template, raw prompt, or both (chat)"
    )
    parser.add_argument(
        "--case",
        metavar="NAME",
        action="append",
        default=[],
        help="a canned conversation, or a name for --question; may be repeated",
    )
    parser.add_argument("--question", metavar="TEXT", help="ask this instead of the canned conversations")
    parser.add_argument("--image", metavar="P", action="append", default=[], help="with --question: an image")


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_trust_option(parser)
    add_reload_option(parser)


# -- the commands


def golden(arguments: argparse.Namespace) -> int:
    if arguments.action is None:
        raise VlmtuiError(ErrorKind.BAD_USAGE, "golden needs an action: record or check.", hint="See --help.")
    return _run(_record if arguments.action == "record" else _check_golden, arguments)


def replay(arguments: argparse.Namespace) -> int:
    return _run(_replay, arguments)


def parity(arguments: argparse.Namespace) -> int:
    return _run(_parity, arguments)


class Lab(msgspec.Struct, frozen=True):
    """A run of `golden`, `replay` or `parity`: its results, and the engines that produced them."""

    application: Application
    arguments: argparse.Namespace
    folder: Path
    """A temporary folder for the processors' pixel values."""
    results: list[CheckResult] = []
    engines: list[tuple[str, str, EngineInfo]] = []
    """The engines so far: name on the command line, model name, facts."""

    @property
    def media(self) -> Path:
        return self.application.paths.media

    def model(self, name: str) -> Model:
        """Return the model of this name. Raises VlmtuiError, also if its own Python code is not allowed."""
        return self.consented(resolve(self.application.registry, name))

    def consented(self, model: Model) -> Model:
        return with_consent(model, trust=self.arguments.trust_remote_code)

    def by_engine(self, name: str, model: Model, *, is_asked: bool = True) -> MakeSides:
        """Return a function that makes the prompts and answers of cases in an engine. `is_asked` False: only the
        prompts."""

        async def make(cases: Sequence[CheckCase]) -> list[CheckedSide]:
            when = when_changed(self.arguments)
            setup = AskSetup(self.application, model, keep_alive_given=False, as_json=True, when_changed=when)
            async with ready_engine(setup) as (engine, info, _):
                self.engines.append((name, model.spec.name, info))
                values = self.folder / str(len(self.engines))
                return await sides_by_engine(engine, cases, values, is_asked=is_asked)

        return make

    def by_maker(self, by: str, name: str) -> MakeSides:
        """Return a function that makes the prompts of cases. `by`: "engine"; or "processor", which uses the model's own
        tokenizer and processor, without an engine. Raises VlmtuiError."""
        if by == "engine":
            return self.by_engine(by, self.model(name), is_asked=False)
        model, trust = resolve(self.application.registry, name), self.arguments.trust_remote_code

        async def make(cases: Sequence[CheckCase]) -> list[CheckedSide]:
            return await asyncio.to_thread(sides_by_processor, self.application.reader, model, cases, trust=trust)

        return make

    def failed(self, path: Path | str, error: VlmtuiError) -> None:
        """Add a result for a file that can't be read."""
        self.results.append(CheckResult(file=str(path), error=text_of(error)))

    def cases(self, model: Model, usual: Sequence[str], target: Path | None = None) -> list[CheckCase]:
        """Return the conversations to run: the question of --question; without it, the built-in conversations of
        --case, by default those in `usual`. Raises VlmtuiError.

        `target`: the folder in which golden files will be written; the question's images are copied there. None: the
        command writes no files."""
        arguments = self.arguments
        modes: list[PromptMode] = ["chat", "raw"] if arguments.mode == "both" else [arguments.mode]
        if arguments.question is None:
            if arguments.image:
                raise VlmtuiError(ErrorKind.BAD_USAGE, "--image needs --question.")
            return canned_cases(model, arguments.case, modes, self.media, usual=usual)
        if target is not None and len(arguments.case) != 1:
            raise VlmtuiError(ErrorKind.BAD_USAGE, "--question needs one name: --case NAME.")
        name = arguments.case[0] if arguments.case else "question"
        images = [Path(one) for one in arguments.image]
        if target is not None:
            images = [copied_beside(path, target) for path in images]
        here = target or Path.cwd()
        return [question_case(model.family, name, mode, arguments.question, images, here, self.media) for mode in modes]


def _run(work: Callable[[Lab], Coroutine[None, None, int]], arguments: argparse.Namespace) -> int:
    """Run a command. Return its exit code."""
    try:
        application = build({"keep_alive": "0"}, tell=note)
        with tempfile.TemporaryDirectory(prefix="vlmtui-check-") as folder:
            return run_interruptible(partial(work, Lab(application, arguments, Path(folder).resolve())))
    except VlmtuiError as error:
        print_error(error)
        return CANNOT


async def _record(lab: Lab) -> int:
    arguments, failed, written = lab.arguments, 0, []
    by: By = "engine" if arguments.with_engine else "processor"
    for name in arguments.model:
        model = resolve(lab.application.registry, name)
        folder = golden_folder(Path(arguments.folder), name)
        cases = lab.cases(model, RECORDED, folder)
        local = model_folder(model.spec.model) if is_folder(Path(name)) else None
        called = os.path.relpath(local, folder) if local is not None else name
        for case, side in zip(cases, await lab.by_maker(by, name)(cases), strict=True):
            if side.error:
                failed += 1
                note(f"{name} · {case.title}: not recorded\nvlmtui: {side.error}")
                continue
            path = folder / f"{case.case}.{case.mode}.json"
            write_golden(path, case, side, model=called, by=by)
            written.append(str(path))
            if not arguments.json:
                print(one_line(str(path)))
    if arguments.json:
        print_json(written)
    return CANNOT if failed else 0


class _FileCases(NamedTuple):
    """The cases of a file, the name of their model, and the names of the engines to run them."""

    model: str
    engines: tuple[str, ...]
    cases: list[CheckCase]


async def _check_golden(lab: Lab) -> int:
    root = Path(lab.arguments.folder)
    paths = sorted(root.glob("*/*.json")) or sorted(root.glob("*.json"))
    if not paths:
        raise bad_input(f"{root} has no golden prompts.", hint="`vlmtui golden record` makes them.")

    def read(path: Path) -> _FileCases:
        found = read_golden(path)
        if found.by == "engine" and not lab.arguments.with_engine:
            raise VlmtuiError(ErrorKind.NO_ENGINE, "An engine made this prompt.", hint="Use --with-engine.")
        name = _allowed_model(found.model, path, lab.arguments.model)
        model = resolve(lab.application.registry, name)
        require_here(model)
        return _FileCases(name, (found.by,), [golden_case(model.family, found, path, lab.media)])

    async def makers(found: _FileCases) -> dict[str, MakeSides]:
        return {by: lab.by_maker(by, found.model) for by in found.engines}

    return await _compare(lab, paths, read, makers)


async def _replay(lab: Lab) -> int:
    arguments = lab.arguments

    def read(path: Path) -> _FileCases:
        record = read_record(path)
        name = arguments.model or name_by_document(record.model)
        family = lab.model(name).family
        engines = tuple(dict.fromkeys(arguments.on or [HERE]))
        if isinstance(record, Golden):
            case = golden_case(family, record, path, lab.media)
            assert case.recorded is not None
            answerless = msgspec.structs.replace(case.recorded, text="")
            return _FileCases(name, engines, [msgspec.structs.replace(case, recorded=answerless)])
        for side in record.sides:
            if side.adapter:
                require_allowed(side.adapter, arguments.adapter)
        return _FileCases(name, engines, comparison_cases(path, record, lab.media))

    async def makers(found: _FileCases) -> dict[str, MakeSides]:
        home = lab.model(found.model)
        setup = AskSetup(lab.application, home, keep_alive_given=False, as_json=True)
        adapters = [find_adapter(one) for one in dict.fromkeys(case.request.adapter for case in found.cases) if one]
        models = await asyncio.to_thread(models_on, found.engines, setup, arguments)
        if not arguments.model and not all(map(is_remote, models)) and model_folder(home.spec.model) is None:
            message = f"{found.model} is not downloaded, and a file alone can't start a download."
            lab.failed(found.cases[0].file, bad_input(message, hint=f"If you want it, add --model {found.model}."))
            return {}
        engines = {}
        for name, model in zip(found.engines, models, strict=True):
            takes_all = is_remote(model) or all(takes_adapter(model.spec, one) for one in adapters)
            engines[name] = lab.by_engine(name, model if takes_all else with_adapters(model, *adapters))
        return engines

    return await _compare(lab, _json_files([Path(one) for one in arguments.files]), read, makers)


async def _compare(
    lab: Lab,
    paths: Sequence[Path],
    read: Callable[[Path], _FileCases],
    makers: Callable[[_FileCases], Coroutine[None, None, dict[str, MakeSides]]],
) -> int:
    """Run the cases of all files, grouped by model; print the table, and return the exit code.

    `read` returns a file's cases; a file that can't be read gets a row in the table. `makers` returns, by engine name,
    the functions that run cases and return their results."""
    groups: dict[tuple[str, tuple[str, ...]], list[CheckCase]] = {}
    for path in paths:
        try:
            found = read(path)
        except VlmtuiError as error:
            lab.failed(path, error)
        else:
            groups.setdefault((found.model, found.engines), []).extend(found.cases)
    for (model, names), cases in groups.items():
        engines = await makers(_FileCases(model, names, cases))
        lab.results.extend(await run_cases(cases, engines, lambda: _EXACT))
    return _report(lab, [case for cases in groups.values() for case in cases])


def _allowed_model(name: str, path: Path, allowed: Sequence[str]) -> str:
    """Return the model that a golden file names. Raises VlmtuiError if it is a folder that is not in `allowed`, the
    folders given with --model."""
    if not (Path(name).is_absolute() or name.startswith(".")):
        return name_by_document(name)
    model = (path.parent / name).resolve()
    if not any(model == Path(one).expanduser().resolve() for one in allowed):
        shown = shlex.quote(os.path.relpath(model))
        message = f"The golden prompt names the model folder {one_line(name)}, which is only read with your permission."
        raise bad_input(message, hint=f"If it is yours, add --model {one_line(shown)}.")
    return str(model)


def _json_files(given: Sequence[Path]) -> list[Path]:
    """Return the files; for a folder, the JSON files in it, sorted. Raises VlmtuiError if it has none."""
    found: list[Path] = []
    for path in given:
        inside = sorted(one for one in path.rglob("*.json") if is_file(one)) if is_folder(path) else [path]
        if not inside:
            raise bad_input(f"{path} has no JSON files.", hint="`ask --export` and `golden record` write them.")
        found += inside
    return found


async def _parity(lab: Lab) -> int:
    arguments = lab.arguments
    if not 1 <= arguments.max_tokens <= _MAX_TOKENS:
        message = f"--max-tokens must lie between 1 and {_MAX_TOKENS}, not {arguments.max_tokens}."
        raise VlmtuiError(ErrorKind.BAD_USAGE, message)
    if any(one is not None and not 0 <= one < 1e6 for one in (arguments.tolerance, arguments.pixel_tolerance)):
        raise VlmtuiError(ErrorKind.BAD_USAGE, "A tolerance must be 0 or more.")
    model, reference = _model_and_reference(lab)
    cases = [with_fixed_length(case, arguments.max_tokens) for case in lab.cases(model, COMPARED)]

    def tolerance() -> Tolerance:
        """Return the tolerance, which depends on the engines' number formats: call it when all engines have been
        loaded."""
        is_exact = all(info.dtype == "float32" for _, _, info in lab.engines)
        own = _TOLERANCE if is_exact else _TOLERANCE_OF_16_BITS
        return Tolerance(arguments.pixel_tolerance, own if arguments.tolerance is None else arguments.tolerance)

    engines = {"reference": lab.by_engine("reference", reference), "engine": lab.by_engine("engine", model)}
    lab.results.extend(await run_cases(cases, engines, tolerance))
    if any(one.error for one in lab.results):
        note(f"`vlmtui lint {arguments.model}` says whether the model's files are the reason.")
    own = next((info for name, _, info in lab.engines if name == "engine"), None)
    is_same = own is not None and own.engine == "vLLM" and reference.spec.model == model.spec.model
    known = [one for one in model.family.differences if is_same and own and one.device in ("", own.device)]
    return _report(lab, cases, known=known)


def _model_and_reference(lab: Lab) -> tuple[Model, Model]:
    """Return the model to check, in its own engine, and its reference, which runs in Transformers. Raises
    VlmtuiError."""
    arguments, registry = lab.arguments, lab.application.registry
    choice = read_backend(arguments.backend) if arguments.backend is not None else None
    model = with_preset(resolve(registry, arguments.model, choice), arguments.preset)
    model = with_engine_args(model, arguments.engine_arg)
    reference = resolve(registry, arguments.reference or arguments.model, BackendChoice(TRANSFORMERS_BACKEND))
    reference = with_preset(reference, arguments.preset)
    if model.spec.backend == TRANSFORMERS_BACKEND and model.spec.model == reference.spec.model:
        message = f"{model.spec.name} runs in Transformers itself: there is nothing to compare."
        raise VlmtuiError(ErrorKind.BAD_USAGE, message, hint="Name another engine with --backend.")
    dtype = arguments.dtype or model.spec.engine_args.get("dtype")
    if arguments.dtype:
        model = with_engine_args(model, [f"dtype={dtype}"])
    if dtype in ("float32", "bfloat16", "float16"):
        reference = with_engine_args(reference, [f"dtype={dtype}"])
    return lab.consented(model), lab.consented(reference)


# -- the table


def _report(lab: Lab, cases: Sequence[CheckCase], *, known: Sequence[KnownDifference] = ()) -> int:
    """Print the results; return the exit code. `known`: differences that the model family's record explains."""
    results = lab.results
    failed = sum(bool(one.error) for one in results)
    differing = sum(one.first is not None for one in results)
    if lab.arguments.json:
        print_json(_as_json(lab))
    elif results:
        stages = [stage for stage in Stage if any(one.stage is stage for result in results for one in result.stages)]
        print_table(
            ["file", "case", "engine", *(stage.value for stage in stages)], [_row(one, stages) for one in results]
        )
        for line in (*(line for one in results for line in _details(one)), *_engine_lines(lab, cases)):
            print(line)
    note(f"{len(results)} compared: {len(results) - differing - failed} the same, {differing} differ, {failed} failed.")
    first = next((stage.value for stage in Stage for one in results if one.first and one.first.stage is stage), "")
    for difference in known:
        if difference.stage == first:
            note(f"This is known: {difference.why}")
    return CANNOT if failed or not results else DIFFERS if differing else 0


def _row(result: CheckResult, stages: Sequence[Stage]) -> list[str]:
    outcomes = {one.stage: _MARKS[one.outcome] for one in result.stages}
    marks = ["failed" if result.error and not outcomes else outcomes.get(stage, "") for stage in stages]
    return ["/".join(Path(result.file).parts[-2:]), result.case, result.engine, *marks]


def _details(result: CheckResult) -> list[str]:
    """Return a line for each stage that differs, and for an error; the first difference says where to look."""
    title = one_line(" · ".join(filter(None, (Path(result.file).name, result.case, result.engine))))
    lines = []
    for one in result.stages:
        if one.outcome is StageOutcome.DIFFERS:
            where = f" {where_to_look(one)}" if one == result.first and where_to_look(one) else ""
            lines.append(f"{title}: {one.stage.value}: {one_line(one.message)}.{where}")
    return [*lines, f"{title}: failed: {one_line(result.error)}"] if result.error else lines


def _engine_lines(lab: Lab, cases: Sequence[CheckCase]) -> list[str]:
    """Return lines about each engine: its facts, and how its fingerprint differs from the one recorded in the files,
    or, if none is recorded, from the first engine's."""
    lines = []
    then = next((case.made_by for case in cases if case.made_by is not None), None)
    for name, _, info in lab.engines:
        now = fingerprint_of(info)
        lines.append(f"{one_line(name)}: {one_line(now.model)} · {now.facts}")
        changed = changed_fingerprint(then, now) if then is not None else {}
        lines += [f"  {key}: {_value_text(old)} → {_value_text(new)}" for key, (old, new) in changed.items()]
        then = then or now
    return lines


def _value_text(value: object) -> str:
    return "default" if value is None else one_line(str(value))


def _as_json(lab: Lab) -> dict[str, object]:
    return {
        "same": bool(lab.results) and not any(one.error or one.first for one in lab.results),
        "engines": [
            {"engine": name, "model": model, "fingerprint": msgspec.to_builtins(fingerprint_of(info))}
            for name, model, info in lab.engines
        ],
        "results": [
            {
                **msgspec.to_builtins(one),
                "same": one.first is None and not one.error,
                "first_difference": one.first.stage.value if one.first is not None else None,
            }
            for one in lab.results
        ],
    }
