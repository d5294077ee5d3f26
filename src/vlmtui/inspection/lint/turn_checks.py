"""Checks of what stands around a conversation's texts: BOS, roles, generation prompt, end of turn, stable prefixes."""

from __future__ import annotations

from collections.abc import Iterator

from vlmtui.domain.prompt import RawPrompt
from vlmtui.inspection.lint.conversations import AGAIN, ANSWER, ASKED, BEGUN
from vlmtui.inspection.lint.finding import LintFinding, LintKind
from vlmtui.inspection.lint.subject import TOKEN, Subject
from vlmtui.inspection.prompt_turns import head_of, tail_of
from vlmtui.inspection.sequence_diff import common_start
from vlmtui.registry.prompts import raw_prompt
from vlmtui.text import quoted

_GROWING = (
    ("text", "answered"),
    ("text", "three_turns"),
    ("two_turns", "three_turns"),
    ("system", "system_later"),
    ("image", "image_answered"),
    ("image_answered", "image_each_turn"),
)
"""Conversations, and longer ones that begin with them."""


def turn_findings(subject: Subject) -> Iterator[LintFinding]:
    """Yield what is wrong with the prompt's beginning, turns and end."""
    yield from _bos(subject)
    yield from _roles(subject)
    generation = list(_generation_prompt(subject))
    yield from generation
    if not any(one.kind is LintKind.GENERATION_PROMPT_ALWAYS for one in generation):
        yield from _ends(subject)
    if not generation:
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
        elif later >= 0 and is_wanted:
            message = f"{bos} stands in the middle of the prompt."
            yield subject.finding(LintKind.BOS_INSIDE, message, name, later, token=bos)


def _roles(subject: Subject) -> Iterator[LintFinding]:
    """Whether a question and an answer are told apart."""
    to_answer, to_question = subject.between("two_turns", ASKED, ANSWER), subject.between("two_turns", ANSWER, AGAIN)
    if to_answer is None or to_answer != to_question:
        return
    if not _record_has(subject, ASKED, to_answer, ANSWER, to_answer, AGAIN):
        text = subject.text("two_turns") or ""
        message = f"Nothing but {quoted(to_answer)} stands between question and answer, and answer and question."
        yield subject.finding(LintKind.ROLES_ALIKE, message, "two_turns", text.find(ANSWER) - 1)


def _record_has(subject: Subject, *pieces: str) -> bool:
    """Whether the record's own prompt of two turns holds these pieces in a row."""
    if subject.raw is None:
        return False
    raw = raw_prompt(subject.family, subject.canned["two_turns"].turns)
    return isinstance(raw, RawPrompt) and "".join(pieces) in raw.text


def _generation_prompt(subject: Subject) -> Iterator[LintFinding]:
    end, closed = subject.after("text", ASKED), subject.after("text", ASKED, generation_prompt=False)
    head = subject.between("answered", ASKED, ANSWER)
    raw = subject.raw
    if end is None or closed is None or head is None or (raw is not None and not raw.generation_prompt.strip()):
        return
    answered = subject.after("answered", ANSWER, generation_prompt=False) or ""
    start = len(subject.text("text") or "") - len(end)
    opening = head[len(closed) :] if head.startswith(closed) else head[common_start(head, closed) :]
    mark = opening.strip() or (raw.generation_prompt.strip() if raw is not None else "")
    if mark and end.count(mark) > 1:
        message = f"The generation prompt {quoted(mark)} is written {end.count(mark)} times."
        yield subject.finding(LintKind.GENERATION_PROMPT_DOUBLED, message, "text", start + end.rfind(mark), token=mark)
    elif end == closed and head.startswith(end) and head[len(end) :].strip():
        message = f"The prompt ends without the generation prompt {quoted(head[len(end) :])}."
        yield subject.finding(LintKind.GENERATION_PROMPT_MISSING, message, "text", start + len(end))
    elif end.strip() and end == closed and answered.endswith(end) and TOKEN.search(end):
        message = f"The prompt ends with {quoted(end)} although no generation prompt is asked for."
        at = start + len(end) - 1
        yield subject.finding(LintKind.GENERATION_PROMPT_ALWAYS, message, "text", at, generation_prompt=False)
    elif raw is not None and raw.generation_prompt.strip() in answered:
        message = f"{quoted(raw.generation_prompt)} follows an answer although no generation prompt is asked for."
        offset = len(subject.text("answered", generation_prompt=False) or "") - 1
        kind = LintKind.GENERATION_PROMPT_ALWAYS
        yield subject.finding(kind, message, "answered", offset, generation_prompt=False)
    elif not (end.startswith(head.rstrip()) or head.startswith(end.rstrip()) or _only_thinks(head, end)):
        message = f"An answer in the conversation begins after {quoted(head)}, a new one after {quoted(end)}."
        yield subject.finding(LintKind.GENERATION_PROMPT_DIFFERS, message, "text", start + len(end) - 1)


def _only_thinks(head: str, end: str) -> bool:
    """Whether the two differ by an empty reasoning block: histories leave reasoning out, or keep it empty."""
    start = common_start(head, end)
    rests = [head[start:], end[start:]]
    return any("think" in rest for rest in rests) and all(not rest.strip() or "think" in rest for rest in rests)


def _prefill(subject: Subject) -> Iterator[LintFinding]:
    """Whether an answer that is to be continued stands behind the generation prompt of a new one."""
    end, begun = subject.after("two_turns", AGAIN), subject.text("prefill", generation_prompt=False)
    head = subject.between("prefill", AGAIN, BEGUN)
    if end is None or begun is None or head is None or (subject.raw and not subject.raw.generation_prompt.strip()):
        return
    if end.split() != head.split() and not _only_thinks(head, end):
        message = f"An answer to continue stands behind {quoted(head)}, a new one behind {quoted(end)}."
        at = begun.rfind(BEGUN) - 1
        yield subject.finding(LintKind.PREFILL_DIFFERS, message, "prefill", at, generation_prompt=False)


def _ends(subject: Subject) -> Iterator[LintFinding]:
    """Whether each turn is closed, by a token that ends an answer."""
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
        return
    tokens = TOKEN.findall(tail if tail.strip() else following)
    if raw is None and not tail.strip() and (not tokens or tokens[0] not in subject.stops) and subject.stops:
        message = f"Nothing closes an answer: {quoted(following)} follows it."
        yield subject.finding(LintKind.TURN_NOT_CLOSED, message, "two_turns", start)
    elif tail.strip() and tokens and subject.tokenizer is not None and not _stops(subject, tail, tokens):
        message = f"{tokens[0]} ends an answer, but the engine does not stop at it."
        yield subject.finding(LintKind.STOP_MISSING, message, "two_turns", start, token=tokens[0])


def _after_answer(subject: Subject, first: str, following: str) -> str:
    """Return what closes an answer: what follows the last one, or what is not the next question's beginning."""
    last = subject.after("answered", ANSWER, generation_prompt=False) or ""
    head = first[: first.find(ASKED)]
    shared = common_start(head[::-1], following[::-1])
    return last if last.strip() else following[: len(following) - shared]


def _stops(subject: Subject, tail: str, tokens: list[str]) -> bool:
    return not subject.stops.isdisjoint(tokens) or any(tail.lstrip().startswith(stop) for stop in subject.stops)


def _prefixes(subject: Subject) -> Iterator[LintFinding]:
    """Whether a conversation is written the same way once it is longer."""
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
    """Whether the family has all pictures at the front, or numbers several otherwise than one."""
    takes = subject.family.takes.get("image")
    return takes is not None and (takes.place == "front" or takes.several is not None)
