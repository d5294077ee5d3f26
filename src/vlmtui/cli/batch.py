"""`vlmtui batch`: asks many questions, and appends each answer to a file of JSON lines."""

from __future__ import annotations

import argparse
import asyncio
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from pathlib import Path

from vlmtui.cli.attachments import add_media_options
from vlmtui.cli.engine import (
    AskSetup,
    add_engine_options,
    add_labels_option,
    add_reload_option,
    leave_engine,
    open_loaded,
    prepare,
    run_interruptible,
    sampling_of,
    with_labels,
)
from vlmtui.cli.output import StatusLine, note, print_json
from vlmtui.config.duration import describe_duration
from vlmtui.domain.conversation import Modality
from vlmtui.domain.sampling import PARAMETERS, Sampling
from vlmtui.engine.interface import Engine
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.files import write_output
from vlmtui.inspection.statistics import share_text
from vlmtui.paths import bundled
from vlmtui.reading import is_file, unreadable
from vlmtui.registry.match import EXAMPLE
from vlmtui.session.batch.items import BatchItem, BatchReader, Item, MediaSource, items_over_files, repeated_items
from vlmtui.session.batch.results import OutputFile, batch_page, score_of, write_csv
from vlmtui.session.batch.run import BatchEngine, BatchJob, ItemResult, Tally, answer_items, check_media_cache
from vlmtui.session.generation import Answer, waiting_line
from vlmtui.text import one_line

_DESCRIPTION = """\
Ask a model every question of a file, or one question about many images, and append each answer to OUT as one JSON
line. Run the same command again to continue: answered items are skipped, changed items are asked again.
"""
_EPILOG = """\
IN is JSON Lines: OpenAI's batch format ({"custom_id", "method", "url", "body"}), or
  {"id": "a", "images": ["a.png"], "prompt": "…" | "messages": […] | "raw": "…", "sampling": {…}, "expect": "…"}
  (also "videos", "audios")
File names in it start at its folder. - reads stdin.

exit codes: 0 all answered, 1 an item failed or the score is below --min-score, 2 bad usage or bad input,
            128 + n ended by signal n; the same command goes on
"""
_PLURALS = {
    "image": "images to ask about",
    "video": "videos to ask about",
    "audio": "audio files, or videos for their audio tracks, to ask about",
}
_QUESTIONS: dict[Modality, tuple[str, ...]] = {
    "image": (
        "What is the content of this image?",
        "Describe the content of this image in detail.",
        "What's in the image?",
        "Where is this image taken?",
    ),
    "video": ("Why is this video funny?",),
}
"""The questions of vLLM's example `vision_language.py`."""
_EXAMPLE_SAMPLING = {"temperature": 0.2, "max_tokens": 64}
"""The sampling of that example, with which equal prompts may get different answers."""
_EXAMPLE_ONLY = ("modality", "image_repeat_prob", "use_different_prompt_per_request", "verify_mm_cache_hit_with_uuids")
_SAMPLES: dict[Modality, str] = {"image": "circle.png", "video": "moving-circle.mp4"}
_NAMES_MAX = 10
_UPDATE_S = 0.25
"""Seconds between two progress reports on a terminal."""
_NOTE_S = 10.0
"""Seconds between two progress reports if stderr is not a terminal."""


def fill_batch(batch: argparse.ArgumentParser) -> None:
    batch.description, batch.epilog = _DESCRIPTION, _EPILOG
    batch.formatter_class = argparse.RawDescriptionHelpFormatter
    batch.add_argument("input", metavar="IN", nargs="?", help="the questions; - reads them from stdin")
    batch.add_argument("-o", "--output", metavar="OUT", required=True, help="the answers, a JSON line an item")
    batch.add_argument(
        "--model", "-m", "--model-type", metavar="M", help="a family, a repository id or a local folder (shapes)"
    )
    _add_items(batch.add_argument_group("the items"))
    _add_sampling(batch.add_argument_group("sampling"))
    _add_engine(batch.add_argument_group("the engine"))
    _add_output(batch.add_argument_group("output"))
    _add_example(batch.add_argument_group("as vLLM's offline examples", "See docs/seeds.md."))


