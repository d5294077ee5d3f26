"""Writes docs/settings.md from the definition of the settings: names, defaults, variables, meaning."""

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
Which settings are there, and where do you set them? A later source wins: the default,
`config.toml`, the environment, the command line. `vlmtui config show` prints each setting with its
source, `vlmtui config paths` the place of `config.toml`.
"""
_ONLY_IN_FILE = ("keys", "engines")


def page() -> str:
    return "\n".join(
        [
            _HEAD,
            *_section("In `config.toml`", Settings, has_variables=True),
            *_section("In the table `[sampling]`", SamplingSettings, has_variables=True),
            *_section("In a table `[engines.NAME]`", EngineSettings, has_variables=False),
        ]
    )


def _section(title: str, kind: type[msgspec.Struct], *, has_variables: bool) -> Iterator[str]:
    texts = docstrings(kind)
    yield f"## {title}"
    yield "| setting | default | variable | meaning |"
    yield "| --- | --- | --- | --- |"
    for field in msgspec.structs.fields(kind):
        if field.name == "sampling":
            continue
        is_variable = has_variables and field.name not in _ONLY_IN_FILE
        variable = f"`{settings.ENVIRONMENT_PREFIX}{field.name.upper()}`" if is_variable else ""
        yield f"| `{field.name}` | {_default(field)} | {variable} | {texts[field.name].replace('|', chr(92) + '|')} |"
    yield ""


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    if field.default in (None, msgspec.NODEFAULT, ""):
        return ""
    return f"`{field.default}`"


def docstrings(kind: type) -> dict[str, str]:
    """Return the docstring of each field of a class, as one line; fields without a docstring are left out."""
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
