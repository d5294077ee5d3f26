"""`vlmtui check`: run the same cases on several engines, and print where they first differ; record cases; and find out
whether an engine sees its images.

A case is a conversation and a prompt mode, chat or raw. A stage is what can differ: prompt text, token ids, pixels, ….
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from vlmtui.bootstrap import Application, build
from vlmtui.cli.engine import (
    AskSetup,
    add_reload_option,
    add_trust_option,
    models_on,
    ready_engine,
    run_interruptible,
    when_changed,
    with_consent,
)
from vlmtui.cli.output import note, print_error, print_json, print_table
from vlmtui.domain.conversation import user_turn
from vlmtui.domain.engine import EngineInfo
from vlmtui.engine.interface import Engine
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.export.web_page import render_page
from vlmtui.files import write_atomically
from vlmtui.inspection.build import fingerprint_of
from vlmtui.inspection.recorded import By, RecordedCase
from vlmtui.inspection.stages import CheckedSide, Stage, StageOutcome, where_to_look
from vlmtui.inspection.statistics import interval, paired_p, share_text
from vlmtui.reading import is_file, is_folder, unreadable
from vlmtui.registry.estimate import estimated_tokens, settings_of
from vlmtui.registry.hub_cache import model_folder
from vlmtui.registry.match import Model, resolve
from vlmtui.session.adapters import find_adapter, require_allowed, takes_adapter, with_adapters
from vlmtui.session.batch.media_desk import MediaDesk
from vlmtui.session.batch.results import read_results
from vlmtui.session.check.cases import (
    CheckCase,
    batch_cases,
    built_in_cases,
    case_folder,
    case_of,
    comparison_cases,
    conversation_cases,
    copied_beside,
    is_conversation,
    name_by_document,
    question_case,
    read_record,
    recorded_case,
    write_recorded,
)
from vlmtui.session.check.questions import QuestionOutcome, QuestionResult, ask_question, questions, sees
from vlmtui.session.check.run import CheckResult, MakeSides, changed_fingerprint, run_cases
from vlmtui.session.check.sides import (
    kept_files,
    require_here,
    sides_by_processor,
    sides_in_parts,
    text_of,
    uses_images,
)
from vlmtui.session.check.sight import ASKED, SentImage, SightOutcome, draw_images, send_images
from vlmtui.session.engines import is_remote
from vlmtui.session.generation import PromptMode
from vlmtui.session.lanes import HERE
from vlmtui.text import cut, one_line

DIFFERS = 1
"""Exit code: a stage differs, or the engine does not see."""
CANNOT = 2
"""Exit code: a case could not be compared."""
_SIGNIFICANT = 0.05
"""Two batches differ if the probability of such a difference by chance is smaller."""
PROCESSOR = "processor"
"""The name of a side: the model's own tokenizer and processor, without an engine."""
_RECORD = "record"
_ANSWER_MAX = 80
"""The characters of an answer in a table."""
_VERDICTS = {
    True: "It sees.",
    False: "It does not see: it names no two of three single shapes.",
    None: "It could not be asked.",
}
_MARKS = {
    StageOutcome.SAME: "✓",
    StageOutcome.COUNTS: "≈",
    StageOutcome.DIFFERS: "✗",
    StageOutcome.UNKNOWN: "–",
}


# -- the arguments


