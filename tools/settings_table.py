"""Writes docs/settings.md from the settings' own definition: names, defaults, variables and what they are for."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec

from vlmtui.config import settings
from vlmtui.config.settings import EngineSettings, SamplingSettings, Settings

PAGE = Path(__file__).parent.parent / "docs" / "settings.md"
_HEAD = """\
# Settings

<!-- made by `make settings` from the code; do not edit -->
`vlmtui config show` prints the settings in force and where each comes from: defaults, `config.toml`, the environment,
the command line. `vlmtui config paths` prints where `config.toml` is.
"""
_ONLY_IN_FILE = ("keys", "engines")


def page() -> str:
    """Return the whole page."""
    return "\n".join(
        [
            _HEAD,
            *_section("In `config.toml`", Settings, has_variables=True),
            *_section("In the table `[sampling]`", SamplingSettings, has_variables=True),
            *_section("In a table `[engines.NAME]`", EngineSettings, has_variables=False),
        ]
    )


def _section(title: str, kind: type[msgspec.Struct], *, has_variables: bool) -> Iterator[str]:
    told = docstrings(kind)
    yield f"## {title}"
    yield "| setting | default | variable | what it is |"
    yield "| --- | --- | --- | --- |"
    for field in msgspec.structs.fields(kind):
        if field.name == "sampling":
            continue
        is_variable = has_variables and field.name not in _ONLY_IN_FILE
        variable = f"`{settings.ENVIRONMENT_PREFIX}{field.name.upper()}`" if is_variable else ""
        yield f"| `{field.name}` | {_default(field)} | {variable} | {told[field.name].replace('|', chr(92) + '|')} |"
    yield ""


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    if field.default in (None, msgspec.NODEFAULT, ""):
        return ""
    return f"`{field.default}`"


def docstrings(kind: type) -> dict[str, str]:
    """Return what stands below each field of a class, as one line. Raises KeyError for a field without a text when it
    is looked up."""
    [definition] = ast.parse(inspect.getsource(kind)).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for before, after in pairwise(definition.body):
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name) and isinstance(after, ast.Expr):
            assert isinstance(after.value, ast.Constant)
            found[before.target.id] = " ".join(str(after.value.value).split())
    return found


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
