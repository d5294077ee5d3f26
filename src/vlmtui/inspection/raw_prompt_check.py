"""Check a raw prompt before it is sent."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from vlmtui.domain.attachment import Attachment, Modality
from vlmtui.inspection.findings import Finding, FindingKind, Fix, apply_fix
from vlmtui.inspection.foreign_placeholders import ForeignPlaceholder, foreign_finding, foreign_placeholders
from vlmtui.inspection.insertion_point import InsertionPoint, template_in_text
from vlmtui.inspection.lost_tokens import indexes_of, losses, lost_placeholders
from vlmtui.inspection.placeholder_check import PlaceholderCount, placeholder_findings
from vlmtui.inspection.placeholder_forms import MODALITIES, Form, Occurrence, forms_of, occurrences, pattern_of
from vlmtui.inspection.raw_turns import own_tokens, template_for
from vlmtui.inspection.template_check import CheckedPrompt, template_findings
from vlmtui.inspection.torn_tokens import torn_tokens
from vlmtui.inspection.unknown_tokens import unknown_tokens
from vlmtui.registry.schema import Family, Layout, RawTemplate

__all__ = ["Finding", "FindingKind", "Fix", "apply_fix", "check_raw", "lost_attachments"]

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
    originals: Sequence[str] = (),
) -> list[Finding]:
    """Return everything wrong with the text as a raw prompt for these attachments; blocking findings first.

    `special_tokens` are the tokenizer's, by text; if empty, no token is reported as unknown. `stop_tokens` end an
    answer, `bos` is the tokenizer's BOS token, `adds_bos` says whether the tokenizer adds it to a raw prompt.
    `families` is the registry, whose placeholders are recognized. `originals`: prompts that the text may have been made
    from, the likeliest first; what was deleted or torn of special tokens is restored from the first whose placeholders
    match the attachments.
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

    tokens = _tokens(special_tokens, family)
    original = _original(originals, wanted, found, no_core)
    counts = [
        _with_losses(count, original, tokens, no_core) for count in _counted(text, wanted, found, foreign, attachments)
    ]
    findings = [*_not_taken(wanted, family), *_foreign(foreign, family, found, wanted)]
    findings += [one for count in counts for one in placeholder_findings(count, insertion)]
    findings += template_findings(_shape(text, template, found), stops - {"@eos_token"}, bos, adds_bos=adds_bos)
    taken += [(one.start, one.end) for one in foreign]
    taken += [(one.start, one.end) for count in counts for one in count.lost if one.end > one.start]
    findings = _with_token_findings(findings, text, original, tokens, taken, all_known=bool(special_tokens))
    return sorted(findings, key=lambda finding: (not finding.blocks, finding.start))


def lost_attachments(
    text: str,
    attachments: Sequence[Attachment],
    family: Family,
    *,
    special_tokens: frozenset[str],
    stop_tokens: tuple[str, ...],
    families: Iterable[Family],
    originals: Sequence[str],
) -> dict[Modality, list[int]]:
    """Return the attachments whose placeholders were deleted, by their places among those of the modality, from 0.
    Slow for long texts; the arguments are those of `check_raw`."""
    wanted = Counter(item.modality for item in attachments)
    no_core = {*stop_tokens, *family.stop_tokens}.union(*(other.stop_tokens for other in families))
    found = _found(text, family, no_core, several=max(wanted.values(), default=0) > 1)
    original, tokens = _original(originals, wanted, found, no_core), _tokens(special_tokens, family)
    return {
        modality: indexes_of(lost_placeholders(text, original, form, tokens, no_core, found=len(places)))
        for modality, (_, form, places) in found.items()
        if len(places) < wanted[modality]
    }


def _tokens(special_tokens: frozenset[str], family: Family) -> frozenset[str]:
    own = own_tokens(family)
    return special_tokens | {token for token in own if "{i}" not in token and not token.startswith("@")}


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
    attachments: Sequence[Attachment],
) -> Iterator[PlaceholderCount]:
    for modality, (layout, form, places) in found.items():
        others = [one for one in foreign if one.modality == modality]
        names = [item.name for item in attachments if item.modality == modality]
        yield PlaceholderCount(text, form, layout, wanted[modality], places, others, names)


def _with_losses(
    count: PlaceholderCount, original: str, tokens: AbstractSet[str], no_core: AbstractSet[str]
) -> PlaceholderCount:
    """Return the count with what the text has lost of the original prompt."""
    lost = lost_placeholders(count.text, original, count.form, tokens, no_core, found=len(count.found))
    return msgspec.structs.replace(count, lost=lost, losses=losses(count.text, original, tokens))


def _with_token_findings(
    findings: list[Finding],
    text: str,
    original: str,
    tokens: AbstractSet[str],
    taken: Sequence[tuple[int, int]],
    *,
    all_known: bool,
) -> list[Finding]:
    """Add those about torn and unknown special tokens. One about the tokens around a placeholder is left out where a
    torn one right beside it explains it. `all_known`: every special token is in `tokens`."""
    torn = list(torn_tokens(text, original, tokens, taken))
    unknown = unknown_tokens(text, tokens, [*taken, *((one.start, one.end) for one in torn)]) if all_known else ()

    def is_explained(finding: Finding) -> bool:
        return any(one.start <= finding.end and finding.start <= one.end for one in torn)

    kept = [one for one in findings if one.kind is not FindingKind.UNWRAPPED or not is_explained(one)]
    return [*kept, *torn, *unknown]


def _original(originals: Iterable[str], wanted: Counter[Modality], found: _Found, no_core: AbstractSet[str]) -> str:
    """Return the first that has a placeholder for each attachment; empty if there is none."""

    def fits(original: str) -> bool:
        return all(
            len(occurrences(original, form, no_core)) == wanted[modality] for modality, (_, form, _) in found.items()
        )

    return next((original for original in originals if original and fits(original)), "")


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


def _shape(text: str, template: tuple[RawTemplate, bool] | None, found: _Found) -> CheckedPrompt:
    raw, is_exact = template or (None, False)
    return CheckedPrompt(text, raw, is_exact, _lead(text, found))


def _lead(text: str, found: _Found) -> int:
    """Return the offset after the placeholders at the start of the text."""
    pattern = pattern_of({form.full for _, form, _ in found.values()})
    match = re.match(rf"(?:\s*(?:{pattern}))*", text) if pattern else None
    return match.end() if match else 0
