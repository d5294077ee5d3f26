"""The arguments of `vlmtui ask`, and which go together."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from vlmtui.cli.results import export_suffix
from vlmtui.domain.parameters import PARAMETERS
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.session.lane_plan import ENGINE, Plan, plan_of
from vlmtui.session.plan_text import parse_plan

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
LOGPROBS_MAX = 20
"""vLLM's default limit."""


class AppendMedia(argparse.Action):
    """Collects --image, --video and --audio in one list, in the order given."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        given = getattr(namespace, self.dest) or []
        setattr(namespace, self.dest, [*given, (self.const, values)])


def fill_ask(ask: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    ask.description, ask.epilog = _DESCRIPTION, _EPILOG
    ask.formatter_class = argparse.RawDescriptionHelpFormatter
    ask.add_argument("question", metavar="QUESTION", nargs="?", help="the question; - reads it from stdin")
    ask.add_argument("--model", metavar="M", help="a family, a repository id or a local folder (default: shapes)")
    add_media(ask)
    ask.add_argument("--system", metavar="S", dest="system_prompt", help="the system prompt")
    _add_prompt(ask.add_argument_group("the prompt"))
    _add_sampling(ask.add_argument_group("sampling"))
    add_engine_options(ask.add_argument_group("the engine"))
    _add_output(ask.add_argument_group("output"))


def add_media(parser: argparse.ArgumentParser) -> None:
    """Add --image, --video and --audio; `media` is a list of (kind, argument)."""
    articles = {"image": "an image", "video": "a video", "audio": "a sound, or the audio track of a video"}
    for kind, name in articles.items():
        parser.add_argument(
            f"--{kind}",
            dest="media",
            action=AppendMedia,
            const=kind,
            metavar="P",
            help=f"{name}, or several; may be repeated, the order is kept",
        )
    parser.add_argument("--many", action="store_true", help="allow more than 20 files from one folder or pattern")


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
        help="ask with each of two to eight values of a sampling parameter, all at the same time; others with one "
        "value each may follow: 'seed=1,2,3 temperature=0.7'. Also picture=sent,none,grey,blur,swap, "
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


def add_engine_options(group: argparse._ArgumentGroup) -> None:
    """Add the options that choose an engine."""
    group.add_argument(
        "--engine",
        metavar="ENGINE",
        help="ask a vLLM server instead of an engine here: http://HOST:PORT, unix:/PATH, or a name in config.toml "
        "([engines.NAME]); --model is then one of its models, or the family of its only one",
    )
    add_backend(group)
    group.add_argument("--key-env", metavar="NAME", help="the environment variable with the server's key")
    group.add_argument(
        "--keep-alive",
        metavar="DUR",
        help="how long the model stays loaded afterwards: 5m, 90s, 0, forever (default: 5m)",
    )
    group.add_argument(
        "--trust-remote-code",
        action="store_true",
        help="allow the model's repository to run its own Python code on this machine; off by default",
    )
    group.add_argument("--adapter", metavar="FOLDER", help="answer with the LoRA adapter in this folder")
    group.add_argument(
        "--engine-arg",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an additional vLLM engine argument, for example max_model_len=4096; may be repeated",
    )


def add_backend(group: argparse._ActionsContainer, dest: str = "backend") -> None:
    """Add --backend."""
    group.add_argument(
        "--backend",
        metavar="BACKEND",
        dest=dest,
        help="what runs the model here: vllm, transformers, or another version, as in vllm==0.23.0 "
        "(default: the best route of the model's record)",
    )


def _add_output(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--json", action="store_true", help="print one JSON object at the end instead of streaming")
    group.add_argument(
        "--export", metavar="FILE", help="also write what was asked and answered as FILE.md, FILE.html or FILE.json"
    )
    group.add_argument(
        "--boxes",
        metavar="FILE.png",
        help="also draw the boxes and points of the answer on the picture, or those and its times on the frames of "
        "a video; with --json, list them in its pixels",
    )
    group.add_argument(
        "--boxes-like", metavar="FAMILY", help="read them by the convention of this family instead of the model's own"
    )


def fan_out_plan(arguments: argparse.Namespace) -> Plan | None:
    """Return the plan of a fan-out; None without one. Raises VlmtuiError."""
    if arguments.on is not None:
        return plan_of(ENGINE, arguments.on)
    return parse_plan(arguments.fan_out) if arguments.fan_out is not None else None


def check_usage(arguments: argparse.Namespace) -> None:
    """Raise VlmtuiError(BAD_USAGE) for options that cannot be combined."""
    if problem := _not_together(arguments):
        raise VlmtuiError(ErrorKind.BAD_USAGE, problem, hint="See `vlmtui ask --help`.")
    plan = fan_out_plan(arguments)
    if arguments.one_by_one and (plan is None or plan.parameter != ENGINE):
        raise VlmtuiError(ErrorKind.BAD_USAGE, "--one-by-one goes with --on.", hint="See `vlmtui ask --help`.")
    if plan is not None and arguments.raw_prompt is not None and plan.parameter not in (*PARAMETERS, ENGINE):
        problem = f"--raw-prompt is sent as it is: it cannot be fanned out over {plan.parameter}."
        raise VlmtuiError(ErrorKind.BAD_USAGE, problem, hint="See `vlmtui ask --help`.")
    if arguments.export is not None:
        export_suffix(arguments.export)


def _not_together(arguments: argparse.Namespace) -> str:
    problem = ""
    if arguments.question is None and (arguments.raw_prompt is None or arguments.mode == "both"):
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