def fill_check(check: argparse.ArgumentParser) -> None:
    check.description = (
        "Run the same cases on several engines, and report the first stage at which each differs from the base: prompt "
        "text, token ids, image tokens, pixels, log-probabilities, greedy answer. The base is the recorded result, "
        "otherwise the first engine. With one engine and no recorded result, the base is the model's own processor, "
        "and the engine is also sent images of difficult sizes and asked what they show. "
        "`check record DIR --model M` records prompts."
    )
    check.epilog = "exit codes: 0 the same, 1 something differs, 2 something can't be compared"
    check.add_argument(
        "cases",
        metavar="CASES",
        nargs="*",
        help="recorded prompts, exports of Compare, `ask` or conversations, batch files (.jsonl), or folders of them; "
        "without, built-in conversations",
    )
    check.add_argument(
        "--on",
        action="append",
        metavar="ENGINE",
        help="an engine: here, transformers, vllm==X.Y.Z, a model, transformers:MODEL, a server, or processor (the "
        "model's own, without an engine); engine arguments may follow, as in 'here dtype=float32'; may be repeated",
    )
    check.add_argument(
        "--model",
        metavar="M",
        action="append",
        default=[],
        help="the model of CASES, instead of the recorded one; a local folder must be named here; may be repeated",
    )
    check.add_argument(
        "--mode", choices=("chat", "raw", "both"), default="chat", help="chat template, raw prompt, or both (chat)"
    )
    check.add_argument(
        "--case",
        metavar="NAME",
        action="append",
        default=[],
        help="a built-in conversation, or a name for --question; may be repeated",
    )
    check.add_argument("--question", metavar="TEXT", help="ask this instead of the built-in conversations")
    check.add_argument("--image", metavar="P", action="append", default=[], help="with --question: an image")
    check.add_argument(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a parameter of the built-in conversations or the question: max_tokens=64, thinking=off, …",
    )
    check.add_argument("--key-env", metavar="NAME", help="the environment variable with a server's key")
    check.add_argument(
        "--adapter", metavar="FOLDER", help="the LoRA adapter that a recorded answer used, or a folder above it"
    )
    check.add_argument(
        "--keep",
        metavar="FOLDER",
        help="write each engine's result for a case into this folder as it comes; a check that was stopped takes them "
        "from there when you run it again",
    )
    check.add_argument("--html", metavar="FILE", help="also write the result as a web page")
    check.add_argument("--json", action="store_true", help="print JSON")
    add_trust_option(check)
    add_reload_option(check)


def check(arguments: argparse.Namespace) -> int:
    """Run the command. Return its exit code."""
    work = _record if arguments.cases[:1] == [_RECORD] else _check
    try:
        application = build({"keep_alive": "0"}, tell=note)
        with tempfile.TemporaryDirectory(prefix="vlmtui-check-") as folder, ExitStack() as stack:
            return run_interruptible(partial(work, Lab(application, arguments, Path(folder).resolve(), stack)))
    except VlmtuiError as error:
        print_error(error)
        return CANNOT


