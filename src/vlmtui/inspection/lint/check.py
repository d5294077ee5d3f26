"""Check the renderings of a chat template, and yield findings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from vlmtui.domain.conversation import Media, RawPrompt, Text
from vlmtui.domain.model_reading import LIMITS, ModelReading, ReadTrouble, TemplateTrouble
from vlmtui.domain.template import value_text
from vlmtui.inspection.lint.finding import LintFinding, LintKind
from vlmtui.inspection.lint.subject import (
    AGAIN,
    ANSWER,
    ASKED,
    BEGUN,
    PYTHON,
    SECOND_ANSWER,
    TOKEN,
    Canned,
    RenderedPart,
    Subject,
    resembles,
)
from vlmtui.inspection.prompt_turns import head_of, tail_of
from vlmtui.inspection.raw_prompt_check import unknown_tokens
from vlmtui.inspection.sequence_diff import common_start
from vlmtui.registry.model_files import FileFault
from vlmtui.registry.prompts import chat_prompt, chat_template_of, raw_prompt
from vlmtui.registry.schema import Family
from vlmtui.text import quoted

_GROWING = (
    ("text", "answered"),
    ("text", "three_turns"),
    ("two_turns", "three_turns"),
    ("system", "system_later"),
    ("image", "image_answered"),
    ("image_answered", "image_each_turn"),
)
"""Pairs of canned conversations, by name. The second conversation of a pair begins with the turns of the first."""
_THOUGHT = re.compile(r"think|thought|reason", re.IGNORECASE)
"""In the tags of reasoning: `<think>`, `<|channel>thought`, `[THINK]`."""
_AROUND = 12
_COMPARED = ("text", "two_turns", "system", "image", "images")
"""The conversations whose prompts are compared with the raw prompts of the model family's record."""


def content_findings(subject: Subject) -> Iterator[LintFinding]:
    for canned in subject.canned.values():
        text = subject.text(canned.name)
        if text is None:
            continue
        yield from _text_faults(subject, canned, text)
        yield from _placeholder_faults(subject, canned, text)
        yield from _token_faults(subject, canned, text)


def _text_faults(subject: Subject, canned: Canned, text: str) -> Iterator[LintFinding]:
    name = canned.name
    plain = text
    for _, said in canned.texts:
        plain = plain.replace(said, " " * len(said))
    for printed in PYTHON.finditer(plain):
        if not _is_prose(subject, plain, printed):
            message = f"The prompt holds Python's notation of a value: {quoted(printed[0])}."
            yield subject.finding(LintKind.PYTHON_PRINTED, message, name, printed.start(), token=printed[0])
            break
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


def _is_prose(subject: Subject, text: str, found: re.Match[str]) -> bool:
    """Return True if a match belongs to a text of the template itself."""
    before = text[max(0, found.start() - _AROUND) : found.end()]
    after = text[found.start() : found.end() + _AROUND]
    return any(before in one or after in one for one in subject.template.texts)


def _beginning_of(said: str, text: str) -> int:
    """Find the longest beginning of `said` that occurs in `text`, ignoring case. Return its offset in `text`."""
    said, text = said.casefold(), text.casefold()
    longest = next((size for size in range(len(said), 0, -1) if said[:size] in text), 0)
    return text.find(said[:longest])


def _placeholder_faults(subject: Subject, canned: Canned, text: str) -> Iterator[LintFinding]:
    found = subject.found(canned, text)
    is_whole = True
    for modality in dict.fromkeys(canned.modalities or [*subject.family.takes]):
        placeholder = subject.placeholder(modality)
        if placeholder is None:
            continue
        wanted = canned.modalities.count(modality)
        marks = [one for one in found if one.what == modality and not one.is_text]
        if len(marks) != wanted:
            is_whole = False
            kind = LintKind.PLACEHOLDER_MISSING if len(marks) < wanted else LintKind.PLACEHOLDER_SURPLUS
            things = modality if wanted == 1 else f"{modality}s"
            message = f"{wanted} {things}, but {len(marks)} placeholders {placeholder.name}."
            yield subject.finding(kind, message, canned.name, marks[-1].start if marks else 0, token=placeholder.name)
        for number, mark in enumerate(marks, 1):
            match = placeholder.core.match(text, mark.start)
            if placeholder.numbered and match is not None and match[1] != str(number):
                message = f"{match[0]} stands for {modality} {number}."
                yield subject.finding(LintKind.PLACEHOLDER_NUMBER, message, canned.name, mark.start, token=match[0])
            if lacking := _lacking(placeholder.before, placeholder.after, text, mark):
                message = f"{lacking} is missing beside the placeholder {placeholder.name}."
                yield subject.finding(LintKind.PLACEHOLDER_UNWRAPPED, message, canned.name, mark.start, token=lacking)
    if is_whole and canned.modalities and subject.form != "text" and subject.family.question == "free":
        yield from _order_fault(subject, canned, found)


