"""`vlmtui ask`: asks one question and prints one or several answers."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeGuard

import msgspec

from vlmtui.cli.ask_engine import AskSetup, allow_adapters, prepare, ready_engine
from vlmtui.cli.ask_parser import check_usage, fan_out_plan
from vlmtui.cli.attachments import stage_attachments, user_turn_with_placed
from vlmtui.cli.boxes import box_convention, box_reader, with_special_tokens
from vlmtui.cli.inputs import read_question, read_raw_prompt
from vlmtui.cli.interrupts import run_interruptible
from vlmtui.cli.lane_engines import command_engines, models_on
from vlmtui.cli.output import note, print_json, write_answer
from vlmtui.cli.results import (
    difference_json,
    likelihood_json,
    write_comparison,
)
from vlmtui.domain.capabilities import require_capability
from vlmtui.domain.conversation import Turn, system_turn
from vlmtui.domain.engine import EngineInfo
from vlmtui.domain.prompt import RawPrompt
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.inspection.answer_diff import tally_text
from vlmtui.inspection.build import fingerprint_of
from vlmtui.inspection.comparison_pages import difference_lines
from vlmtui.inspection.findings import Finding, FindingKind
from vlmtui.inspection.raw_prompt_check import check_raw
from vlmtui.inspection.replay import Comparison
from vlmtui.registry.match import Model
from vlmtui.registry.prompts import check_attachments
from vlmtui.registry.schema import Family
from vlmtui.session.adapters import find_adapter
from vlmtui.session.answer_json import answer_json, tokens_json
from vlmtui.session.dials import with_default_parameters, with_parameters
from vlmtui.session.engine_turns import answer_in_turns
from vlmtui.session.generation import PromptMode
from vlmtui.session.lane_plan import ENGINE, PICTURE, PIXELS, Plan, why_identical
from vlmtui.session.lanes import Lane, Lanes, LaneSpec, OnChange, lane_spec, planned_specs
from vlmtui.session.likelihood import LaneScore, is_unchanged, score_lanes, verdict
from vlmtui.session.picture_changes import changed_pictures

_TELL_TOKENS = ("mode", "raw_prompt", "logprobs", "fan_out", "on")
"""Options of those who look at tokens; the JSON of others stays short."""
_NEVER = frozenset({FindingKind.TOO_FEW, FindingKind.NOT_TAKEN})
"""Findings that --force does not override: an attachment without a placeholder may crash the engine."""


def ask(arguments: argparse.Namespace) -> int:
    """Run the command. Raises VlmtuiError, before anything is loaded, for an invalid question or file."""
    check_usage(arguments)
    allow_adapters(arguments)
    setup = prepare(arguments)
    plan = fan_out_plan(arguments)
    engines = models_on([str(one) for one in plan.values], setup, arguments) if _is_over_engines(plan) else []
    specs = _planned(setup, arguments, engines)
    _check_raw(setup, specs, None, force=arguments.force)
    box_reader(setup, specs[0].request.prompt, arguments)
    return run_interruptible(lambda: _ask(setup, specs, engines, arguments))


async def _ask_each(
    setup: AskSetup, specs: Sequence[LaneSpec], models: Sequence[Model], arguments: argparse.Namespace
) -> int:
    """Ask several engines; load them together where memory allows."""
    async with command_engines(setup, one_by_one=arguments.one_by_one) as engines:
        lanes = Lanes([Lane(spec, None) for spec in specs])
        run = partial(answer_in_turns, lanes, models, engines)
        await (run() if setup.as_json else AnswerStream(lanes, run).run())
        return await _tell(setup, lanes, arguments)


async def _ask(
    setup: AskSetup, specs: Sequence[LaneSpec], engines: Sequence[Model], arguments: argparse.Namespace
) -> int:
    if engines:
        return await _ask_each(setup, specs, engines, arguments)
    async with ready_engine(setup) as (engine, info, load_s):
        _check_raw(setup, specs, info, force=arguments.force)
        if len({spec.request.sampling.seed for spec in specs}) > 1:
            require_capability(info, "seed")
        lanes = Lanes([Lane(spec, engine) for spec in specs])
        await (lanes.run() if setup.as_json else AnswerStream(lanes).run())
        return await _tell(setup, lanes, arguments, load_s)


async def _tell(setup: AskSetup, lanes: Lanes, arguments: argparse.Namespace, load_s: float | None = None) -> int:
    """Print and export the answers. `load_s`: seconds until the engine was ready; None: each lane's own. Raises the
    VlmtuiError of an answer that failed."""
    failures = [lane.answer.failure for lane in lanes if lane.answer.failure is not None]
    if all(lane.info is None for lane in lanes):
        raise failures[0].error()
    scores = await _scores(lanes, arguments)
    comparison = lanes.document(generation_prompt=setup.model.family.raw.generation_prompt)
    reader = None if lanes[0].has_failed else box_reader(setup, lanes[0].request.prompt, arguments)
    boxes = {} if reader is None else reader.write(lanes[0].answer.text)
    if setup.as_json:
        print_json(_as_json(setup, lanes, comparison, load_s, arguments, scores) | boxes)
    elif len(lanes) > 1:
        for line in [*difference_lines(comparison), *_fan_out_summary(lanes, scores, arguments)]:
            note(line)
    for line in () if setup.as_json else _structure_lines(lanes):
        note(line)
    if arguments.export is not None:
        write_comparison(arguments.export, comparison, lanes.attachments())
    if failures:
        raise failures[0].error()
    return 0


def _check_raw(setup: AskSetup, specs: Sequence[LaneSpec], info: EngineInfo | None, *, force: bool) -> None:
    """The raw prompt is the last, or the same in all."""
    prompt = specs[-1].request.prompt
    if isinstance(prompt, RawPrompt):
        _check_findings(prompt, setup.model.family, info, setup.application.registry.values(), force=force)


async def _scores(lanes: Lanes, arguments: argparse.Namespace) -> list[LaneScore | None]:
    """How likely the first answer is under the others' prompts; empty where that is not asked, or not known."""
    plan = fan_out_plan(arguments)
    if plan is None or not plan.changes_prompt:
        return []
    try:
        return await score_lanes(lanes, 0)
    except VlmtuiError as error:
        note(f"warning: {error.message}")
        return []


