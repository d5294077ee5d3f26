"""Describe the well-known differences of two prompts in plain words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain

from vlmtui.inspection.prompt_spans import PromptSpan, text_of
from vlmtui.inspection.tokens import Piece
from vlmtui.text import quoted, visible

Names = tuple[str, str]

_PLACEHOLDER = re.compile(r"<\|?[^<>\s]*(?:image|img|video|vision|media|patch)[^<>\s]*>|\[IMG\]", re.IGNORECASE)
_SYSTEM = re.compile(r"system|<<SYS>>", re.IGNORECASE)
_SYSTEM_WORD = re.compile(r"^\s*(?:<<SYS>>|system\b\s*:?)\s*", re.IGNORECASE)
_ANSWERS = re.compile(r"assistant|chatbot|model\s*$", re.IGNORECASE)


def findings_of(spans: Sequence[PromptSpan], names: Names, generation_prompt: str) -> tuple[str, ...]:
    """What the spans mean. A difference that is not a known one has no finding; `no difference` when there is none."""
    if all(span.operation == "equal" for span in spans):
        return ("no difference",)
    found = list(_two_bos(spans, names))
    for number, span in enumerate(spans):
        if span.operation == "equal":
            continue
        rest = spans[number + 1 :]
        last = not any(one.operation != "equal" or one.left_text.strip() for one in rest)
        before = [piece for one in spans[:number] for piece in one.left]
        after = rest[0].left_text if rest else ""
        said = (
            _white_space(span, names, after, last=last)
            or _system_prompt(span, names, before)
            or _media(span, names)
            or (last and _generation_prompt(span, names, generation_prompt))
            or (not before and _first_token(span, names))
        )
        if said:
            found.append(said)
    return tuple(dict.fromkeys(found))


def _two_bos(spans: Sequence[PromptSpan], names: Names) -> Iterator[str]:
    heads = [list(chain.from_iterable(getattr(span, side) for span in spans[:3]))[:2] for side in ("left", "right")]
    doubled = [
        len(head) == 2 and head[0].kind == head[1].kind == "special" and head[0].ids == head[1].ids for head in heads
    ]
    for side in (0, 1):
        if doubled[side] and not doubled[1 - side]:
            yield f"{names[side]} has two BOS tokens: {quoted(text_of(heads[side]))}"


def _white_space(span: PromptSpan, names: Names, after: str, *, last: bool) -> str:
    left, right = span.left_text, span.right_text
    if left.strip() != right.strip() or left == right or _holds_media(span):
        return ""
    if last:
        where = f"{names[0]} has {_ending(left)}, {names[1]} {_ending(right)}"
        return f"white space differs at the end: {where}"
    following = left.strip() or after.strip() or after
    lines = (left.count("\n"), right.count("\n"))
    if lines[0] == lines[1]:
        return f"white space differs before {quoted(following)}"
    poorer = names[0] if lines[0] < lines[1] else names[1]
    count = abs(lines[0] - lines[1])
    what = "a line break is" if count == 1 else f"{count} line breaks are"
    return f"{what} missing in {poorer} before {quoted(following)}"


def _ending(text: str) -> str:
    ending = text[len(text.rstrip()) :]
    return quoted(ending) if ending else "none"


def _system_prompt(span: PromptSpan, names: Names, before: Sequence[Piece]) -> str:
    """One side has a system turn that the other lacks, at the beginning of the prompt."""
    if any(piece.kind == "media" for piece in before) or len(before) > 8:
        return ""
    marked = [bool(_SYSTEM.search(text[:60])) for text in (span.left_text, span.right_text)]
    if marked[0] == marked[1]:
        return ""
    side = 0 if marked[0] else 1
    pieces = (span.left, span.right)[side]
    said = "".join(piece.text for piece in pieces if piece.kind == "text")
    said = _SYSTEM_WORD.sub("", said).strip()
    return f"{names[side]} adds a system prompt: {quoted(said) if said else 'an empty one'}"


def _media(span: PromptSpan, names: Names) -> str:
    left = [piece for piece in span.left if piece.kind == "media"]
    right = [piece for piece in span.right if piece.kind == "media"]
    if len(left) == len(right) > 0:
        return _other_media(left, right, names)
    marks = [_mark(span.left, left), _mark(span.right, right)]
    if marks[0] and marks[1] and marks[0] != marks[1]:
        return f"another placeholder: {visible(marks[0], keep='')} against {visible(marks[1], keep='')}"
    for side, mark in enumerate(marks):
        pieces = (left, right)[side]
        if pieces and not marks[1 - side]:
            what = pieces[0].label.rpartition(" from ")[2] if len(pieces) == 1 else f"{len(pieces)} images or videos"
            return f"{names[1 - side]} lacks {visible(what, keep='')} ({visible(mark, keep='')}) here"
    return ""


def _other_media(left: Sequence[Piece], right: Sequence[Piece], names: Names) -> str:
    for one, other in zip(left, right, strict=True):
        if one.text != other.text:
            return f"another placeholder: {visible(one.text, keep='')} against {visible(other.text, keep='')}"
        if one.media is None or other.media is None:
            continue
        what = f"{one.media.modality} {one.media.index + 1}"
        if one.media.tokens != other.media.tokens:
            counts = f"{one.media.tokens:,} tokens in {names[0]}, {other.media.tokens:,} in {names[1]}"
            return f"{what} takes {counts}"
        return f"{what} is not the same in both: {visible(one.label, keep='')} against {visible(other.label, keep='')}"
    return ""


def _mark(pieces: Sequence[Piece], media: Sequence[Piece]) -> str:
    """The placeholder among the pieces: an image's token, or a text that looks like one."""
    if media:
        return media[0].text
    match = _PLACEHOLDER.search(text_of(pieces))
    return match[0] if match else ""


def _generation_prompt(span: PromptSpan, names: Names, generation_prompt: str) -> str:
    for side, (text, other) in enumerate(((span.left_text, span.right_text), (span.right_text, span.left_text))):
        known = bool(generation_prompt.strip()) and generation_prompt.strip() in text
        if not other.strip() and len(text) <= 200 and (known or _ANSWERS.search(text)):
            return f"the generation prompt is missing in {names[1 - side]}: {quoted(text.strip())}"
    return ""


def _first_token(span: PromptSpan, names: Names) -> str:
    for side, (pieces, others) in enumerate(((span.left, span.right), (span.right, span.left))):
        if len(pieces) == 1 and not others and pieces[0].kind == "special":
            return f"{names[1 - side]} does not begin with {quoted(pieces[0].text)}"
    return ""


def _holds_media(span: PromptSpan) -> bool:
    return any(piece.kind == "media" for piece in (*span.left, *span.right))
