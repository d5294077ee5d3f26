"""The arguments of the commands that look for faults of a model. Nothing heavy is imported here."""

from __future__ import annotations

import argparse

_EXIT_CODES = "exit codes: 0 nothing differs, 1 a stage differs, 2 something can't be compared"


def _add_trust(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trust-remote-code",
        action="store_true",
        help="let the model's tokenizer run Python code of its own repository",
    )


def fill_golden(golden: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    golden.description = (
        "Record a model's prompts as small JSON files (text, token ids, tokens and sizes of images), and check later "
        "whether they are still the same: after an upgrade, or in CI."
    )
    golden.set_defaults(action=None)
    actions = golden.add_subparsers(metavar="ACTION")
    record = actions.add_parser("record", help="write golden prompts", description="Write golden prompts.")
    record.add_argument("folder", metavar="DIR", help="where they go, a folder a model")
    record.add_argument("--model", metavar="M", action="append", required=True, help="a model; may be repeated")
    record.add_argument(
        "--case",
        metavar="NAME",
        action="append",
        default=[],
        help="a canned conversation, or the name of your own; may be repeated",
    )
    record.add_argument("--mode", choices=("chat", "raw", "both"), default="chat", help="how the prompt is made (chat)")
    record.add_argument("--question", metavar="TEXT", help="ask this instead of a canned conversation; needs --case")
    record.add_argument("--image", metavar="P", action="append", default=[], help="with --question: an image")
    check = actions.add_parser(
        "check",
        help="say what moved",
        description="Make the prompts again and compare them: text, token ids, tokens and sizes of images.",
        epilog=_EXIT_CODES,
    )
    check.add_argument("folder", metavar="DIR", help="the folder with the golden prompts")
    check.add_argument(
        "--model",
        metavar="FOLDER",
        action="append",
        default=[],
        help="a model's folder that golden prompts may name: they can't have one read by themselves; may be repeated",
    )
    for action, name in ((record, "record"), (check, "check")):
        action.add_argument(
            "--with-engine",
            action="store_true",
            help="load the engine: prompts are made by vLLM instead of the model's own processor",
        )
        action.add_argument("--json", action="store_true", help="print JSON")
        _add_trust(action)
        action.set_defaults(action=name)


def fill_replay(replay: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    replay.description = (
        "Answer kept comparisons (`ask --export FILE.json`, Compare) and golden prompts again on one or several "
        "engines, one after the other, and tell what differs from the record: prompt, pixels, the answer's first "
        "differing token and its log-probability. Golden prompts have no answer: the first engine's is the base."
    )
    replay.epilog = _EXIT_CODES
    replay.add_argument("files", metavar="FILE", nargs="+", help="a document or golden file, or a folder of them")
    replay.add_argument(
        "--on",
        action="append",
        metavar="ENGINE",
        help="an engine: here, transformers, vllm==X.Y.Z, a model, or a server; engine arguments may follow, as in "
        "'here dtype=bfloat16'; may be repeated (here)",
    )
    replay.add_argument("--model", metavar="M", help="run this model instead of the recorded one")
    replay.add_argument("--key-env", metavar="NAME", help="the environment variable with a server's key")
    replay.add_argument(
        "--adapter", metavar="FOLDER", help="the LoRA adapter that a document's answer came from, or a folder above it"
    )
    replay.add_argument("--json", action="store_true", help="print one JSON object")
    _add_trust(replay)


_PARITY = """\
Ask an engine and Hugging Face Transformers the same, with the same weights, and say at which stage they first differ:
prompt text, token ids, image tokens, pixels, the next token's probabilities, the greedy answer. Each is loaded in a
process of its own, one after the other.
"""


def fill_parity(parity: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parity.description = _PARITY
    parity.epilog = _EXIT_CODES
    parity.formatter_class = argparse.RawDescriptionHelpFormatter
    parity.add_argument("model", metavar="FAMILY", help="a family, a repository id or a local folder")
    parity.add_argument("--backend", metavar="NAME", help="what runs the model (that of its record)")
    parity.add_argument(
        "--reference", metavar="MODEL", help="what Transformers loads, where that is another checkpoint (the same)"
    )
    parity.add_argument("--mode", choices=("chat", "raw", "both"), default="chat", help="how prompts are made (chat)")
    parity.add_argument(
        "--case", metavar="NAME", action="append", default=[], help="a canned conversation; may be repeated"
    )
    parity.add_argument("--question", metavar="TEXT", help="ask this instead of the canned conversations")
    parity.add_argument("--image", metavar="P", action="append", default=[], help="with --question: an image")
    parity.add_argument("--max-tokens", metavar="N", type=int, default=8, help="tokens of each greedy answer (8)")
    parity.add_argument(
        "--dtype", choices=("float32", "bfloat16", "float16"), help="number format of both (the model's)"
    )
    parity.add_argument(
        "--engine-arg", metavar="NAME=VALUE", action="append", default=[], help="an engine argument; may be repeated"
    )
    parity.add_argument(
        "--tolerance", metavar="X", type=float, help="most that log-probabilities may differ (0.02; 16 bits: 0.25)"
    )
    parity.add_argument(
        "--pixel-tolerance", metavar="X", type=float, default=1e-3, help="most that processed pixels may differ (0.001)"
    )
    parity.add_argument("--json", action="store_true", help="print one JSON object")
    _add_trust(parity)
