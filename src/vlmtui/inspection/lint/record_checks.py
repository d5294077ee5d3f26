"""Compares what a template writes with the family's record."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from vlmtui.domain.prompt import RawPrompt
from vlmtui.inspection.lint.finding import LintFinding, LintKind
from vlmtui.inspection.lint.subject import Subject
from vlmtui.inspection.sequence_diff import common_start
from vlmtui.registry.prompts import raw_prompt
from vlmtui.registry.schema import Family
from vlmtui.text import quoted

_COMPARED = ("text", "two_turns", "system", "image", "images")


def record_findings(subject: Subject) -> Iterator[LintFinding]:
    """Yield the first difference to the raw prompt of the record, if it has one of its own."""
    for name in _COMPARED:
        text = subject.text(name)
        if text is None or (subject.canned[name].modalities and _is_rearranged(subject)):
            continue
        turns = subject.canned[name].turns
        raw, bare = raw_prompt(subject.family, turns), raw_prompt(_without_system(subject.family), turns)
        if not isinstance(raw, RawPrompt) or not isinstance(bare, RawPrompt):
            continue
        wanted, seen = _without_bos(subject, raw.text), _without_bos(subject, text)
        if seen in (wanted, _without_bos(subject, bare.text)):
            continue
        at = common_start(wanted, seen)
        offset = at + len(text) - len(seen)
        here, there = quoted(seen[at : at + 30]), quoted(wanted[at : at + 30])
        if "".join(wanted.split()) == "".join(seen.split()):
            message = f"White space differs from the record: {here} instead of {there}."
            is_written = seen[at : at + 1].isspace()  # else white space is missing behind what is before
            yield subject.finding(LintKind.WHITE_SPACE, message, name, offset if is_written else max(0, offset - 1))
        else:
            message = f"The record writes {there}, this template {here}."
            yield subject.finding(LintKind.RECORD_DIFFERS, message, name, offset)
        return


def _without_system(family: Family) -> Family:
    """Return the record without a default system prompt, which vLLM's examples have and many templates have not."""
    raw, several = (
        None if one is None else msgspec.structs.replace(one, default_system=None)
        for one in (family.raw, family.raw_several)
    )
    return msgspec.structs.replace(family, raw=raw or family.raw, raw_several=several)


def _is_rearranged(subject: Subject) -> bool:
    """Whether the record's raw prompt has pictures at another place than the model's own template is given them."""
    layouts = [layout for takes in subject.family.takes.values() for layout in (takes, takes.several)]
    return subject.family.chat == "model" and any(one is not None and one.place == "after" for one in layouts)


def _without_bos(subject: Subject, text: str) -> str:
    for bos in {subject.family.raw.bos, subject.tokenizer.bos if subject.tokenizer is not None else None}:
        text = text.removeprefix(bos or "")
    return text
