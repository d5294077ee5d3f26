"""`vlmtui ask`: asks one question and prints one or several answers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from vlmtui.cli.adapters import allow_adapters
from vlmtui.cli.answer_stream import AnswerStream
from vlmtui.cli.ask_engine import AskSetup, prepare, ready_engine
from vlmtui.cli.attachments import stage_attachments, user_turn_with_placed
from vlmtui.cli.boxes import box_convention, box_reader, with_special_tokens
from vlmtui.cli.engine_offer import offer_engine
from vlmtui.cli.interrupts import run_interruptible
from vlmtui.cli.output import note, print_json
from vlmtui.cli.questions import read_question
from vlmtui.cli.raw_prompt import check, read_raw_prompt
from vlmtui.cli.results import (
    difference_json,
    export_suffix,
    likelihood_json,
    write_comparison,
)
from vlmtui.domain.capabilities import require_capability
from vlmtui.domain.conversation import Turn, system_turn
from vlmtui.domain.engine import EngineInfo
from vlmtui.domain.parameters import PARAMETERS
from vlmtui.domain.prompt import RawPrompt
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.inspection.answer_tally import tally_text
from vlmtui.inspection.markdown_export import difference_lines
from vlmtui.inspection.replay import Comparison
from vlmtui.registry.prompts import check_attachments
from vlmtui.session.adapters import find_adapter
from vlmtui.session.answer_json import answer_json, tokens_json
from vlmtui.session.dials import with_parameters
from vlmtui.session.generation import PromptMode
from vlmtui.session.lane_plan import ENGINE, PICTURE, PIXELS, why_identical
from vlmtui.session.lanes import Lane, Lanes, LaneSpec, lane_spec, planned_specs
from vlmtui.session.likelihood import LaneScore, is_unchanged, score_lanes, verdict
from vlmtui.session.picture_changes import changed_pictures
from vlmtui.session.plan_text import parse_plan
from vlmtui.session.structured import check_structure

LOGPROBS_MAX = 20
"""vLLM's default limit."""
_TELL_TOKENS = ("mode", "raw_prompt", "logprobs", "fan_out")
"""Options of those who look at tokens; the JSON of others stays short."""
_OPTIONS = {"--media": "--image, --video or --audio", "--system-prompt": "--system", "--set-parameters": "--set"}
"""Options that are not called like their fields."""
_NOT_WITH_REPLAY = (
    "question", "media", "many", "mode", "raw_prompt", "force", "fan_out", "logprobs", "system_prompt",
    "boxes", "boxes_like", "set_parameters", "adapter",
    *PARAMETERS,
)  # fmt: skip


def ask(arguments: argparse.Namespace) -> int:
    """Run the command. Raises VlmtuiError, before anything is loaded, for an invalid question or file."""
    _check_usage(arguments)
    if arguments.replay is not None:
        from vlmtui.cli.replay import replay

        return replay(arguments)
    allow_adapters(arguments)
    setup = prepare(arguments)
    specs = _planned(setup, arguments)
    _check_raw(setup, specs, None, force=arguments.force)
    box_reader(setup, specs[0].request.prompt, arguments)
    try:
        return run_interruptible(lambda: _ask(setup, specs, arguments))
    except VlmtuiError as error:
        if error.kind is not ErrorKind.NO_ENGINE or not offer_engine(setup.application.paths, setup.model.spec):
            raise
    return run_interruptible(lambda: _ask(setup, specs, arguments))


async def _ask(setup: AskSetup, specs: Sequence[LaneSpec], arguments: argparse.Namespace) -> int:
    async with ready_engine(setup) as (engine, info, load_s):
        _check_raw(setup, specs, info, force=arguments.force)
        if len({spec.request.sampling.seed for spec in specs}) > 1:
            require_capability(info, "seed")
        lanes = Lanes([Lane(spec, engine) for spec in specs])
        await (lanes.run() if setup.as_json else AnswerStream(lanes).run())
        scores = await _scores(lanes, arguments)
        comparison = lanes.document(generation_prompt=setup.model.family.raw.generation_prompt)
        reader = None if lanes[0].has_failed else box_reader(setup, specs[0].request.prompt, arguments)
        boxes = {} if reader is None else reader.write(lanes[0].answer.text)
        if setup.as_json:
            print_json(_as_json(setup, lanes, comparison, load_s, arguments, scores) | boxes)
        elif len(lanes) > 1:
            for line in [*difference_lines(comparison), *_told_of(lanes, scores, arguments)]:
                note(line)
        for line in () if setup.as_json else _structure_lines(lanes):
            note(line)
        if arguments.export is not None:
            write_comparison(arguments.export, comparison, lanes.attachments())
        for lane in lanes:
            if lane.answer.failure is not None:
                raise lane.answer.failure.error()
    return 0


