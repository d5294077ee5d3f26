"""What goes together on the command line of `vlmtui ask`."""

from __future__ import annotations

import argparse

from vlmtui.cli.results import export_suffix
from vlmtui.domain.parameters import PARAMETERS
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.session.lane_plan import ENGINE, Plan, plan_of
from vlmtui.session.plan_text import parse_plan

LOGPROBS_MAX = 20
"""vLLM's default limit."""
_OPTIONS = {"--media": "--image, --video or --audio", "--system-prompt": "--system", "--set-parameters": "--set"}
"""Options that are not called like their fields."""
_NOT_WITH_REPLAY = (
    "question", "media", "many", "mode", "raw_prompt", "force", "fan_out", "logprobs", "system_prompt",
    "boxes", "boxes_like", "set_parameters", "on", "one_by_one",
    *PARAMETERS,
)  # fmt: skip


def fan_out_plan(arguments: argparse.Namespace) -> Plan | None:
    """Return the plan of a fan-out; None without one. Raises VlmtuiError."""
    if arguments.on is not None:
        return plan_of(ENGINE, arguments.on)
    return parse_plan(arguments.fan_out) if arguments.fan_out is not None else None


def check_usage(arguments: argparse.Namespace) -> None:
    """Raise VlmtuiError(BAD_USAGE) for options that cannot be combined."""
    problem = _beside_replay(arguments) or _not_together(arguments)
    if problem:
        raise VlmtuiError(ErrorKind.BAD_USAGE, problem, hint="See `vlmtui ask --help`.")
    plan = fan_out_plan(arguments)
    if arguments.one_by_one and (plan is None or plan.parameter != ENGINE):
        raise VlmtuiError(ErrorKind.BAD_USAGE, "--one-by-one goes with --on.", hint="See `vlmtui ask --help`.")
    if plan is not None and arguments.raw_prompt is not None and plan.parameter not in (*PARAMETERS, ENGINE):
        problem = f"--raw-prompt is sent as it is: it cannot be fanned out over {plan.parameter}."
        raise VlmtuiError(ErrorKind.BAD_USAGE, problem, hint="See `vlmtui ask --help`.")
    if arguments.export is not None:
        export_suffix(arguments.export)


def _beside_replay(arguments: argparse.Namespace) -> str:
    if arguments.replay is None:
        return ""
    given = [name for name in _NOT_WITH_REPLAY if not any(getattr(arguments, name) is no for no in (None, False))]
    if given:
        option = "QUESTION" if given[0] == "question" else f"--{given[0].replace('_', '-')}"
        option = _OPTIONS.get(option, option)
        return f"--replay takes everything from the document: there is no place for {option}."
    return ""


def _not_together(arguments: argparse.Namespace) -> str:
    problem = ""
    if arguments.replay is not None:
        pass
    elif arguments.question is None and (arguments.raw_prompt is None or arguments.mode == "both"):
        problem = "QUESTION is missing; - reads it from stdin."
    elif arguments.mode == "chat" and arguments.raw_prompt is not None:
        problem = "--raw-prompt has no place in --mode chat."
    elif arguments.on is not None and arguments.fan_out is not None:
        problem = "--on is a fan-out over engines: it does not go with --fan-out."
    elif arguments.mode == "both" and fan_out_plan(arguments) is not None:
        problem = "--fan-out and --on go with one mode, chat or raw."
    elif arguments.question == "-" and arguments.raw_prompt == "@-":
        problem = "QUESTION and the raw prompt cannot both be read from stdin."
    elif arguments.logprobs is not None and not 0 <= arguments.logprobs <= LOGPROBS_MAX:
        problem = f"--logprobs must lie between 0 and {LOGPROBS_MAX}, not {arguments.logprobs}."
    elif arguments.boxes is not None and (arguments.mode == "both" or fan_out_plan(arguments) is not None):
        problem = "--boxes draws one answer: it goes with one mode, and without --fan-out."
    elif arguments.boxes is None and arguments.boxes_like is not None:
        problem = "--boxes-like goes with --boxes."
    return problem
