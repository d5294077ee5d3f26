"""`vlmtui batch`: asks many questions, and appends each answer to a file."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import sys
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import msgspec

from vlmtui.cli.ask_engine import AskSetup, leave_engine, open_loaded, prepare
from vlmtui.cli.inputs import read_raw_prompt
from vlmtui.cli.interrupts import run_interruptible
from vlmtui.cli.output import is_tty, note, print_json, write_notice
from vlmtui.config.duration import describe_duration
from vlmtui.domain.attachment import Modality
from vlmtui.domain.parameters import find_parameter
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Engine
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.files import write_output
from vlmtui.media.pages import sound_source, with_page
from vlmtui.media.web_address import is_url
from vlmtui.paths import bundled
from vlmtui.reading import is_file, unreadable
from vlmtui.session.batch.cache_check import check_media_cache
from vlmtui.session.batch.item import BadItem, BatchItem, Item, MediaSource
from vlmtui.session.batch.output import OutputFile
from vlmtui.session.batch.reading import QUESTIONS, BatchReader, items_over_files, read_sampling, repeated_items
from vlmtui.session.batch.requests import ItemRequests
from vlmtui.session.batch.results import batch_page, score_of, write_csv
from vlmtui.session.batch.runner import INCLUDES, BatchEngine, BatchJob, ItemResult, LineWriter, Tally, run_batch
from vlmtui.session.dials import with_default_parameters
from vlmtui.text import one_line, quoted

_EXAMPLE_SAMPLING: dict[str, object] = {"temperature": 0.2, "max_tokens": 64}
"""What vLLM's example `vision_language.py` sets, so that equal prompts may get different answers."""
_SAMPLES: dict[Modality, str] = {"image": "circle.png", "video": "moving-circle.mp4"}
_SHOWN = 10
_STRICT_SHOWN = 20
_PERCENTS = (50, 90, 99)
_TERMINAL_S = 0.25
"""Seconds between two lines that tell how far the batch is, on a terminal."""
_PLAIN_S = 10.0
"""The same where stderr is no terminal."""
_CLEAR = "\r\x1b[K"


def batch(arguments: argparse.Namespace) -> int:
    """Run the command. Raises VlmtuiError."""
    _check_usage(arguments)
    setup = _setup(arguments)
    with ExitStack() as stack:
        reader = _reader(arguments, stack)
        items = iter(reader) if reader is not None else _made_items(arguments)
        output = stack.enter_context(closing(OutputFile(Path(arguments.output))))
        if output.lines:
            note(f"{one_line(output.path.name)} has {output.lines:,} lines: going on.")
        if output.cut_bytes:
            note(f"Its last line was cut off ({output.cut_bytes:,} bytes); that item is asked again.")
        job = _Job(arguments, setup, items, reader, output)
        return run_interruptible(job.run)