def _lacking(before: str, after: str, text: str, mark: RenderedPart) -> str:
    if before and not text[: mark.start].endswith(before):
        return before
    return after if after and not text.startswith(after, mark.end) else ""


def _order_fault(subject: Subject, canned: Canned, found: list[RenderedPart]) -> Iterator[LintFinding]:
    """Yield a finding if texts and placeholders are neither in the conversation's order nor in that of the family's
    record."""
    given: list[tuple[str, bool]] = []
    wanted: list[tuple[str, bool]] = []
    front: list[tuple[str, bool]] = []
    for turn in chat_prompt(subject.family, canned.turns).turns:
        at = len(wanted)
        for part in turn.parts:
            match part:
                case Text(text) if text.strip():
                    given.append((text, True))
                    wanted.append((text, True))
                case Media(attachment):
                    takes = subject.family.takes[attachment.modality]
                    layout = takes.several if canned.has_several and takes.several is not None else takes
                    if subject.placeholder(attachment.modality) is None:
                        continue
                    mark = (attachment.modality, False)
                    given.append(mark)
                    if layout.place == "front":
                        front.append(mark)
                    elif layout.place == "turn":
                        wanted.insert(at, mark)
                    else:
                        wanted.append(mark)
                case _:
                    continue
    seen = [(one.what, one.is_text) for one in found]
    if seen in (given, [*front, *wanted]):
        return
    first = next((one for one, due in zip(found, [*front, *wanted], strict=False) if one.what != due[0]), None)
    message = "A placeholder stands at another place than its image in the conversation."
    yield subject.finding(LintKind.PLACEHOLDER_MOVED, message, canned.name, first.start if first is not None else 0)


def _token_faults(subject: Subject, canned: Canned, text: str) -> Iterator[LintFinding]:
    """Yield findings about texts that look like special tokens but are not in the vocabulary."""
    tokenizer = subject.tokenizer
    if tokenizer is None:
        return
    known = {*tokenizer.special, *(one for one, is_token in tokenizer.known.items() if is_token)}
    replaced: set[str] = set()
    lacking: set[str] = set()
    taken: list[tuple[int, int]] = []
    found = subject.found(canned, text)
    for modality, takes in subject.family.takes.items():
        if (placeholder := subject.placeholder(modality)) is None:
            continue
        tokens = {placeholder.name, placeholder.before, placeholder.after} - known
        if takes.as_text or placeholder.numbered:
            replaced |= tokens
            taken += [(one.start, one.end) for one in found if one.what == modality]
        elif takes.placeholder.strip() not in {"", *known}:
            lacking |= tokens & tokenizer.known.keys()
    taken += [(one.start, one.end) for one in found if one.is_text]
    told: set[str] = set()
    for finding in unknown_tokens(text, known | replaced, taken):
        token = text[finding.start : finding.end]
        told.add(token)
        message = f"{token} is not a token of this tokenizer."
        if finding.fix is not None and token not in lacking:
            message += f" Did you mean {finding.fix.replacement}?"
        yield subject.finding(LintKind.UNKNOWN_TOKEN, message, canned.name, finding.start, token=token)
    for token in sorted(lacking - told):
        if (at := text.find(token)) >= 0:
            message = f"{token} is not a token of this tokenizer."
            yield subject.finding(LintKind.UNKNOWN_TOKEN, message, canned.name, at, token=token)


def turn_findings(subject: Subject) -> Iterator[LintFinding]:
    yield from _bos(subject)
    yield from _roles(subject)
    yield from _generation_prompt(subject)
    yield from _ends(subject)
    yield from _prefill(subject)
    yield from _prefixes(subject)


