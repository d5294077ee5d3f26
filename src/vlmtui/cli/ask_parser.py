"""The arguments of `vlmtui ask`. Nothing heavy is imported here: `vlmtui --help` must be instant."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from vlmtui.domain.parameters import PARAMETERS

_DESCRIPTION = """\
Ask one question and stream the answer to stdout. Uses a running worker of that model, or starts one, which stays for
--keep-alive.
"""
_EPILOG = """\
P is a path (quoted in any style, file:// too), a pattern such as 'shots/*.png', a folder, or a web address. A page of
a TIFF: scan.tiff#page=2. [Image #1] or [Video #2] in QUESTION puts that attachment there, numbered in the order given;
the others are put before the text.

exit codes: 0 fine, 1 failed (with --replay: another answer), 2 bad usage or bad input, 128 + n ended by signal n
"""


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
    group.add_argument(
        "--replay",
        metavar="FILE.json",
        help="run an exported document again and say whether the answers are the same",
    )