class _Job:
    """One run of the command, after everything that needs no engine has been checked."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        setup: AskSetup,
        items: Iterator[Item],
        reader: BatchReader | None,
        output: OutputFile,
    ) -> None:
        self._arguments = arguments
        self._setup = setup
        self._items = items
        self._reader = reader
        self._output = output
        self._tally = Tally()
        self._started = self._told = time.monotonic()
        self._sent: list[ItemResult] = []
        requests = _requests(setup, arguments)
        self._batch = BatchJob(
            requests=requests,
            writer=LineWriter(setup.model.spec.name, requests.mode, frozenset(_words(arguments.include))),
            cache=setup.application.paths.cache,
            num_frames=arguments.num_frames or setup.model.spec.num_frames,
        )

    async def run(self) -> int:
        """Answer the items, and return the exit code. Raises VlmtuiError."""
        arguments, is_verified = self._arguments, True
        if arguments.retry_errors:
            self._output.drop_failed()
        if arguments.on == "ray":
            from vlmtui.cli.batch_ray import run_on_ray

            progress = self._show_progress
            await self._answer(
                run_on_ray(arguments, self._batch, self._items, self._output, self._tally, progress=progress)
            )
        else:
            engine = BatchEngine(self._open, await self._open(), most=arguments.max_concurrency)
            try:
                await self._answer(
                    run_batch(
                        self._batch,
                        self._items,
                        self._output,
                        engine,
                        self._tally,
                        progress=self._show_progress,
                        observe=self._remember,
                    )
                )
                if arguments.verify_mm_cache_hit_with_uuids:
                    is_verified = await self._verify(engine.engine)
            finally:
                await leave_engine(engine.engine, self._setup)
        if arguments.csv is not None:
            write_csv(self._output.path, Path(arguments.csv))
            note(f"Written: {one_line(arguments.csv)}")
        if arguments.report is not None:
            write_output(Path(arguments.report), batch_page(self._output.path).encode("utf-8", "replace"))
            note(f"Written: {one_line(arguments.report)}")
        return self._status(is_verified=is_verified)

    async def _open(self) -> Engine:
        return await open_loaded(self._setup, client="batch")

    async def _answer(self, answering: Coroutine[Any, Any, None]) -> None:
        """Wait until the items are answered, and tell what became of them, however it ends."""
        self._started = time.monotonic()
        try:
            await answering
        except (VlmtuiError, asyncio.CancelledError):
            self._tell_counts()
            command = shlex.join(["vlmtui", *sys.argv[1:]])
            note(f"What was answered is in {one_line(self._arguments.output)}. To go on: {command}")
            raise
        self._tell_counts()

    def _remember(self, result: ItemResult) -> None:
        if self._arguments.verify_mm_cache_hit_with_uuids and result.attachments and result.failure is None:
            self._sent.append(result)

    async def _verify(self, engine: Engine) -> bool:
        """Send all answered items again without their pictures, tell what came of it, and return whether the cache held
        them all and the answers are the same."""
        misses, different = await check_media_cache(engine, self._sent)
        sent = len(self._sent)
        note(
            f"By identifier: {sent - len(misses):,} of {sent:,} found in the cache, {len(different):,} answers differ."
        )
        for name in (*misses, *different)[:_SHOWN]:
            note(f"    {one_line(name)}: {'not in the cache' if name in misses else 'another answer'}")
        return sent > 0 and not misses and not different

    def _show_progress(self, tally: Tally) -> None:
        """Show how far it is on stderr if it is time: one line that changes on a terminal, otherwise a line now and
        then."""
        now = time.monotonic()
        if now - self._told < (_TERMINAL_S if _has_cursor() else _PLAIN_S):
            return
        self._told = now
        elapsed_s = max(now - self._started, 1e-9)
        rate = (tally.answered + tally.failed) / elapsed_s
        text = f"{tally.done:,} done · {rate:.1f} items/s · {tally.failed:,} failed"
        share = tally.done / self._arguments.num_prompts if self._arguments.num_prompts else 0.0
        if self._reader is not None and self._reader.size and tally.read:
            share = self._reader.read / self._reader.size * tally.done / tally.read
        if 0 < share < 1 and rate:
            left_s = (tally.done / share - tally.done) / rate
            text += f" · {share:.0%} · ~{describe_duration(max(1, round(left_s)))} left"
        if not _has_cursor():
            write_notice(sys.stderr, text + "\n")
            return
        try:
            width = os.get_terminal_size(sys.stderr.fileno()).columns
        except OSError:
            width = 80
        write_notice(sys.stderr, _CLEAR + text[: max(1, width - 1)])

    def _tell_counts(self) -> None:
        """Write the counts of the run to stderr, and with --json to stdout."""
        if _has_cursor():
            write_notice(sys.stderr, _CLEAR)
        elapsed_s, tally, spec = time.monotonic() - self._started, self._tally, self._setup.model.spec
        if self._arguments.time_generate:
            note(f"-- generate time = {elapsed_s}")
        for model in self._reader.models if self._reader is not None else ():
            if model not in (spec.model, spec.name):
                note(f"warning: lines name the model {quoted(model)}; {spec.name} was asked.")
        counts = [f"{tally.answered:,} answered", f"{tally.failed:,} failed"]
        for count, word in (
            (tally.skipped, "answered before"),
            (tally.failed_before, "failed before"),
            (tally.unchecked, "answered before, with files that are gone"),
        ):
            counts += [f"{count:,} {word}"] if count else []
        note(f"{' · '.join(counts)}, in {elapsed_s:.1f} s.")
        if tally.changed:
            names = ", ".join(one_line(name) for name in tally.changed_ids)
            parts = ", ".join(f"{name} of {count:,}" for name, count in sorted(tally.changed.items()))
            note(f"Asked again, as they have changed ({parts}): {names}{' …' if len(tally.changed_ids) > 4 else ''}")
        if tally.kinds:
            note("Failures: " + ", ".join(f"{count:,} {kind}" for kind, count in tally.kinds.most_common()))
        if tally.answered:
            rate, tokens = tally.answered / elapsed_s, tally.completion_tokens / elapsed_s
            note(f"{rate:.2f} items/s · {tally.prompt_tokens:,} prompt tokens · {tokens:,.0f} tokens/s of answers")
            ttft, latency = _percentiles(tally.ttft), _percentiles(tally.latency)
            note(f"First token {_seconds(ttft)} · answer {_seconds(latency)} (p50, p90, p99)")
        if self._arguments.json:
            print_json(_summary(tally, elapsed_s, self._arguments.output))

    def _status(self, *, is_verified: bool) -> int:
        failed = self._tally.failed + self._tally.failed_before
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
        return 1 if failed or not is_verified else 0


def _has_cursor() -> bool:
    return is_tty(sys.stderr) and os.environ.get("TERM", "dumb") != "dumb"


def _summary(tally: Tally, elapsed_s: float, output: str) -> dict[str, object]:
    return {
        "output": output,
        "answered": tally.answered,
        "failed": tally.failed,
        "answered_before": tally.skipped,
        "failed_before": tally.failed_before,
        "unchecked": tally.unchecked,
        "changed": dict(tally.changed),
        "failures": dict(tally.kinds),
        "expected": tally.expected,
        "correct": tally.correct,
        "elapsed_s": round(elapsed_s, 3),
        "prompt_tokens": tally.prompt_tokens,
        "media_tokens": tally.media_tokens,
        "completion_tokens": tally.completion_tokens,
        "ttft_s": _percentiles(tally.ttft),
        "latency_s": _percentiles(tally.latency),
    }


def _percentiles(seconds: Sequence[float]) -> dict[str, float | None]:
    found = sorted(seconds)
    return {
        f"p{percent}": round(found[min(len(found) * percent // 100, len(found) - 1)], 4) if found else None
        for percent in _PERCENTS
    }


def _seconds(percentiles: dict[str, float | None]) -> str:
    return ", ".join("–" if value is None else f"{value:.2f} s" for value in percentiles.values())


# -- the items


def _reader(arguments: argparse.Namespace, stack: ExitStack) -> BatchReader | None:
    """Return the items of IN, or None where it is not given. Raises VlmtuiError."""
    if arguments.input is None:
        return None
    if arguments.input == "-":
        return BatchReader(sys.stdin.buffer, base=Path.cwd())
    path = Path(arguments.input)
    try:
        file = stack.enter_context(path.open("rb"))
        size = os.fstat(file.fileno()).st_size if is_file(path) else 0
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    base = path.absolute().parent
    if arguments.strict:
        _require_sound(BatchReader(file, base=base))
        file.seek(0)
    return BatchReader(file, base=base, size=size)


def _require_sound(reader: BatchReader) -> None:
    """Raise VlmtuiError if a line is no item, an id is there twice, or a file is missing."""
    problems = 0
    seen: dict[str, int] = {}
    for item in reader:
        if isinstance(item, BadItem):
            message = item.failure.message
        elif seen.setdefault(item.id, item.line) != item.line:
            message = f"Line {item.line}: The id {quoted(item.id)} is that of line {seen[item.id]}, too."
        else:
            message = next((f"Line {item.line}: {text}" for text in map(_missing, item.sources) if text), "")
        problems += bool(message)
        if message and problems <= _STRICT_SHOWN:
            note(message)
    if problems:
        raise bad_input(f"{problems:,} lines are wrong, so nothing was run.", hint="Without --strict the others are.")


def _missing(source: MediaSource) -> str:
    if source.encoded or is_url(source.place):
        return ""
    path = with_page(sound_source(Path(source.place)) if source.modality == "audio" else Path(source.place))[0]
    return "" if is_file(path) else f"{one_line(path.name)} does not exist."


def _made_items(arguments: argparse.Namespace) -> Iterator[BatchItem]:
    """Return the items that stand in no file: one question about many, or one medium N times. Raises VlmtuiError."""
    media, problem = arguments.media or [], ""
    if arguments.num_prompts is None:
        if not media:
            problem = "IN is missing, and so is --image, --video or --audio."
        elif not arguments.prompt:
            problem = "--prompt is missing: the question about each file."
        if problem:
            raise VlmtuiError(ErrorKind.BAD_USAGE, problem, hint="See `vlmtui batch --help`.")
        return items_over_files(media, arguments.prompt)
    modality: Modality = media[0][0] if media else arguments.modality or "image"
    if len(media) > 1 or modality not in _SAMPLES:
        problem = "--num-prompts goes with one --image or --video."
    elif arguments.modality not in (None, modality):
        problem = f"--modality {arguments.modality} goes with a {arguments.modality}."
    elif modality == "video" and arguments.image_repeat_prob is not None:
        problem = "--image-repeat-prob goes with pictures."
    if problem:
        raise VlmtuiError(ErrorKind.BAD_USAGE, problem)
    place = media[0][1] if media else str(bundled("samples") / _SAMPLES[modality])
    questions = arguments.prompt or QUESTIONS[modality]
    return repeated_items(
        arguments.num_prompts,
        MediaSource(modality=modality, place=os.path.abspath(place)),  # noqa: PTH100  (links must stay)
        questions if arguments.use_different_prompt_per_request else questions[:1],
        repeat_probability=arguments.image_repeat_prob,
        seed=arguments.seed,
    )


# -- the model, and what it is asked


def _setup(arguments: argparse.Namespace) -> AskSetup:
    """Return the model, with the engine arguments that the switches stand for. Raises VlmtuiError."""
    more = []
    if arguments.engine is None:
        if arguments.disable_mm_processor_cache:
            more.append("mm_processor_cache_gb=0")
        if arguments.tensor_parallel_size is not None:
            more.append(f"tensor_parallel_size={arguments.tensor_parallel_size}")
    return prepare(argparse.Namespace(**{**vars(arguments), "engine_arg": [*arguments.engine_arg, *more]}))


def _requests(setup: AskSetup, arguments: argparse.Namespace) -> ItemRequests:
    is_raw = arguments.mode == "raw" or arguments.method == "generate"
    include = _words(arguments.include)
    return ItemRequests(
        family=setup.model.family,
        sampling=_sampling(setup, arguments),
        mode="raw" if is_raw else "chat",
        system=setup.application.settings.system_prompt,
        template=read_raw_prompt(arguments.raw_prompt) if arguments.raw_prompt is not None else "",
        logprobs=0 if arguments.logprobs is None and "logprobs" in include else arguments.logprobs,
        is_prompt_read="prompt" in include,
        registry=setup.application.registry,
    )


def _sampling(setup: AskSetup, arguments: argparse.Namespace) -> Sampling:
    """Return the sampling of items that set none: --set, then the examples' values, over the settings."""
    settings, family = setup.application.settings, setup.model.family
    sampling = with_default_parameters(settings.sampling.over(family.sampling), family, settings.parameters)
    values: dict[str, object] = {}
    for text in arguments.settings:
        name, sign, value = text.partition("=")
        if not sign:
            raise VlmtuiError(ErrorKind.BAD_USAGE, f"--set {quoted(text)} is not NAME=VALUE.")
        parameter = find_parameter(name)
        values[parameter.name if parameter else name.strip()] = parameter.read(value) if parameter else value
    given, _ = read_sampling(values)
    if arguments.num_prompts is not None and family.sampling is None:
        open_ones = {name: value for name, value in _EXAMPLE_SAMPLING.items() if getattr(arguments, name) is None}
        given = open_ones | given
    return msgspec.structs.replace(sampling, **given)


