"""The turns of two prompts, those of the chat template and those of a raw prompt, side by side."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.generation import PromptReady
from vlmtui.inspection.folded_prompt import PlaceholderSlot, chip, folds, text_runs
from vlmtui.inspection.marked_runs import Run
from vlmtui.inspection.placeholder_forms import forms_of
from vlmtui.inspection.raw_turns import turn_starts
from vlmtui.inspection.sequence_diff import diff_blocks
from vlmtui.inspection.tokens import attachment_of
from vlmtui.registry.schema import Family


class PromptPart(msgspec.Struct, frozen=True):
    """A stretch of a rendered prompt: text, or the tokens of one image or video."""

    text: str
    """As a raw prompt writes it; empty where the engine adds it to a raw prompt by itself."""
    runs: tuple[Run, ...]
    """As shown. Hostile."""
    picture: str | None = None
    """The content of the image or video that `text` is the placeholder of; None for other stretches."""


class PromptTurn(msgspec.Struct, frozen=True):
    """One turn of a prompt. Joined, the texts of all turns are the raw prompt."""

    role: str
    """Empty in a text without any mark of a turn."""
    start: int
    """Offset of its text in the raw prompt."""
    text: str
    """As a raw prompt writes it."""
    pictures: tuple[str, ...] = ()
    """The contents of its images and videos, in order; empty ones are unknown."""
    runs: tuple[Run, ...] = ()
    """The turn as shown. Hostile."""

    def equals(self, other: PromptTurn) -> bool:
        """Whether both have the same text and the same pictures."""
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
        """Whether both sides have this turn, with the same text and the same pictures."""
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
    family: Family,
    special: AbstractSet[str],
    *,
    added_bos: str = "",
) -> list[PromptPart]:
    """Return a rendered prompt in stretches. `added_bos` is the token that the engine puts before a raw prompt;
    `attachments` are in the order of the placeholders, `conversation` numbers them."""
    known = special | {token.text for token in ready.vocabulary.values() if token.special}
    several = max(Counter(span.modality for span in ready.media).values(), default=0) > 1
    parts: list[PromptPart] = []
    position = 0
    if added_bos and ready.prompt.startswith(added_bos):
        position = len(added_bos)
        parts.append(PromptPart("", (Run(added_bos, "special"),)))
    done: set[tuple[str, int]] = set()
    for fold in folds(ready):
        parts += _text_part(ready.prompt[position : fold.start], known)
        written = forms_of(family, fold.span.modality, several=several)
        key = (fold.span.modality, fold.span.index)
        core = written[1].core.replace("{i}", str(fold.span.index + 1)) if written and key not in done else ""
        done.add(key)
        item = attachment_of(fold.span, attachments)
        shown = Run(f"[{chip(item, conversation, fold.span.tokens)}]", "media")
        parts.append(PromptPart(core, (shown,), item.sha256 if item else ""))
        position = max(position, fold.end)
    return [*parts, *_text_part(ready.prompt[position:], known)]


def _text_part(text: str, known: AbstractSet[str]) -> Iterator[PromptPart]:
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
