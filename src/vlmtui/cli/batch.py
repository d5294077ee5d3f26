"""`vlmtui batch`: asks many questions, and appends each answer to a file."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import msgspec

from vlmtui.cli.ask_engine import AskSetup, leave_engine, open_loaded, prepare
from vlmtui.cli.batch_items import ItemSource, open_items
from vlmtui.cli.batch_progress import BatchProgress
from vlmtui.cli.batch_ray import RAY, RayRun, ray_plan
from vlmtui.cli.batch_summary import print_summary, summary_json
from vlmtui.cli.engine_offer import offer_engine
from vlmtui.cli.interrupts import run_interruptible
from vlmtui.cli.output import note, print_json
from vlmtui.cli.raw_prompt import read_raw_prompt
from vlmtui.cli.ray_watch import LIMIT_S
from vlmtui.config.duration import parse_duration
from vlmtui.domain.parameters import find_parameter
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Engine
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.files import write_output
from vlmtui.paths import Paths
from vlmtui.reading import is_file
from vlmtui.registry.match import Model
from vlmtui.session.batch.background import STDIN, BackgroundBatches
from vlmtui.session.batch.cache_check import SentItem, check_media_cache, sent_item
from vlmtui.session.batch.formats import write_format
from vlmtui.session.batch.output import OutputFile
from vlmtui.session.batch.parsing import read_sampling
from vlmtui.session.batch.places import EnginePlace
from vlmtui.session.batch.records import BatchRecord, BatchRecords, RunningBatch, batch_words
from vlmtui.session.batch.report import batch_page
from vlmtui.session.batch.requests import ItemRequests
from vlmtui.session.batch.results import score_of
from vlmtui.session.batch.runner import BatchJob, run_batch
from vlmtui.session.batch.tally import Tally
from vlmtui.session.batch.work import INCLUDES, ItemResult
from vlmtui.session.dials import with_default_parameters
from vlmtui.session.generation import PromptMode
from vlmtui.text import one_line, quoted

_SHOWN = 10
_EXAMPLE_SAMPLING: dict[str, object] = {"temperature": 0.2, "max_tokens": 64}
"""What vLLM's example `vision_language.py` sets, so that equal prompts may get different answers."""


def batch(arguments: argparse.Namespace) -> int:
    """Run the command. Raises VlmtuiError."""
    _check_usage(arguments)
    if arguments.detach:
        return _detach(arguments)
    engines = [None] if arguments.on == [RAY] else arguments.on or [arguments.engine]
    setups = [_prepared(arguments, engine) for engine in engines]
    with ExitStack() as stack:
        source = open_items(arguments, stack)
        requests = _requests(setups[0], arguments)
        output = OutputFile(Path(arguments.output))
        stack.callback(output.close)
        _tell_of(output)
        running = stack.enter_context(_recorded(arguments, setups[0].application.paths, output.path))
        _tell_ready(arguments.ready, output.path)
        return _run(_Job(arguments, setups, source, requests, output, running), running)


def _run(job: _Job, running: RunningBatch) -> int:
    """Run the job, and note in its record how it ended. Raises VlmtuiError."""
    try:
        try:
            code = run_interruptible(job.run)
        except VlmtuiError as error:
            if error.kind is not ErrorKind.NO_ENGINE or not job.offer_engine():
                raise
            code = run_interruptible(job.run)
    except VlmtuiError as error:
        running.end(job.tally, job.share(), exit_code=error.exit_code, error=error.message)
        raise
    running.end(job.tally, job.share(), exit_code=code)
    return code


def _detach(arguments: argparse.Namespace) -> int:
    """Start the same batch as a process of its own. Raises VlmtuiError if it ends before its model is loaded."""
    if arguments.input == STDIN:
        raise VlmtuiError(ErrorKind.BAD_USAGE, "--detach needs IN as a file: stdin ends with the terminal.")
    again = [word for name in arguments.again or () for word in ("--again", name)]
    BackgroundBatches(Paths.default()).start(batch_words(sys.argv[1:]), Path.cwd(), own=again)
    output = one_line(arguments.output)
    note(f"{output} is being written without this terminal. To see how far it is: vlmtui batches attach {output}")
    return 0