def _structure_lines(lanes: Lanes) -> Iterator[str]:
    """Yield whether each lane's answer has the structure that was asked for."""
    for lane in lanes:
        if (checked := lane.answer.structure) is not None:
            yield f"{lane.spec.label}: {checked.message}" if lane.spec.label else checked.message


def _fan_out_summary(lanes: Lanes, scores: Sequence[LaneScore | None], arguments: argparse.Namespace) -> list[str]:
    """What a fan-out's answers have in common, and what they owe to the pictures."""
    plan = fan_out_plan(arguments)
    if plan is None:
        return []
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
    load_s: float | None,
    arguments: argparse.Namespace,
    scores: Sequence[LaneScore | None],
) -> dict[str, object]:
    model = setup.model.spec.name
    found = [
        answer_json(
            lane.info.spec.name if lane.info is not None else model,
            lane.answer,
            load_s if load_s is not None else lane.info.load_s if lane.info is not None else 0.0,
        )
        for lane in lanes
    ]
    for lane, shown in zip(lanes, found, strict=True):
        if (checked := lane.answer.structure) is not None:
            shown["structure"] = {"fits": checked.fits, "message": checked.message}
    if any(getattr(arguments, name) is not None for name in _TELL_TOKENS):
        for lane, shown in zip(lanes, found, strict=True):
            shown |= {"mode": lane.spec.mode, **tokens_json(lane.answer)}
    plan = fan_out_plan(arguments)
    if plan is not None:
        for shown, score in zip(found, scores, strict=bool(scores)):
            shown["likelihood_of_first"] = None if score is None else likelihood_json(score)
        for lane, shown in zip(lanes, found, strict=True) if plan.parameter == ENGINE else ():
            shown["fingerprint"] = msgspec.to_builtins(fingerprint_of(lane.info)) if lane.info is not None else None
        each = [{plan.parameter: value, **shown} for value, shown in zip(plan.values, found, strict=True)]
        return {"model": model, "parameter": plan.parameter, "answers": each}
    if len(lanes) > 1:
        return {"chat": found[0], "raw": found[1], "diff": difference_json(comparison)}
    return found[0]


def _is_over_engines(plan: Plan | None) -> TypeGuard[Plan]:
    return plan is not None and plan.parameter == ENGINE


def _planned(setup: AskSetup, arguments: argparse.Namespace, engines: Sequence[Model]) -> list[LaneSpec]:
    """Return the lanes to run; `engines`: the models of those of a plan over engines, in order. Raises VlmtuiError for
    an invalid question or file."""
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
    sampling = with_default_parameters(sampling, family, application.settings.parameters)
    sampling = with_parameters(sampling, family, arguments.set_parameters or [])
    if arguments.boxes is not None:
        sampling = with_special_tokens(sampling, box_convention(setup, arguments, attachments))
    raw = None
    if raw_text is not None:
        check_attachments(family, turns)
        raw = RawPrompt(text=raw_text, attachments=tuple(attachments))
    plan = fan_out_plan(arguments)
    if plan is not None:
        return _fanned_out(plan, setup, turns, sampling, raw, arguments, engines)
    return [
        lane_spec(
            family,
            turns,
            sampling,
            mode=mode,
            raw=raw if mode == "raw" else None,
            label=mode if len(modes) > 1 else "",
            logprobs=arguments.logprobs,
            adapter=_adapter(arguments),
        )
        for mode in modes
    ]


