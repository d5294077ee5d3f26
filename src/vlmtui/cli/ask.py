"""`vlmtui ask`: asks one question; prints one or several answers, and the boxes and points in them."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from vlmtui.cli.attachments import add_media, stage_attachments, turns_with_placed
from vlmtui.cli.engine import (
    AskSetup,
    CommandEngines,
    add_engine_options,
    add_labels_option,
    models_on,
    prepare,
    ready_engine,
    run_interruptible,
    sampling_of,
    with_labels,
)
from vlmtui.cli.output import note, print_json, write_answer
from vlmtui.cli.streams import read_question, read_raw_prompt
from vlmtui.domain.capabilities import require_capability
from vlmtui.domain.conversation import Attachment, Modality, RawPrompt, attachments_of
from vlmtui.domain.engine import EngineInfo
from vlmtui.domain.sampling import PARAMETERS, Sampling
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.export.comparison import ENDINGS, FORMATS, comparison_bytes, difference_lines
from vlmtui.files import write_output
from vlmtui.inspection.answer_diff import tally_text
from vlmtui.inspection.build import fingerprint_of
from vlmtui.inspection.grounding import PlacedMark, Size
from vlmtui.inspection.raw_prompt_check import Finding, FindingKind, check_raw
from vlmtui.inspection.replay import Comparison
from vlmtui.media.images import as_png
from vlmtui.registry.match import Model
from vlmtui.registry.prompts import check_attachments
from vlmtui.registry.schema import Grounding
from vlmtui.session.adapters import NONE, find_adapter, with_adapters
from vlmtui.session.answer_json import answer_json, labels_of, tokens_json
from vlmtui.session.answer_places import AnswerPlaces, draw_places, range_line, read_places, resized_by_rule
from vlmtui.session.engines import is_remote
from vlmtui.session.fan_out import (
    ADAPTER,
    ENGINE,
    Plan,
    changed_pictures,
    parse_plan,
    plan_of,
    planned_specs,
    verdict,
    why_identical,
)
from vlmtui.session.generation import PromptMode, missing_answer, waiting_line
from vlmtui.session.lanes import Lane, Lanes, LaneScore, LaneSpec, OnChange, answer_in_turns, lane_spec, score_lanes
from vlmtui.text import one_line

_DESCRIPTION = """\
Ask one question and stream the answer to stdout. Uses a running worker of that model, or starts one, which stays for
--keep-alive.
"""
_EPILOG = """\
P is a path (quoted in any style, file:// too), a pattern such as 'shots/*.png', a folder, or a web address. A page of
a TIFF: scan.tiff#page=2. [Image #1] or [Video #2] in QUESTION puts that attachment there, numbered in the order given;
the others are put before the text.

exit codes: 0 fine, 1 failed, 2 bad usage or bad input, 128 + n ended by signal n
"""
_LOGPROBS_MAX = 20
"""vLLM's default limit."""
_TOKEN_OPTIONS = ("mode", "raw_prompt", "logprobs", "fan_out", "on")
"""Options with which the JSON also lists tokens."""
_NEVER_SENT = frozenset({FindingKind.TOO_FEW, FindingKind.NOT_TAKEN})
"""Findings that --force does not override: an attachment without a placeholder may crash the engine."""
_LISTED_PLACES_MAX = 20
_PLAIN_FORMATS = frozenset({"json", "brackets", "point_tags"})
"""Coordinate formats that need no special tokens."""
_NO_GROUNDING = Grounding(format="json", scale="thousand", source="")
"""Used where the model has no coordinate format, and only times are read."""


def fill_ask(ask: argparse.ArgumentParser) -> None:
    ask.description, ask.epilog = _DESCRIPTION, _EPILOG
    ask.formatter_class = argparse.RawDescriptionHelpFormatter
    ask.add_argument("question", metavar="QUESTION", nargs="?", help="the question; - reads it from stdin")
    ask.add_argument("--model", metavar="M", help="a family, a repository id or a local folder (default: shapes)")
    add_media(ask)
    ask.add_argument("--system", metavar="S", dest="system_prompt", help="the system prompt")
    _add_prompt(ask.add_argument_group("the prompt"))
    _add_sampling(ask.add_argument_group("sampling"))
    engine = ask.add_argument_group("the engine")
    add_engine_options(engine)
    engine.add_argument("--adapter", metavar="FOLDER", help="answer with the LoRA adapter in this folder")
    _add_output(ask.add_argument_group("output"))


def _add_prompt(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--mode",
        choices=("chat", "raw", "both"),
        help="the chat template (default), a raw prompt, or both at the same time and the difference",
    )
    group.add_argument(
        "--raw-prompt",
        metavar="TEXT|@FILE",
        help="send this raw prompt verbatim, instead of the one built from the model's record; "
        "@FILE reads it from a file, @- from stdin",
    )
    group.add_argument(
        "--force", action="store_true", help="send a raw prompt with too many or wrongly numbered placeholders"
    )


def _add_sampling(group: argparse._ArgumentGroup) -> None:
    for parameter in PARAMETERS.values():
        group.add_argument(parameter.option, type=parameter.kind, metavar="N", help=parameter.help)
    group.add_argument(
        "--set",
        action="append",
        metavar="NAME=VALUE",
        dest="set_parameters",
        help="any parameter: stop, bad_words, logit_bias, min_tokens, json (a schema or @FILE), regex, choice=yes|no, "
        "…, or an argument of the model's processor (max_pixels, …; processor.NAME for any); may be repeated",
    )
    group.add_argument(
        "--fan-out",
        metavar="NAME=V,V,…",
        help="ask with each combination of some parameters' values, all at the same time: "
        "'seed=1..8 temperature=0.7,1.2'. Also image=sent,none,grey,blur,swap, "
        "pixels=1000000,250000, engine=here,transformers, adapter=none,FOLDER, and texts in quotes: "
        "'system=\"Be brief.\",\"Explain.\"', 'prompt=…'",
    )
    group.add_argument(
        "--on",
        action="append",
        metavar="ENGINE",
        help="ask this engine too: here, transformers, vllm==X.Y.Z, a model, or a server; engine arguments may follow, "
        "as in 'here dtype=bfloat16'. Twice to eight times; each answer stands below its engine's name",
    )
    group.add_argument(
        "--one-by-one",
        action="store_true",
        help="with --on: load one engine after the other on this machine, even where memory allows two",
    )
    group.add_argument(
        "--logprobs",
        type=int,
        metavar="N",
        help="with --json and --export: log-probabilities of every token and of the N most likely ones (0 to 20)",
    )

    add_labels_option(group)


def _add_output(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--json", action="store_true", help="print one JSON object at the end instead of streaming")
    group.add_argument(
        "--export", metavar="FILE", help="also write the question and the answers to FILE.md, FILE.html or FILE.json"
    )
    group.add_argument(
        "--boxes",
        metavar="FILE.png",
        help="also write the image with the answer's boxes and points drawn on it; for a video its frames, with times "
        "too; with --json, list them in pixels",
    )
    group.add_argument(
        "--boxes-like",
        metavar="FAMILY",
        help="read coordinates in the format of this family instead of the model's own",
    )


def ask(arguments: argparse.Namespace) -> int:
    """Run the command. Raises VlmtuiError for an invalid question or file, before a model is loaded."""
    plan = _fan_out_plan(arguments)
    _check_usage(arguments, plan)
    arguments.set_parameters = with_labels(arguments, arguments.set_parameters)
    asked = _Ask(arguments, _with_adapters(prepare(arguments), arguments.adapter, plan), plan)
    asked.plan_lanes()
    return run_interruptible(asked.run)


@dataclass
class _Ask:
    """A run of the command. A lane is a request and its answer; `--mode both`, `--fan-out` and `--on` make several."""

    arguments: argparse.Namespace
    setup: AskSetup
    plan: Plan | None
    """The plan of `--fan-out` or `--on`; None without them."""
    specs: list[LaneSpec] = field(default_factory=list)
    models: list[Model] = field(default_factory=list)
    """The model of each lane, for `--on`."""

    @property
    def modes(self) -> list[PromptMode]:
        """The prompt mode of each lane, chat or raw; a fan-out has one mode for all lanes."""
        mode = self.arguments.mode
        if mode == "both":
            return ["chat", "raw"]
        return ["raw" if mode == "raw" or (mode is None and self.arguments.raw_prompt is not None) else "chat"]

    def plan_lanes(self) -> None:
        """Set `specs`, the requests of the lanes, and `models`. Raises VlmtuiError for an invalid question, file, raw
        prompt or `--boxes`."""
        if self.plan is not None and self.plan.engines:
            names = [str(one) for one in self.plan.axes[ENGINE]]
            found = models_on(names, self.setup.application, self.setup.model, self.arguments)
            by_name = dict(zip(names, found, strict=True))
            self.models = [by_name[name] for name in self.plan.engines.values()]
        self.specs = self._lane_specs()
        self._check_raw(None)
        self._box_reader()

    async def run(self) -> int:
        """Ask, and print the answers. Several engines are loaded at once if memory allows."""
        if self.models:
            async with CommandEngines(self.setup, one_by_one=self.arguments.one_by_one) as engines:
                lanes = Lanes([Lane(spec, None) for spec in self.specs])
                run = partial(answer_in_turns, lanes, self.models, engines)
                await (run(_note_waiting) if self.setup.as_json else AnswerStream(lanes).run(run))
                return await self._print_answers(lanes)
        async with ready_engine(self.setup) as (engine, info, load_s):
            self._check_raw(info)
            if len({spec.request.sampling.seed for spec in self.specs}) > 1:
                require_capability(info, "seed")
            lanes = Lanes([Lane(spec, engine) for spec in self.specs])
            await (lanes.run(_note_waiting) if self.setup.as_json else AnswerStream(lanes).run(lanes.run))
            return await self._print_answers(lanes, load_s)

    async def _print_answers(self, lanes: Lanes, load_s: float | None = None) -> int:
        """Print and export the answers. Raises VlmtuiError if an answer failed. `load_s`: seconds until the engine was
        ready; None: each lane's engine has its own time."""
        failures = [lane.answer.failure for lane in lanes if lane.answer.failure is not None]
        if all(lane.info is None for lane in lanes):
            raise failures[0].error()
        scores = await self._scores(lanes)
        comparison = lanes.document()
        reader = None if lanes[0].has_failed else self._box_reader()
        boxes = {} if reader is None else reader.write(lanes[0].answer.text)
        if self.setup.as_json:
            print_json(self._as_json(lanes, comparison, load_s, scores) | boxes)
        else:
            if len(lanes) > 1:
                for line in [*difference_lines(comparison), *self._fan_out_summary(lanes, scores)]:
                    note(line)
            for lane in lanes:
                if (checked := lane.answer.structure) is not None:
                    note(f"{lane.spec.label}: {checked.message}" if lane.spec.label else checked.message)
                labels = labels_of(lane.answer, lane.request.sampling)
                for label, share in sorted(labels.items(), key=lambda one: -(one[1] or 0.0)):
                    note(f"{'?' if share is None else f'{share:.3f}':>7}  {label}")
        if self.arguments.export is not None:
            target = Path(self.arguments.export)
            write_output(target, comparison_bytes(comparison, target, self.setup.application.paths.media))
            note(f"Written: {target}")
        if failures:
            raise failures[0].error()
        for lane in lanes:
            if (missing := missing_answer(lane.answer)) is not None:
                raise missing
        return 0

    async def _scores(self, lanes: Lanes) -> list[LaneScore | None]:
        """Return how likely the first answer is under each lane's prompt; empty if the prompts are equal."""
        if self.plan is None or not self.plan.changes_prompt:
            return []
        try:
            return await score_lanes(lanes, 0)
        except VlmtuiError as error:
            note(f"warning: {error.message}")
            return []

    def _fan_out_summary(self, lanes: Lanes, scores: Sequence[LaneScore | None]) -> list[str]:
        """Return the summary of a fan-out, line by line: how often each answer occurs, how likely the first answer is
        under each lane's prompt, and whether it depends on the images or the adapter."""
        if self.plan is None:
            return []
        each = [
            f"{lane.spec.label}: the first answer is {score.text}."
            for lane, score in zip(lanes, scores, strict=bool(scores))
            if score is not None
        ]
        said = verdict(self.plan, scores)
        return list(filter(None, (tally_text([lane.answer.text for lane in lanes]), *each, said)))

    def _as_json(
        self, lanes: Lanes, comparison: Comparison, load_s: float | None, scores: Sequence[LaneScore | None]
    ) -> dict[str, object]:
        name, plan = self.setup.model.spec.name, self.plan
        tells_tokens = any(getattr(self.arguments, option) is not None for option in _TOKEN_OPTIONS)
        found = [_lane_json(lane, name, load_s, tells_tokens=tells_tokens) for lane in lanes]
        if plan is not None:
            for shown, score in zip(found, scores, strict=bool(scores)):
                shown["likelihood_of_first"] = None if score is None else _likelihood_json(score)
            for lane, shown in zip(lanes, found, strict=True) if plan.engines else ():
                shown["fingerprint"] = msgspec.to_builtins(fingerprint_of(lane.info)) if lane.info is not None else None
            each = [{**values, **shown} for values, shown in zip(plan.combinations, found, strict=True)]
            return {"model": name, "parameters": list(plan.axes), "answers": each}
        if len(lanes) > 1:
            return {"chat": found[0], "raw": found[1], "diff": _difference_json(comparison)}
        return found[0]

    def _lane_specs(self) -> list[LaneSpec]:
        """Return the request of each lane. Raises VlmtuiError for an invalid question or file."""
        arguments, setup, plan = self.arguments, self.setup, self.plan
        raw_text = read_raw_prompt(arguments.raw_prompt) if arguments.raw_prompt is not None else None
        is_asked = raw_text is None or "chat" in self.modes
        question = read_question(arguments.question) if is_asked else ""
        if not is_asked and arguments.question is not None:
            note("warning: the raw prompt is sent without QUESTION; --mode both asks it in the chat template.")
        application, family = setup.application, setup.model.family
        attachments = stage_attachments(
            application.paths, arguments.media or (), num_frames=setup.model.spec.num_frames, many=arguments.many
        )
        turns = turns_with_placed(application.settings.system_prompt, question, attachments)
        sampling = sampling_of(application, setup.model, arguments.set_parameters)
        if arguments.boxes is not None:
            sampling = _with_special_tokens(sampling, _grounding_for(setup, arguments, attachments))
        raw = None
        if raw_text is not None:
            check_attachments(family, turns)
            raw = RawPrompt(text=raw_text, attachments=tuple(attachments))
        adapter = find_adapter(arguments.adapter).folder if arguments.adapter else ""
        if plan is None:
            return [
                lane_spec(
                    family,
                    turns,
                    sampling,
                    mode=mode,
                    raw=raw if mode == "raw" else None,
                    label=mode if len(self.modes) > 1 else "",
                    logprobs=arguments.logprobs,
                    adapter=adapter,
                )
                for mode in self.modes
            ]
        if problem := why_identical(plan, sampling):
            note(f"warning: {problem}")
        return planned_specs(
            plan,
            family,
            turns,
            sampling,
            mode=self.modes[0],
            raw=raw,
            logprobs=arguments.logprobs,
            adapter=adapter,
            pictures=changed_pictures(plan.picture_changes, turns, application.paths.media),
            families={label: model.family for label, model in zip(plan.engines, self.models, strict=True)},
        )

    def _check_raw(self, info: EngineInfo | None) -> None:
        """Print problems of the raw prompt to stderr. Raises VlmtuiError(BAD_INPUT) if it must not be sent.

        `info` is None before the engine is loaded; then nothing is printed unless the prompt must not be sent. Checking
        the last lane is enough: either all lanes have the same raw prompt, or only the last lane has a raw prompt."""
        prompt = self.specs[-1].request.prompt
        if not isinstance(prompt, RawPrompt):
            return
        found = check_raw(
            prompt.text,
            prompt.attachments,
            self.setup.model.family,
            special_tokens=frozenset(info.special_tokens if info else ()),
            stop_tokens=info.stop_tokens if info else (),
            bos=info.bos_token if info else None,
            adds_bos=info.adds_bos if info else True,
            families=self.setup.application.registry.values(),
        )
        is_forced = self.arguments.force
        blocking = [finding for finding in found if finding.blocks and (finding.kind in _NEVER_SENT or not is_forced)]
        for finding in found:
            if blocking or info is not None:
                _print_finding(finding, prompt.text)
        if blocking:
            never = any(finding.kind in _NEVER_SENT for finding in blocking)
            hint = "Every attachment needs its placeholder." if never else "--force sends it regardless."
            raise bad_input("The raw prompt was not sent.", hint=hint)

    def _box_reader(self) -> BoxReader | None:
        """Return a reader for the boxes of the first answer; None without --boxes. Raises VlmtuiError if the coordinate
        format is unknown, or if there is not exactly one image (without images: one video) to draw on."""
        if self.arguments.boxes is None:
            return None
        attachments = attachments_of(self.specs[0].request.prompt)
        grounding = _grounding_for(self.setup, self.arguments, attachments)
        shown = _of_modality(attachments, "image") or _of_modality(attachments, "video")
        if len(shown) != 1:
            raise bad_input(f"--boxes draws on one image or one video; {len(shown)} are attached.")
        medium = shown[0]
        is_resized = grounding is not None and grounding.scale == "resized" and medium.modality == "image"
        settings = self.setup.model.spec.engine_args.get("mm_processor_kwargs")
        resized = resized_by_rule(self.setup.model.family, medium, settings) if is_resized else None
        if is_resized and resized is None:
            raise bad_input(
                "These coordinates are pixels of the resized image, and its size is unknown.",
                hint="The model's record has no rule for it, or none for the mm_processor_kwargs that are set.",
            )
        return BoxReader(self.arguments.boxes, grounding, medium, resized)


def _lane_json(lane: Lane, model: str, load_s: float | None, *, tells_tokens: bool) -> dict[str, object]:
    name = model if lane.info is None else lane.info.spec.name
    own_s = 0.0 if lane.info is None else lane.info.load_s
    shown = answer_json(name, lane.answer, own_s if load_s is None else load_s)
    if (checked := lane.answer.structure) is not None:
        shown["structure"] = {"fits": checked.fits, "message": checked.message}
    if tells_tokens:
        shown |= {"mode": lane.spec.mode, **tokens_json(lane.answer, lane.request.sampling)}
    return shown


def _print_finding(finding: Finding, text: str) -> None:
    line = text.count("\n", 0, finding.start) + 1
    column = finding.start - (text.rfind("\n", 0, finding.start) + 1) + 1
    note(f"raw prompt, line {line}, column {column}: {finding.message}")
    if finding.fix is not None:
        note(f"    fix: {finding.fix.label}")


def _fan_out_plan(arguments: argparse.Namespace) -> Plan | None:
    """Return the plan of --fan-out or --on; None without them. Raises VlmtuiError."""
    if arguments.on is not None and arguments.fan_out is not None:
        raise _bad_usage("--on is a fan-out over engines: it does not go with --fan-out.")
    if arguments.on is not None:
        return plan_of({ENGINE: arguments.on})
    return parse_plan(arguments.fan_out) if arguments.fan_out is not None else None


def _with_adapters(setup: AskSetup, folder: str | None, plan: Plan | None) -> AskSetup:
    """Return the setup with the engine arguments for the LoRA adapters of --adapter and --fan-out. Raises VlmtuiError
    if one is missing."""
    planned = plan.axes.get(ADAPTER, ()) if plan is not None else ()
    adapters = [find_adapter(str(one)) for one in (folder, *planned) if one and one != NONE]
    if not adapters or is_remote(setup.model):
        return setup
    return msgspec.structs.replace(setup, model=with_adapters(setup.model, *adapters))


def _check_usage(arguments: argparse.Namespace, plan: Plan | None) -> None:
    """Raise VlmtuiError(BAD_USAGE) for options that cannot be combined."""
    if arguments.question is None and (arguments.raw_prompt is None or arguments.mode == "both"):
        raise _bad_usage("QUESTION is missing; - reads it from stdin.")
    if arguments.mode == "chat" and arguments.raw_prompt is not None:
        raise _bad_usage("--raw-prompt has no place in --mode chat.")
    if arguments.mode == "both" and plan is not None:
        raise _bad_usage("--fan-out and --on go with one mode, chat or raw.")
    if arguments.question == "-" and arguments.raw_prompt == "@-":
        raise _bad_usage("QUESTION and the raw prompt cannot both be read from stdin.")
    if arguments.logprobs is not None and not 0 <= arguments.logprobs <= _LOGPROBS_MAX:
        raise _bad_usage(f"--logprobs must lie between 0 and {_LOGPROBS_MAX}, not {arguments.logprobs}.")
    if arguments.boxes is not None and (arguments.mode == "both" or plan is not None):
        raise _bad_usage("--boxes draws one answer: it goes with one mode, and without --fan-out.")
    if arguments.boxes is None and arguments.boxes_like is not None:
        raise _bad_usage("--boxes-like goes with --boxes.")
    if arguments.one_by_one and (plan is None or not plan.engines):
        raise _bad_usage("--one-by-one goes with --on.")
    for name in plan.axes if plan is not None and arguments.raw_prompt is not None else ():
        if name not in (*PARAMETERS, ENGINE):
            raise _bad_usage(f"--raw-prompt is sent as it is: it cannot be fanned out over {name}.")
    if arguments.export is not None and Path(arguments.export).suffix.lower() not in FORMATS:
        raise _bad_usage(f"Can't tell the format of {arguments.export}: its name must end in {ENDINGS}.")


def _bad_usage(problem: str) -> VlmtuiError:
    return VlmtuiError(ErrorKind.BAD_USAGE, problem, hint="See `vlmtui ask --help`.")


def _difference_json(comparison: Comparison) -> dict[str, object]:
    """Return how the second answer differs from the first, as fields for `--json`; every value is None if a request
    failed."""
    found = comparison.difference
    if found is None or any(side.failure for side in comparison.sides):
        empty = ("prompts_identical", "answers_identical", "first_divergence", "prompt_first_divergence")
        return dict.fromkeys(empty)
    return {
        "prompts_identical": found.prompts_identical,
        "answers_identical": found.answers_identical and found.answer_first_divergence is None,
        "first_divergence": found.answer_first_divergence,
        "prompt_first_divergence": found.prompt_first_divergence,
    }


def _likelihood_json(score: LaneScore) -> dict[str, object]:
    drop = score.drop
    return {
        "ratio": score.ratio,
        "log_ratio": score.log_ratio,
        "tokens": score.tokens,
        "largest_drop": None if drop is None else msgspec.to_builtins(drop),
    }


def _note_waiting(lane: Lane) -> None:
    """Write to stderr that the server takes no requests now, if the lane's last event said so."""
    if waiting := waiting_line(lane.answer):
        note(waiting)


class AnswerStream:
    """Streams the first answer, then prints the others in order, each below its label if it has one."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._at = 0
        """Index of the lane being printed; past the last one when all are printed."""
        self._written = ""
        """The text of that lane that is printed already."""

    async def run(self, run: Callable[[OnChange], Awaitable[None]]) -> None:
        """Await `run`, which sends all requests, and print their answers. A partial answer ends with a line break."""
        try:
            self._print()
            await run(self._show)
        finally:
            self._end_line()

    def _show(self, lane: Lane) -> None:
        _note_waiting(lane)
        self._print()

    def _print(self) -> None:
        """Print new text of the current lane; if the lane has ended, continue with the next."""
        while self._at < len(self._lanes):
            lane = self._lanes[self._at]
            label = f"== {lane.spec.label} ==\n" if lane.spec.label else ""
            text = ("\n" if label and self._at else "") + label + lane.answer.text
            write_answer(text[len(self._written) :])
            self._written = text
            if lane.is_running:
                return
            self._end_line()
            self._at += 1

    def _end_line(self) -> None:
        if self._written and not self._written.endswith("\n"):
            write_answer("\n")
        self._written = ""


class BoxReader(msgspec.Struct, frozen=True):
    """Reads the boxes, points and times of an answer, and draws them on its image or video."""

    target: str
    grounding: Grounding | None
    """The coordinate format; None: only the times of a video are read."""
    medium: Attachment
    resized: Size | None
    """The image's size after the model's processor resized it, for coordinates in these pixels."""

    def write(self, answer: str) -> dict[str, object]:
        """Write the image with the answer's boxes and points, list the boxes and points on stderr, and return them as
        JSON. Raises VlmtuiError."""
        places = self._places(answer)
        write_output(Path(self.target), as_png(draw_places(places)))
        for line in _place_lines(places):
            note(line)
        note(f"Written: {one_line(self.target)}")
        timed = {"time_ranges": places.ranges_json()} if self.medium.modality == "video" else {}
        unreadable = [answer[start:end] for start, end in places.unreadable]
        return {"boxes": places.places_json(), **timed, "unreadable_boxes": unreadable}

    def _places(self, answer: str) -> AnswerPlaces:
        grounding = self.grounding or _NO_GROUNDING
        is_unknown = self.grounding is None or (grounding.scale == "resized" and self.resized is None)
        if grounding.scale == "resized" and is_unknown:
            grounding = msgspec.structs.replace(grounding, scale="pixels")
        places = read_places(answer, (self.medium,), grounding, own=self.grounding, resized=self.resized)
        if not is_unknown or not places.marks:
            return places
        note(f"warning: {len(places.marks)} boxes are left out: how to read them in a video is unknown.")
        return msgspec.structs.replace(places, marks=())


def _grounding_for(
    setup: AskSetup, arguments: argparse.Namespace, attachments: Sequence[Attachment]
) -> Grounding | None:
    """Return the coordinate format from the TOML record of the model's family (or of the family of --boxes-like). If
    the record has none, raises VlmtuiError for an image, and returns None for a video."""
    family = setup.model.family
    if arguments.boxes_like is not None:
        records = {record.family: record for record in setup.application.registry.values()}
        if arguments.boxes_like not in records:
            raise VlmtuiError(ErrorKind.BAD_USAGE, f"{one_line(arguments.boxes_like)} is no family of models.")
        family = records[arguments.boxes_like]
    if family.grounding is None and _of_modality(attachments, "image"):
        known = ", ".join(sorted(record.family for record in setup.application.registry.values() if record.grounding))
        raise bad_input(
            f"The record of {family.title} does not say how its models write coordinates.",
            hint=f"Read them as those of another family, with --boxes-like: {known}.",
        )
    return family.grounding


def _with_special_tokens(sampling: Sampling, grounding: Grounding | None) -> Sampling:
    """Return the sampling. If the model writes coordinates as special tokens, the returned sampling keeps these in the
    answer."""
    is_plain = grounding is None or grounding.format in _PLAIN_FORMATS
    return sampling if is_plain else msgspec.structs.replace(sampling, skip_special_tokens=False)


def _of_modality(attachments: Sequence[Attachment], modality: Modality) -> list[Attachment]:
    return [item for item in attachments if item.modality == modality]


def _place_lines(places: AnswerPlaces) -> list[str]:
    lines = [f"{number} {_place_text(one)}" for number, one in enumerate(places.placed[:_LISTED_PLACES_MAX], 1)]
    lines += [range_line(one.start_s, one.end_s, one.label) for one in places.ranges[:_LISTED_PLACES_MAX]]
    left_out = len(places.marks) + len(places.ranges) - len(lines)
    if left_out:
        lines.append(f"and {left_out} more")
    if places.unreadable:
        lines.append(f"warning: {len(places.unreadable)} could not be read.")
    times = " and no times" if places.image.modality == "video" else ""
    return lines or [f"The answer has no boxes in the format of the model's family{times}."]


def _place_text(one: PlacedMark) -> str:
    return f"{one_line(one.mark.label) or one.mark.kind}: " + ", ".join(f"{value:.0f}" for value in one.xyxy)
