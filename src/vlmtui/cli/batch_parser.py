"""The arguments of `vlmtui batch`. Nothing heavy is imported here: `vlmtui --help` must be instant."""

from __future__ import annotations

import argparse

from vlmtui.cli.ask_parser import AppendMedia, add_engine_options
from vlmtui.domain.parameters import PARAMETERS

_DESCRIPTION = """\
Ask a model every question of a file, or one question over many pictures, and append each answer to OUT as one JSON
line. The same command again goes on where it stopped: what is answered is not asked again, what changed is.
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
    "audio": "sounds (of videos their audio tracks) to ask about",
}


def fill_batch(batch: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    batch.description, batch.epilog = _DESCRIPTION, _EPILOG
    batch.formatter_class = argparse.RawDescriptionHelpFormatter
    batch.add_argument("input", metavar="IN", nargs="?", help="the questions; - reads them from stdin")
    batch.add_argument("-o", "--output", metavar="OUT", required=True, help="the answers, a JSON line an item")
    batch.add_argument(
        "--model", "-m", "--model-type", metavar="M", help="a family, a repository id or a local folder (shapes)"
    )
    _add_input(batch.add_argument_group("the items"))
    _add_prompt(batch.add_argument_group("the prompt"))
    _add_sampling(batch.add_argument_group("sampling"))
    _add_engine(batch.add_argument_group("the engine"))
    _add_output(batch.add_argument_group("output"))
    _add_example(batch.add_argument_group("as vLLM's offline examples", "See docs/seeds.md."))


def _add_input(group: argparse._ArgumentGroup) -> None:
    for kind in ("image", "video", "audio"):
        group.add_argument(
            f"--{kind}",
            dest="media",
            action=AppendMedia,
            const=kind,
            metavar="P",
            help=f"without IN: {_PLURALS[kind]}, a file, a folder or a pattern such as 'shots/**/*.png'",
        )
    group.add_argument("--strict", action="store_true", help="stop before anything runs if a line is wrong")
    group.add_argument("--retry-errors", action="store_true", help="ask again what failed in an earlier run")


def _add_prompt(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--prompt",
        action="append",
        metavar="TEXT",
        help="the question about each file; may be repeated",
    )
    group.add_argument("--system", metavar="S", dest="system_prompt", help="the system prompt of items without one")
    group.add_argument("--mode", choices=("chat", "raw"), help="the chat template (default), or a raw prompt")
    group.add_argument("--method", choices=("chat", "generate"), help="the same by vLLM's names")
    group.add_argument(
        "--raw-prompt", metavar="TEXT|@FILE", help="a raw prompt for all, {prompt} stands for the item's question"
    )


def _add_sampling(group: argparse._ArgumentGroup) -> None:
    for parameter in PARAMETERS.values():
        group.add_argument(parameter.option, type=parameter.kind, metavar="N", help=parameter.help)
    group.add_argument(
        "--set", action="append", default=[], dest="settings", metavar="NAME=VALUE", help="a sampling parameter by name"
    )
    group.add_argument("--logprobs", type=int, metavar="N", help="log-probabilities, as `ask --logprobs`")


def _add_engine(group: argparse._ArgumentGroup) -> None:
    add_engine_options(group)
    group.add_argument(
        "--on", choices=("ray",), help="spread the items over actors of Ray, which ask the engine of their machine"
    )
    group.add_argument("--ray-address", metavar="ADDRESS", help="with --on ray: a cluster (default: this machine)")
    group.add_argument("--actors", type=_positive, default=1, metavar="N", help="with --on ray: number of actors (1)")
    group.add_argument(
        "--max-concurrency",
        type=_positive,
        metavar="N",
        help="most requests at once (default: twice as many as the engine runs together)",
    )
    group.add_argument("--tensor-parallel-size", type=_positive, metavar="N", help="split each layer over N GPUs")
    group.add_argument("--num-frames", type=_positive, metavar="N", help="frames of a video (default: the model's)")
    group.add_argument(
        "--disable-mm-processor-cache",
        "--disable-mm-preprocessor-cache",
        action="store_true",
        help="do not cache processed pictures (and load the model again)",
    )


def _add_output(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--include", metavar="WHAT,…", default="", help="also write: prompt, token_ids, logprobs, media")
    group.add_argument("--min-score", type=_share, metavar="X", help="exit with 1 if fewer are as expected, 0 to 1")
    group.add_argument("--csv", metavar="FILE.csv", help="at the end, write all results as a table")
    group.add_argument("--report", metavar="FILE.html", help="at the end, write a web page about all results")
    group.add_argument("--json", action="store_true", help="print the summary as one JSON object")


def _add_example(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--num-prompts", type=_positive, metavar="N", help="N prompts out of one question and picture")
    group.add_argument("--modality", choices=("image", "video"), help="with --num-prompts (image)")
    group.add_argument(
        "--image-repeat-prob",
        type=_share,
        metavar="X",
        help="the same picture as before with this probability, otherwise one of its pixels is changed",
    )
    group.add_argument(
        "--use-different-prompt-per-request", action="store_true", help="take the questions in turn, not the first"
    )
    group.add_argument(
        "--verify-mm-cache-hit-with-uuids",
        action="store_true",
        help="then send all again without the pictures, by their identifiers, and compare the answers",
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
