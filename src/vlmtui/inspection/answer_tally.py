"""Counts equal answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from vlmtui.text import one_line

_QUOTE_MAX = 48


def tally(answers: Iterable[str]) -> list[tuple[str, int]]:
    """Return the different answers with their counts, the most frequent first; surrounding space is ignored."""
    return Counter(answer.strip() for answer in answers).most_common()


def tally_text(answers: Iterable[str]) -> str:
    """Return `3 × “a red circle” · 1 × “a blue circle”`; empty for fewer than two answers. Safe to show."""
    found = tally(answers)
    total = sum(count for _, count in found)
    if total < 2:
        return ""
    if len(found) == 1:
        return "Both answers are equal." if total == 2 else f"All {total} answers are equal."
    if len(found) == total:
        return f"{total} different answers."
    return " · ".join(f"{count} × “{_quoted(answer)}”" for answer, count in found)


def _quoted(answer: str) -> str:
    line = one_line(answer)
    return line if len(line) <= _QUOTE_MAX else f"{line[: _QUOTE_MAX - 1]}…"
