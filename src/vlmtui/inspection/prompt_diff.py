"""Compare two prompts token by token; an image or video counts as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.generation import MediaSpan
from vlmtui.inspection.change_finder import Outline, changes_of
from vlmtui.inspection.prompt_changes import Change, sentences
from vlmtui.inspection.sequence_diff import Operation, diff_blocks
from vlmtui.inspection.tokens import Piece, pieces_of


class PromptSpan(msgspec.Struct, frozen=True):
    """A run of pieces that both sides share, or two runs at the same place that differ."""

    operation: Operation
    left: tuple[Piece, ...]
    right: tuple[Piece, ...]


class PromptTokens(msgspec.Struct, frozen=True):
    """A prompt as the model is given it, with what is needed to display it."""

    ids: tuple[int, ...]
    texts: tuple[str, ...]
    """The tokens, decoded one by one."""
    special_ids: AbstractSet[int] = frozenset()
    media: tuple[MediaSpan, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    """In the order of their placeholders; used to tell whether two images are the same picture."""
    name: str = ""
    """What findings call it: `the chat template`; empty: `the left`, `the right`."""
    raw_bytes: Mapping[int, bytes] = msgspec.field(default_factory=dict)
    """The bytes of tokens that are not whole characters, by token id."""

    def pieces(self) -> list[Piece]:
        """Raise ValueError where the numbers of ids and texts differ."""
        return pieces_of(self.ids, self.texts, self.special_ids, self.media, self.attachments, self.raw_bytes)


class PromptDiff(msgspec.Struct, frozen=True):
    """The difference of two prompts."""

    spans: tuple[PromptSpan, ...]
    """In order; joined they are both prompts."""
    identical: bool
    """Whether token ids, images, videos and their places are equal."""
    first_divergence: int | None
    """Index of the first differing token, the same in both; an image counts from its first token."""
    first_turn: str = ""
    """The turn of the left prompt that has it (`user turn 2`); empty where that is not known."""
    changes: tuple[Change, ...] = ()
    """What the differences mean."""
    findings: tuple[str, ...] = ()
    """`changes` in words. Quotes are shortened and safe to show."""


def prompt_diff(left: PromptTokens, right: PromptTokens, *, generation_prompt: str = "") -> PromptDiff:
    """Compare two prompts. `generation_prompt` is the family's, to detect that it is missing.

    Raises ValueError where the numbers of ids and texts of a side differ.
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
        first_turn=_first_turn(one, spans),
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


def _first_turn(left: Outline, spans: Sequence[PromptSpan]) -> str:
    at = len(spans[0].left) if spans and spans[0].operation == "equal" else 0
    turn = left.turn_at(at) if at < len(left.pieces) else None
    return turn.title if turn else ""
