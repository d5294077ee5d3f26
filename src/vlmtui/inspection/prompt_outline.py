"""A prompt's pieces, its text, and the turns marked by its tokens."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Hashable, Sequence
from functools import cached_property
from itertools import accumulate

import msgspec

from vlmtui.domain.attachment import Attachment
from vlmtui.inspection.prompt_changes import TokenRange
from vlmtui.inspection.tokens import Piece, attachment_of

PLACEHOLDER = re.compile(
    r"<(?![^<>]*(?:/|end|begin|_start))\|?[^<>\s]*(?:image|img|video|vision|media|patch)[^<>\s]*>|\[IMG\]",
    re.IGNORECASE,
)
"""A text that looks like some family's placeholder."""
_ROLES = {"system": "system", "developer": "system", "user": "user", "human": "user", "assistant": "assistant",
          "model": "assistant", "tool": "tool"}  # fmt: skip
_ROLE_TOKEN = re.compile(r"<[|｜](system|user|assistant)[|｜]>", re.IGNORECASE)
_LONGEST_ROLE = max(map(len, _ROLES))


class TurnMark(msgspec.Struct, frozen=True):
    """Where a turn begins, in pieces."""

    role: str
    number: int
    """Number among the turns of its role, from 1."""
    start: int
    content: int
    """The first piece after the role's name."""

    @property
    def title(self) -> str:
        """`user turn 2`."""
        return f"{self.role} turn {self.number}"


class Block(msgspec.Struct, frozen=True):
    """A differing range of pieces, on both sides."""

    left: tuple[int, int]
    right: tuple[int, int]

    @property
    def ranges(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return self.left, self.right


class Outline:
    """One prompt of a comparison, with text and turns to search. Indices count pieces."""

    def __init__(self, pieces: Sequence[Piece], attachments: Sequence[Attachment]) -> None:
        self.pieces = pieces
        self._attachments = attachments

    @cached_property
    def text(self) -> str:
        """The pieces' texts; an image's token once."""
        return "".join(piece.text for piece in self.pieces)

    @cached_property
    def starts(self) -> list[int]:
        """Offset of each piece in `text`, then the length of `text`."""
        return [0, *accumulate(len(piece.text) for piece in self.pieces)]

    @cached_property
    def marks(self) -> list[TurnMark]:
        """The special tokens that name a role, in order."""
        found: list[TurnMark] = []
        counts: dict[str, int] = {}
        for at, piece in enumerate(self.pieces):
            head = self._head(at) if piece.kind == "special" else None
            if head is not None:
                role, content = head
                counts[role] = counts.get(role, 0) + 1
                found.append(TurnMark(role, counts[role], at, content))
        return found

    @property
    def turns(self) -> list[TurnMark]:
        """The turns; empty where no user turn is marked, because the other turns cannot be told apart then."""
        return self.marks if any(turn.role == "user" for turn in self.marks) else []

    def turn_at(self, at: int) -> TurnMark | None:
        """Return the turn that contains the piece; None before the first."""
        number = bisect_right([turn.start for turn in self.turns], at) - 1
        return self.turns[number] if number >= 0 else None

    def end_of(self, turn: TurnMark) -> int:
        """Return the first piece of the next turn."""
        return next((one.start for one in self.turns if one.start > turn.start), len(self.pieces))

    def text_of(self, start: int, end: int) -> str:
        return self.text[self.starts[start] : self.starts[end]]

    def has_media(self, start: int, end: int) -> bool:
        return any(piece.kind == "media" for piece in self.pieces[start:end])

    def leading(self, key: Hashable) -> int:
        """Return how often this piece is repeated at the very start."""
        return next((at for at in range(len(self.pieces)) if self.key(at) != key), len(self.pieces))

    def text_of_turn(self, title: str) -> str:
        """Return the text of the turn with this title; empty without one."""
        turn = next((one for one in self.turns if one.title == title), None)
        return self.text_of(turn.start, self.end_of(turn)) if turn else ""

    def key(self, at: int) -> Hashable:
        """Return what makes two pieces equal: a token's id; an image's content and token count."""
        piece = self.pieces[at]
        if piece.media is None:
            return piece.ids[0]
        return (self.content_of(piece), piece.media.tokens, piece.media.length, piece.text)

    def content_of(self, piece: Piece) -> Hashable:
        """Return what identifies the picture or video: its hash, or its number where the hash is unknown."""
        assert piece.media is not None
        item = attachment_of(piece.media, self._attachments)
        return (piece.media.modality, item.sha256 if item is not None else piece.media.index)

    def name_of(self, piece: Piece) -> str:
        """Return the picture's name, with the start of its hash where another picture has the same name. Hostile."""
        assert piece.media is not None
        item = attachment_of(piece.media, self._attachments)
        if item is None:
            return f"{piece.media.modality} {piece.media.index + 1}"
        twins = {other.sha256 for other in self._attachments if other.name == item.name}
        return f"{item.name} ({item.sha256[:8]})" if len(twins) > 1 else item.name

    def place(self, at: int) -> int:
        """Return the index of the piece's first token; after the last piece, the number of tokens."""
        return self.pieces[at].offset if at < len(self.pieces) else sum(len(piece.ids) for piece in self.pieces)

    def _head(self, at: int) -> tuple[str, int] | None:
        """Return the role of the turn that begins with this special token, and where the role's name ends."""
        named = _ROLE_TOKEN.fullmatch(self.pieces[at].text)
        said, end = "", at + 1
        while end < len(self.pieces) and self.pieces[end].kind == "text" and len(said) <= _LONGEST_ROLE:
            text = self.pieces[end].text
            word, line_break, _ = text.partition("\n")
            said += word
            if line_break:
                break
            end += 1
        is_over = end >= len(self.pieces) or self.pieces[end].kind != "text" or "\n" in self.pieces[end].text
        if is_over and said in _ROLES:
            return _ROLES[said], end
        return (named[1].lower(), at + 1) if named else None


Sides = tuple[Outline, Outline]
"""The left prompt and the right one."""


def ranges_of(sides: Sides, block: Block) -> tuple[TokenRange, TokenRange]:
    """Return a block's ranges in tokens."""
    (left, right), (here, there) = sides, block.ranges
    return TokenRange(left.place(here[0]), left.place(here[1])), TokenRange(
        right.place(there[0]), right.place(there[1])
    )
