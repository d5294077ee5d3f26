"""Writes manual pages: section 1 from the parser of the command line, section 7 from the pages of `docs/`.

`python tools/man_pages.py FOLDER`. The build of the wheel runs it, so nothing but the standard library and
markdown-it-py is imported. Format: man(7).
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt

from vlmtui import __version__
from vlmtui.cli.parser import make_parser

if TYPE_CHECKING:
    from markdown_it.token import Token

DOCS = Path(__file__).parent.parent / "docs"
_LEFT_OUT = re.compile(r"^!\[[^\]]*\]\([^)]*\)\n|<!--.*?-->\n?", re.DOTALL | re.MULTILINE)


def pages(docs: Path = DOCS) -> dict[str, str]:
    """Return every page by its file name, such as `vlmtui-ask.1`."""
    parser = make_parser()
    found = {"vlmtui.1": command_page(parser)}
    for name, command in _below(parser):
        found[f"vlmtui-{name}.1"] = command_page(command)
    for page in sorted(docs.glob("*.md")):
        found[f"vlmtui-{page.stem}.7"] = topic_page(page.stem, page.read_text(encoding="utf-8"))
    return found


def command_page(parser: argparse.ArgumentParser) -> str:
    """Return the page of a command, with its subcommands."""
    name = parser.prog.replace(" ", "-")
    told = parser.description or parser.prog
    first = re.split(r"(?<=[.:;])\s", told)[0].rstrip(".:;")
    lines = [_title(name, 1), ".SH NAME", f"{escaped(name)} \\- {escaped(first)}", ".SH SYNOPSIS"]
    lines += [escaped(_usage(parser)), ".SH DESCRIPTION", escaped(told), ".SH OPTIONS", *_options(parser)]
    if commands := [f".TP\n.B {escaped(name)}\n{escaped(told)}" for name, told in _commands(parser)]:
        lines += [".SH COMMANDS", *commands]
    for below, command in _below(parser):
        if parser.prog != "vlmtui":
            lines += [f".SH {escaped(below.upper())}", escaped(_usage(command)), *_options(command)]
    if parser.epilog:
        lines += [".SH NOTES", ".nf", _code(parser.epilog.strip("\n")), ".fi"]
    return "\n".join([*lines, *_see_also(parser.prog)]) + "\n"


def _title(name: str, section: int) -> str:
    return f'.TH "{escaped(name).upper()}" "{section}" "" "vlmtui {__version__}" "vlmtui"'


def _usage(parser: argparse.ArgumentParser) -> str:
    return " ".join(parser.format_usage().removeprefix("usage: ").split())


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    formatter = argparse.HelpFormatter(parser.prog)
    for action in parser._actions:
        if action.help != argparse.SUPPRESS and not isinstance(action, argparse._SubParsersAction):
            invocation = formatter._format_action_invocation(action)
            told = formatter._expand_help(action) if action.help else ""
            yield f".TP\n.B {escaped(invocation)}\n{escaped(told)}"


def _commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from ((choice.dest, choice.help or "") for choice in action._choices_actions)


def _below(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def _see_also(prog: str) -> Iterator[str]:
    yield ".SH SEE ALSO"
    others = ["vlmtui-using(7)", "vlmtui-settings(7)", "vlmtui-keys(7)"]
    yield escaped(", ".join(others if prog == "vlmtui" else ["vlmtui(1)", *others]))


def topic_page(name: str, text: str) -> str:
    """Return the page of a Markdown document."""
    tokens = MarkdownIt("commonmark").enable("table").parse(_LEFT_OUT.sub("", text))
    heading = next((after.content for one, after in pairwise(tokens) if one.tag == "h1"), name)
    name = f"vlmtui-{name}"
    lines = [_title(name, 7), ".SH NAME", f"{escaped(name)} \\- {escaped(heading)}", *_body(tokens), *_see_also(name)]
    return "\n".join(line for line in lines if line) + "\n"


def _body(tokens: list[Token]) -> Iterator[str]:
    """Yield the lines of a document's tokens. A row of a table is a paragraph with its first cell as its tag."""
    macro, row = ".PP", list[str]()
    yield ".SH DESCRIPTION"
    for token in tokens:
        match token.type:
            case "heading_open":
                macro = {"h1": "", "h2": ".SH", "h3": ".SS"}.get(token.tag, ".SS")
            case "list_item_open":
                macro = ".IP " + (f"{token.info}." if token.info else "\\(bu") + " 4"
            case "tr_open":
                row = []
            case "th_open" | "td_open":
                macro = "cell"
            case "tr_close" if row and any(row):
                first, *others = [cell for cell in row if cell]
                yield f".TP\n{first}\n{'; '.join(others)}"
            case "fence" | "code_block":
                yield f".PP\n.nf\n.RS 4\n{_code(token.content)}\n.RE\n.fi"
            case "inline":
                text = _inline(token.children or ())
                if macro == "cell":
                    row.append(text)
                elif macro.startswith((".SH", ".SS")):
                    yield f"{macro} {text}"
                elif macro:
                    yield f"{macro}\n{text}"
                macro = ".PP"
            case _:
                pass


def _code(text: str) -> str:
    return "\n".join(escaped(line) if line.strip() else "\\&" for line in text.rstrip("\n").split("\n"))


def _inline(tokens: Iterable[Token]) -> str:
    parts = list[str]()
    for token in tokens:
        match token.type:
            case "text":
                parts.append(escaped(token.content, at_start=not parts))
            case "code_inline":
                parts.append(f"\\fB{escaped(token.content, at_start=False)}\\fR")
            case "strong_open" | "em_open":
                parts.append("\\fB" if token.type == "strong_open" else "\\fI")
            case "strong_close" | "em_close":
                parts.append("\\fR")
            case "softbreak" | "hardbreak":
                parts.append(" ")
            case _:
                pass
    return "".join(parts).strip()


def escaped(text: str, *, at_start: bool = True) -> str:
    """Return text that roff prints as it is. At the start of a line a full stop or an apostrophe would be a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if at_start and text[:1] in (".", "'") else text


def write_pages(target: Path, docs: Path = DOCS) -> list[Path]:
    """Write all pages into `target`, which is created; return them."""
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in pages(docs).items():
        (target / name).write_text(text, encoding="utf-8")
        written.append(target / name)
    return written


if __name__ == "__main__":
    print(len(write_pages(Path(sys.argv[1]))), "pages")