def _bos(subject: Subject) -> Iterator[LintFinding]:
    tokenizer, written = subject.tokenizer, subject.family.raw.bos
    bos = tokenizer.bos if tokenizer is not None else written
    is_wanted = written.startswith(bos) if written and bos else tokenizer is not None and tokenizer.adds_bos
    if not bos or bos in subject.stops or any(bos in turn for turn in (subject.family.raw.user, written[len(bos) :])):
        return
    for name in ("text", "two_turns", "system", "image", "later_image"):
        text = subject.text(name)
        if text is None:
            continue
        at_start = len(text) - len(text.lstrip())
        count = 0
        while text.startswith(bos, at_start + count * len(bos)):
            count += 1
        later = text.find(bos, at_start + count * len(bos))
        if count > 1:
            message = f"The prompt begins with {bos} {count} times."
            yield subject.finding(LintKind.BOS_DOUBLED, message, name, at_start + len(bos), token=bos)
        if is_wanted and count == 0:
            yield subject.finding(LintKind.BOS_MISSING, f"The prompt does not begin with {bos}.", name, 0, token=bos)
        if later >= 0 and is_wanted:
            message = f"{bos} stands in the middle of the prompt."
            yield subject.finding(LintKind.BOS_INSIDE, message, name, later, token=bos)


def _roles(subject: Subject) -> Iterator[LintFinding]:
    """Yield a finding if the same text stands before questions and before answers."""
    to_answer, to_question = subject.between("two_turns", ASKED, ANSWER), subject.between("two_turns", ANSWER, AGAIN)
    if to_answer is None or to_answer != to_question:
        return
    if not _record_has(subject, ASKED, to_answer, ANSWER, to_answer, AGAIN):
        text = subject.text("two_turns") or ""
        message = f"Nothing but {quoted(to_answer)} stands between question and answer, and answer and question."
        yield subject.finding(LintKind.ROLES_ALIKE, message, "two_turns", text.find(ANSWER) - 1)


def _record_has(subject: Subject, *pieces: str) -> bool:
    """Return True if these texts are adjacent in the raw prompt that the family's record writes for two turns."""
    if subject.raw is None:
        return False
    raw = raw_prompt(subject.family, subject.canned["two_turns"].turns, subject.template.given)
    return isinstance(raw, RawPrompt) and "".join(pieces) in raw.text


def _generation_prompt(subject: Subject) -> Iterator[LintFinding]:
    end, closed = subject.after("text", ASKED), subject.after("text", ASKED, generation_prompt=False)
    head = subject.between("answered", ASKED, ANSWER)
    raw = subject.raw
    if end is None or closed is None or head is None or _needs_none(subject, end):
        return
    answered = subject.after("answered", ANSWER, generation_prompt=False) or ""
    start = len(subject.text("text") or "") - len(end)
    opening = head[len(closed) :] if head.startswith(closed) else head[common_start(head, closed) :]
    written = raw.generation_prompt.strip() if raw is not None else ""
    mark = opening.strip() or written
    if mark and end.count(mark) > 1:
        message = f"The generation prompt {quoted(mark)} is written {end.count(mark)} times."
        yield subject.finding(LintKind.GENERATION_PROMPT_DOUBLED, message, "text", start + end.rfind(mark), token=mark)
    always = _opens_an_answer(subject, closed, head, written)
    if end == closed and not always and head.startswith(end) and head[len(end) :].strip():
        message = f"The prompt ends without the generation prompt {quoted(head[len(end) :])}."
        yield subject.finding(LintKind.GENERATION_PROMPT_MISSING, message, "text", start + len(end))
    if always or (end.strip() and end == closed and answered.endswith(end) and TOKEN.search(end)):
        message = f"The prompt ends with {quoted(closed)} although no generation prompt is asked for."
        at = start + len(closed) - 1
        yield subject.finding(LintKind.GENERATION_PROMPT_ALWAYS, message, "text", at, generation_prompt=False)
    elif raw is not None and written and written in answered:
        message = f"{quoted(raw.generation_prompt)} follows an answer although no generation prompt is asked for."
        offset = len(subject.text("answered", generation_prompt=False) or "") - 1
        kind = LintKind.GENERATION_PROMPT_ALWAYS
        yield subject.finding(kind, message, "answered", offset, generation_prompt=False)
    if not (end.startswith(head.rstrip()) or head.startswith(end.rstrip()) or _only_thinks(head, end)):
        message = f"An answer in the conversation begins after {quoted(head)}, a new one after {quoted(end)}."
        yield subject.finding(LintKind.GENERATION_PROMPT_DIFFERS, message, "text", start + len(end) - 1)