@dataclass
class Lab:
    """A run of the command: its results, and the engines that produced them."""

    application: Application
    arguments: argparse.Namespace
    folder: Path
    """A temporary folder for the processors' pixel values and drawn images."""
    stack: ExitStack
    """Closed at the end of the run."""
    results: list[CheckResult] = field(default_factory=list)
    engines: list[tuple[str, str, EngineInfo]] = field(default_factory=list)
    """The engines so far: name on the command line, model name, facts."""
    looks: list[tuple[str, bool]] = field(default_factory=list)
    """For each answer about images that was scored: the engine's name, and whether the answer depends on them."""
    images: list[SentImage] = field(default_factory=list)
    questions: list[QuestionResult] = field(default_factory=list)

    @property
    def media(self) -> Path:
        return self.application.paths.media

    @property
    def modes(self) -> tuple[PromptMode, ...]:
        mode = self.arguments.mode
        return ("chat", "raw") if mode == "both" else (mode,)

    def model(self, name: str) -> Model:
        """Return the model of this name. Raises VlmtuiError, also if its own Python code is not allowed."""
        model = resolve(self.application.registry, name)
        return with_consent(model, trust=self.arguments.trust_remote_code)

    @cached_property
    def desk(self) -> MediaDesk:
        """The media of batch files."""
        return self.stack.enter_context(closing(MediaDesk(self.application.paths.cache)))

    async def models(self, names: Sequence[str], home: Model | None) -> dict[str, Model | VlmtuiError]:
        """Return the model of each engine, or why it can't be used, by name."""
        found: dict[str, Model | VlmtuiError] = {}
        for name in names:
            try:
                (found[name],) = await asyncio.to_thread(models_on, [name], self.application, home, self.arguments)
            except VlmtuiError as error:
                found[name] = error
        return found

    def by_engine(
        self,
        name: str,
        model: Model | VlmtuiError,
        *,
        is_asked: bool = True,
        sight: Callable[[Engine], Coroutine[None, None, None]] | None = None,
    ) -> MakeSides:
        """Return a function that makes the prompts and answers of cases in an engine; it raises `model` if that is an
        error. `is_asked` False: only the prompts. `sight`: called with the engine afterwards."""

        async def make(cases: Sequence[CheckCase], answers: Sequence[tuple[int, ...]]) -> AsyncIterator[CheckedSide]:
            if isinstance(model, VlmtuiError):
                raise model
            when, keep = when_changed(self.arguments), self.arguments.keep
            setup = AskSetup(self.application, model, as_json=True, when_changed=when, is_exact=True)
            async with ready_engine(setup) as (engine, info, _):
                self.engines.append((name, model.spec.name, info))
                folder = Path(keep).resolve() if keep else self.folder / str(len(self.engines))
                files = kept_files(info, cases, answers, folder, is_asked=is_asked) if keep else []
                if kept := sum(map(is_file, files)):
                    trust = "" if info.files else ", if its model has not changed: a server doesn't tell"
                    note(f"{one_line(name)}: {kept} of {len(cases)} results are in {folder} already{trust}.")
                async for side in sides_in_parts(engine, cases, folder, answers, is_asked=is_asked, files=files):
                    if (looks := uses_images(side)) is not None:
                        self.looks.append((name, looks))
                    yield side
                if sight is not None:
                    try:
                        await sight(engine)
                    except VlmtuiError as error:  # the comparisons stay
                        self.results.append(CheckResult(engine=name, error=text_of(error)))

        return make

    def by_processor(self, model: Model) -> MakeSides:
        """Return a function that makes the prompts of cases with the model's own tokenizer and processor."""
        trust = self.arguments.trust_remote_code

        async def make(cases: Sequence[CheckCase], _answers: Sequence[tuple[int, ...]]) -> AsyncIterator[CheckedSide]:
            for side in await asyncio.to_thread(sides_by_processor, self.application.reader, model, cases, trust=trust):
                yield side

        return make

    def failed(self, path: Path | str, error: VlmtuiError) -> None:
        """Add a result for a file that can't be read."""
        self.results.append(CheckResult(file=str(path), error=text_of(error)))

    def own_cases(self, model: Model, target: Path | None = None) -> list[CheckCase]:
        """Return the question of --question; without it, the built-in conversations of --case, or all. Raises
        VlmtuiError.

        `target`: the folder in which cases will be recorded; the question's images are copied there. None: no files
        are written."""
        arguments = self.arguments
        if arguments.question is None:
            if arguments.image:
                raise VlmtuiError(ErrorKind.BAD_USAGE, "--image needs --question.")
            return built_in_cases(model, arguments.case, self.modes, self.media, arguments.set)
        if target is not None and len(arguments.case) != 1:
            raise VlmtuiError(ErrorKind.BAD_USAGE, "--question needs one name: --case NAME.")
        name = arguments.case[0] if arguments.case else "question"
        images = [Path(one) for one in arguments.image]
        if target is not None:
            images = [copied_beside(path, target) for path in images]
        here = target or Path.cwd()
        return [
            question_case(model.family, name, mode, arguments.question, images, here, self.media, arguments.set)
            for mode in self.modes
        ]


# -- recording