def _recorded(arguments: argparse.Namespace, paths: Paths, output: Path) -> AbstractContextManager[RunningBatch]:
    record = BatchRecord(
        output=str(output), folder=str(Path.cwd()), words=batch_words(sys.argv[1:]), input=arguments.input or ""
    )
    return BatchRecords(paths).running(record, is_part=bool(arguments.again))


def _tell_ready(descriptor: int | None, output: Path) -> None:
    """Tell the process that started this one that it is about to load the model."""
    if descriptor is not None:
        with suppress(OSError), os.fdopen(descriptor, "wb") as pipe:
            pipe.write(os.fsencode(output))


class _Job:
    """One run of the command, after everything that needs no engine has been checked."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        setups: Sequence[AskSetup],
        source: ItemSource,
        requests: ItemRequests,
        output: OutputFile,
        running: RunningBatch,
    ) -> None:
        self.tally = Tally()
        self._arguments = arguments
        self._setups = setups
        self._source = source
        self._requests = requests
        self._output = output
        self._running = running
        self._started = 0.0
        self._sent: list[SentItem] = []
        self._is_verified = True

    def share(self) -> float | None:
        """Return the share of the input that was read; None: unknown."""
        return self._source.share()

    def offer_engine(self) -> bool:
        """Offer to install the engine that is missing; return whether one was installed."""
        return offer_engine(self._setups[0].application.paths, self._setups[0].model.spec)

    async def run(self) -> int:
        progress = BatchProgress(sys.stderr, self._source.share, self._running)
        setups = [] if self._arguments.on == [RAY] else self._setups
        async with _engines(setups, self._arguments.max_concurrency) as places:
            self._started = time.monotonic()
            progress.begin()
            try:
                await (self._answer_all(places, progress) if places else self._answer_on_ray(progress))
            except (VlmtuiError, asyncio.CancelledError):
                progress.clear()
                self._print(time.monotonic() - self._started)
                note(f"What was answered is in {one_line(self._arguments.output)}. To go on: {_same_command()}")
                raise
            progress.clear()
            elapsed_s = time.monotonic() - self._started
            self._print(elapsed_s)
            if self._arguments.verify_mm_cache_hit_with_uuids:
                await self._verify(places[0].engine)
        self._write_more()
        return self._status()

    async def _answer_all(self, places: Sequence[EnginePlace], progress: BatchProgress) -> None:
        model = self._setups[0].model
        job = BatchJob(
            items=self._source.items,
            output=self._output,
            requests=self._requests,
            places=places,
            model=model.spec.name,
            cache=self._setups[0].application.paths.cache,
            num_frames=self._arguments.num_frames or model.spec.num_frames,
            include=frozenset(_words(self._arguments.include)),
            retry_errors=self._arguments.retry_errors,
            again=frozenset(self._arguments.again or ()),
            observe=self._remember if self._arguments.verify_mm_cache_hit_with_uuids else lambda result: None,
        )
        await run_batch(job, self.tally, progress)

    async def _answer_on_ray(self, progress: BatchProgress) -> None:
        arguments, output = self._arguments, self._output
        include = frozenset(_words(arguments.include))
        limit = arguments.give_up_after
        limit_s = LIMIT_S if limit is None else parse_duration(limit)
        run = RayRun(ray_plan(arguments, self._setups[0], self._requests, include), limit_s=limit_s)
        if arguments.retry_errors:
            output.drop_failed()
        await run.answer(self._source.items, output, self.tally, progress)

    def _remember(self, result: ItemResult) -> None:
        if (sent := sent_item(result)) is not None:
            self._sent.append(sent)

    async def _verify(self, engine: Engine) -> None:
        """Send all answered items again without their pictures, and tell what came of it."""
        check = await check_media_cache(engine, self._sent)
        hits = check.sent - len(check.misses)
        note(f"By identifier: {hits:,} of {check.sent:,} found in the cache, {len(check.different):,} answers differ.")
        for name in (*check.misses, *check.different)[:_SHOWN]:
            note(f"    {one_line(name)}: {'not in the cache' if name in check.misses else 'another answer'}")
        self._is_verified = check.is_passed

    def _print(self, elapsed_s: float) -> None:
        if self._arguments.time_generate:
            note(f"-- generate time = {elapsed_s}")
        for model in self._source.reader.models if self._source.reader is not None else ():
            if model not in (self._setups[0].model.spec.model, self._setups[0].model.spec.name):
                note(f"warning: lines name the model {quoted(model)}; {self._setups[0].model.spec.name} was asked.")
        print_summary(self.tally, elapsed_s)
        if self._arguments.json:
            print_json(summary_json(self.tally, elapsed_s, self._arguments.output))

    def _write_more(self) -> None:
        """Write what --format and --report ask for. Raises VlmtuiError."""
        path = self._output.path
        for name in self._arguments.format:
            note(f"Written: {one_line(str(write_format(name, path)))}")
        if self._arguments.report is not None:
            write_output(Path(self._arguments.report), batch_page(path).encode("utf-8", "replace"))
            note(f"Written: {one_line(self._arguments.report)}")

    def _status(self) -> int:
        failed = self.tally.failed + self.tally.failed_before
        if failed:
            them = "item failed: --retry-errors asks it" if failed == 1 else "items failed: --retry-errors asks them"
            note(f"{failed:,} {them} again.")
        score = score_of(self._output.path)
        if score is not None:
            note(f"As expected: {score.correct:,} of {score.expected:,} ({score.share:.1%}).")
        least = self._arguments.min_score
        if least is not None and (score is None or score.share < least):
            found = "nothing is expected" if score is None else f"the score is {score.share:.3f}"
            note(f"vlmtui: {found}, below --min-score {least:g}.")
            return 1
        return 1 if failed or not self._is_verified else 0


@asynccontextmanager
async def _engines(setups: Sequence[AskSetup], most: int | None) -> AsyncIterator[list[EnginePlace]]:
    """Yield a place for each engine, loaded, and leave them all in the end."""
    places: list[EnginePlace] = []
    try:
        for setup in setups:
            opener = partial(open_loaded, setup, client="batch")
            places.append(EnginePlace(opener, await opener(), most=most))
        yield places
    finally:
        for place, setup in zip(places, setups, strict=False):
            await leave_engine(place.engine, setup)


def _prepared(arguments: argparse.Namespace, engine: str | None) -> AskSetup:
    """Return the model on one engine, with the engine arguments that the switches stand for."""
    values = dict(vars(arguments), engine=engine)
    if engine is None:
        values["engine_arg"] = [*arguments.engine_arg, *_engine_arguments(arguments)]
    return prepare(argparse.Namespace(**values))


def _engine_arguments(arguments: argparse.Namespace) -> list[str]:
    found = []
    if arguments.disable_mm_processor_cache:
        found.append("mm_processor_cache_gb=0")
    if arguments.tensor_parallel_size is not None:
        found.append(f"tensor_parallel_size={arguments.tensor_parallel_size}")
    return found


def _defaults(setup: AskSetup) -> Sampling:
    settings, family = setup.application.settings, setup.model.family
    return with_default_parameters(settings.sampling.over(family.sampling), family, settings.parameters)


def _requests(setup: AskSetup, arguments: argparse.Namespace) -> ItemRequests:
    application, model = setup.application, setup.model
    mode: PromptMode = "raw" if arguments.mode == "raw" or arguments.method == "generate" else "chat"
    template = read_raw_prompt(arguments.raw_prompt) if arguments.raw_prompt is not None else ""
    return ItemRequests(
        family=model.family,
        sampling=_sampling(_defaults(setup), model, arguments),
        mode=mode,
        system=application.settings.system_prompt,
        template=template,
        logprobs=0 if arguments.logprobs is None and "logprobs" in _words(arguments.include) else arguments.logprobs,
        is_prompt_read="prompt" in _words(arguments.include),
        registry=application.registry,
    )


def _sampling(sampling: Sampling, model: Model, arguments: argparse.Namespace) -> Sampling:
    """Return the sampling of items that set none: --set, then what the examples set, over the settings."""
    values: dict[str, object] = {}
    for text in arguments.settings:
        name, sign, value = text.partition("=")
        if not sign:
            raise VlmtuiError(ErrorKind.BAD_USAGE, f"--set {quoted(text)} is not NAME=VALUE.")
        parameter = find_parameter(name)
        values[parameter.name if parameter else name.strip()] = parameter.read(value) if parameter else value
    given, _ = read_sampling(values)
    if arguments.num_prompts is not None and model.family.sampling is None:
        open_ones = {name: value for name, value in _EXAMPLE_SAMPLING.items() if getattr(arguments, name) is None}
        given = open_ones | given
    return msgspec.structs.replace(sampling, **given)


def _check_usage(arguments: argparse.Namespace) -> None:
    """Raise VlmtuiError(BAD_USAGE) for options that cannot be combined."""
    problem = ""
    if arguments.give_up_after is not None:
        parse_duration(arguments.give_up_after)
    unknown = [word for word in _words(arguments.include) if word not in INCLUDES]
    example = ("modality", "image_repeat_prob", "use_different_prompt_per_request", "verify_mm_cache_hit_with_uuids")
    if unknown:
        problem = f"--include takes {', '.join(INCLUDES)}, not {quoted(unknown[0])}."
    elif arguments.on and arguments.engine:
        problem = "--on and --engine are the same: name each server with --on."
    elif RAY in (arguments.on or ()) and len(arguments.on) > 1:
        problem = "--on ray stands alone: its actors have engines of their own."
    elif arguments.on == [RAY] and arguments.verify_mm_cache_hit_with_uuids:
        problem = "--verify-mm-cache-hit-with-uuids asks one engine twice: not on Ray."
    elif arguments.on == [RAY] and arguments.again:
        problem = "--again asks an engine of this machine: not on Ray."
    elif arguments.input is not None and (arguments.media or arguments.num_prompts):
        problem = "IN has its own media: there is no place for --image, --video, --audio and --num-prompts."
    elif arguments.mode and arguments.method and (arguments.mode == "raw") != (arguments.method == "generate"):
        problem = "--mode and --method are the same, and say different things."
    elif arguments.num_prompts is None and (given := next((one for one in example if getattr(arguments, one)), "")):
        problem = f"--{given.replace('_', '-')} goes with --num-prompts."
    elif arguments.verify_mm_cache_hit_with_uuids and arguments.disable_mm_processor_cache:
        problem = "--verify-mm-cache-hit-with-uuids needs the cache that --disable-mm-processor-cache switches off."
    elif arguments.report is not None and Path(arguments.report).suffix.lower() != ".html":
        problem = "--report writes a web page: its name must end in .html."
    elif arguments.input not in (None, "-") and is_file(Path(arguments.output)) and _is_same(arguments):
        problem = "IN and OUT are the same file."
    if problem:
        raise VlmtuiError(ErrorKind.BAD_USAGE, problem, hint="See `vlmtui batch --help`.")


def _is_same(arguments: argparse.Namespace) -> bool:
    return is_file(Path(arguments.input)) and Path(arguments.input).samefile(arguments.output)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _tell_of(output: OutputFile) -> None:
    if output.lines:
        note(f"{one_line(output.path.name)} has {output.lines:,} lines: going on.")
    if output.cut_bytes:
        note(f"Its last line was cut off ({output.cut_bytes:,} bytes); that item is asked again.")


def _same_command() -> str:
    return shlex.join(["vlmtui", *batch_words(sys.argv[1:])])