def _needs_none(subject: Subject, end: str) -> bool:
    """Return True if a prompt has no generation prompt, as the record has none: Chameleon's processor writes it. `end`:
    the text after a question."""
    return not end.strip() and subject.raw is not None and not subject.raw.generation_prompt.strip()


def _opens_an_answer(subject: Subject, closed: str, head: str, written: str) -> bool:
    """Return True if `closed`, the text after a question without a generation prompt, opens an answer: with `written`,
    the record's generation prompt, or with the end of `head`, the text between question and answer, from where it
    differs from the text between answer and question."""
    shared = common_start(head, subject.between("two_turns", ANSWER, AGAIN) or "")
    shared = next((one.start() for one in TOKEN.finditer(head) if one.start() < shared < one.end()), shared)
    own = head[shared:].strip() if head[:shared].strip() else ""
    return any(opening and opening in closed for opening in (written, own))


def _only_thinks(head: str, end: str) -> bool:
    """Return True if the two texts differ only in an empty reasoning block, which templates write when they remove
    earlier reasoning."""
    start = common_start(head, end)
    rests = [rest for rest in (head[start:], end[start:]) if rest.strip()]
    return bool(rests) and all(_THOUGHT.search(rest) for rest in rests)


def _prefill(subject: Subject) -> Iterator[LintFinding]:
    """Yield a finding if the text before a partial answer to continue differs from the text before a new answer."""
    end, begun = subject.after("two_turns", AGAIN), subject.text("prefill", generation_prompt=False)
    head = subject.between("prefill", AGAIN, BEGUN)
    if end is None or begun is None or head is None or _needs_none(subject, end):
        return
    if end.split() != head.split() and not _only_thinks(head, end):
        message = f"An answer to continue stands behind {quoted(head)}, a new one behind {quoted(end)}."
        at = begun.rfind(BEGUN) - 1
        yield subject.finding(LintKind.PREFILL_DIFFERS, message, "prefill", at, generation_prompt=False)


def _ends(subject: Subject) -> Iterator[LintFinding]:
    text = subject.text("two_turns")
    following = subject.between("two_turns", ANSWER, AGAIN)
    first = subject.text("text")
    if text is None or following is None or first is None:
        return
    start = text.find(ANSWER) + len(ANSWER)
    raw = subject.raw if subject.raw is not None and head_of(subject.raw.user).strip() in first else None
    user_end, end = subject.after("text", ASKED), tail_of(raw.user).strip() if raw is not None else ""
    if end and user_end is not None and end not in user_end:
        message = f"The user's turn is not closed: {end} is missing."
        yield subject.finding(LintKind.TURN_NOT_CLOSED, message, "text", first.find(ASKED) + len(ASKED), token=end)
    tail = _after_answer(subject, first, following)
    if raw is not None and tail_of(raw.assistant).strip() and tail_of(raw.assistant).strip() not in following:
        wanted = tail_of(raw.assistant).strip()
        message = f"The answer's turn is not closed: {wanted} is missing."
        yield subject.finding(LintKind.TURN_NOT_CLOSED, message, "two_turns", start, token=wanted)
    tokens = TOKEN.findall(tail if tail.strip() else following)
    if raw is None and not tail.strip() and (not tokens or tokens[0] not in subject.stops) and subject.stops:
        message = f"Nothing closes an answer: {quoted(following)} follows it."
        yield subject.finding(LintKind.TURN_NOT_CLOSED, message, "two_turns", start)
    elif tail.strip() and tokens and subject.tokenizer is not None and not _stops(subject, tail, tokens):
        message = f"{tokens[0]} ends an answer, but the engine does not stop at it."
        yield subject.finding(LintKind.STOP_MISSING, message, "two_turns", start, token=tokens[0])


def _after_answer(subject: Subject, first: str, following: str) -> str:
    """Return the text that closes an answer: the text after the last answer or, if there is none, the text before the
    next question without the head of the question's turn.

    `first`: the prompt of one question. `following`: the text between an answer and the next question.
    """
    last = subject.after("answered", ANSWER, generation_prompt=False) or ""
    head = first[: first.find(ASKED)]
    shared = common_start(head[::-1], following[::-1])
    return last if last.strip() else following[: len(following) - shared]