def _add_items(group: argparse._ArgumentGroup) -> None:
    rest = "a file, a folder or a pattern such as 'shots/**/*.png'"
    add_media_options(group, {kind: f"without IN: {plural}, {rest}" for kind, plural in _PLURALS.items()})
    group.add_argument("--prompt", metavar="TEXT", help="the question about each file")
    group.add_argument("--system", metavar="S", dest="system_prompt", help="the system prompt of items without one")
    group.add_argument(
        "--mode",
        "--method",
        choices=("chat", "raw", "generate"),
        help="the chat template (default), or the family's raw prompt; generate is vLLM's name for raw",
    )
    group.add_argument("--retry-errors", action="store_true", help="ask again what failed in an earlier run")


def _add_sampling(group: argparse._ArgumentGroup) -> None:
    for parameter in PARAMETERS.values():
        group.add_argument(parameter.option, type=parameter.kind, metavar="N", help=parameter.help)
    group.add_argument(
        "--set", action="append", default=[], dest="settings", metavar="NAME=VALUE", help="a parameter, as `ask --set`"
    )
    group.add_argument("--logprobs", type=int, metavar="N", help="log-probabilities, as `ask --logprobs`")
    add_labels_option(group)


def _add_engine(group: argparse._ArgumentGroup) -> None:
    add_engine_options(group)
    add_reload_option(group)
    group.add_argument(
        "--on", choices=("ray",), help="spread the items over actors of Ray, which ask the engine of their machine"
    )
    group.add_argument("--ray-address", metavar="ADDRESS", help="with --on ray: a cluster (default: this machine)")
    group.add_argument("--actors", type=_positive, default=1, metavar="N", help="with --on ray: number of actors (1)")
    group.add_argument(
        "--max-concurrency",
        type=_positive,
        metavar="N",
        help="most requests at once (default: two to four times as many as the engine runs)",
    )
    group.add_argument("--tensor-parallel-size", type=_positive, metavar="N", help="split each layer over N GPUs")
    group.add_argument("--num-frames", type=_positive, metavar="N", help="frames of a video (default: the model's)")
    group.add_argument(
        "--disable-mm-processor-cache",
        "--disable-mm-preprocessor-cache",
        action="store_true",
        help="do not cache processed images (loads the model again)",
    )


