"""Checks whether a conversation holds more images or videos than the model takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from vlmtui.domain.attachment import Modality
from vlmtui.registry.schema import Family
from vlmtui.session.exchange import Exchange


def excess_media(exchanges: Iterable[Exchange], family: Family) -> str:
    """Which images and videos that are still sent are too many for a family, in a sentence; empty where none are."""
    if not family.takes:
        return ""
    turns = [exchange.sent_user for exchange in exchanges if exchange.is_remembered]
    counts: Counter[Modality] = Counter(item.modality for turn in turns for item in turn.attachments)
    problems = []
    for modality, count in sorted(counts.items()):
        takes = family.takes.get(modality)
        if takes is None:
            problems.append(f"{_so_many(count, modality)} so far; this model takes no {modality}s")
        elif count > takes.max_items:
            problems.append(f"{_so_many(count, modality)} so far; this model takes {takes.max_items}")
    return " ".join(f"{problem}." for problem in problems)


def _so_many(count: int, modality: Modality) -> str:
    return f"{count} {modality}{'s' if count != 1 else ''}"
