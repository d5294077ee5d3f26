"""Compare two prompts token by token, and describe each difference in a sentence (finding)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from vlmtui.domain.conversation import Attachment
from vlmtui.domain.generation import MediaSpan
from vlmtui.inspection.sequence_diff import Operation, common_start, diff_blocks
from vlmtui.inspection.tokens import Piece, attachment_of, pieces_of
from vlmtui.text import counted, quoted

MOST = 12
"""The most findings; further differences are only counted."""
_CONTEXT = 12
"""The characters that a finding quotes from before a difference, rounded up to whole tokens."""


class PromptSpan(msgspec.Struct, frozen=True):
    """Pieces that both sides share, or differing pieces at the same place."""

    operation: Operation
    left: tuple[Piece, ...]
    right: tuple[Piece, ...]


class PromptTokens(msgspec.Struct, frozen=True):
    """A prompt's tokens, with the facts that a comparison and its display need."""

    ids: tuple[int, ...]
    texts: tuple[str, ...]
    """The text of each token."""
    special_ids: AbstractSet[int] = frozenset()
    media: tuple[MediaSpan, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    """The attachments in the order of their placeholders. Images are equal if their hashes are."""
    name: str = ""
    """The prompt's name in findings, such as `the chat template`; empty: `the left`, `the right`."""
    raw_bytes: Mapping[int, bytes] = msgspec.field(default_factory=dict)
    """The bytes of tokens that are not whole characters, by token id."""

    def pieces(self) -> list[Piece]:
        """Return the prompt in order as pieces: one for each token, one for all tokens of an image or video.

        Raises ValueError if the numbers of token ids and token texts differ.
        """
        return pieces_of(self.ids, self.texts, self.special_ids, self.media, self.attachments, self.raw_bytes)

    def key(self, piece: Piece) -> Hashable:
        """Return the key by which pieces are compared: a token's id; for an image its content and token count."""
        media = piece.media
        if media is None:
            return piece.ids[0]
        item = attachment_of(media, self.attachments)
        content = item.sha256 if item is not None else media.index
        return media.modality, content, media.tokens, media.length, piece.text

    def text(self, pieces: Sequence[Piece], *, with_hashes: bool = False) -> str:
        """Return the text of pieces, with a label for an image or video: `[<|image_pad|> × 64 from cat.jpg]`.
        `with_hashes`: the label has the beginning of the file's hash."""
        return "".join(self._label(one, with_hashes) if one.kind == "media" else one.text for one in pieces)

    def _label(self, piece: Piece, with_hash: bool) -> str:
        item = attachment_of(piece.media, self.attachments) if piece.media is not None and with_hash else None
        return f"[{piece.label}{f' ({item.sha256[:8]})' if item is not None else ''}]"


class PromptDiff(msgspec.Struct, frozen=True):
    spans: tuple[PromptSpan, ...]
    """The spans in order. Joined, they are both prompts."""
    identical: bool
    """True if token ids, images, videos and their places are equal."""
    first_divergence: int | None
    """The index of the first differing token, the same in both prompts; of a differing image, its first token."""
    findings: tuple[str, ...] = ()
    """The differences in sentences. Safe to show."""


def prompt_diff(left: PromptTokens, right: PromptTokens) -> PromptDiff:
    """Compare two prompts. Raises ValueError if a prompt's numbers of token ids and token texts differ."""
    one, other = left.pieces(), right.pieces()
    keys = [left.key(piece) for piece in one], [right.key(piece) for piece in other]
    spans = tuple(
        PromptSpan(
            part.operation,
            tuple(one[part.left_start : part.left_end]),
            tuple(other[part.right_start : part.right_end]),
        )
        for part in diff_blocks(*keys)
    )
    if keys[0] == keys[1]:
        return PromptDiff(spans=spans, identical=True, first_divergence=None, findings=("no difference",))
    first = common_start(*keys)
    return PromptDiff(
        spans=spans,
        identical=False,
        first_divergence=one[first].offset if first < len(one) else len(left.ids),
        findings=_findings(spans, (left, right)),
    )


def _findings(spans: Sequence[PromptSpan], sides: tuple[PromptTokens, PromptTokens]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    before: Sequence[Piece] = ()
    for number, span in enumerate(spans):
        if span.operation != "equal":
            found[_finding(span, before, sides, is_last=number == len(spans) - 1)] = None
        before = span.left if span.operation == "equal" else ()
    more = len(found) - MOST
    return tuple(found) if more <= 0 else (*list(found)[:MOST], counted(more, "more difference"))


def _finding(
    span: PromptSpan, before: Sequence[Piece], sides: tuple[PromptTokens, PromptTokens], *, is_last: bool
) -> str:
    """Return a sentence about differing pieces. `before`: the equal pieces before them."""
    names = [side.name or default for side, default in zip(sides, ("the left", "the right"), strict=True)]
    if not span.left or not span.right:
        which = 0 if span.left else 1
        pieces = span.left or span.right
        back = _steps_back(before, pieces)
        added = [*before, *pieces][len(before) - back : len(before) + len(pieces) - back]
        where = "at the end" if is_last and not back else _after(before[: len(before) - back])
        does = f"{names[1]} lacks" if span.left else f"{names[1]} adds"
        return f"{does} {quoted(sides[which].text(added))} {where}"
    texts = [side.text(pieces) for side, pieces in zip(sides, (span.left, span.right), strict=True)]
    after = _after(before)
    if texts[0] == texts[1]:
        texts = [
            side.text(pieces, with_hashes=True) for side, pieces in zip(sides, (span.left, span.right), strict=True)
        ]
    if texts[0] == texts[1]:
        counts = [sum(len(piece.ids) for piece in pieces) for pieces in (span.left, span.right)]
        tokens = f"{counted(counts[0], 'token')} in {names[0]}, {counts[1]:,} in {names[1]}"
        return f"{after}: {quoted(texts[0])} tokenized differently, {tokens}"
    return f"{after}: {quoted(texts[0])} in {names[0]}, {quoted(texts[1])} in {names[1]}"


def _steps_back(before: Sequence[Piece], pieces: Sequence[Piece]) -> int:
    """Return by how many pieces an addition can be moved back so that it begins with a special token. The diff can't
    tell which of two equal texts was added; people mean whole turns."""
    whole = [*before, *pieces]
    back = 0
    while back < len(before) and whole[len(before) - back].kind != "special":
        back += 1
        first, last = len(before) - back, len(whole) - back
        if whole[first].media is not None or whole[first].ids != whole[last].ids:
            return 0
    return back if whole[len(before) - back].kind == "special" else 0


def _after(before: Sequence[Piece]) -> str:
    """Return where a difference is: after the last characters of the equal pieces before it."""
    text = ""
    for piece in reversed(before):
        if len(text) >= _CONTEXT:
            break
        text = piece.text + text
    return f"after {quoted(text)}" if before else "at the start"
