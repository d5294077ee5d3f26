"""The tests that SECURITY.md names exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "SECURITY.md"
_PROMISE = re.compile(r"^\| (?!promise|source|---)(?P<promise>.+?) \| (?P<tests>.+) \|$", re.MULTILINE)
_NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def names_in(path: Path) -> set[str]:
    """The names of a file's tests; none where it is not there."""
    if not path.is_file():
        return set()
    functions = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    names = (one.name for one in functions if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))
    return {name for name in names if name.startswith("test_")}


def test_every_promise_names_a_test() -> None:
    promises = _PROMISE.findall(PAGE.read_text(encoding="utf-8"))
    assert len(promises) > 20
    assert [promise for promise, tests in promises if not _NAMED.search(tests)] == []


def test_every_named_test_is_there() -> None:
    named = _NAMED.findall(PAGE.read_text(encoding="utf-8"))
    missing = [f"{path}::{name}" for path, name in named if name not in names_in(ROOT / path)]
    assert missing == []
    assert names_in(ROOT / "tests" / "nowhere.py") == set()


def test_the_readme_links_to_the_page() -> None:
    assert "SECURITY.md" in (ROOT / "README.md").read_text(encoding="utf-8")