def _stops(subject: Subject, tail: str, tokens: list[str]) -> bool:
    return not subject.stops.isdisjoint(tokens) or any(tail.lstrip().startswith(stop) for stop in subject.stops)


def _prefixes(subject: Subject) -> Iterator[LintFinding]:
    """Yield findings if further turns change the text of earlier turns."""
    for shorter, longer in _GROWING:
        if shorter not in subject.canned or longer not in subject.canned:
            continue
        if len(subject.canned[longer].modalities) > len(subject.canned[shorter].modalities) and _moves(subject):
            continue
        before, after = subject.text(shorter), subject.text(longer)
        said = subject.canned[shorter].texts[-1][1]
        if before is None or after is None or said not in before:
            continue
        kept = before[: before.rfind(said) + len(said)]
        if not after.startswith(kept):
            at = common_start(kept, after)
            message = f"The first turns are written otherwise once more follow, from {quoted(kept[at : at + 30])} on."
            yield subject.finding(LintKind.PREFIX_CHANGES, message, longer, at)


def _moves(subject: Subject) -> bool:
    """Return True if adding images may change earlier turns, because all images go to the front or several images have
    another layout."""
    takes = subject.family.takes.get("image")
    return takes is not None and (takes.place == "front" or takes.several is not None)


def record_findings(subject: Subject) -> Iterator[LintFinding]:
    """Yield the differences between the template's prompts and the raw prompts of the family's record. Yield nothing
    if other variables than those of reasoning are set, which a record doesn't know."""
    thinking = subject.family.thinking
    if subject.template.given.keys() - ({thinking.switch, thinking.effort} if thinking is not None else set()):
        return
    for name in _COMPARED:
        text = subject.text(name)
        if text is None or (subject.canned[name].modalities and _is_rearranged(subject, subject.canned[name])):
            continue
        turns = subject.canned[name].turns
        given = subject.template.given
        raw, bare = (raw_prompt(one, turns, given) for one in (subject.family, _without_system(subject.family)))
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
            is_written = seen[at : at + 1].isspace()  # otherwise white space is missing: mark the character before
            yield subject.finding(LintKind.WHITE_SPACE, message, name, offset if is_written else max(0, offset - 1))
        else:
            message = f"The record writes {there}, this template {here}."
            yield subject.finding(LintKind.RECORD_DIFFERS, message, name, offset)


def _without_system(family: Family) -> Family:
    """Return the family without its default system prompt. vLLM's examples often have one that the model's template
    lacks."""
    raw, several = (
        None if one is None else msgspec.structs.replace(one, default_system=None)
        for one in (family.raw, family.raw_several)
    )
    return msgspec.structs.replace(family, raw=raw or family.raw, raw_several=several)


def _is_rearranged(subject: Subject, canned: Canned) -> bool:
    """Return True if the model's own chat template may write a conversation's images otherwise than the record: the
    record writes them after the text, or several images differently from a single one."""
    rules = subject.family.takes.values()
    return subject.family.chat == "model" and any(
        one.place == "after" or (one.several is not None and (canned.has_several or one.several.place == "after"))
        for one in rules
    )


def _without_bos(subject: Subject, text: str) -> str:
    """Return a prompt without any BOS at its start. BOS has its own checks."""
    for bos in {subject.family.raw.bos, subject.tokenizer.bos if subject.tokenizer is not None else None}:
        while bos and text.startswith(bos):
            text = text.removeprefix(bos)
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
"""The name of the chat template that is generated from the family's record."""
SEVERAL = "record, several items"
"""The name of the chat template that is generated from the family's record for several items."""


