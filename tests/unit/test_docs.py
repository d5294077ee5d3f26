"""What the documents say, held against the project: links, commands, make targets, paths and settings."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cases import in_one_test
from vlmtui.cli.parser import make_parser, misplaced_option
from vlmtui.config.settings import setting_names

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
_README_MAX = 200
"""Lines."""


def blocks(page: Path) -> Iterator[str]:
    """The text between a page's code fences."""
    yield from re.findall(r"^```\w*\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def commands() -> Iterator[tuple[str, str]]:
    """Every call of `vlmtui` in a code block, with the page it stands on."""
    for page in PAGES:
        for block in blocks(page):
            for line in block.splitlines():
                found = re.search(r"(?:^|\| )(vlmtui\b.*)", line)
                if found and not line.startswith(" "):
                    yield page.name, found[1]


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= _README_MAX


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
def test_make_targets_are_there(page: Path) -> None:
    targets = re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    named = re.findall(r"(?:`|^)make ([a-z][a-z-]*)", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(named) <= set(targets)


@in_one_test({f"`{command}` of {page}": (page, command) for page, command in commands()})
def test_commands_are_understood(page: str, command: str) -> None:
    """By the command line's own parser; nothing is run."""
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