def _check_raw(setup: AskSetup, specs: Sequence[LaneSpec], info: EngineInfo | None, *, force: bool) -> None:
    """The raw prompt is the last, or the same in all."""
    prompt = specs[-1].request.prompt
    if isinstance(prompt, RawPrompt):
        check(prompt, setup.model.family, info, setup.application.registry.values(), force=force)


async def _scores(lanes: Lanes, arguments: argparse.Namespace) -> list[LaneScore | None]:
    """How likely the first answer is under the others' prompts; empty where that is not asked, or not known."""
    if arguments.fan_out is None or not parse_plan(arguments.fan_out).changes_prompt:
        return []
    try:
        return await score_lanes(lanes, 0)
    except VlmtuiError as error:
        note(f"warning: {error.message}")
        return []


def _structure_lines(lanes: Lanes) -> Iterator[str]:
    """Yield whether each lane's answer has the structure that was asked for."""
    for lane in lanes:
        if (checked := check_structure(lane.request.sampling, lane.answer.text)) is not None:
            yield f"{lane.spec.label}: {checked.message}" if lane.spec.label else checked.message


def _told_of(lanes: Lanes, scores: Sequence[LaneScore | None], arguments: argparse.Namespace) -> list[str]:
    """What a fan-out's answers have in common, and what they owe to the pictures."""
    if arguments.fan_out is None:
        return []
    plan = parse_plan(arguments.fan_out)
    each = [
        f"{lane.spec.label}: the first answer is {score.times} as likely."
        for lane, score in zip(lanes, scores, strict=bool(scores))
        if score is not None
    ]
    is_sent = is_unchanged(plan, 0)
    said = verdict(plan, scores) if scores and is_sent else ""
    return list(filter(None, (tally_text([lane.answer.text for lane in lanes]), *each, said)))


def _as_json(
    setup: AskSetup,
    lanes: Lanes,
    comparison: Comparison,
    load_s: float,
    arguments: argparse.Namespace,
    scores: Sequence[LaneScore | None],
) -> dict[str, object]:
    model = setup.model.spec.name
    found = [answer_json(model, lane.answer, load_s) for lane in lanes]
    for lane, shown in zip(lanes, found, strict=True):
        if (checked := check_structure(lane.request.sampling, lane.answer.text)) is not None:
            shown["structure"] = {"fits": checked.fits, "message": checked.message}
    if any(getattr(arguments, name) is not None for name in _TELL_TOKENS):
        for lane, shown in zip(lanes, found, strict=True):
            shown |= {"mode": lane.spec.mode, **tokens_json(lane.answer)}
    if arguments.fan_out is not None:
        plan = parse_plan(arguments.fan_out)
        for shown, score in zip(found, scores, strict=bool(scores)):
            shown["likelihood_of_first"] = None if score is None else likelihood_json(score)
        each = [{plan.parameter: value, **shown} for value, shown in zip(plan.values, found, strict=True)]
        return {"model": model, "parameter": plan.parameter, "answers": each}
    if len(lanes) > 1:
        return {"chat": found[0], "raw": found[1], "diff": difference_json(comparison)}
    return found[0]


