"""The pages only name links, commands, options, keys, make targets, paths and settings that exist."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cases import in_one_test
from vlmtui.cli.main import make_parser, misplaced_option
from vlmtui.config.settings import setting_names
from vlmtui.ui.actions import ACTIONS, SCOPES, SUBMENUS
from vlmtui.ui.keys import spell_path

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
_README_MAX = 200
"""Lines."""
_WIDEST = 100
"""Columns of a line; tables and pictures may be wider."""
_OTHER_COMMANDS = re.compile(r"make |ARGS=|python|uv |git |pip|sqlite3 ")
"""First words of commands other than vlmtui."""
_SERVER_PATHS = {"/v1", "/inference", "/metrics", "/tokenize", "/detokenize", "/invocations"}
"""Paths of a vLLM server, which look like commands of the app."""


def blocks(page: Path) -> Iterator[str]:
    """Return the text between a page's code fences."""
    yield from re.findall(r"^```\w*\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def commands() -> Iterator[tuple[str, str]]:
    """Return every call of `vlmtui` in a code block, with its page."""
    for page in PAGES:
        for block in blocks(page):
            for line in block.splitlines():
                found = re.search(r"(?:^|\| )(vlmtui\b.*)", line)
                if found and not line.startswith(" "):
                    yield page.name, found[1]


def all_options(parser: argparse.ArgumentParser) -> set[str]:
    """Return the options of a parser and of its commands."""
    parser.format_help()  # a command adds its arguments when they are needed
    options = {option for action in parser._actions for option in action.option_strings}
    subparsers = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return options.union(*(all_options(one) for action in subparsers for one in action.choices.values()))


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= _README_MAX


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_are_short(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) > _WIDEST and not line.startswith(("|", "!["))] == []


def test_slash_commands_exist() -> None:
    known = {action.slash for scope in SCOPES.values() for action in scope.actions} | _SERVER_PATHS
    for page in PAGES:
        named = set(re.findall(r"`(/[a-z][a-z0-9]*)(?: [^`]*)?`", page.read_text(encoding="utf-8")))
        assert named <= known, page.name


def test_keys_after_the_leader_exist() -> None:
    known = {spell_path(action.leader) for action in ACTIONS.values()} | SUBMENUS.keys()
    key = r"(?:Enter|Tab|[^\sA-Z|]|[A-Z](?![a-z]))"
    for page in PAGES:
        found = re.findall(rf"Ctrl\+X ({key})(?: ({key})(?![\w…]))?", page.read_text(encoding="utf-8"))
        named = {f"{first} {second}" if first in SUBMENUS and second else first for first, second in found}
        assert named <= known, page.name


def test_options_exist() -> None:
    """Options in the text are those of `vlmtui`, of `vllm serve`, or of a script in this repository."""
    known = all_options(make_parser())
    versions = json.loads((ROOT / "tests/data/vllm_arguments.json").read_text(encoding="utf-8"))
    known |= {f"--{name.replace('_', '-')}" for names in versions.values() for name in names}
    for page in PAGES:
        prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        spans = [span for span in re.findall(r"`([^`\n]+)`", prose) if not _OTHER_COMMANDS.match(span)]
        named = {option for span in spans for option in re.findall(r"(?<![\w-])(--[a-z][a-z-]+)", span)}
        assert named <= known, page.name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_of_the_project_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"`((?:src|tests|tools|benchmarks|docs)/[\w./-]+)`", text)
    missing = [path for path in named if not (ROOT / path).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_of_the_package_are_there(page: Path) -> None:
    """Paths such as `ui/chat/screen.py`, below `src/vlmtui`."""
    package = ROOT / "src/vlmtui"
    rooms = "|".join(folder.name for folder in package.iterdir() if folder.is_dir())
    named = re.findall(rf"`((?:{rooms})/[\w/.]+)`", page.read_text(encoding="utf-8"))
    missing = [path for path in named if "NAME" not in path and not (package / path).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_make_targets_are_there(page: Path) -> None:
    targets = re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    named = re.findall(r"(?:`|^)make ([a-z][a-z-]*)", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(named) <= set(targets)


@in_one_test({f"`{command}` of {page}": (page, command) for page, command in commands()})
def test_commands_are_understood(page: str, command: str) -> None:
    """The command line's own parser reads them; nothing is run."""
    words = shlex.split(command, comments=True)[1:]
    if "<" in words:
        words = words[: words.index("<")]
    arguments = make_parser().parse_args(words)
    assert misplaced_option(arguments) is None, page


def test_there_are_commands_to_check() -> None:
    assert len(list(commands())) > 20


def test_the_settings_that_are_shown_exist() -> None:
    block = next(block for block in blocks(ROOT / "docs/using.md") if "keep_alive" in block)
    shown = tomllib.loads(block)
    names = {
        f"{name}.{inner}" if isinstance(value, dict) else name
        for name, value in shown.items()
        for inner in (value if isinstance(value, dict) else [""])
    }
    assert {name for name in names if not name.startswith("keys.")} <= set(setting_names())
