"""The arguments of the commands that look for faults of a model. Nothing heavy is imported here."""

from __future__ import annotations

import argparse

_LINT = """\
Render the model's chat template with canned conversations and check what it writes: BOS, placeholders, texts, roles,
generation prompt, end of turn, stable prefixes, special tokens, white space, and the differences to the model's record
and between its files. Nothing is loaded but the tokenizer, in a process with limits and without network.
"""
_CODES = "exit codes: 0 no finding, 1 findings, 2 can't check"


def fill_lint(lint: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    lint.description, lint.epilog = _LINT, _CODES
    lint.formatter_class = argparse.RawDescriptionHelpFormatter
    lint.add_argument(
        "model",
        metavar="MODEL",
        help="a downloaded repository, a local folder, or a family (whose record is checked where its model is not "
        "downloaded)",
    )
    lint.add_argument("--json", action="store_true", help="print one JSON object")
    _add_trust(lint)


def _add_trust(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trust-remote-code",
        action="store_true",
        help="let the model's tokenizer run Python code of its own repository",
    )