def _check_usage(arguments: argparse.Namespace) -> None:
    """Raise VlmtuiError(BAD_USAGE) for options that cannot be combined."""
    problem = ""
    unknown = [word for word in _words(arguments.include) if word not in INCLUDES]
    example = ("modality", "image_repeat_prob", "use_different_prompt_per_request", "verify_mm_cache_hit_with_uuids")
    file = Path(arguments.input) if arguments.input not in (None, "-") else None
    if unknown:
        problem = f"--include takes {', '.join(INCLUDES)}, not {quoted(unknown[0])}."
    elif file is not None and file.suffix.lower() in (".csv", ".tsv"):
        problem = f"{one_line(file.name)} is a table; IN is JSON Lines, an object a line."
    elif arguments.strict and file is None:
        problem = "--strict reads IN twice, which must be a file."
    elif arguments.on and arguments.verify_mm_cache_hit_with_uuids:
        problem = "--verify-mm-cache-hit-with-uuids asks one engine twice: not on Ray."
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
    elif arguments.csv is not None and Path(arguments.csv).suffix.lower() != ".csv":
        problem = "--csv writes a table: its name must end in .csv."
    elif file is not None and is_file(file) and is_file(Path(arguments.output)) and file.samefile(arguments.output):
        problem = "IN and OUT are the same file."
    if problem:
        raise VlmtuiError(ErrorKind.BAD_USAGE, problem, hint="See `vlmtui batch --help`.")


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
