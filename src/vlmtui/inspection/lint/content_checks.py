"""Checks of what a template writes of a conversation: its texts, its placeholders, its special tokens."""

from __future__ import annotations

from collections.abc import Iterator

from vlmtui.domain.conversation import Media, Text
from vlmtui.inspection.lint.conversations import Canned
from vlmtui.inspection.lint.finding import LintFinding, LintKind
from vlmtui.inspection.lint.subject import PYTHON, RenderedPart, Subject, resembles
from vlmtui.inspection.special_tokens import unknown_tokens
from vlmtui.registry.prompts import chat_prompt
from vlmtui.text import quoted


def content_findings(subject: Subject) -> Iterator[LintFinding]:
    """Yield what is wrong with texts, placeholders and tokens, conversation by conversation."""
    for canned in subject.canned.values():
        text = subject.text(canned.name)
        if text is None:
            continue
        faults = list(_text_faults(subject, canned, text))
        yield from faults or _placeholder_faults(subject, canned, text)
        yield from _token_faults(subject, canned, text)


def _text_faults(subject: Subject, canned: Canned, text: str) -> Iterator[LintFinding]:
    name = canned.name
    plain = text
    for _, said in canned.texts:
        plain = plain.replace(said, " " * len(said))
    if printed := PYTHON.search(plain):
        message = f"The prompt holds Python's notation of a value: {quoted(printed[0])}."
        yield subject.finding(LintKind.PYTHON_PRINTED, message, name, printed.start(), token=printed[0])
        return
    for role, said in canned.texts:
        count = text.count(said)
        if count == 1:
            continue
        owner = {"user": "user's text", "assistant": "answer", "system": "system message"}[role]
        if count > 1:
            message = f"The {owner} {quoted(said)} is written {count} times."
            yield subject.finding(LintKind.TEXT_REPEATED, message, name, text.rfind(said), token=said)
        elif resembles(said, text):
            message = f"The {owner} {quoted(said)} is changed."
            yield subject.finding(LintKind.TEXT_CHANGED, message, name, _beginning_of(said, text), token=said)
        else:
            kind = LintKind.SYSTEM_LOST if role == "system" else LintKind.TEXT_LOST
            yield subject.finding(kind, f"The {owner} {quoted(said)} is not in the prompt.", name, token=said)
    said_in_order = [said for _, said in canned.texts]
    seen = [one for one in subject.found(canned, text) if one.is_text]
    if len(seen) == len(said_in_order) and [one.what for one in seen] != said_in_order:
        first = next(one for one, wanted in zip(seen, said_in_order, strict=True) if one.what != wanted)
        message = f"{quoted(first.what)} stands at another place than in the conversation."
        yield subject.finding(LintKind.TEXT_MOVED, message, name, first.start, token=first.what)


def _beginning_of(said: str, text: str) -> int:
    """Return where the longest beginning of `said` stands in the prompt, in any case."""
    said, text = said.casefold(), text.casefold()
    longest = next((size for size in range(len(said), 0, -1) if said[:size] in text), 0)
    return text.find(said[:longest])


def _placeholder_faults(subject: Subject, canned: Canned, text: str) -> Iterator[LintFinding]:
    found = subject.found(canned, text)
    is_sound = True
    for modality in dict.fromkeys(canned.modalities or [*subject.family.takes]):
        placeholder = subject.placeholder(modality)
        if placeholder is None:
            continue
        wanted = canned.modalities.count(modality)
        marks = [one for one in found if one.what == modality and not one.is_text]
        if len(marks) != wanted:
            is_sound = False
            kind = LintKind.PLACEHOLDER_MISSING if len(marks) < wanted else LintKind.PLACEHOLDER_SURPLUS
            things = modality if wanted == 1 else f"{modality}s"
            message = f"{wanted} {things}, but {len(marks)} placeholders {placeholder.name}."
            yield subject.finding(kind, message, canned.name, marks[-1].start if marks else 0, token=placeholder.name)
            continue
        for number, mark in enumerate(marks, 1):
            match = placeholder.core.match(text, mark.start)
            if placeholder.numbered and match is not None and match[1] != str(number):
                is_sound = False
                message = f"{match[0]} stands for {modality} {number}."
                yield subject.finding(LintKind.PLACEHOLDER_NUMBER, message, canned.name, mark.start, token=match[0])
            if lacking := _lacking(placeholder.before, placeholder.after, text, mark):
                is_sound = False
                message = f"{lacking} is missing beside the placeholder {placeholder.name}."
                yield subject.finding(LintKind.PLACEHOLDER_UNWRAPPED, message, canned.name, mark.start, token=lacking)
    if is_sound and canned.modalities and subject.form != "text" and subject.family.question == "free":
        yield from _order_fault(subject, canned, found)


def _lacking(before: str, after: str, text: str, mark: RenderedPart) -> str:
    if before and not text[: mark.start].endswith(before):
        return before
    return after if after and not text.startswith(after, mark.end) else ""


def _order_fault(subject: Subject, canned: Canned, found: list[RenderedPart]) -> Iterator[LintFinding]:
    """Compare the order of texts and placeholders with that of the conversation, as the record arranges it."""
    wanted: list[tuple[str, bool]] = []
    front: list[tuple[str, bool]] = []
    for turn in chat_prompt(subject.family, canned.turns).turns:
        at = len(wanted)
        for part in turn.parts:
            match part:
                case Text(text) if text.strip():
                    wanted.append((text, True))
                case Media(attachment):
                    takes = subject.family.takes[attachment.modality]
                    layout = takes.several if canned.has_several and takes.several is not None else takes
                    if subject.placeholder(attachment.modality) is None:
                        continue
                    mark = (attachment.modality, False)
                    if layout.place == "front":
                        front.append(mark)
                    elif layout.place == "turn":
                        wanted.insert(at, mark)
                    else:
                        wanted.append(mark)
                case _:
                    continue
    seen = [(one.what, one.is_text) for one in found]
    if seen == [*front, *wanted]:
        return
    first = next((one for one, due in zip(found, [*front, *wanted], strict=False) if one.what != due[0]), None)
    message = "A placeholder stands at another place than its picture in the conversation."
    yield subject.finding(LintKind.PLACEHOLDER_MOVED, message, canned.name, first.start if first is not None else 0)


def _token_faults(subject: Subject, canned: Canned, text: str) -> Iterator[LintFinding]:
    """Texts that look like special tokens but are none."""
    tokenizer = subject.tokenizer
    if tokenizer is None:
        return
    known = {*tokenizer.special, *(one for one, is_token in tokenizer.known.items() if is_token)}
    own = {
        token
        for modality in subject.family.takes
        if (placeholder := subject.placeholder(modality)) is not None
        for token in (placeholder.name, placeholder.before, placeholder.after)
    }
    taken = [(one.start, one.end) for one in subject.found(canned, text)]
    for finding in unknown_tokens(text, known | own, taken):
        token = text[finding.start : finding.end]
        message = f"{token} is not a token of this tokenizer."
        if finding.fix is not None:
            message += f" Did you mean {finding.fix.replacement}?"
        yield subject.finding(LintKind.UNKNOWN_TOKEN, message, canned.name, finding.start, token=token)
