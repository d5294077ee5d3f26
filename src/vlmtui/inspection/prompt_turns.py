"""A prompt for people: its long runs of placeholders folded, and its turns."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Literal

import msgspec

from vlmtui.domain.conversation import Attachment
from vlmtui.domain.generation import MediaSpan, PromptReady
from vlmtui.inspection.placeholders import forms_of, occurrences, pattern_of
from vlmtui.inspection.sequence_diff import diff_blocks
from vlmtui.inspection.tokens import attachment_of, valid_spans
from vlmtui.registry.schema import Family, RawTemplate

_TITLES = {"image": "Image", "video": "Video", "audio": "Audio"}
Style = Literal["text", "special", "media"]
_SPECIAL = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]")
LOOKS_SPECIAL = re.compile(r"<\|[^\s<>|]{1,80}\|>|<｜[^\s<>｜]{1,80}｜>|</?s>|\[/?INST\]|<(?:start|end)_of_[a-z]+>")
"""Finds special tokens in prompts whose tokens are unknown."""
_ROLES = {"developer": "system", "human": "user", "model": "assistant"}
_COMMON_HEAD = re.compile(
    r"<[^<>\s]{1,40}>(system|developer|user|human|assistant|model|tool)(?=[\s<])|<[|｜](system|user|assistant)[|｜]>",
    re.IGNORECASE,
)
"""The head of a turn as most families write it: `<|im_start|>user`, `<|user|>`."""


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
    return [run for part in prompt_parts(ready, attachments, conversation, None, special) for run in part.runs]


def raw_text_of(ready: PromptReady, family: Family, *, added_bos: str = "") -> str:
    """Return the text that reproduces this prompt when sent raw: the tokens of each image or video become a
    placeholder. `added_bos`: the token that the engine puts before a raw prompt."""
    parts = prompt_parts(ready, (), (), family, frozenset(), added_bos=added_bos)
    return "".join(part.text for part in parts)


def placeholders(text: str, family: Family, attachments: Sequence[Attachment]) -> list[PlaceholderSlot]:
    """Return the placeholders of a raw prompt in order, each with the attachment that the engine would put there."""
    several = max(Counter(item.modality for item in attachments).values(), default=0) > 1
    stops = frozenset(family.stop_tokens)
    found: list[PlaceholderSlot] = []
    for modality in family.takes:
        written = forms_of(family, modality, several=several)
        if written is None:
            continue
        items = [item for item in attachments if item.modality == modality]
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


def text_runs(text: str, special: re.Pattern[str] | None) -> Iterator[Run]:
    """Yield the text as styled runs: special tokens, and what is between them."""
    position = 0
    for match in special.finditer(text) if special else ():
        if match.start() > position:
            yield Run(text[position : match.start()])
        yield Run(match[0], "special")
        position = match.end()
    if position < len(text):
        yield Run(text[position:])


class Segment(msgspec.Struct, frozen=True):
    """One turn in the text of a prompt: its head (such as `<|im_start|>user`) and its content."""

    role: str
    head: int
    """Offset of the head."""
    start: int
    """Offset of the content."""
    end: int


def template_for(family: Family, *, several: bool) -> tuple[RawTemplate, bool] | None:
    """Return the raw template for this number of items, and whether it matches that number exactly.

    None where the model's own template always writes the prompt: then its turns are unknown here.
    """
    raw = family.raw_several if several and family.raw_several else family.raw
    if raw.by == "text":
        return raw, True
    return (family.raw, False) if family.raw.by == "text" else None


def segments(text: str, raw: RawTemplate) -> list[Segment]:
    """Return the turns in order; the whole text is one user turn where the template has no head for it. A user's
    content begins after the white space that follows the head."""
    heads = {role: head for role, layout in _layouts(raw) if (head := head_of(layout))}
    if "user" not in heads:
        return [Segment("user", 0, len(raw.bos) if text.startswith(raw.bos) else 0, len(text))]
    found: list[tuple[int, int, str]] = []
    for role, head in heads.items():
        found += [(match.start(), match.end(), role) for match in re.finditer(_head_pattern(head), text)]
    if raw.generation_prompt.strip() and head_of(raw.assistant) not in raw.generation_prompt:
        pattern = _head_pattern(raw.generation_prompt.strip())
        found += [(match.start(), match.end(), "assistant") for match in re.finditer(pattern, text)]
    found.sort()
    ends = [head for head, _, _ in found[1:]] + [len(text)]
    space = raw.user.partition("{content}")[0]
    space = space[len(space.rstrip()) :]
    return [
        Segment(role, head, start + len(space) if text.startswith(space, start) else start, end)
        for (head, start, role), end in zip(found, ends, strict=False)
    ]


def turn_starts(text: str, family: Family) -> list[tuple[int, str]]:
    """Return where each turn begins, with its role: at the heads of the family's templates, and at the most common
    ones. The first turn begins with the text; without any head it has no role."""
    found = [(match.start(), match.end(), _role_of(match)) for match in _COMMON_HEAD.finditer(text)]
    for raw in filter(None, (family.raw, family.raw_several)):
        heads = [(role, head_of(layout)) for role, layout in _layouts(raw)] if raw.by == "text" else []
        for role, head in heads:
            found += [(one.start(), one.end(), role) for one in re.finditer(_head_pattern(head), text)] if head else []
    starts: list[tuple[int, str]] = []
    taken = 0
    for start, end, role in sorted(found, key=lambda one: (one[0], -one[1])):
        if start >= taken:
            starts.append((start, role))
            taken = end
    return [(0, starts[0][1]), *starts[1:]] if starts else [(0, "")] if text else []


def _role_of(match: re.Match[str]) -> str:
    role = (match[1] or match[2]).lower()
    return _ROLES.get(role, role)


def head_of(layout: str | None) -> str:
    """Return the text before a turn's content, without the white space around it."""
    return layout.partition("{content}")[0].strip() if layout else ""


