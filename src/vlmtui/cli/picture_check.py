"""The check of `vlmtui doctor` that asks the terminal which pictures it can show."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from vlmtui.cli.checks import Check
from vlmtui.ui.terminal.picture_ways import PictureWay, best_way
from vlmtui.ui.terminal.query import Terminal, TerminalQuestion

_TITLES = {
    "kitty": "kitty's protocol",
    "iterm": "iTerm2's protocol",
    "sixel": "Sixel",
    "sextant": "sextants, 6 pixels a cell",
    "quadrant": "quadrants, 4 pixels a cell",
    "halfcell": "half cells, 2 pixels a cell",
}


def check_pictures(terminal: Terminal | None = None) -> Check:
    """Ask the terminal, if the command runs in one; `terminal`: what is known of it."""
    if terminal is None:
        with TerminalQuestion().ask() as asked:
            terminal = asked.answer()
    best = best_way(list(terminal.ways))
    if best is None:
        return Check("pictures", "ok", "none: the terminal only prints", table=terminal.ways)
    facts = [_TITLES[best.name]]
    if through := terminal.through(best.name):
        facts.append(f"through {through}")
    if best.name in ("kitty", "iterm", "sixel"):
        facts.append("{}×{} pixels a cell".format(*terminal.cell))
    elif not sys.stdout.isatty():
        facts.append("not on a terminal now, so it was not asked")
    elif terminal.answers.attributes is None and terminal.answers.own_attributes is not None:
        return Check("pictures", "warn", ", ".join(facts), terminal.ways[0].hint, table=terminal.ways)
    if forced := os.environ.get("VLMTUI_GRAPHICS"):
        facts.append(f"but VLMTUI_GRAPHICS={forced}")
    return Check("pictures", "ok", ", ".join(facts), table=terminal.ways)


def way_rows(ways: tuple[PictureWay, ...]) -> Iterator[tuple[str, str]]:
    """Return the table, each row as what stands left of its text: each way, whether this terminal has it, how that is
    known, and what would change it."""
    told = ""
    for way in ways:
        yield f"{_TITLES[way.name]:<28}{'yes' if way.is_possible else 'no':<5}", way.reason
        if way.hint and way.hint != told and not way.is_possible:
            told = way.hint
            yield f"{'':<33}→ ", way.hint
