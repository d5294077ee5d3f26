"""A prompt's pieces, its text, and the turns that its tokens mark."""

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
"""A text that looks like the placeholder of some family."""
_ROLES = {"system": "system", "developer": "system", "user": "user", "human": "user", "assistant": "assistant",
          "model": "assistant", "tool": "tool"}  # fmt: skip
_ROLE_TOKEN = re.compile(r"<[|｜](system|user|assistant)[|｜]>", re.IGNORECASE)
_LONGEST_ROLE = max(map(len, _ROLES))


class TurnMark(msgspec.Struct, frozen=True):
    """Where a turn begins, in pieces."""

    role: str
    number: int
    """Among the turns of its role, from 1."""
    start: int
    content: int
    """Behind the role's name."""

    @property
    def title(self) -> str:
        """`user turn 2`."""
        return f"{self.role} turn {self.number}"


class Block(msgspec.Struct, frozen=True):
    """A stretch that differs, in pieces of both sides."""

    left: tuple[int, int]
    right: tuple[int, int]

    @property
    def ranges(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return self.left, self.right


class Outline:
    """One side of a comparison, as it is searched for what the differences mean. Indices count pieces."""

    def __init__(self, pieces: Sequence[Piece], attachments: Sequence[Attachment]) -> None:
        self.pieces = pieces
        self._attachments = attachments

    @cached_property
    def text(self) -> str:
        """The pieces' texts, an image's token once."""
        return "".join(piece.text for piece in self.pieces)

    @cached_property
    def starts(self) -> list[int]:
        """Where each piece begins in `text`; its length at the end."""
        return [0, *accumulate(len(piece.text) for piece in self.pieces)]

    @cached_property
    def marks(self) -> list[TurnMark]:
        """Where special tokens name a role, in order."""
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
        """The marks; none where no user's turn is marked: then nobody knows where turns begin."""
        return self.marks if any(turn.role == "user" for turn in self.marks) else []

    def turn_at(self, at: int) -> TurnMark | None:
        """The turn that the piece belongs to; None before the first."""
        number = bisect_right([turn.start for turn in self.turns], at) - 1
        return self.turns[number] if number >= 0 else None

    def end_of(self, turn: TurnMark) -> int:
        """Where the next turn begins."""
        return next((one.start for one in self.turns if one.start > turn.start), len(self.pieces))

    def text_of(self, start: int, end: int) -> str:
        """The text of these pieces."""
        return self.text[self.starts[start] : self.starts[end]]

    def has_media(self, start: int, end: int) -> bool:
        return any(piece.kind == "media" for piece in self.pieces[start:end])

    def leading(self, key: Hashable) -> int:
        """How often this piece stands at the very start."""
        return next((at for at in range(len(self.pieces)) if self.key(at) != key), len(self.pieces))

    def text_of_turn(self, title: str) -> str:
        """The text of the turn of this title; empty where there is none."""
        turn = next((one for one in self.turns if one.title == title), None)
        return self.text_of(turn.start, self.end_of(turn)) if turn else ""

    def key(self, at: int) -> Hashable:
        """What makes two pieces equal: the token's id; an image's content, its tokens and their number."""
        piece = self.pieces[at]
        if piece.media is None:
            return piece.ids[0]
        return (self.content_of(piece), piece.media.tokens, piece.media.length, piece.text)

    def content_of(self, piece: Piece) -> Hashable:
        """Which picture or video it is: its hash, or its number where that is not known."""
        assert piece.media is not None
        item = attachment_of(piece.media, self._attachments)
        return (piece.media.modality, item.sha256 if item is not None else piece.media.index)

    def name_of(self, piece: Piece) -> str:
        """The picture's name; with the beginning of its hash where another one has the same. Hostile."""
        assert piece.media is not None
        item = attachment_of(piece.media, self._attachments)
        if item is None:
            return f"{piece.media.modality} {piece.media.index + 1}"
        twins = {other.sha256 for other in self._attachments if other.name == item.name}
        return f"{item.name} ({item.sha256[:8]})" if len(twins) > 1 else item.name

    def place(self, at: int) -> int:
        """The piece's first token; behind the last piece, the number of tokens."""
        return self.pieces[at].offset if at < len(self.pieces) else sum(len(piece.ids) for piece in self.pieces)

    def _head(self, at: int) -> tuple[str, int] | None:
        """The role of the turn that begins with this special token, and where its name is over."""
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
    """A block in tokens."""
    (left, right), (here, there) = sides, block.ranges
    return TokenRange(left.place(here[0]), left.place(here[1])), TokenRange(
        right.place(there[0]), right.place(there[1])
    )
