"""Check a raw prompt before it is sent."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from vlmtui.domain.attachment import Attachment, Modality
from vlmtui.inspection.findings import Finding, FindingKind, Fix
from vlmtui.inspection.placeholder_check import (
    ForeignPlaceholder,
    InsertionPoint,
    PlaceholderCount,
    foreign_finding,
    foreign_placeholders,
    placeholder_findings,
    template_in_text,
)
from vlmtui.inspection.placeholders import MODALITIES, Form, Occurrence, forms_of, occurrences, pattern_of
from vlmtui.inspection.prompt_turns import head_of, own_tokens, segments, tail_of, template_for
from vlmtui.inspection.special_tokens import indexes_of, losses, lost_placeholders, torn_tokens, unknown_tokens
from vlmtui.registry.schema import Family, Layout, RawTemplate
from vlmtui.text import quoted

_BREAK = re.compile(r"\n|<[^<>\s]+>|\[[^\[\]\s]+\]")


class CheckedPrompt(msgspec.Struct, frozen=True):
    """A raw prompt, and the template to check it against."""

    text: str
    raw: RawTemplate | None
    """None where the model's own template writes the prompt."""
    exact: bool
    """Whether `raw` matches this number of items exactly, white space included."""
    lead: int
    """Offset after the placeholders at the front."""


def template_findings(
    shape: CheckedPrompt, stops: AbstractSet[str], bos: str | None, *, adds_bos: bool
) -> Iterator[Finding]:
    """Yield what is wrong with the prompt's beginning, turns and end."""
    yield from _beginning(shape, bos, adds_bos=adds_bos)
    yield from _open_turns(shape)
    ending = _generation_prompt(shape)
    if ending is not None:
        yield ending
    if ending is None or shape.text.strip() == "":
        yield from _stop_at_end(shape, stops)


def _beginning(shape: CheckedPrompt, bos: str | None, *, adds_bos: bool) -> Iterator[Finding]:
    text, start = shape.text, shape.lead
    start += len(text[start:]) - len(text[start:].lstrip())
    if bos and text.startswith(bos, start) and (adds_bos or text.startswith(bos, start + len(bos))):
        count = 0
        while text.startswith(bos, start + count * len(bos)):
            count += 1
        why = "the tokenizer adds one, too" if adds_bos else f"it appears {count} times"
        surplus = start + (count if adds_bos else count - 1) * len(bos)
        fix = Fix(start, surplus, "", f"remove {bos}")
        yield Finding(FindingKind.BOS_DOUBLED, f"The BOS token {bos} is duplicated: {why}.", start, surplus, fix)
    elif shape.raw is not None and shape.raw.bos.strip():
        wanted = shape.raw.bos.removeprefix(bos or "") if adds_bos else shape.raw.bos
        known = not (adds_bos and bos is None)
        if known and wanted.strip() and not text.startswith(wanted.strip(), start):
            message = f"The prompt does not begin with {quoted(wanted.strip())} like the template."
            fix = Fix(shape.lead, shape.lead, wanted, f"insert {wanted.strip()} at the beginning")
            yield Finding(FindingKind.BOS_MISSING, message, shape.lead, shape.lead, fix)


def _open_turns(shape: CheckedPrompt) -> Iterator[Finding]:
    raw = shape.raw
    tail = tail_of(raw.user) if raw else ""
    if raw is None or not tail.strip():
        return
    for segment in segments(shape.text, raw):
        if segment.role != "user":
            continue
        start = segment.start
        closing = tail_of(raw.assistant).strip()
        if not head_of(raw.user) and closing:
            start = max(start, shape.text.rfind(closing) + len(closing) if closing in shape.text else 0)
        content = shape.text[start : segment.end]
        if tail.strip() in content:
            continue
        end = start + len(content.rstrip())
        fix = Fix(end, segment.end, tail, f"close the turn with {tail.strip()}")
        message = f"The user turn is not closed: {tail.strip()} is missing."
        yield Finding(FindingKind.END_OF_TURN, message, end, end, fix)


def _generation_prompt(shape: CheckedPrompt) -> Finding | None:
    text, raw = shape.text, shape.raw
    wanted = raw.generation_prompt if raw else ""
    if raw is None or not wanted.strip():
        return None
    users = [one for one in segments(text, raw) if one.role == "user"]
    start = users[-1].start if users and head_of(raw.user) else 0
    mark = wanted.strip() if shape.exact else wanted.strip().splitlines()[0]
    at = text.rfind(mark, start)
    if at < 0:
        fix = _completed(text, raw)
        message = f"The generation prompt {quoted(wanted)} is missing at the end."
        return Finding(FindingKind.GENERATION_PROMPT, message, len(text.rstrip()), len(text), fix)
    end = at + len(mark)
    space = wanted[len(wanted.rstrip()) :]
    if not shape.exact or text[end:].strip() or text[end:] == space:
        return None
    fix = Fix(end, len(text), space, "end with the white space of the template")
    message = f"White space differs after the generation prompt: the template ends with {quoted(wanted)}."
    return Finding(FindingKind.GENERATION_PROMPT, message, end, len(text), fix)


def _completed(text: str, raw: RawTemplate) -> Fix:
    """Return the edit that appends the generation prompt, or the missing rest of it."""
    wanted, said = raw.generation_prompt, text.rstrip()
    label = f"insert {quoted(wanted)} at the end"
    begun = [wanted[: match.end()].rstrip() for match in _BREAK.finditer(wanted)] + [head_of(raw.assistant)]
    for part in sorted(filter(None, begun), key=len, reverse=True):
        if wanted.startswith(part) and said.endswith(part):
            return Fix(len(said) - len(part), len(text), wanted, label)
    tail = tail_of(raw.user)
    if tail.strip() and said.endswith(tail.strip()):
        return Fix(len(said), len(text), tail[len(tail.rstrip()) :] + wanted, label)
    return Fix(len(text), len(text), wanted, label)


def _stop_at_end(shape: CheckedPrompt, stops: AbstractSet[str]) -> Iterator[Finding]:
    raw, said = shape.raw, shape.text.rstrip()
    if raw is not None:
        expected = (raw.generation_prompt or tail_of(raw.user)).strip()
        if expected and said.endswith(expected):
            return
    first, end = "", len(said)
    while stop := _ending(said[:end], stops):
        first = first or stop
        end = len(said[: end - len(stop)].rstrip())
    if not first:
        return
    message = f"The prompt ends with the stop token {first}: the answer may be empty."
    start = len(said) - len(first)
    fix = Fix(end, len(shape.text), "", f"remove {first}") if raw is not None else None
    yield Finding(FindingKind.STOP_AT_END, message, start, len(said), fix)


def _ending(text: str, stops: Sequence[str] | AbstractSet[str]) -> str:
    return max((stop for stop in stops if stop and text.endswith(stop)), key=len, default="")


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
