"""Find placeholders of other families in a raw prompt."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from vlmtui.domain.attachment import Modality
from vlmtui.inspection.findings import Finding, FindingKind, Fix
from vlmtui.inspection.placeholder_forms import Form, all_forms, pattern_of
from vlmtui.registry.schema import Family


class ForeignPlaceholder(msgspec.Struct, frozen=True):
    """A placeholder that belongs to other families."""

    start: int
    end: int
    text: str
    modality: Modality
    titles: tuple[str, ...]
    """The families that use it."""


def foreign_placeholders(
    text: str,
    family: Family,
    families: Iterable[Family],
    own: AbstractSet[str],
    taken: Sequence[tuple[int, int]],
) -> list[ForeignPlaceholder]:
    """Return those in the text that overlap no span in `taken`.

    `own`: tokens that mean something to the family, or are no family's placeholder by themselves.
    """
    known: dict[str, tuple[Modality, list[str]]] = {}
    for other, form in all_forms(families):
        if other.family == family.family:
            continue
        for written in {form.full, form.core} - own:
            known.setdefault(written, (form.modality, []))[1].append(other.title)
    if not known:
        return []
    found: list[ForeignPlaceholder] = []
    for match in re.finditer(pattern_of(known), text):
        if any(start < match.end() and match.start() < end for start, end in taken):
            continue
        modality, titles = known.get(match[0]) or known[re.sub(r"\d+", "{i}", match[0])]
        found.append(ForeignPlaceholder(match.start(), match.end(), match[0], modality, tuple(dict.fromkeys(titles))))
    return found


def foreign_finding(foreign: ForeignPlaceholder, family: Family, form: Form | None, *, number: int | None) -> Finding:
    """Return the finding. `number`: the item of the modality that still lacks its placeholder, if any."""
    others = len(foreign.titles) - 1
    more = f" and {others} more" if others else ""
    message = f"{foreign.text} is the placeholder of {foreign.titles[0]}{more}; {family.title} reads it as plain text."
    if form is not None and number is not None:
        new = form.numbered_as(number)
        fix = Fix(foreign.start, foreign.end, new, f"replace {foreign.text} with {new}")
    else:
        fix = Fix(foreign.start, foreign.end, "", f"remove {foreign.text}")
    return Finding(FindingKind.FOREIGN, message, foreign.start, foreign.end, fix)
