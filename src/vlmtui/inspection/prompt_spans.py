"""One span of the difference of two prompts."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from vlmtui.inspection.sequence_diff import Operation
from vlmtui.inspection.tokens import Piece


class PromptSpan(msgspec.Struct, frozen=True):
    """A run of pieces that both sides share, or two runs at the same place that differ."""

    operation: Operation
    left: tuple[Piece, ...]
    right: tuple[Piece, ...]

    @property
    def left_text(self) -> str:
        return text_of(self.left)

    @property
    def right_text(self) -> str:
        return text_of(self.right)


def text_of(pieces: Sequence[Piece]) -> str:
    """Join the pieces' texts; an image's token once."""
    return "".join(piece.text for piece in pieces)
