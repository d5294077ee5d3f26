"""A prompt's text with the tokens of each image and video folded into a chip or a placeholder. No widgets."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Literal

import msgspec

from vlmtui.domain.attachment import Attachment, Modality
from vlmtui.domain.generation import MediaSpan, PromptReady
from vlmtui.inspection.placeholders import forms_of, occurrences, pattern_of
from vlmtui.inspection.tokens import attachment_of, valid_spans
from vlmtui.registry.schema import Family

_TITLES = {"image": "Image", "video": "Video", "audio": "Audio"}
Style = Literal["text", "special", "media"]


class Run(msgspec.Struct, frozen=True):
    """Text of one style. Hostile."""

    text: str
    style: Style = "text"
    differs: bool = False


class Fold(msgspec.Struct, frozen=True):
    """The characters of `PromptReady.prompt` that hold the tokens of one image or video."""

    start: int
    end: int
    span: MediaSpan


class PlaceholderSlot(msgspec.Struct, frozen=True):
    """A placeholder in a raw prompt, without the tokens around it, and its attachment; None: there is no attachment
    for it."""

    start: int
    end: int
    attachment: Attachment | None


def chip(attachment: Attachment | None, conversation: Sequence[Attachment], tokens: int | None = None) -> str:
    """Return `Image #1 cat.jpg · 64 tokens`, numbered over the conversation's attachments. Hostile text."""
    if attachment is None:
        return "no attachment"
    number = conversation.index(attachment) + 1 if attachment in conversation else 0
    label = f"{_TITLES[attachment.modality]} #{number}" if number else _TITLES[attachment.modality]
    return f"{label} {attachment.name}" + ("" if tokens is None else f" · {tokens:,} tokens")


def folds(ready: PromptReady) -> list[Fold]:
    """Return the folds in order. Media whose tokens are not found in the text are left out."""
    found: list[Fold] = []
    position = 0
    for span in valid_spans(ready.media, len(ready.token_ids)):
        ids = ready.token_ids[span.offset : span.offset + span.length]
        if not all(token in ready.vocabulary for token in ids):
            continue
        place = _place(ready.prompt, position, [ready.vocabulary[token].text for token in ids])
        if place is not None:
            position = place[1]
            found.append(Fold(*place, span))
    return found


def folded_runs(
    ready: PromptReady, attachments: Sequence[Attachment], conversation: Sequence[Attachment], special: AbstractSet[str]
) -> list[Run]:
    """Return the prompt as styled runs: text, special tokens and chips. Hostile text."""
    known = special | {token.text for token in ready.vocabulary.values() if token.special}
    runs: list[Run] = []
    position = 0
    for fold in folds(ready):
        runs += text_runs(ready.prompt[position : fold.start], known)
        label = chip(attachment_of(fold.span, attachments), conversation, fold.span.tokens)
        runs.append(Run(f"[{label}]", "media"))
        position = fold.end
    return [*runs, *text_runs(ready.prompt[position:], known)]


def raw_text_of(ready: PromptReady, family: Family, *, bos: str | None = None, adds_bos: bool = False) -> str:
    """Return the text that reproduces this prompt when sent raw: the tokens of each image or video become a
    placeholder.

    A BOS token is left out where the tokenizer adds it (`adds_bos`).
    """
    several = max(Counter(span.modality for span in ready.media).values(), default=0) > 1
    parts: list[str] = []
    position = 0
    done: set[tuple[str, int]] = set()
    for fold in folds(ready):
        key = (fold.span.modality, fold.span.index)
        written = forms_of(family, fold.span.modality, several=several)
        core = written[1].core.replace("{i}", str(fold.span.index + 1)) if written else ""
        parts += [ready.prompt[position : fold.start], "" if key in done else core]
        position = fold.end
        done.add(key)
    text = "".join((*parts, ready.prompt[position:]))
    return text.removeprefix(bos) if bos and adds_bos else text


def placeholders(
    text: str, family: Family, attachments: Sequence[Attachment], lost: Mapping[Modality, Collection[int]] | None = None
) -> list[PlaceholderSlot]:
    """Return the placeholders of a raw prompt in order, each with the attachment that it stands for: the one that the
    engine would put there, after those that are `lost` are restored (`lost_attachments`)."""
    several = max(Counter(item.modality for item in attachments).values(), default=0) > 1
    stops = frozenset(family.stop_tokens)
    found: list[PlaceholderSlot] = []
    for modality in family.takes:
        written = forms_of(family, modality, several=several)
        if written is None:
            continue
        items = [item for item in attachments if item.modality == modality]
        if lost and not written[1].numbered:
            items = [item for at, item in enumerate(items) if at not in lost.get(modality, ())]
        for order, one in enumerate(occurrences(text, written[1], stops)):
            number = one.number - 1 if one.number is not None else order
            core = re.search(pattern_of([written[1].core]), text[one.start : one.end])
            start, end = (one.start + at for at in core.span()) if core else (one.start, one.end)
            found.append(PlaceholderSlot(start, end, items[number] if 0 <= number < len(items) else None))
    return sorted(found, key=lambda placed: placed.start)


def special_pattern(tokens: Iterable[str]) -> re.Pattern[str] | None:
    """Return a pattern that matches any of the tokens, longest first; None without tokens."""
    longest = sorted({token for token in tokens if token.strip()}, key=lambda one: (-len(one), one))
    return re.compile("|".join(map(re.escape, longest))) if longest else None


def _place(prompt: str, position: int, texts: Sequence[str]) -> tuple[int, int] | None:
    """Find the tokens' characters: as decoded one by one, or else as a run of the most common of them."""
    joined = "".join(texts)
    start = prompt.find(joined, position) if joined.strip() else -1
    if start >= 0:
        return start, start + len(joined)
    mark = re.escape(Counter(texts).most_common(1)[0][0].strip())
    match = re.compile(rf"{mark}(?:\s*{mark})*").search(prompt, position) if mark else None
    return match.span() if match else None


def text_runs(text: str, special: AbstractSet[str]) -> Iterator[Run]:
    """Yield the text as styled runs: special tokens, and what is between them."""
    pattern = special_pattern(special)
    position = 0
    for match in pattern.finditer(text) if pattern else ():
        if match.start() > position:
            yield Run(text[position : match.start()])
        yield Run(match[0], "special")
        position = match.end()
    if position < len(text):
        yield Run(text[position:])
