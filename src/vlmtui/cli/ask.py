"""`vlmtui ask`: one question; its answer, or several of them beside each other."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from vlmtui.cli.asking import Asked, Asking, answers_of, opened, prepare
from vlmtui.cli.attachments import placed, staged
from vlmtui.cli.fan_out import fanned_out, parse_fan_out
from vlmtui.cli.interrupts import run_interruptible
from vlmtui.cli.output import note, print_json
from vlmtui.cli.questions import read_question
from vlmtui.cli.raw_prompt import check, read_raw_prompt
from vlmtui.cli.results import (
    answer_json,
    attachments_of,
    compared,
    difference_json,
    export,
    export_suffix,
    tokens_json,
)
from vlmtui.domain.conversation import Turn, system_turn
from vlmtui.domain.engine import EngineInfo, GenerateRequest, RawPrompt
from vlmtui.engine.session import Answer, PromptMode, make_request, new_request_id, with_family_stops
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.inspection.as_markdown import difference_lines
from vlmtui.inspection.replay import Comparison
from vlmtui.registry.prompts import check_attachments

LOGPROBS_MAX = 20
"""As many as vLLM gives unless its engine is told otherwise."""
_TELL_TOKENS = ("mode", "raw_prompt", "logprobs", "fan_out")
"""Options of those who look at tokens; the JSON of others stays short."""
_NOT_WITH_REPLAY = (
    "question", "media", "many", "mode", "raw_prompt", "force", "fan_out", "logprobs", "system_prompt", "max_tokens",
    "temperature", "top_p", "seed",
)  # fmt: skip


def ask(arguments: argparse.Namespace) -> int:
    """Raises VlmtuiError before anything is loaded when the question or a file is not fit."""
    _check_usage(arguments)
    if arguments.replay is not None:
        from vlmtui.cli.replay import replay

        return replay(arguments)
    asking = prepare(arguments)
    asked = _planned(asking, arguments)
    _check_raw(asking, asked, None, force=arguments.force)
    return run_interruptible(lambda: _ask(asking, asked, arguments))


async def _ask(asking: Asking, asked: Sequence[Asked], arguments: argparse.Namespace) -> int:
    family = asking.model.family
    async with opened(asking) as (engine, info, load_s):
        _check_raw(asking, asked, info, force=arguments.force)
        answers = await answers_of(engine, asked, show=not asking.as_json)
        comparison = compared(info, asked, answers, generation_prompt=family.raw.generation_prompt)
        if asking.as_json:
            print_json(_as_json(asking, asked, answers, comparison, load_s, arguments))
        elif len(asked) > 1:
            for line in difference_lines(comparison):
                note(line)
        if arguments.export is not None:
            export(arguments.export, comparison, attachments_of(asked[0].request.prompt))
        for answer in answers:
            if answer.failure is not None:
                raise answer.failure.error()
    return 0


def _check_raw(asking: Asking, asked: Sequence[Asked], info: EngineInfo | None, *, force: bool) -> None:
    """The raw prompt is the last, or the same in all."""
    prompt = asked[-1].request.prompt
    if isinstance(prompt, RawPrompt):
        check(prompt, asking.model.family, info, asking.application.registry.values(), force=force)


def _as_json(
    asking: Asking,
    asked: Sequence[Asked],
    answers: Sequence[Answer],
    comparison: Comparison,
    load_s: float,
    arguments: argparse.Namespace,
) -> dict[str, object]:
    model = asking.model.spec.name
    found = [answer_json(model, answer, load_s) for answer in answers]
    if any(getattr(arguments, name) is not None for name in _TELL_TOKENS):
        for one, answer, shown in zip(asked, answers, found, strict=True):
            shown |= {"mode": one.mode, **tokens_json(answer)}
    if arguments.fan_out is not None:
        name, values = parse_fan_out(arguments.fan_out)
        each = [{name: value, **shown} for value, shown in zip(values, found, strict=True)]
        return {"model": model, "parameter": name, "answers": each}
    if len(asked) > 1:
        return {"chat": found[0], "raw": found[1], "diff": difference_json(comparison)}
    return found[0]


def _planned(asking: Asking, arguments: argparse.Namespace) -> list[Asked]:
    """What is to be asked at the same time. Raises VlmtuiError where the question or a file is not fit."""
    modes = _modes(arguments)
    raw_text = read_raw_prompt(arguments.raw_prompt) if arguments.raw_prompt is not None else None
    is_asked = raw_text is None or "chat" in modes
    question = read_question(arguments.question) if is_asked else ""
    if not is_asked and arguments.question is not None:
        note("warning: the raw prompt is sent as it is, without QUESTION; --mode both asks it in the chat template.")
    application, model = asking.application, asking.model
    attachments = staged(
        application.paths, arguments.media or (), num_frames=model.spec.num_frames, many=arguments.many
    )
    turns = _turns(application.settings.system_prompt, placed(question, attachments))
    sampling = application.settings.sampling.over(model.family.sampling)
    asked: list[Asked] = []
    for mode in modes:
        if mode == "raw" and raw_text is not None:
            check_attachments(model.family, turns)
            request = GenerateRequest(
                request_id=new_request_id(),
                prompt=RawPrompt(text=raw_text, attachments=tuple(attachments)),
                sampling=with_family_stops(model.family, sampling),
                logprobs=arguments.logprobs,
            )
        else:
            request = make_request(model.family, turns, sampling, mode=mode, logprobs=arguments.logprobs)
        asked.append(Asked(mode, request, mode if len(modes) > 1 else ""))
    return asked if arguments.fan_out is None else fanned_out(asked[0], arguments.fan_out)


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
    """Raise VlmtuiError(BAD_USAGE) for options that do not go together."""
    problem = ""
    if arguments.replay is not None:
        given = [name for name in _NOT_WITH_REPLAY if not any(getattr(arguments, name) is no for no in (None, False))]
        if given:
            option = "QUESTION" if given[0] == "question" else f"--{given[0].replace('_', '-')}"
            option = {"--media": "--image or --video", "--system-prompt": "--system"}.get(option, option)
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
    if problem:
        raise VlmtuiError(ErrorKind.BAD_USAGE, problem, hint="`vlmtui ask --help` tells more.")
    if arguments.fan_out is not None:
        parse_fan_out(arguments.fan_out)
    if arguments.export is not None:
        export_suffix(arguments.export)


def _turns(system: str, asked: Turn) -> list[Turn]:
    return [system_turn(system), asked] if system else [asked]
