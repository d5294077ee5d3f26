"""Prepare a prompt for display: fold an image's many tokens into one label, and split the prompt into turns."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import accumulate, pairwise
from typing import Literal

import msgspec

from vlmtui.domain.conversation import Attachment
from vlmtui.domain.generation import MediaSpan, PromptReady
from vlmtui.inspection.placeholders import forms_of, occurrences, pattern_of
from vlmtui.inspection.sequence_diff import diff_blocks
from vlmtui.inspection.tokens import attachment_of, valid_spans
from vlmtui.registry.schema import Family, RawTemplate
from vlmtui.registry.unlisted import UNLISTED

_TITLES = {"image": "Image", "video": "Video", "audio": "Audio"}
Style = Literal["text", "special", "media"]
_SPECIAL = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]")
LOOKS_SPECIAL = re.compile(r"<\|[^\s<>|]{1,80}\|>|<｜[^\s<>｜]{1,80}｜>|</?s>|\[/?INST\]|<(?:start|end)_of_[a-z]+>")
"""Matches special tokens in prompts whose vocabulary is unknown."""
_UNIT = re.compile(rf"{LOOKS_SPECIAL.pattern}|\w+|\s|[^\w\s]")
"""What is compared in two turns: special tokens, words, and single other characters."""
_ROLES = {"developer": "system", "human": "user", "model": "assistant"}
_COMMON_HEAD = re.compile(
    r"<[^<>\s]{1,40}>(system|developer|user|human|assistant|model|tool)(?=[\s<])|<[|｜](system|user|assistant)[|｜]>",
    re.IGNORECASE,
)
"""Matches the head of a turn in most families: `<|im_start|>user`, `<|user|>`."""


class Run(msgspec.Struct, frozen=True):
    """A piece of text in one style. Hostile text: make it visible (`vlmtui.text`) before showing it."""

    text: str
    style: Style = "text"
    differs: bool = False
    raw_length: int | None = None
    """Its number of characters in the raw prompt; None: as many as `text` has."""


class Fold(msgspec.Struct, frozen=True):
    """The range of characters in `PromptReady.prompt` for the tokens of an image or video."""

    start: int
    end: int
    span: MediaSpan


class PlaceholderSlot(msgspec.Struct, frozen=True):
    """A placeholder in a raw prompt, without the tokens around it, and its attachment, if there is one."""

    start: int
    end: int
    attachment: Attachment | None


def chip(attachment: Attachment | None, conversation: Sequence[Attachment], tokens: int | None = None) -> str:
    """Return the label of an attachment, `Image #1 cat.jpg · 64 tokens`. The number is its place among `conversation`.
    Hostile text."""
    if attachment is None:
        return "no attachment"
    number = conversation.index(attachment) + 1 if attachment in conversation else 0
    label = f"{_TITLES[attachment.modality]} #{number}" if number else _TITLES[attachment.modality]
    return f"{label} {attachment.name}" + ("" if tokens is None else f" · {tokens:,} tokens")


def folds(ready: PromptReady) -> list[Fold]:
    """Return the folds in order, without media whose tokens are not found in the text."""
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
    """Return the prompt as runs: text, special tokens, and a `chip` for each attachment. Hostile text."""
    return [run for part in prompt_parts(ready, attachments, conversation, None, special) for run in part.runs]


def raw_text_of(ready: PromptReady, family: Family, *, added_bos: str = "") -> str:
    """Return the raw prompt that would render to this prompt: the tokens of each image or video become a placeholder.

    `added_bos`: the token that the engine adds to a raw prompt, which is left out.
    """
    parts = prompt_parts(ready, (), (), family, frozenset(), added_bos=added_bos)
    return "".join(part.text for part in parts)


def placeholders(text: str, family: Family, attachments: Sequence[Attachment]) -> list[PlaceholderSlot]:
    """Return the placeholders of a raw prompt in order, each with the attachment that the engine puts there."""
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
    """Return a pattern that matches any of the tokens, the longest first; None without tokens."""
    longest = sorted({token for token in tokens if token.strip()}, key=lambda one: (-len(one), one))
    return re.compile("|".join(map(re.escape, longest))) if longest else None


def _place(prompt: str, position: int, texts: Sequence[str]) -> tuple[int, int] | None:
    """Return where an attachment's tokens are in the prompt's text, after `position`: as their joined texts or, if
    these are not found, as repetitions of the most common token."""
    joined = "".join(texts)
    start = prompt.find(joined, position) if joined.strip() else -1
    if start >= 0:
        return start, start + len(joined)
    mark = re.escape(Counter(texts).most_common(1)[0][0].strip())
    match = re.compile(rf"{mark}(?:\s*{mark})*").search(prompt, position) if mark else None
    return match.span() if match else None


def text_runs(text: str, special: re.Pattern[str] | None) -> Iterator[Run]:
    """Yield the text as runs: special tokens, and the text between them."""
    position = 0
    for match in special.finditer(text) if special else ():
        if match.start() > position:
            yield Run(text[position : match.start()])
        yield Run(match[0], "special")
        position = match.end()
    if position < len(text):
        yield Run(text[position:])


class Segment(msgspec.Struct, frozen=True):
    """A turn in a prompt's text: its head (such as `<|im_start|>user`) and its content, as offsets."""

    role: str
    head: int
    """The beginning of the head."""
    start: int
    """The beginning of the content."""
    end: int