async def _record(lab: Lab) -> int:
    arguments, failed, written = lab.arguments, 0, []
    if len(arguments.cases) != 2 or not arguments.model:
        message = "`check record` needs a folder and a model: check record DIR --model M."
        raise VlmtuiError(ErrorKind.BAD_USAGE, message)
    on = arguments.on or [PROCESSOR]
    if len(on) != 1 or on[0] not in (PROCESSOR, HERE):
        raise VlmtuiError(ErrorKind.BAD_USAGE, f"`check record` takes one of --on {PROCESSOR} and --on {HERE}.")
    by: By = "engine" if on[0] == HERE else "processor"
    for name in arguments.model:
        model = resolve(lab.application.registry, name)
        folder = case_folder(Path(arguments.cases[1]), name)
        cases = lab.own_cases(model, folder)
        local = model_folder(model.spec.model) if is_folder(Path(name)) else None
        called = os.path.relpath(local, folder) if local is not None else name
        make = lab.by_processor(model) if by == "processor" else lab.by_engine(by, lab.model(name), is_asked=False)
        sides = [side async for side in make(cases, [()] * len(cases))]
        for case, side in zip(cases, sides, strict=True):
            if side.error:
                failed += 1
                note(f"{name} · {case.title}: not recorded\nvlmtui: {side.error}")
                continue
            path = folder / f"{case.case}.{case.mode}.json"
            write_recorded(path, case, side, model=called, by=by)
            written.append(str(path))
            if not arguments.json:
                print(one_line(str(path)))
    if arguments.json:
        print_json(written)
    return CANNOT if failed else 0


# -- checking


class _FileCases(NamedTuple):
    """The cases of a file, the name of their model, and the names of the engines to run them."""

    model: str
    engines: tuple[str, ...]
    cases: list[CheckCase]


async def _check(lab: Lab) -> int:
    arguments = lab.arguments
    if not arguments.cases and not arguments.on:
        raise VlmtuiError(
            ErrorKind.BAD_USAGE, "Nothing to check.", hint="Name engines with --on, or files with recorded results."
        )
    if len(set(arguments.on or ())) != len(arguments.on or ()):
        raise VlmtuiError(ErrorKind.BAD_USAGE, "The engines must all be different.")
    if not arguments.cases:
        return await _check_engines(lab)
    paths = [Path(one) for one in arguments.cases]
    if not arguments.on and len(paths) == 2 and all(path.suffix == ".jsonl" for path in paths):
        return _compare_scores(*paths, as_json=arguments.json)
    groups: dict[tuple[str, tuple[str, ...]], list[CheckCase]] = {}
    for path in _files(paths):
        try:
            found = await _read(lab, path)
        except VlmtuiError as error:
            lab.failed(path, error)
        else:
            groups.setdefault((found.model, found.engines), []).extend(found.cases)
    try:
        for (model, names), cases in groups.items():
            try:
                makers = await _makers(lab, _FileCases(model, names, cases))
            except VlmtuiError as error:
                for file in dict.fromkeys(case.file for case in cases):
                    lab.failed(file, error)
            else:
                await run_cases(cases, makers, lab.results)
    finally:  # also after Ctrl+C
        code = _report(lab, [case for cases in groups.values() for case in cases])
    return code


def _compare_scores(before: Path, now: Path, *, as_json: bool) -> int:
    """Compare the results of two batches, item by item. Return DIFFERS if such a difference by chance has a
    probability below 5 %, otherwise 0."""
    runs = []
    for path in (before, now):
        try:
            runs.append({one.title: one.correct for one in read_results(path) if one.correct is not None})
        except OSError as error:
            raise unreadable(path, error) from error
    both = [title for title in runs[0] if title in runs[1]]
    if not both:
        raise bad_input(
            "The two files have no items in common that have expected answers.",
            hint="Name two outputs of `vlmtui batch`.",
        )
    wins = [title for title in both if runs[1][title] and not runs[0][title]]
    losses = [title for title in both if runs[0][title] and not runs[1][title]]
    chance = paired_p(len(wins), len(losses))
    shares = [sum(bool(run[title]) for title in both) for run in runs]
    if as_json:
        print_json({"items": len(both), "right": shares, "won": wins, "lost": losses, "p": chance})
    else:
        for path, right in zip((before, now), shares, strict=True):
            print(f"{one_line(path.name)}: {right:,} of {len(both):,}: {share_text(right, len(both))}")
        for verb, titles in (("won", wins), ("lost", losses)):
            print(f"{verb}: {len(titles):,} {one_line(', '.join(titles))}".rstrip())
        print(f"McNemar's exact test: p = {chance:.3g}")
    return DIFFERS if chance < _SIGNIFICANT else 0


