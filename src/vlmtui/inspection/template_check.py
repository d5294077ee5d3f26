"""Check a raw prompt's beginning, ends of turns and end against the family's raw template."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from vlmtui.inspection.findings import Finding, FindingKind, Fix
from vlmtui.inspection.raw_turns import head_of, segments, tail_of
from vlmtui.registry.schema import RawTemplate
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
