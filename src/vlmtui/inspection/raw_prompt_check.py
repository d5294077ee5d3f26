"""Check a raw prompt before it is sent."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

from vlmtui.domain.attachment import Attachment, Modality
from vlmtui.inspection.findings import Finding, FindingKind, Fix, apply_fix
from vlmtui.inspection.foreign_placeholders import ForeignPlaceholder, foreign_finding, foreign_placeholders
from vlmtui.inspection.insertion_point import InsertionPoint, template_in_text
from vlmtui.inspection.placeholder_check import PlaceholderCount, placeholder_findings
from vlmtui.inspection.placeholder_forms import MODALITIES, Form, Occurrence, forms_of, occurrences, pattern_of
from vlmtui.inspection.raw_turns import own_tokens, template_for
from vlmtui.inspection.template_check import CheckedPrompt, template_findings
from vlmtui.inspection.unknown_tokens import unknown_tokens
from vlmtui.registry.schema import Family, Layout

__all__ = ["Finding", "FindingKind", "Fix", "apply_fix", "check_raw"]

_Found = dict[Modality, tuple[Layout, Form, list[Occurrence]]]


def check_raw(
    text: str,
    attachments: Sequence[Attachment],
    family: Family,
    *,
    special_tokens: frozenset[str],
    stop_tokens: tuple[str, ...],
    bos: str | None,
    adds_bos: bool,
    families: Iterable[Family] = (),
) -> list[Finding]:
    """Return everything wrong with the text as a raw prompt for these attachments; blocking findings first.

    `special_tokens` are the tokenizer's, by text; if empty, no token is reported as unknown. `stop_tokens` end an
    answer, `bos` is the tokenizer's BOS token, `adds_bos` says whether the tokenizer adds it to a raw prompt.
    `families` is the registry, whose placeholders are recognized.
    """
    every = tuple(families)
    wanted = Counter(item.modality for item in attachments)
    several = max(wanted.values(), default=0) > 1
    stops = {*stop_tokens, *family.stop_tokens}
    no_core = stops.union(*(other.stop_tokens for other in every))
    own = own_tokens(family)
    found = _found(text, family, no_core, several=several)
    taken = [(one.start, one.end) for _, _, places in found.values() for one in places]
    foreign = foreign_placeholders(text, family, every, own | no_core, taken)
    template = template_for(family, several=several)
    insertion = InsertionPoint(text, template[0] if template else template_in_text(text, every))

    findings = [*_not_taken(wanted, family), *_counted(text, wanted, found, foreign, insertion)]
    findings += _foreign(foreign, family, found, wanted)
    shape = CheckedPrompt(
        text, template[0] if template else None, template is not None and template[1], _lead(text, found)
    )
    findings += template_findings(shape, stops - {"@eos_token"}, bos, adds_bos=adds_bos)
    if special_tokens:
        taken += [(one.start, one.end) for one in foreign]
        known = special_tokens | {token for token in own if "{i}" not in token and not token.startswith("@")}
        findings += unknown_tokens(text, known, taken)
    return sorted(findings, key=lambda finding: (not finding.blocks, finding.start))


def _found(text: str, family: Family, no_core: AbstractSet[str], *, several: bool) -> _Found:
    found: _Found = {}
    for modality in MODALITIES:
        written = forms_of(family, modality, several=several)
        if written is not None:
            found[modality] = (*written, occurrences(text, written[1], no_core))
    return found


def _not_taken(wanted: Counter[Modality], family: Family) -> Iterator[Finding]:
    for modality in wanted:
        if modality not in family.takes:
            message = f"{family.title} does not accept {modality}s: remove the attachment, or choose another model."
            yield Finding(FindingKind.NOT_TAKEN, message, 0, 0, blocks=True)


def _counted(
    text: str,
    wanted: Counter[Modality],
    found: _Found,
    foreign: Sequence[ForeignPlaceholder],
    insertion: InsertionPoint,
) -> Iterator[Finding]:
    for modality, (layout, form, places) in found.items():
        others = [one for one in foreign if one.modality == modality]
        yield from placeholder_findings(
            PlaceholderCount(text, form, layout, wanted[modality], places, others), insertion
        )


def _foreign(
    foreign: Iterable[ForeignPlaceholder], family: Family, found: _Found, wanted: Counter[Modality]
) -> Iterator[Finding]:
    """Yield each with a fix: replace it with a missing placeholder of the family, or else remove it."""
    lacking: dict[Modality, list[int]] = {}
    for modality, (_, form, places) in found.items():
        taken = {one.number for one in places} if form.numbered else set(range(1, len(places) + 1))
        free = [number for number in range(1, wanted[modality] + 1) if number not in taken]
        lacking[modality] = free[: max(0, wanted[modality] - len(places))]
    for one in foreign:
        numbers = lacking.get(one.modality)
        own = found[one.modality][1] if one.modality in found else None
        yield foreign_finding(one, family, own, number=numbers.pop(0) if numbers else None)


def _lead(text: str, found: _Found) -> int:
    """Return the offset after the placeholders at the start of the text."""
    pattern = pattern_of({form.full for _, form, _ in found.values()})
    match = re.match(rf"(?:\s*(?:{pattern}))*", text) if pattern else None
    return match.end() if match else 0
