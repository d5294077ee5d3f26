"""Writes the tables of keys into docs/keys.md, from the action table."""

from __future__ import annotations

from pathlib import Path

from vlmtui.ui.actions import SCOPES, Action, Scope
from vlmtui.ui.keys import LEADER, default_keys, spell_key

PAGE = Path(__file__).parent.parent / "docs" / "keys.md"
BEGIN, END = "<!-- keys: made by `make keys` -->", "<!-- keys end -->"


def tables() -> str:
    """Return a Markdown table per scope."""
    return "\n\n".join(_table(scope) for scope in SCOPES.values())


def _table(scope: Scope) -> str:
    lines = [f"## {scope.title}", "| id | key | command | does |", "| --- | --- | --- | --- |"]
    for action in scope.actions:
        keys = ", ".join(map(_cell, ways(action)))
        slash = f"`{action.slash} {action.argument}".strip() + "`" if action.slash else ""
        lines.append(f"| `{action.id}` | {keys} | {slash} | {action.help} |")
    lines += [f"| | {_cell(fixed.keys)} | | {fixed.help} |" for fixed in scope.fixed]
    return "\n".join(lines)


def ways(action: Action) -> list[str]:
    """Return an action's direct keys, then its key after the leader."""
    led = f"{spell_key(default_keys(LEADER)[0])} {spell_key(action.leader)}"
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