def template_for(family: Family, *, several: bool) -> tuple[RawTemplate, bool] | None:
    """Return the family's raw template, and whether it is meant for this number of items.

    False if `several` is True and only the template for one item is text. Returns None if the model's own chat template
    writes all prompts, so that the turns are unknown.
    """
    raw = family.raw_several if several and family.raw_several else family.raw
    if raw.by == "text":
        return raw, True
    return (family.raw, False) if family.raw.by == "text" else None


def segments(text: str, raw: RawTemplate) -> list[Segment]:
    """Return the turns in order; a single user turn if the template has no text that opens a user's turn (its head,
    such as `<|im_start|>user`).

    A user turn's content begins after its head and the template's white space.
    """
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
    """Return (offset, role) of each turn. A turn begins at a head of the family's templates, or at a head that many
    models use.

    The first turn begins at 0. Its role is "" if the text has no head.
    """
    roles = [(match, (match[1] or match[2]).lower()) for match in _COMMON_HEAD.finditer(text)]
    found = [(match.start(), match.end(), _ROLES.get(role, role)) for match, role in roles]
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


def head_of(layout: str | None) -> str:
    """Return the text before a turn's content, without the white space around it."""
    return layout.partition("{content}")[0].strip() if layout else ""


def tail_of(layout: str) -> str:
    return layout.partition("{content}")[2]


def own_tokens(family: Family) -> set[str]:
    """Return the texts in the family's templates and placeholders that look like special tokens."""
    texts = [layout.placeholder for takes in family.takes.values() for layout in (takes, takes.several) if layout]
    for raw in (family.raw, family.raw_several):
        if raw is not None:
            texts += [raw.bos, raw.user, raw.assistant, raw.system or "", raw.generation_prompt]
    return {*family.stop_tokens, *(token for text in texts for token in _SPECIAL.findall(text))}


def _layouts(raw: RawTemplate) -> list[tuple[str, str | None]]:
    return [("system", raw.system), ("user", raw.user), ("assistant", raw.assistant)]


def _head_pattern(head: str) -> str:
    """Return a pattern for the head. A head that begins with a letter (`User:`) must stand at a word boundary."""
    return (r"(?<!\w)" if head[0].isalnum() else "") + re.escape(head)


class PromptPart(msgspec.Struct, frozen=True):
    """A part of a rendered prompt: text, or the tokens of an image or video."""

    text: str
    """The part in a raw prompt; empty if the engine adds it to a raw prompt by itself."""
    runs: tuple[Run, ...]
    """The part for display. Hostile."""
    media_hash: str | None = None
    """For an image or video, the hash of its content ("" if unknown), and `text` is its placeholder; else None."""


class PromptTurn(msgspec.Struct, frozen=True):
    """A turn of a prompt. Joined, the texts of all turns are the raw prompt."""

    role: str
    """Empty if the prompt has no heads of turns."""
    start: int
    """The offset of `text` in the raw prompt."""
    text: str
    """The turn in the raw prompt."""
    media_hashes: tuple[str, ...] = ()
    """The hashes of its images and videos, in order; "" if unknown."""
    runs: tuple[Run, ...] = ()
    """The turn for display. Hostile."""

    @property
    def key(self) -> tuple[str, tuple[str, ...]]:
        """The turn's text, and the hashes of its images and videos. Equal turns have equal keys."""
        return self.text, self.media_hashes


Ranges = tuple[tuple[int, int], ...]
"""Ranges of a turn's text, in order. An empty range is where the other prompt has more text."""


class TurnPair(msgspec.Struct, frozen=True):
    """Corresponding turns of two prompts; None if a prompt lacks the turn."""

    left: PromptTurn | None
    right: PromptTurn | None
    changes: tuple[Ranges, Ranges] = ((), ())
    """What only the left turn has, and what only the right one has."""

    @property
    def is_equal(self) -> bool:
        """True if both prompts have this turn, with the same text, images and videos."""
        return self.left is not None and self.right is not None and self.left.key == self.right.key