def tail_of(layout: str) -> str:
    """Return the text after a turn's content."""
    return layout.partition("{content}")[2]


def own_tokens(family: Family) -> set[str]:
    """Return everything in the record's templates and placeholders that looks like a special token."""
    texts = [layout.placeholder for takes in family.takes.values() for layout in (takes, takes.several) if layout]
    for raw in (family.raw, family.raw_several):
        if raw is not None:
            texts += [raw.bos, raw.user, raw.assistant, raw.system or "", raw.generation_prompt]
    return {*family.stop_tokens, *(token for text in texts for token in _SPECIAL.findall(text))}


def _layouts(raw: RawTemplate) -> list[tuple[str, str | None]]:
    return [("system", raw.system), ("user", raw.user), ("assistant", raw.assistant)]


def _head_pattern(head: str) -> str:
    """Return a pattern for the head; a plain word (`User:`) must begin at a word boundary."""
    return (r"(?<!\w)" if head[0].isalnum() else "") + re.escape(head)


class PromptPart(msgspec.Struct, frozen=True):
    """A stretch of a rendered prompt: text, or the tokens of one image or video."""

    text: str
    """The text in a raw prompt; empty if the engine adds it to a raw prompt by itself."""
    runs: tuple[Run, ...]
    """The text that is shown. Hostile."""
    picture: str | None = None
    """The content of the image or video that `text` is the placeholder of; None for other stretches."""


class PromptTurn(msgspec.Struct, frozen=True):
    """One turn of a prompt. Joined, the texts of all turns are the raw prompt."""

    role: str
    """Empty in a text without any mark of a turn."""
    start: int
    """Offset of its text in the raw prompt."""
    text: str
    """The text in a raw prompt."""
    pictures: tuple[str, ...] = ()
    """The contents of its images and videos, in order; empty ones are unknown."""
    runs: tuple[Run, ...] = ()
    """The turn as shown. Hostile."""

    def equals(self, other: PromptTurn) -> bool:
        """Return True if both have the same text and the same pictures."""
        return self._key == other._key

    @property
    def _key(self) -> tuple[str, tuple[str, ...]]:
        return self.text, self.pictures


class TurnPair(msgspec.Struct, frozen=True):
    """A turn of the left prompt and the one that corresponds to it; None: there is none."""

    left: PromptTurn | None
    right: PromptTurn | None

    @property
    def is_equal(self) -> bool:
        """True if both sides have this turn, with the same text and the same pictures."""
        return self.left is not None and self.right is not None and self.left.equals(self.right)


def aligned(left: Sequence[PromptTurn], right: Sequence[PromptTurn]) -> list[TurnPair]:
    """Return the turns of both prompts in pairs, each side in its order: equal turns, and turns of the same role
    between them."""
    pairs: list[TurnPair] = []
    for block in diff_blocks([(one.text, one.pictures) for one in left], [(one.text, one.pictures) for one in right]):
        ours, theirs = left[block.left_start : block.left_end], right[block.right_start : block.right_end]
        for inner in diff_blocks([one.role for one in ours], [one.role for one in theirs]):
            some, others = ours[inner.left_start : inner.left_end], theirs[inner.right_start : inner.right_end]
            if inner.operation == "equal":
                pairs += [TurnPair(one, other) for one, other in zip(some, others, strict=True)]
            else:
                pairs += [TurnPair(one, None) for one in some]
                pairs += [TurnPair(None, other) for other in others]
    return pairs