def _fanned_out(
    plan: Plan,
    setup: AskSetup,
    turns: Sequence[Turn],
    sampling: Sampling,
    raw: RawPrompt | None,
    arguments: argparse.Namespace,
    engines: Sequence[Model],
) -> list[LaneSpec]:
    if problem := why_identical(plan, sampling):
        note(f"warning: {problem}")
    pictures = None
    if plan.parameter in (PICTURE, PIXELS):
        pictures = changed_pictures(plan.values, turns, setup.application.paths.media)
    return planned_specs(
        plan,
        setup.model.family,
        turns,
        sampling,
        mode=_modes(arguments)[0],
        raw=raw,
        logprobs=arguments.logprobs,
        adapter=_adapter(arguments),
        pictures=pictures,
        families={str(value): model.family for value, model in zip(plan.values, engines, strict=False)},
    )


def _adapter(arguments: argparse.Namespace) -> str:
    """Return the folder of the LoRA adapter that answers; empty: none. Raises VlmtuiError."""
    return find_adapter(arguments.adapter).folder if arguments.adapter else ""


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


def _turns(system: str, asked: Turn) -> list[Turn]:
    return [system_turn(system), asked] if system else [asked]


def _check_findings(
    prompt: RawPrompt, family: Family, info: EngineInfo | None, families: Iterable[Family], *, force: bool
) -> None:
    """Print the findings about a raw prompt to stderr. Raises VlmtuiError(BAD_INPUT) if it must not be sent.

    Without `info`, before anything is loaded, only findings that would block it are printed.
    """
    found = check_raw(
        prompt.text,
        prompt.attachments,
        family,
        special_tokens=frozenset(info.special_tokens if info else ()),
        stop_tokens=info.stop_tokens if info else (),
        bos=info.bos_token if info else None,
        adds_bos=info.adds_bos if info else True,
        families=families,
    )
    blocking = [finding for finding in found if finding.blocks and (finding.kind in _NEVER or not force)]
    for finding in found:
        if blocking or info is not None:
            _tell_finding(finding, prompt.text)
    if blocking:
        never = any(finding.kind in _NEVER for finding in blocking)
        hint = "Every attachment needs its placeholder." if never else "--force sends it regardless."
        raise bad_input("The raw prompt was not sent.", hint=hint)


def _tell_finding(finding: Finding, text: str) -> None:
    line = text.count("\n", 0, finding.start) + 1
    column = finding.start - (text.rfind("\n", 0, finding.start) + 1) + 1
    note(f"raw prompt, line {line}, column {column}: {finding.message}")
    if finding.fix is not None:
        note(f"    fix: {finding.fix.label}")


class AnswerStream:
    """Streams the first answer, then prints the others in order, each below its label if it has one."""

    def __init__(self, lanes: Lanes, run: Callable[[OnChange], Awaitable[None]] | None = None) -> None:
        """`run` runs the lanes; None: all at once."""
        self._lanes = lanes
        self._run = run or lanes.run
        self._at = 0
        """Index of the lane being printed; past the last one when all are printed."""
        self._pieces = -1
        """Number of pieces of its answer printed so far; -1: not even its label."""

    async def run(self) -> None:
        """Run all lanes and print their answers. A partial answer ends with a line break."""
        try:
            self._print()
            await self._run(self._changed)
        finally:
            if self._at < len(self._lanes):
                self._end_line(self._lanes[self._at])

    def _changed(self, lane: Lane) -> None:
        if self._at < len(self._lanes) and lane is self._lanes[self._at]:
            self._print()

    def _print(self) -> None:
        """Print the rest of the current lane's answer so far, and go on with the next ones if it has ended."""
        while self._at < len(self._lanes):
            lane = self._lanes[self._at]
            if self._pieces < 0:
                if lane.spec.label:
                    write_answer(("\n" if self._at else "") + f"== {lane.spec.label} ==\n")
                self._pieces = 0
            for piece in lane.answer.pieces[self._pieces :]:
                write_answer(piece)
            self._pieces = len(lane.answer.pieces)
            if lane.is_running:
                return
            self._end_line(lane)
            self._at, self._pieces = self._at + 1, -1

    def _end_line(self, lane: Lane) -> None:
        printed = "".join(lane.answer.pieces[: max(self._pieces, 0)])
        if printed and not printed.endswith("\n"):
            write_answer("\n")
