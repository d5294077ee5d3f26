"""`vlmtui help TOPIC`: shows the pages of `docs/`, which ship with the package, in the terminal."""

from __future__ import annotations

import argparse
import difflib
import os
import re
import shutil
from pathlib import Path

from vlmtui.cli.main import make_parser
from vlmtui.cli.output import print_table
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.text import one_line

_WIDEST = 100
"""Most columns of text: longer lines are hard to read."""
_IMAGE = re.compile(r"^!\[[^\]]*\]\([^)]*\)\n", re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
_PAGE_LINK = re.compile(r"\[([^\]]+)\]\((\w[\w-]*)\.md(?:#[\w-]*)?\)")
_OTHER_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]*\)")


def fill_help(help_: argparse.ArgumentParser) -> None:
    help_.description = "Show a page of the documentation, or the options of a command."
    help_.add_argument("topic", metavar="TOPIC", nargs="?", help="a topic or a command (default: list the topics)")


def help_(arguments: argparse.Namespace) -> int:
    """Print a page, a command's options, or the list of topics. Raises VlmtuiError for an unknown topic."""
    if arguments.topic is None:
        print_table(["TOPIC", "WHAT"], [[name, heading_of(page)] for name, page in topics().items()])
        print("\n`vlmtui help TOPIC` shows a page, or the options of a command.")
        return 0
    name = arguments.topic.lower().removesuffix(".md")
    parsers = command_parsers()
    if page := topics().get(name):
        text = for_terminal(page.read_text(encoding="utf-8"))
        if name in parsers:
            text += f"\n`vlmtui {name} --help` lists the options.\n"
        _show(text)
    elif command := parsers.get(name):
        print(command.format_help(), end="")
    else:
        raise _unknown(arguments.topic, [*topics(), *parsers])
    return 0


def docs_folder() -> Path:
    """Return the folder of the pages, in the package or in a checkout."""
    packaged = Path(__file__).parents[1] / "docs"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "docs"


def topics() -> dict[str, Path]:
    """Return every page by its topic, sorted."""
    return {page.stem: page for page in sorted(docs_folder().glob("*.md"))}


def heading_of(page: Path) -> str:
    with page.open(encoding="utf-8") as lines:
        return next((line.removeprefix("# ").strip() for line in lines if line.startswith("# ")), page.stem)


def command_parsers() -> dict[str, argparse.ArgumentParser]:
    subparsers = (one for one in make_parser()._actions if isinstance(one, argparse._SubParsersAction))
    return dict(next(subparsers).choices)


def for_terminal(text: str) -> str:
    """Return a page's Markdown for a terminal: links name commands or addresses; images and comments are left out."""
    text = _COMMENT.sub("", _IMAGE.sub("", text))
    text = _PAGE_LINK.sub(lambda link: f"{link[1]} (`vlmtui help {link[2]}`)", text)
    return _OTHER_LINK.sub(r"\1", text)


def _show(markdown: str) -> None:
    """Print Markdown: with styles and a pager on a terminal, otherwise as plain text."""
    from rich.console import Console
    from rich.markdown import Markdown

    page = Markdown(markdown, hyperlinks=False, code_theme="ansi_dark")
    console = Console(width=min(shutil.get_terminal_size().columns, _WIDEST), highlight=False)
    if console.is_terminal and not console.is_dumb_terminal:
        os.environ.setdefault("LESS", "FRX")
        with console.pager(styles=True):
            console.print(page)
        return
    with console.capture() as captured:
        console.print(page)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _unknown(topic: str, known: list[str]) -> VlmtuiError:
    close = difflib.get_close_matches(topic.lower(), known, n=1, cutoff=0.5)
    hint = f"Did you mean `vlmtui help {close[0]}`?" if close else "`vlmtui help` lists the topics."
    return VlmtuiError(ErrorKind.BAD_USAGE, f"No help topic is called “{one_line(topic)}”.", hint=hint)