async def _check_engines(lab: Lab) -> int:
    """Run the built-in conversations or the question on the engines. A single engine is compared with the model's own
    processor, and is sent images."""
    arguments = lab.arguments
    home = lab.model(arguments.model[-1]) if arguments.model else None
    names = [name for name in arguments.on if name != PROCESSOR]
    if not names:
        raise VlmtuiError(ErrorKind.BAD_USAGE, "Name an engine with --on to compare with the processor.")
    models = await lab.models(names, home)
    known = [model for model in models.values() if not isinstance(model, VlmtuiError)]
    base = home or next((model for model in known if not is_remote(model)), known[0] if known else None)
    if base is None:
        raise next(error for error in models.values() if isinstance(error, VlmtuiError))
    cases = lab.own_cases(base)
    engines: dict[str, MakeSides] = {}
    is_alone = len(names) == 1
    has_files = model_folder(base.spec.model) is not None
    if PROCESSOR in arguments.on or (is_alone and has_files):
        engines[PROCESSOR] = lab.by_processor(base)
    elif is_alone:
        note(f"The files of {one_line(base.spec.name)} are not on this machine: its prompts are not compared.")
    for name, model in models.items():
        sight = partial(_look, lab, base) if is_alone and "image" in base.family.takes else None
        engines[name] = lab.by_engine(name, model, sight=sight)
    try:
        await run_cases(cases, engines, lab.results)
    finally:  # also after Ctrl+C
        code = _report(lab, cases, family_of=base)
    return code


async def _look(lab: Lab, model: Model, engine: Engine) -> None:
    """Send images of difficult sizes, and ask about drawn ones."""
    family, sampling = model.family, lab.application.settings.sampling.over(model.family.sampling)
    folder = lab.folder / "drawn"
    folder.mkdir()
    images = await asyncio.to_thread(draw_images, folder, lab.media)
    expected: dict[str, int] = {}
    around: int | None = None
    if model_folder(model.spec.model) is not None:
        shown = [(), *((image,) for image in images.values())]
        cases = [case_of(family, "image", "chat", (user_turn(ASKED, some),)) for some in shown]
        text, *sides = [side async for side in lab.by_processor(model)(cases, [()] * len(cases))]
        for name, side in zip(images, sides, strict=True):
            if side.media:
                expected[name] = sum(span.tokens for span in side.media)
                around = len(side.token_ids) - len(text.token_ids) - expected[name] if text.token_ids else None
    else:
        settings = settings_of(family, engine_args=model.spec.engine_args)
        estimates = {name: estimated_tokens(family, image, settings=settings) for name, image in images.items()}
        expected = {name: tokens for name, tokens in estimates.items() if tokens is not None}
    lab.images.extend(await send_images(engine, family, images, expected, sampling, around))
    if any(one.outcome is SightOutcome.ENDED for one in lab.images):
        return
    for case in await asyncio.to_thread(questions, folder, lab.media):
        lab.questions.append(await ask_question(engine, family, case, sampling))


