"""Where two prompts differ, token by token; an image or video counts as one."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.generation import MediaSpan
from vlmtui.inspection.prompt_findings import findings_of
from vlmtui.inspection.prompt_spans import PromptSpan
from vlmtui.inspection.sequence_diff import diff_blocks
from vlmtui.inspection.tokens import Piece, attachment_of, pieces_of


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
    findings: tuple[str, ...] = ()
    """What the differences mean, in plain words, where they are known ones. Quotes are cut and fit to be shown."""


def prompt_diff(left: PromptTokens, right: PromptTokens, *, generation_prompt: str = "") -> PromptDiff:
    """Compare two prompts. `generation_prompt` is the family's, which helps to notice that it is missing.

    Raises ValueError where ids and texts of a side are not equally many.
    """
    one, other = left.pieces(), right.pieces()
    keys = (_keys(one, left.attachments), _keys(other, right.attachments))
    spans = tuple(
        PromptSpan(
            part.operation,
            tuple(one[part.left_start : part.left_end]),
            tuple(other[part.right_start : part.right_end]),
        )
        for part in diff_blocks(*keys)
    )
    identical = keys[0] == keys[1]
    names = (left.name or "the left", right.name or "the right")
    return PromptDiff(
        spans=spans,
        identical=identical,
        first_divergence=_first_divergence(spans),
        findings=findings_of(spans, names, generation_prompt),
    )


def _keys(pieces: Sequence[Piece], attachments: Sequence[Attachment]) -> list[Hashable]:
    """What makes two pieces equal: the token's id; an image's content, its tokens and their number."""
    return [piece.ids[0] if piece.media is None else _media_key(piece, piece.media, attachments) for piece in pieces]


def _media_key(piece: Piece, span: MediaSpan, attachments: Sequence[Attachment]) -> Hashable:
    item = attachment_of(span, attachments)
    content: str | int = item.sha256 if item is not None else span.index
    return (span.modality, content, span.tokens, span.length, piece.text)


def _first_divergence(spans: Sequence[PromptSpan]) -> int | None:
    position = 0
    for span in spans:
        if span.operation != "equal":
            return position
        position += sum(len(piece.ids) for piece in span.left)
    return None
