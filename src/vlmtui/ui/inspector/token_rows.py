"""The tokens of a prompt as table rows, with an image's tokens folded into one."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

import msgspec

from vlmtui.domain.generation import Vocabulary
from vlmtui.inspection.tokens import Kind, Piece


class TokenRow(msgspec.Struct, frozen=True):
    """A row. Texts are hostile."""

    first: int
    """Index of the token in the prompt."""
    last: int
    """Index of the last token; equal to `first` except for a folded image."""
    id: int
    kind: Kind
    text: str
    label: str = ""
    is_head: bool = False
    """Whether it stands for a whole image, and can be unfolded or folded."""
    is_open: bool = False
    is_inner: bool = False
    """Whether it is a token of an unfolded image."""


class TokenRows(Sequence[TokenRow]):
    """Creates rows on demand: a prompt may have a hundred thousand tokens."""

    def __init__(self, pieces: Sequence[Piece] = (), vocabulary: Vocabulary | None = None) -> None:
        self._pieces = pieces
        self._vocabulary = vocabulary or {}
        self._open: list[int] = []
        """Indices of the unfolded pieces, sorted."""

    def __len__(self) -> int:
        return len(self._pieces) + sum(len(self._pieces[number].ids) for number in self._open)

    def __getitem__(self, row: int) -> TokenRow:  # type: ignore[override]
        if not 0 <= row < len(self):
            raise IndexError(row)
        number, inner = self._place(row)
        piece = self._pieces[number]
        if inner is not None:
            token = piece.ids[inner]
            known = self._vocabulary.get(token)
            at = piece.offset + inner
            return TokenRow(at, at, token, "media", known.text if known else piece.text, is_inner=True)
        is_head = piece.kind == "media"
        return TokenRow(
            piece.offset, piece.end - 1, piece.ids[0], piece.kind, piece.text, piece.label, is_head,
            is_open=number in self._open,
        )  # fmt: skip

    def toggle(self, row: int) -> int:
        """Unfold or fold the row's image; return the row of its head. Other rows stay unchanged."""
        number, inner = self._place(row)
        if self._pieces[number].kind != "media":
            return row
        if number in self._open:
            self._open.remove(number)
        else:
            insort(self._open, number)
        return row if inner is None else row - inner - 1

    def _place(self, row: int) -> tuple[int, int | None]:
        """Return the piece's index and, in an unfolded image, the token's index."""
        extra = 0
        for number in self._open:
            head, count = number + extra, len(self._pieces[number].ids)
            if row <= head:
                break
            if row <= head + count:
                return number, row - head - 1
            extra += count
        return row - extra, None