def raw_turns(text: str, family: Family, placed: Sequence[PlaceholderSlot]) -> list[PromptTurn]:
    """Return the turns of a raw prompt with these placeholders."""
    return [
        PromptTurn(
            role,
            start,
            text[start:end],
            tuple(one.attachment.sha256 if one.attachment else "" for one in placed if start <= one.start < end),
        )
        for role, start, end in _stretches(text, family, [(one.start, one.end) for one in placed])
    ]


def rendered_turns(parts: Sequence[PromptPart], family: Family) -> list[PromptTurn]:
    """Return the turns of a rendered prompt. Joined, their runs are those of the parts."""
    text = "".join(part.text for part in parts)
    starts = [0]
    for part in parts:
        starts.append(starts[-1] + len(part.text))
    media = [
        (start, start + len(part.text)) for start, part in zip(starts, parts, strict=False) if part.picture is not None
    ]
    found = _stretches(text, family, media) or ([("", 0, 0)] if parts else [])
    runs: list[list[Run]] = [[] for _ in found]
    pictures: list[list[str]] = [[] for _ in found]
    heads = [start for _, start, _ in found]
    for start, part in zip(starts, parts, strict=False):
        at = max(bisect_right(heads, start) - 1, 0)
        if not part.text or part.picture is not None:
            runs[at] += part.runs
            pictures[at] += [part.picture] if part.text and part.picture is not None else []
            continue
        for run in part.runs:
            runs_end = start + len(run.text)
            while start < runs_end:
                at = bisect_right(heads, start) - 1
                end = min(runs_end, found[at][2])
                taken = run.text[: end - start]
                runs[at].append(msgspec.structs.replace(run, text=taken))
                run = msgspec.structs.replace(run, text=run.text[len(taken) :])
                start = end
    return [
        PromptTurn(role, start, text[start:end], tuple(own), tuple(shown))
        for (role, start, end), own, shown in zip(found, pictures, runs, strict=True)
    ]


def prompt_parts(
    ready: PromptReady,
    attachments: Sequence[Attachment],
    conversation: Sequence[Attachment],
    family: Family | None,
    special: AbstractSet[str],
    *,
    added_bos: str = "",
) -> list[PromptPart]:
    """Return a rendered prompt in stretches. `added_bos` is the token that the engine puts before a raw prompt;
    `attachments` are in the order of the placeholders, `conversation` numbers them; `family` writes the placeholders,
    None: without them."""
    known = special_pattern(special | {token.text for token in ready.vocabulary.values() if token.special})
    several = max(Counter(span.modality for span in ready.media).values(), default=0) > 1
    parts: list[PromptPart] = []
    position = 0
    if added_bos and ready.prompt.startswith(added_bos):
        position = len(added_bos)
        parts.append(PromptPart("", (Run(added_bos, "special"),)))
    done: set[tuple[str, int]] = set()
    for fold in folds(ready):
        parts += _text_part(ready.prompt[position : fold.start], known)
        written = forms_of(family, fold.span.modality, several=several) if family else None
        key = (fold.span.modality, fold.span.index)
        core = written[1].core.replace("{i}", str(fold.span.index + 1)) if written and key not in done else ""
        done.add(key)
        item = attachment_of(fold.span, attachments)
        shown = Run(f"[{chip(item, conversation, fold.span.tokens)}]", "media")
        parts.append(PromptPart(core, (shown,), item.sha256 if item else ""))
        position = max(position, fold.end)
    return [*parts, *_text_part(ready.prompt[position:], known)]


def _text_part(text: str, known: re.Pattern[str] | None) -> Iterator[PromptPart]:
    if text:
        yield PromptPart(text, tuple(text_runs(text, known)))


def _stretches(text: str, family: Family, media: Sequence[tuple[int, int]]) -> list[tuple[str, int, int]]:
    """Return role, start and end of every turn; none begins inside a placeholder."""
    begins = [start for start, _ in media]

    def is_inside(at: int) -> bool:
        last = bisect_right(begins, at) - 1
        return last >= 0 and media[last][0] < at < media[last][1]

    starts = [(at, role) for at, role in turn_starts(text, family) if not is_inside(at)]
    ends = [*(at for at, _ in starts[1:]), len(text)] if starts else []
    return [(role, start, end) for (start, role), end in zip(starts, ends, strict=True)]