def aligned(left: Sequence[PromptTurn], right: Sequence[PromptTurn]) -> list[TurnPair]:
    """Pair the turns of two prompts in order: first equal turns, then turns of the same role between them."""
    pairs: list[TurnPair] = []
    for block in diff_blocks([one.key for one in left], [one.key for one in right]):
        ours, theirs = left[block.left_start : block.left_end], right[block.right_start : block.right_end]
        for inner in diff_blocks([one.role for one in ours], [one.role for one in theirs]):
            some, others = ours[inner.left_start : inner.left_end], theirs[inner.right_start : inner.right_end]
            if inner.operation == "equal":
                pairs += [TurnPair(*both, _changes(*both)) for both in zip(some, others, strict=True)]
            else:
                pairs += [TurnPair(one, None, (((0, len(one.text)),), ())) for one in some]
                pairs += [TurnPair(None, other, ((), ((0, len(other.text)),))) for other in others]
    return pairs


def _changes(left: PromptTurn, right: PromptTurn) -> tuple[Ranges, Ranges]:
    if left.text == right.text:  # then only images differ, or nothing
        whole = ((0, len(left.text)),) if left.key != right.key else ()
        return whole, whole
    units = [_UNIT.findall(turn.text) for turn in (left, right)]
    starts = [[0, *accumulate(map(len, one))] for one in units]
    blocks = [block for block in diff_blocks(*units) if block.operation != "equal"]
    ours = ((starts[0][block.left_start], starts[0][block.left_end]) for block in blocks)
    theirs = ((starts[1][block.right_start], starts[1][block.right_end]) for block in blocks)
    return tuple(ours), tuple(theirs)


def marked_runs(turn: PromptTurn, changed: Ranges) -> Iterator[Run]:
    """Yield the turn's runs, divided so that those in the ranges `changed` differ, and no others."""
    starts, edges = [start for start, _ in changed], sorted({edge for one in changed for edge in one})
    at = 0

    def differs(start: int) -> bool:
        last = bisect_right(starts, start) - 1
        return last >= 0 and start < changed[last][1]

    for run in turn.runs:
        if run.raw_length is not None:
            yield msgspec.structs.replace(run, differs=differs(at))
            at += run.raw_length
            continue
        end = at + len(run.text)
        for start, stop in pairwise((at, *edges[bisect_right(edges, at) : bisect_left(edges, end)], end)):
            yield msgspec.structs.replace(run, text=run.text[start - at : stop - at], differs=differs(start))
        at = end


def raw_turns(text: str, family: Family, placed: Sequence[PlaceholderSlot]) -> list[PromptTurn]:
    """Return the turns of a raw prompt. `placed`: its placeholders."""
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
    """Return the turns of a rendered prompt. They contain the same runs as `parts`, in the same order."""
    text = "".join(part.text for part in parts)
    starts = [0, *accumulate(len(part.text) for part in parts)]
    places = zip(parts, starts, starts[1:], strict=False)
    media = [(start, end) for part, start, end in places if part.media_hash is not None]
    found = _stretches(text, family, media) or ([("", 0, 0)] if parts else [])
    runs: list[list[Run]] = [[] for _ in found]
    hashes: list[list[str]] = [[] for _ in found]
    heads = [start for _, start, _ in found]
    for start, part in zip(starts, parts, strict=False):
        at = max(bisect_right(heads, start) - 1, 0)
        if not part.text or part.media_hash is not None:
            runs[at] += [msgspec.structs.replace(run, raw_length=len(part.text)) for run in part.runs]
            hashes[at] += [part.media_hash] if part.text and part.media_hash is not None else []
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
        for (role, start, end), own, shown in zip(found, hashes, runs, strict=True)
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
    """Return the parts of a rendered prompt.

    `attachments`: in the order of the placeholders. `conversation`: all attachments, in the order that numbers them in
    labels. `family`: whose placeholders the parts contain as text; None: leave placeholders out. A model without a
    record gets the token that the image repeats most, which is probably its placeholder. `added_bos`: the token that
    the engine adds to a raw prompt.
    """
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
        core = ""
        if key not in done and written:
            core = written[1].core.replace("{i}", str(fold.span.index + 1))
        elif key not in done and family is not None and family.family == UNLISTED:
            ids = ready.token_ids[fold.span.offset : fold.span.offset + fold.span.length]
            core = ready.vocabulary[Counter(ids).most_common(1)[0][0]].text
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
    """Return (role, start, end) of every turn. `media`: the ranges of placeholders; a head inside a placeholder does
    not begin a turn."""
    begins = [start for start, _ in media]

    def is_inside(at: int) -> bool:
        last = bisect_right(begins, at) - 1
        return last >= 0 and media[last][0] < at < media[last][1]

    starts = [(at, role) for at, role in turn_starts(text, family) if not is_inside(at)]
    ends = [*(at for at, _ in starts[1:]), len(text)] if starts else []
    return [(role, start, end) for (start, role), end in zip(starts, ends, strict=True)]
