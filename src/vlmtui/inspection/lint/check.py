"""Checks what was read of a model: every template on its own, then against each other and the record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from vlmtui.domain.model_reading import LIMITS, ModelReading, ReadTrouble, TemplateReading, TemplateTrouble
from vlmtui.domain.prompt import RawPrompt
from vlmtui.inspection.lint.content_checks import content_findings
from vlmtui.inspection.lint.conversations import Canned
from vlmtui.inspection.lint.finding import LintFinding, LintKind
from vlmtui.inspection.lint.subject import Subject
from vlmtui.inspection.lint.turn_checks import turn_findings
from vlmtui.inspection.sequence_diff import common_start
from vlmtui.registry.chat_template import chat_template_of
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


_WHOLE = {
    TemplateTrouble.SYNTAX: (LintKind.TEMPLATE_SYNTAX, "Jinja can't parse the template: {}"),
    TemplateTrouble.ENDLESS: (LintKind.TEMPLATE_ENDLESS, LIMITS[TemplateTrouble.ENDLESS]),
    TemplateTrouble.TOO_BIG: (LintKind.TEMPLATE_TOO_BIG, LIMITS[TemplateTrouble.TOO_BIG]),
}
_TOKENIZER = {
    ReadTrouble.NONE: (LintKind.NO_TOKENIZER, "The folder has no tokenizer."),
    ReadTrouble.BROKEN: (LintKind.TOKENIZER_BROKEN, "The tokenizer can't be loaded: {}"),
    ReadTrouble.ENDLESS: (LintKind.TOKENIZER_BROKEN, "Loading the tokenizer takes too long: {}"),
    ReadTrouble.TOO_BIG: (LintKind.TOKENIZER_BROKEN, "Loading the tokenizer exceeds the memory limit."),
    ReadTrouble.NEEDS_CODE: (LintKind.CODE_NEEDED, "The tokenizer needs Python code of the repository."),
}
_MESSAGE_MAX = 300
RECORD = "record"
"""Name of the template that a record generates."""
SEVERAL = "record, several items"
"""Name of the template that a record generates for several items."""


def check_reading(
    family: Family, reading: ModelReading, canned: Sequence[Canned], *, of_record: bool = False
) -> list[LintFinding]:
    """Return the findings about a model. `of_record`: what was read is the template that the record generates."""
    found: list[LintFinding] = []
    if reading.trouble is not None:
        found.append(tokenizer_fault(reading.trouble, reading.message))
    if not reading.templates and family.chat == "model" and not of_record:
        found.append(LintFinding(kind=LintKind.NO_TEMPLATE, message="The model has no chat template in Jinja."))
    for template in reading.templates:
        shown = [one for one in canned if not of_record or one.has_several == (template.name == SEVERAL)]
        found += _first_of_each(list(_template_findings(Subject(family, template, shown, reading.tokenizer))))
    if not of_record:
        found += _disagreements(family, reading, canned)
    return found


def tokenizer_fault(trouble: ReadTrouble, message: str) -> LintFinding:
    """Return what is wrong with a tokenizer that can't be read; `message` is the error's."""
    kind, said = _TOKENIZER[trouble]
    return LintFinding(kind=kind, message=said.format(_short(message)))


def record_templates(family: Family) -> dict[str, str]:
    """Return the templates that the record generates, for one item and for several; empty if its prompts are written
    by the model's own."""
    found = {RECORD: chat_template_of(family), SEVERAL: chat_template_of(family, several=True)}
    return {name: source for name, source in found.items() if source}


def _short(text: str) -> str:
    return text.strip().split("\n", 1)[0][:_MESSAGE_MAX]


def _template_findings(subject: Subject) -> Iterator[LintFinding]:
    template = subject.template
    if template.trouble in _WHOLE:
        kind, message = _WHOLE[template.trouble]
        yield LintFinding(
            kind=kind, message=message.format(_short(template.message)), source=template.name, line=template.line
        )
        return
    found = [*_failures(subject), *content_findings(subject), *turn_findings(subject)]
    yield from found
    if not found:
        yield from record_findings(subject)


def _failures(subject: Subject) -> Iterator[LintFinding]:
    """Conversations that the template does not render. One that it refuses by itself is none of its faults where it is
    about the system message."""
    for canned in subject.canned.values():
        rendering = subject.rendering(canned.name)
        if rendering is None or rendering.trouble is None:
            continue
        is_refused = rendering.trouble is TemplateTrouble.REFUSED
        if is_refused and canned.turns[0].role == "system" and subject.text("text") is not None:
            continue
        is_forbidden = rendering.trouble is TemplateTrouble.SANDBOX
        yield LintFinding(
            kind=LintKind.TEMPLATE_SANDBOX if is_forbidden else LintKind.TEMPLATE_FAILS,
            message=f"The template fails: {_short(rendering.message)}",
            source=subject.template.name,
            line=rendering.line,
            conversation=canned.title,
        )


def _first_of_each(found: Sequence[LintFinding]) -> list[LintFinding]:
    """Keep the first finding of each kind and token: one fault shows in many conversations."""
    kept: dict[tuple[LintKind, str], LintFinding] = {}
    for one in found:
        by_token = one.kind in (LintKind.UNKNOWN_TOKEN, LintKind.PLACEHOLDER_UNWRAPPED)
        kept.setdefault((one.kind, one.token if by_token else ""), one)
    return list(kept.values())


def _disagreements(family: Family, reading: ModelReading, canned: Sequence[Canned]) -> Iterator[LintFinding]:
    if len(reading.templates) < 2:
        return
    first, *others = (Subject(family, one, canned, reading.tokenizer) for one in reading.templates)
    for other in others:
        if not _same_source(first.template, other.template) and (found := _disagreement(first, other)):
            yield found


def _same_source(first: TemplateReading, second: TemplateReading) -> bool:
    return first.source.strip() == second.source.strip()


def _disagreement(first: Subject, other: Subject) -> LintFinding | None:
    names = f"{first.template.name} and {other.template.name}"
    if first.form != other.form:
        words = {"parts": "lists of parts", "mixed": "lists of parts", "text": "strings"}
        message = f"{names} disagree: one reads {words[first.form]}, the other {words[other.form]}."
        return first.finding(LintKind.TEMPLATES_DISAGREE, message)
    for canned in first.canned.values():
        here, there = first.text(canned.name), other.text(canned.name)
        if here != there:
            at = common_start(here or "", there or "")
            ends = [
                quoted((text or "")[max(0, at - 8) : at + 30]) if text is not None else "a failure"
                for text in (here, there)
            ]
            message = f"{names} disagree: {ends[0]} against {ends[1]}."
            return first.finding(LintKind.TEMPLATES_DISAGREE, message, canned.name, at)
    return None