def _add_output(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--include-prompt", action="store_true", help="also write each prompt as the model got it")
    group.add_argument(
        "--min-score", type=_share, metavar="X", help="exit with 1 if a smaller share of answers is as expected, 0 to 1"
    )
    group.add_argument("--csv", metavar="FILE.csv", help="at the end, write all results as a table")
    group.add_argument("--report", metavar="FILE.html", help="at the end, write a web page about all results")
    group.add_argument("--json", action="store_true", help="print the summary as one JSON object")


def _add_example(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--num-prompts", type=_positive, metavar="N", help="N prompts from one question and one image")
    group.add_argument("--modality", choices=("image", "video"), help="with --num-prompts (image)")
    group.add_argument(
        "--image-repeat-prob",
        type=_share,
        metavar="X",
        help="repeat the image with this probability; otherwise change one of its pixels",
    )
    group.add_argument(
        "--use-different-prompt-per-request",
        action="store_true",
        help="take the questions in turn, instead of always the first",
    )
    group.add_argument(
        "--verify-mm-cache-hit-with-uuids",
        action="store_true",
        help="then send all again with the images' identifiers instead of the images, and compare the answers",
    )
    group.add_argument(
        "--time-generate", action="store_true", help="print the seconds from the first to the last answer"
    )


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: at least 1")
    return number


def _share(text: str) -> float:
    share = float(text)
    if not 0 <= share <= 1:
        raise argparse.ArgumentTypeError(f"{text}: from 0 to 1")
    return share


def batch(arguments: argparse.Namespace) -> int:
    _check_usage(arguments)
    arguments.settings = with_labels(arguments, arguments.settings)
    setup = _setup(arguments)
    with ExitStack() as stack:
        reader = _reader(arguments, stack)
        items = iter(reader) if reader is not None else _items_of_arguments(arguments)
        output = OutputFile(Path(arguments.output), retries_failed=arguments.retry_errors)
        stack.enter_context(closing(output))
        if output.lines:
            note(f"{one_line(output.path.name)} has {output.lines:,} lines: going on.")
        if output.cut_bytes:
            note(f"Its last line was cut off ({output.cut_bytes:,} bytes); that item is asked again.")
        command = _Batch(arguments, setup, _job(setup, arguments), items, reader, output)
        return run_interruptible(command.run)


@dataclass
class _Batch:
    """A run of the command, whose arguments and input files are checked already."""

    arguments: argparse.Namespace
    setup: AskSetup
    job: BatchJob
    items: Iterator[Item]
    reader: BatchReader | None
    output: OutputFile
    tally: Tally = field(default_factory=Tally)
    started: float = field(default_factory=time.monotonic)
    shown_at: float = field(default_factory=time.monotonic)
    """When progress was last shown, by the monotonic clock."""
    sent: list[ItemResult] = field(default_factory=list)
    """Answered items with media, for `--verify-mm-cache-hit-with-uuids`."""
    line: StatusLine = field(default_factory=lambda: StatusLine(sys.stderr))

    async def run(self) -> int:
        """Answer the items, and return the exit code. Raises VlmtuiError."""
        try:
            is_sound = await self._answer()
        except (VlmtuiError, asyncio.CancelledError):
            self._print_counts()
            command = shlex.join(["vlmtui", *sys.argv[1:]])
            note(f"What was answered is in {one_line(self.arguments.output)}. To go on: {command}")
            raise
        if self.arguments.csv is not None:
            write_csv(self.output.path, Path(self.arguments.csv))
            note(f"Written: {one_line(self.arguments.csv)}")
        if self.arguments.report is not None:
            page = batch_page(self.output.path, self.job.model)
            write_output(Path(self.arguments.report), page.encode("utf-8", "replace"))
            note(f"Written: {one_line(self.arguments.report)}")
        return 0 if self._has_passed() and is_sound else 1

    async def _answer(self) -> bool:
        """Answer the items, remove outdated lines from the output, and print the counts. Return False if
        --verify-mm-cache-hit-with-uuids found a difference."""
        matched = map(self.output.match, self.items)
        if self.arguments.on == "ray":
            from vlmtui.cli.batch_ray import answer_on_ray

            await answer_on_ray(self.arguments, self.job, matched, self.output, self.tally, self._show_progress)
            await self._end()
            return True
        engine = BatchEngine(self._open, await self._open(), most=self.arguments.max_concurrency)
        engine.on_event = self._note_waiting
        self.started = time.monotonic()
        try:
            await answer_items(self.job, matched, engine, self.output.append, self.tally, self._items_written)
            await self._end()
            return not self.arguments.verify_mm_cache_hit_with_uuids or await self._verify(engine)
        finally:
            await leave_engine(engine.engine, self.setup)

    async def _end(self) -> None:
        await asyncio.to_thread(self.output.tidy)
        self._print_counts()

    async def _open(self) -> Engine:
        return await open_loaded(self.setup, client="batch")

    def _items_written(self, results: Sequence[ItemResult]) -> None:
        if self.arguments.verify_mm_cache_hit_with_uuids:
            self.sent += [one for one in results if one.attachments and one.is_answered]
        self._show_progress()

    def _note_waiting(self, answer: Answer) -> None:
        """Say that the server takes no requests now, as often as progress is shown."""
        if (waiting := waiting_line(answer)) and time.monotonic() - self.shown_at >= self._interval_s:
            self.shown_at = time.monotonic()
            (self.line.show if self.line.updates else note)(waiting)

    async def _verify(self, engine: BatchEngine) -> bool:
        """Send all answered items again, with identifiers that refer to the engine's media cache instead of the media.
        Return whether all media were found and all answers are the same."""
        misses, different = await check_media_cache(engine, self.sent)
        sent = len(self.sent)
        note(
            f"By identifier: {sent - len(misses):,} of {sent:,} found in the cache, {len(different):,} answers differ."
        )
        for name in (*misses, *different)[:_NAMES_MAX]:
            note(f"    {one_line(name)}: {'not in the cache' if name in misses else 'another answer'}")
        return sent > 0 and not misses and not different

    @property
    def _interval_s(self) -> float:
        """The least seconds between two lines about the progress."""
        return _UPDATE_S if self.line.updates else _NOTE_S

    def _show_progress(self) -> None:
        """Show the progress on stderr at most every 0.25 s on a terminal, in a line that changes; else every 10 s."""
        now, tally = time.monotonic(), self.tally
        if now - self.shown_at < self._interval_s:
            return
        self.shown_at = now
        rate = (tally.answered + tally.failed) / max(now - self.started, 1e-9)
        text = f"{tally.done:,} done · {rate:.1f} items/s · {tally.failed:,} failed"
        share = tally.done / self.arguments.num_prompts if self.arguments.num_prompts else 0.0
        if self.reader is not None and self.reader.size:
            share = self.reader.read / self.reader.size  # a few items ahead
        if 0 < share < 1 and rate:
            left_s = (tally.done / share - tally.done) / rate
            text += f" · {share:.0%} · ~{describe_duration(max(1, round(left_s)))} left"
        if self.line.updates:
            self.line.show(text)
        else:
            note(text)

    def _print_counts(self) -> None:
        """Write the counts of the run to stderr, and with --json to stdout."""
        self.line.clear()
        elapsed_s, tally = time.monotonic() - self.started, self.tally
        if self.arguments.time_generate:
            note(f"-- generate time = {elapsed_s}")
        counts = [f"{tally.answered:,} answered", f"{tally.failed:,} failed"]
        for count, word in (
            (tally.changed, "of them asked again, as they have changed"),
            (tally.answered_before, "answered before"),
            (tally.failed_before, "failed before"),
        ):
            counts += [f"{count:,} {word}"] if count else []
        note(f"{' · '.join(counts)}, in {elapsed_s:.1f} s.")
        if tally.answered:
            rate, tokens = tally.answered / elapsed_s, tally.completion_tokens / elapsed_s
            note(f"{rate:.2f} items/s · {tally.prompt_tokens:,} prompt tokens · {tokens:,.0f} tokens/s of answers")
        if self.arguments.json:
            print_json({"output": self.arguments.output, **asdict(tally), "elapsed_s": round(elapsed_s, 3)})

    def _has_passed(self) -> bool:
        """Print failures and score; return False if there are failures or the score is below `--min-score`."""
        failed = self.tally.failed + self.tally.failed_before
        correct, expected, errors = score_of(self.output.path)
        if failed:
            kinds = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in errors.most_common())
            note(f"Failed: {failed:,} ({kinds}). --retry-errors asks again.")
        if expected:
            note(f"As expected: {correct:,} of {expected:,}: {share_text(correct, expected)}.")
        least = self.arguments.min_score
        if least is not None and (not expected or correct / expected < least):
            found = f"the score is {correct / expected:.3f}" if expected else "nothing is expected"
            note(f"vlmtui: {found}, below --min-score {least:g}.")
            return False
        return not failed


# -- the items


def _reader(arguments: argparse.Namespace, stack: ExitStack) -> BatchReader | None:
    """Return a reader of the input file, the argument IN; None without the argument. Raises VlmtuiError."""
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
    return BatchReader(file, base=path.absolute().parent, size=size)


def _items_of_arguments(arguments: argparse.Namespace) -> Iterator[BatchItem]:
    """Return items made from the arguments: one question about many files, or one file N times. Raises VlmtuiError."""
    media = arguments.media or []
    if arguments.num_prompts is None:
        return items_over_files(media, arguments.prompt)
    modality: Modality = media[0][0] if media else arguments.modality or "image"
    place = media[0][1] if media else str(bundled("samples") / _SAMPLES[modality])
    questions = (arguments.prompt,) if arguments.prompt else _QUESTIONS[modality]
    return repeated_items(
        arguments.num_prompts,
        MediaSource(modality=modality, place=os.path.abspath(place)),  # noqa: PTH100  (links must stay)
        questions if arguments.use_different_prompt_per_request else questions[:1],
        repeat_probability=arguments.image_repeat_prob,
        seed=arguments.seed,
    )


# -- the model and the requests


def _setup(arguments: argparse.Namespace) -> AskSetup:
    """Return the model, with the engine arguments that the command's options set. Raises VlmtuiError."""
    if arguments.engine is None:
        if arguments.num_prompts is not None:
            arguments.preset = EXAMPLE
        if arguments.disable_mm_processor_cache:
            arguments.engine_arg = [*arguments.engine_arg, "mm_processor_cache_gb=0"]
        if arguments.tensor_parallel_size is not None:
            arguments.engine_arg = [*arguments.engine_arg, f"tensor_parallel_size={arguments.tensor_parallel_size}"]
    return prepare(arguments)


def _job(setup: AskSetup, arguments: argparse.Namespace) -> BatchJob:
    return BatchJob(
        family=setup.model.family,
        model=setup.model.spec.name,
        sampling=_sampling(setup, arguments),
        cache=setup.application.paths.cache,
        mode="raw" if arguments.mode in ("raw", "generate") else "chat",
        system=setup.application.settings.system_prompt,
        logprobs=arguments.logprobs,
        includes_prompt=arguments.include_prompt,
        num_frames=arguments.num_frames or setup.model.spec.num_frames,
    )


def _sampling(setup: AskSetup, arguments: argparse.Namespace) -> Sampling:
    """Return the sampling of items that set none themselves. With --num-prompts it is that of vLLM's example script,
    unless options or the record of the model's family set one. Raises VlmtuiError."""
    is_example = arguments.num_prompts is not None and setup.model.family.sampling is None
    unset = {name: value for name, value in _EXAMPLE_SAMPLING.items() if getattr(arguments, name) is None}
    return sampling_of(setup.application, setup.model, arguments.settings, **(unset if is_example else {}))


def _check_usage(arguments: argparse.Namespace) -> None:
    """Raise VlmtuiError(BAD_USAGE) for options that cannot be combined."""
    problem = _problem_of_input(arguments)
    if arguments.on and arguments.verify_mm_cache_hit_with_uuids:
        problem = "--verify-mm-cache-hit-with-uuids asks one engine twice: not on Ray."
    elif arguments.verify_mm_cache_hit_with_uuids and arguments.disable_mm_processor_cache:
        problem = "--verify-mm-cache-hit-with-uuids needs the cache that --disable-mm-processor-cache switches off."
    if problem:
        raise VlmtuiError(ErrorKind.BAD_USAGE, problem, hint="See `vlmtui batch --help`.")


def _problem_of_input(arguments: argparse.Namespace) -> str:
    media, modality = arguments.media or [], arguments.modality
    if arguments.num_prompts is None and (given := next((one for one in _EXAMPLE_ONLY if getattr(arguments, one)), "")):
        return f"--{given.replace('_', '-')} goes with --num-prompts."
    if arguments.input is not None:
        if media or arguments.num_prompts:
            return "IN has its own media: there is no place for --image, --video, --audio and --num-prompts."
        path, output = Path(arguments.input), Path(arguments.output)
        is_same = is_file(path) and is_file(output) and path.samefile(output)
        return "IN and OUT are the same file." if is_same else ""
    if arguments.num_prompts is None:
        if not media:
            return "IN is missing, and so is --image, --video or --audio."
        return "" if arguments.prompt else "--prompt is missing: the question about each file."
    kind = media[0][0] if media else modality or "image"
    if len(media) > 1 or kind not in _SAMPLES:
        return "--num-prompts goes with one --image or --video."
    if modality not in (None, kind):
        return f"--modality {modality} goes with a {modality}."
    if kind == "video" and arguments.image_repeat_prob is not None:
        return "--image-repeat-prob goes with images."
    return ""