async def _read(lab: Lab, path: Path) -> _FileCases:
    """Return the cases of a file. Raises VlmtuiError."""
    arguments = lab.arguments
    engines = tuple(arguments.on or ())
    own = arguments.model[-1] if arguments.model else None
    if path.suffix == ".jsonl" or is_conversation(path):
        if own is None:
            raise VlmtuiError(ErrorKind.BAD_USAGE, "The file names no model to check.", hint="Name it with --model.")
        model, cases = lab.model(own), list[CheckCase]()
        for mode in lab.modes:
            if path.suffix == ".jsonl":
                cases += await batch_cases(model.family, path, mode, lab.desk)
            else:
                cases += conversation_cases(model.family, path, mode, lab.media)
        if len(engines) < 2:
            if model_folder(model.spec.model) is None:
                message = f"There is nothing to compare with: {own} is not downloaded."
                raise bad_input(message, hint="Name two engines with --on.")
            engines = (PROCESSOR, *(engines or (HERE,)))
        return _FileCases(own, engines, cases)
    record = read_record(path)
    if isinstance(record, RecordedCase):
        name = _allowed_model(record.model, path, arguments.model)
        model = resolve(lab.application.registry, name)
        default = HERE if record.by == "engine" else PROCESSOR
        return _FileCases(name, engines or (default,), [recorded_case(model.family, record, path, lab.media)])
    name = own or name_by_document(record.model)
    lab.model(name)
    for side in record.sides:
        if side.adapter:
            require_allowed(side.adapter, arguments.adapter)
    return _FileCases(name, engines or (HERE,), comparison_cases(path, record, lab.media))


async def _makers(lab: Lab, found: _FileCases) -> dict[str, MakeSides]:
    """Return, by engine name, the functions that run the cases of a model. Without --on, recorded
    prompts are only made, not answered."""
    arguments = lab.arguments
    model = resolve(lab.application.registry, found.model)
    names = [name for name in found.engines if name != PROCESSOR]
    engines: dict[str, MakeSides] = {}
    if PROCESSOR in found.engines:
        require_here(model)
        engines[PROCESSOR] = lab.by_processor(model)
    if not names:
        return engines
    home = lab.model(found.model)
    adapters = [find_adapter(one) for one in dict.fromkeys(case.request.adapter for case in found.cases) if one]
    models = await lab.models(names, home)
    is_local = any(not isinstance(model, VlmtuiError) and not is_remote(model) for model in models.values())
    if not arguments.model and is_local and model_folder(home.spec.model) is None:
        message = f"{found.model} is not downloaded, and a file alone can't start a download."
        raise bad_input(message, hint=f"If you want it, add --model {found.model}.")
    is_asked = bool(arguments.on) or any(case.made_by for case in found.cases)
    for name, one in models.items():
        if not isinstance(one, VlmtuiError) and not is_remote(one):
            own = [adapter for adapter in adapters if not takes_adapter(one.spec, adapter)]
            one = with_adapters(one, *adapters) if own else one
        engines[name] = lab.by_engine(name, one, is_asked=is_asked)
    return engines


def _allowed_model(name: str, path: Path, allowed: Sequence[str]) -> str:
    """Return the model that a recorded prompt names. Raises VlmtuiError if it is a folder that is not in `allowed`, the
    folders given with --model."""
    if not (Path(name).is_absolute() or name.startswith(".")):
        return name_by_document(name)
    model = (path.parent / name).resolve()
    if not any(model == Path(one).expanduser().resolve() for one in allowed):
        shown = shlex.quote(os.path.relpath(model))
        message = f"The recorded prompt names the model folder {one_line(name)}, which needs your permission."
        raise bad_input(message, hint=f"If it is yours, add --model {one_line(shown)}.")
    return str(model)


def _files(given: Sequence[Path]) -> list[Path]:
    """Return the files; for a folder, the JSON files in it, sorted. Raises VlmtuiError if it has none."""
    found: list[Path] = []
    for path in given:
        inside = sorted(one for one in path.rglob("*.json*") if is_file(one)) if is_folder(path) else [path]
        if not inside:
            raise bad_input(f"{path} has no recorded prompts.", hint="`vlmtui check record` makes them.")
        found += inside
    return found


# -- the result


