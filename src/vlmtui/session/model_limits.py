"""Checks whether a conversation has more images or videos than the model accepts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from vlmtui.domain.attachment import Modality
from vlmtui.registry.schema import Family
from vlmtui.session.exchange import Exchange


def excess_media(exchanges: Iterable[Exchange], family: Family) -> str:
    """Return a sentence about images and videos that later prompts include and the family does not accept; empty if
    none."""
    if not family.takes:
        return ""
    turns = [exchange.sent_user for exchange in exchanges if exchange.is_remembered]
    counts: Counter[Modality] = Counter(item.modality for turn in turns for item in turn.attachments)
    problems = []
    for modality, count in sorted(counts.items()):
        takes = family.takes.get(modality)
        if takes is None:
            problems.append(f"{_so_many(count, modality)} so far; this model does not accept {modality}s")
        elif count > takes.max_items:
            problems.append(f"{_so_many(count, modality)} so far; the limit is {takes.max_items}")
    return " ".join(f"{problem}." for problem in problems)


def _so_many(count: int, modality: Modality) -> str:
    return f"{count} {modality}{'s' if count != 1 else ''}"
