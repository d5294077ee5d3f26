"""Writes the tables of keys into docs/keys.md, from the action table."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from vlmtui.ui.actions import SCOPES, Action, Scope
from vlmtui.ui.keys import LEADER, default_keys, spell_key, spell_path

PAGE = Path(__file__).parent.parent / "docs" / "keys.md"
_MOVES = {"up", "down", "left", "right", "page_up", "page_down", "first", "last", "home", "end"}
"""Last parts of the action ids that share one row of a table."""
BEGIN, END = "<!-- keys: made by `make keys` -->", "<!-- keys end -->"


def tables() -> str:
    """Return a Markdown table per scope."""
    return "\n\n".join(_table(scope) for scope in SCOPES.values())


def _table(scope: Scope) -> str:
    lines = [f"## {scope.title}", "| id | key | command | does |", "| --- | --- | --- | --- |"]
    for moves, group in groupby(scope.actions, _is_move):
        actions = list(group)
        lines += [_move_row(actions)] if moves else [_row(action) for action in actions]
    lines += [f"| | {_cell(fixed.keys)} | | {fixed.help} |" for fixed in scope.fixed]
    return "\n".join(lines)


def _row(action: Action) -> str:
    keys = ", ".join(map(_cell, ways(action)))
    slash = f"`{action.usage}`" if action.usage else ""
    return f"| `{action.id}` | {keys} | {slash} | {action.help} |"


def _is_move(action: Action) -> bool:
    return action.id.rpartition(".")[2] in _MOVES


def _move_row(actions: Sequence[Action]) -> str:
    ids = ", ".join(f"`{action.id}`" for action in actions)
    keys = " · ".join(", ".join(map(_cell, ways(action))) for action in actions)
    steps = ", ".join(action.id.rpartition(".")[2].replace("_", " ") for action in actions)
    return f"| {ids} | {keys} | | Move: {steps}. |"


def ways(action: Action) -> list[str]:
    """Return an action's direct keys, then its key after Ctrl+X."""
    led = f"{spell_key(default_keys(LEADER)[0])} {spell_path(action.leader)}"
    return [*map(spell_key, default_keys(action.id)), *([led] if action.leader else [])]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def written(text: str) -> str:
    """Return the page with new tables. Raises ValueError if its markers are missing."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"docs/keys.md has no {BEGIN} … {END}")
    return f"{before}{BEGIN}\n{tables()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
