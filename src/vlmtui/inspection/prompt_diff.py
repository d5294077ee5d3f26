"""Where two prompts differ, token by token; an image or video counts as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.generation import MediaSpan
from vlmtui.inspection.change_finder import changes_of
from vlmtui.inspection.prompt_changes import Change
from vlmtui.inspection.prompt_findings import sentences
from vlmtui.inspection.prompt_outline import Outline
from vlmtui.inspection.prompt_spans import PromptSpan
from vlmtui.inspection.sequence_diff import diff_blocks
from vlmtui.inspection.tokens import Piece, pieces_of


class PromptTokens(msgspec.Struct, frozen=True):
    """A prompt as the model is given it, with what is needed to read it."""

    ids: tuple[int, ...]
    texts: tuple[str, ...]
    """The tokens decoded one by one."""
    special_ids: AbstractSet[int] = frozenset()
    media: tuple[MediaSpan, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    """In the order of their placeholders; they tell whether two images are the same picture."""
    name: str = ""
    """How findings call it: `the chat template`; empty: `the left`, `the right`."""
    raw_bytes: Mapping[int, bytes] = msgspec.field(default_factory=dict)
    """Of the tokens that are not whole characters, by their id."""

    def pieces(self) -> list[Piece]:
        """Raises ValueError where ids and texts are not equally many."""
        return pieces_of(self.ids, self.texts, self.special_ids, self.media, self.attachments, self.raw_bytes)


class PromptDiff(msgspec.Struct, frozen=True):
    """The difference of two prompts."""

    spans: tuple[PromptSpan, ...]
    """In order; together they are both prompts."""
    identical: bool
    """The same token ids, and the same images and videos at the same places."""
    first_divergence: int | None
    """Index into the token ids of both sides, which are equal before it; an image counts from its first token."""
    changes: tuple[Change, ...] = ()
    """What the differences mean."""
    findings: tuple[str, ...] = ()
    """The same in plain words. Quotes are cut and fit to be shown."""


def prompt_diff(left: PromptTokens, right: PromptTokens, *, generation_prompt: str = "") -> PromptDiff:
    """Compare two prompts. `generation_prompt` is the family's, which helps to notice that it is missing.

    Raises ValueError where ids and texts of a side are not equally many.
    """
    one, other = (Outline(side.pieces(), side.attachments) for side in (left, right))
    keys = [[side.key(at) for at in range(len(side.pieces))] for side in (one, other)]
    parts = diff_blocks(*keys)
    spans = tuple(
        PromptSpan(
            part.operation,
            tuple(one.pieces[part.left_start : part.left_end]),
            tuple(other.pieces[part.right_start : part.right_end]),
        )
        for part in parts
    )
    identical = keys[0] == keys[1]
    changes = () if identical else tuple(changes_of(one, other, parts, generation_prompt))
    names = (left.name or "the left", right.name or "the right")
    return PromptDiff(
        spans=spans,
        identical=identical,
        first_divergence=_first_divergence(spans),
        changes=changes,
        findings=("no difference",) if identical else sentences(changes, names),
    )


def _first_divergence(spans: Sequence[PromptSpan]) -> int | None:
    position = 0
    for span in spans:
        if span.operation != "equal":
            return position
        position += sum(len(piece.ids) for piece in span.left)
    return None