def _planned(setup: AskSetup, arguments: argparse.Namespace) -> list[LaneSpec]:
    """Return the lanes to run at the same time. Raises VlmtuiError for an invalid question or file."""
    modes = _modes(arguments)
    raw_text = read_raw_prompt(arguments.raw_prompt) if arguments.raw_prompt is not None else None
    is_asked = raw_text is None or "chat" in modes
    question = read_question(arguments.question) if is_asked else ""
    if not is_asked and arguments.question is not None:
        note("warning: the raw prompt is sent as it is, without QUESTION; --mode both asks it in the chat template.")
    application, family = setup.application, setup.model.family
    attachments = stage_attachments(
        application.paths, arguments.media or (), num_frames=setup.model.spec.num_frames, many=arguments.many
    )
    turns = _turns(application.settings.system_prompt, user_turn_with_placed(question, attachments))
    sampling = application.settings.sampling.over(family.sampling)
    sampling = with_parameters(sampling, family, arguments.set_parameters or [])
    if arguments.boxes is not None:
        sampling = with_special_tokens(sampling, box_convention(setup, arguments))
    raw = None
    if raw_text is not None:
        check_attachments(family, turns)
        raw = RawPrompt(text=raw_text, attachments=tuple(attachments))
    if arguments.fan_out is None:
        return [
            lane_spec(
                family,
                turns,
                sampling,
                mode=mode,
                raw=raw if mode == "raw" else None,
                label=mode if len(modes) > 1 else "",
                logprobs=arguments.logprobs,
                adapter=find_adapter(arguments.adapter).folder if arguments.adapter else "",
            )
            for mode in modes
        ]
    plan = parse_plan(arguments.fan_out)
    if problem := why_identical(plan, sampling):
        note(f"warning: {problem}")
    pictures = None
    if plan.parameter in (PICTURE, PIXELS):
        pictures = changed_pictures(plan.values, turns, application.paths.media)
    return planned_specs(
        plan, family, turns, sampling, mode=modes[0], raw=raw, logprobs=arguments.logprobs, pictures=pictures
    )


def _modes(arguments: argparse.Namespace) -> list[PromptMode]:
    match arguments.mode:
        case "both":
            return ["chat", "raw"]
        case "raw":
            return ["raw"]
        case None if arguments.raw_prompt is not None:
            return ["raw"]
        case _:
            return ["chat"]


def _check_usage(arguments: argparse.Namespace) -> None:
    """Raise VlmtuiError(BAD_USAGE) for options that cannot be combined."""
    problem = ""
    if arguments.replay is not None:
        given = [name for name in _NOT_WITH_REPLAY if not any(getattr(arguments, name) is no for no in (None, False))]
        if given:
            option = "QUESTION" if given[0] == "question" else f"--{given[0].replace('_', '-')}"
            option = _OPTIONS.get(option, option)
            problem = f"--replay takes everything from the document: there is no place for {option}."
    elif arguments.question is None and (arguments.raw_prompt is None or arguments.mode == "both"):
        problem = "QUESTION is missing; - reads it from stdin."
    elif arguments.mode == "chat" and arguments.raw_prompt is not None:
        problem = "--raw-prompt has no place in --mode chat."
    elif arguments.mode == "both" and arguments.fan_out is not None:
        problem = "--fan-out goes with one mode, chat or raw."
    elif arguments.question == "-" and arguments.raw_prompt == "@-":
        problem = "QUESTION and the raw prompt cannot both be read from stdin."
    elif arguments.logprobs is not None and not 0 <= arguments.logprobs <= LOGPROBS_MAX:
        problem = f"--logprobs must lie between 0 and {LOGPROBS_MAX}, not {arguments.logprobs}."
    elif arguments.boxes is not None and (arguments.mode == "both" or arguments.fan_out is not None):
        problem = "--boxes draws one answer: it goes with one mode, and without --fan-out."
    elif arguments.boxes is None and arguments.boxes_like is not None:
        problem = "--boxes-like goes with --boxes."
    if problem:
        raise VlmtuiError(ErrorKind.BAD_USAGE, problem, hint="See `vlmtui ask --help`.")
    if arguments.fan_out is not None:
        plan = parse_plan(arguments.fan_out)
        if plan.parameter == ENGINE:
            problem = "Only the app fans out over engines: ask each with --engine."
            raise VlmtuiError(ErrorKind.BAD_USAGE, problem)
        if arguments.raw_prompt is not None and plan.parameter not in PARAMETERS:
            problem = f"--raw-prompt is sent as it is: it cannot be fanned out over {plan.parameter}."
            raise VlmtuiError(ErrorKind.BAD_USAGE, problem, hint="See `vlmtui ask --help`.")
    if arguments.export is not None:
        export_suffix(arguments.export)


def _turns(system: str, asked: Turn) -> list[Turn]:
    return [system_turn(system), asked] if system else [asked]