def check_reading(
    family: Family,
    reading: ModelReading,
    canned: Sequence[Canned],
    *,
    of_record: bool = False,
    damaged: Sequence[FileFault] = (),
) -> list[LintFinding]:
    """Return the findings about a model.

    `of_record`: True if the templates come from `record_templates`, not from the model's files. `damaged`: the faults
    of its files.
    """
    found = [LintFinding(kind=LintKind.FILE_DAMAGED, message=one.message, source=one.name) for one in damaged]
    parts = {one.part for one in damaged}
    if reading.trouble is not None and "tokenizer" not in parts:
        found.append(tokenizer_fault(reading.trouble, reading.message))
    if not reading.templates and family.chat == "model" and not of_record and "template" not in parts:
        found.append(LintFinding(kind=LintKind.NO_TEMPLATE, message="The model has no chat template in Jinja."))
    for template in reading.templates:
        shown = [one for one in canned if not of_record or one.has_several == (template.name == SEVERAL)]
        found += _first_of_each(list(_template_findings(Subject(family, template, shown, reading.tokenizer))))
    for template in reading.varied:
        found += _new_findings(Subject(family, template, canned, reading.tokenizer), found)
    if not of_record:
        found += _disagreements(family, reading, canned)
    return found


def _new_findings(subject: Subject, known: Sequence[LintFinding]) -> Iterator[LintFinding]:
    """Yield the findings that are not in `known`, and so appear only with the template variables set in this
    rendering."""
    setting = ", ".join(f"{name} = {value_text(value)}" for name, value in subject.template.given.items())
    seen = {(one.kind, one.source, one.token) for one in known}
    for one in _first_of_each(list(_template_findings(subject))):
        if (one.kind, one.source, one.token) not in seen:
            yield msgspec.structs.replace(one, conversation=f"{one.conversation} with {setting}".lstrip())


def tokenizer_fault(trouble: ReadTrouble, message: str) -> LintFinding:
    """Return the finding about an unreadable tokenizer. `message`: the error's text."""
    kind, said = _TOKENIZER[trouble]
    return LintFinding(kind=kind, message=said.format(_short(message)))


def record_templates(family: Family) -> dict[str, str]:
    """Return the chat templates, by name, that are generated from the family's record for one item and for several.

    Empty if the family uses the model's own chat template."""
    found = {RECORD: chat_template_of(family), SEVERAL: chat_template_of(family, several=True)}
    return {name: source for name, source in found.items() if source}


def _short(text: str) -> str:
    return " ".join(text.split())[:_MESSAGE_MAX]


def _template_findings(subject: Subject) -> Iterator[LintFinding]:
    template = subject.template
    if template.trouble in _WHOLE:
        kind, message = _WHOLE[template.trouble]
        yield LintFinding(
            kind=kind, message=message.format(_short(template.message)), source=template.name, line=template.line
        )
    yield from _failures(subject)
    yield from content_findings(subject)
    yield from turn_findings(subject)
    yield from record_findings(subject)


def _failures(subject: Subject) -> Iterator[LintFinding]:
    """Yield findings about conversations that the template fails to render. A template may reject system messages with
    `raise_exception`."""
    for canned in subject.canned.values():
        rendering = subject.rendering(canned.name)
        if rendering is None or rendering.trouble is None or rendering.trouble in _WHOLE:
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
    """Return the first finding of each kind, since the same fault appears in many conversations. Some kinds may have
    more: one for each token, for each failing line of the template, or for questions and for answers."""
    kept: dict[tuple[LintKind, object], LintFinding] = {}
    for one in found:
        of: object = one.token if one.kind in _BY_TOKEN else one.line if one.kind is LintKind.TEMPLATE_FAILS else None
        if one.kind in _BY_TEXT:
            of = one.token in _ANSWERS
        kept.setdefault((one.kind, of), one)
    return list(kept.values())


_BY_TOKEN = {
    LintKind.PLACEHOLDER_MISSING, LintKind.PLACEHOLDER_SURPLUS, LintKind.PLACEHOLDER_UNWRAPPED, LintKind.UNKNOWN_TOKEN,
    LintKind.TURN_NOT_CLOSED,
}  # fmt: skip
_BY_TEXT = {LintKind.TEXT_LOST, LintKind.TEXT_CHANGED, LintKind.TEXT_REPEATED}
_ANSWERS = (ANSWER, SECOND_ANSWER, BEGUN)


def _disagreements(family: Family, reading: ModelReading, canned: Sequence[Canned]) -> Iterator[LintFinding]:
    if len(reading.templates) < 2:
        return
    first, *others = (Subject(family, one, canned, reading.tokenizer) for one in reading.templates)
    for other in others:
        if first.template.source.strip() != other.template.source.strip() and (found := _disagreement(first, other)):
            yield found


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