def _report(lab: Lab, cases: Sequence[CheckCase], *, family_of: Model | None = None) -> int:
    """Print the results; return the exit code. `family_of`: the model whose record explains known differences."""
    results = lab.results
    failed = sum(bool(one.error) for one in results)
    differing = sum(one.first is not None for one in results)
    wrong = any(one.outcome in (SightOutcome.WRONG, SightOutcome.ENDED) for one in lab.images)
    unused = bool(lab.questions and lab.looks) and not any(looks for _, looks in lab.looks)
    is_blind = wrong or unused or sees(lab.questions) is False
    refused = [one for one in lab.images if one.outcome is SightOutcome.REFUSED and one.expected is not None]
    unasked = [one for one in lab.questions if one.outcome is QuestionOutcome.FAILED]
    sections = _sections(lab, cases)
    if lab.arguments.html:
        page = render_page("check.html", title="vlmtui check", sections=sections)
        write_atomically(Path(lab.arguments.html), page.encode())
    if lab.arguments.json:
        print_json(_as_json(lab))
    else:
        for number, section in enumerate(sections):
            if number:
                print()
            print_table(section.head, section.rows)
            for line in section.lines:
                print(line)
    note(f"{len(results)} compared: {len(results) - differing - failed} the same, {differing} differ, {failed} failed.")
    first = next((stage.value for stage in Stage for one in results if one.first and one.first.stage is stage), "")
    known = family_of.family.differences if family_of is not None else ()
    devices = {info.device for _, _, info in lab.engines}
    for difference in known:
        if difference.stage == first and difference.device in ("", *devices):
            note(f"This is known: {difference.why}")
    if failed or refused or unasked or not (results or lab.images):
        return CANNOT
    return DIFFERS if differing or is_blind else 0


class Section(NamedTuple):
    """A part of the result: a table, and lines below it."""

    title: str
    head: tuple[str, ...]
    rows: list[list[str]]
    lines: list[str]


def _sections(lab: Lab, cases: Sequence[CheckCase]) -> list[Section]:
    found = []
    if lab.results:
        stages = [
            stage for stage in Stage if any(one.stage is stage for result in lab.results for one in result.stages)
        ]
        head = ("file", "case", "engine", *(stage.value for stage in stages))
        rows = [_row(one, stages) for one in lab.results]
        if not any(one.file for one in lab.results):
            head, rows = head[1:], [row[1:] for row in rows]
        lines = [line for one in lab.results for line in _details(one)]
        lines += [*_look_lines(lab), *_engine_lines(lab, cases)]
        found.append(Section("Where they differ", head, rows, lines))
    if lab.images:
        rows = [[one.name, _count(one.expected), _count(one.told), one.outcome.value] for one in lab.images]
        lines = [f"{one.name}: {one_line(one.message)}" for one in lab.images if one.message]
        found.append(Section("Images of difficult sizes", ("image", "expected", "counted", ""), rows, lines))
    if lab.questions:
        rows = [
            [one.skill, one_line(one.asked), cut(one_line(one.seen), _ANSWER_MAX), one.expected, one.outcome.value]
            for one in lab.questions
        ]
        lines = [_VERDICTS[sees(lab.questions)]]
        found.append(Section("Questions about images", ("about", "question", "answer", "expected", ""), rows, lines))
    return found


def _count(tokens: int | None) -> str:
    return "?" if tokens is None else f"{tokens:,}"


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


def _looks(lab: Lab) -> dict[str, tuple[int, int]]:
    """Return for each engine the number of answers that depend on their images, and of all that were scored."""
    counts: dict[str, tuple[int, int]] = {}
    for name, looks in lab.looks:
        used, total = counts.get(name, (0, 0))
        counts[name] = used + looks, total + 1
    return counts


def _look_lines(lab: Lab) -> list[str]:
    return [
        f"{one_line(name)}: uses the images in {used:,} of {total:,} items: {share_text(used, total)}"
        for name, (used, total) in _looks(lab).items()
    ]


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
        "uses_images": [
            {"engine": name, "items": total, "used": used, "interval": interval(used, total)}
            for name, (used, total) in _looks(lab).items()
        ],
        "images": msgspec.to_builtins(lab.images),
        "questions": msgspec.to_builtins(lab.questions),
        "sees": sees(lab.questions),
    }
