"""The differences between two prompts, for people: by token, and in words."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from itertools import accumulate

import msgspec

from vlmtui.domain.conversation import Attachment
from vlmtui.domain.generation import MediaSpan
from vlmtui.inspection.sequence_diff import DiffBlock, Operation, common_start, diff_blocks
from vlmtui.inspection.tokens import Piece, attachment_of, pieces_of
from vlmtui.text import one_line, quoted

SideNumber = int
"""0: left prompt, 1: right prompt."""
PLACEHOLDER = re.compile(
    r"<(?![^<>]*(?:/|end|begin|_start))\|?[^<>\s]*(?:image|img|video|vision|media|patch)[^<>\s]*>|\[IMG\]",
    re.IGNORECASE,
)
"""A text that looks like some family's placeholder."""
_ROLES = {"system": "system", "developer": "system", "user": "user", "human": "user", "assistant": "assistant",
          "model": "assistant", "tool": "tool"}  # fmt: skip
_ROLE_TOKEN = re.compile(r"<[|｜](system|user|assistant)[|｜]>", re.IGNORECASE)
_LONGEST_ROLE = max(map(len, _ROLES))


class TokenRange(msgspec.Struct, frozen=True):
    """Tokens `start:end` of a prompt; equal where that side has nothing."""

    start: int
    end: int


class PromptChange(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A difference. `left` and `right` are its places in the two prompts. Texts are hostile."""

    left: TokenRange
    right: TokenRange


class ExtraStartToken(PromptChange, frozen=True, kw_only=True):
    """One side begins with a special token (usually BOS) more often than the other."""

    text: str
    counts: tuple[int, int]


class SystemPromptChange(PromptChange, frozen=True, kw_only=True):
    """The system turns differ."""

    texts: tuple[str | None, str | None]
    """None: that side has no system turn."""


class MissingGenerationPrompt(PromptChange, frozen=True, kw_only=True):
    """Only one side ends with the generation prompt."""

    lacks: SideNumber
    text: str


class WhiteSpaceChange(PromptChange, frozen=True, kw_only=True):
    """Different white space between equal texts."""

    texts: tuple[str, str]
    before: str
    """The text after it on both sides; empty at the end of both."""


class AddedText(PromptChange, frozen=True, kw_only=True):
    """Only one side has this text."""

    side: SideNumber
    text: str
    after: str
    """The text before it on both sides; empty at the start."""
    is_end: bool


class ReplacedText(PromptChange, frozen=True, kw_only=True):
    """Different texts at the same place."""

    texts: tuple[str, str]
    after: str
    """The text before it on both sides; empty at the start."""


class TokenizationChange(PromptChange, frozen=True, kw_only=True):
    """The same text, tokenized differently."""

    text: str
    after: str


class PlaceholderChange(PromptChange, frozen=True, kw_only=True):
    """Different placeholders at the same place."""

    texts: tuple[str, str]


class MediaChange(PromptChange, frozen=True, kw_only=True):
    """Different pictures or videos at the same place, or one side has text that only looks like a placeholder."""

    names: tuple[str, str]
    is_text: tuple[bool, bool] = (False, False)


class MediaSizeChange(PromptChange, frozen=True, kw_only=True):
    """The same picture or video takes a different number of tokens."""

    name: str
    tokens: tuple[int, int]


class MediaCountChange(PromptChange, frozen=True, kw_only=True):
    """One side has a picture or video more often."""

    name: str
    counts: tuple[int, int]


class MovedContent(PromptChange, frozen=True, kw_only=True):
    """Both sides have it equally often, at different places."""

    text: str
    is_media: bool
    turns: tuple[str, str] | None
    """`user turn 1`; None where the turns are unknown: then `left` and `right` say the tokens."""


class SwappedMedia(PromptChange, frozen=True, kw_only=True):
    """Two pictures or videos changed places."""

    names: tuple[str, str]


Change = (
    ExtraStartToken | SystemPromptChange | MissingGenerationPrompt | WhiteSpaceChange | AddedText | ReplacedText
    | TokenizationChange | PlaceholderChange | MediaChange | MediaSizeChange | MediaCountChange | MovedContent
    | SwappedMedia
)  # fmt: skip
Names = tuple[str, str]
MOST = 12
"""Sentences listed; further differences are only counted."""


def sentences(changes: Sequence[Change], names: Names) -> tuple[str, ...]:
    """Return one sentence for each difference, at most `MOST` and a count of the rest; safe to show."""
    said = list(dict.fromkeys(in_words(change, names) for change in changes))
    more = len(said) - MOST
    return tuple(said) if more <= 0 else (*said[:MOST], f"{more:,} more difference{'' if more == 1 else 's'}")


def in_words(change: Change, names: Names) -> str:
    """Return one sentence that claims no more than the change says of the tokens."""
    left, right = names
    match change:
        case ExtraStartToken(counts=counts):
            rich, poor = (left, right) if counts[0] > counts[1] else (right, left)
            most, fewest = max(counts), min(counts)
            if not fewest:
                return f"{poor} does not begin with {quoted(change.text)}, {rich} does"
            return f"{rich} begins with {quoted(change.text)} {_times(most)}, {poor} {_times(fewest)}"
        case SystemPromptChange(texts=(one, other)):
            if one is not None and other is not None:
                return f"the system prompts differ: {_system(one)} in {left}, {_system(other)} in {right}"
            return f"{left if other is None else right} adds a system prompt: {_system(one or other or '')}"
        case MissingGenerationPrompt():
            return f"{names[change.lacks]} does not end with the generation prompt {quoted(change.text)}"
        case WhiteSpaceChange(texts=(one, other)):
            where = f"before {quoted(change.before)}" if change.before else "at the end"
            return f"white space {where}: {_space(one)} in {left}, {_space(other)} in {right}"
        case AddedText():
            where = f"after {quoted(change.after)}" if change.after else "at the start"
            return f"{names[change.side]} adds {quoted(change.text)} {'at the end' if change.is_end else where}"
        case ReplacedText(texts=(one, other)):
            return f"{_after(change.after)}: {quoted(one)} in {left}, {quoted(other)} in {right}"
        case TokenizationChange():
            tokens = [part.end - part.start for part in (change.left, change.right)]
            counted = f"{tokens[0]:,} token{'' if tokens[0] == 1 else 's'} in {left}, {tokens[1]:,} in {right}"
            return f"{_after(change.after)}: {quoted(change.text)} tokenized differently, {counted}"
        case _:
            return _media_in_words(change, names)


def _media_in_words(
    change: PlaceholderChange | MediaChange | MediaSizeChange | MediaCountChange | MovedContent | SwappedMedia,
    names: Names,
) -> str:
    left, right = names
    match change:
        case PlaceholderChange(texts=(one, other)):
            return f"different placeholders: {one_line(one)} in {left}, {one_line(other)} in {right}"
        case MediaChange(names=(one, other), is_text=(is_text, is_other_text)):
            if is_text or is_other_text:
                rich, poor = (right, left) if is_text else (left, right)
                name, text = (other, one) if is_text else (one, other)
                return f"{rich} has {one_line(name)} where {poor} has {quoted(text)} that is not a picture"
            return f"{left} has {one_line(one)} where {right} has {one_line(other)}"
        case MediaSizeChange(tokens=(one, other)):
            return f"{one_line(change.name)} takes {one:,} tokens in {left}, {other:,} in {right}"
        case MediaCountChange(counts=counts):
            rich, poor = (left, right) if counts[0] > counts[1] else (right, left)
            if not min(counts):
                return f"{poor} lacks {one_line(change.name)}"
            return f"{one_line(change.name)} appears {_times(max(counts))} in {rich}, {_times(min(counts))} in {poor}"
        case MovedContent():
            what = one_line(change.text) if change.is_media else quoted(change.text)
            if change.turns is None:
                return f"{what} moved from token {change.left.start:,} to token {change.right.start:,}"
            one, other = change.turns
            return f"{what} moved " + (f"within {one}" if one == other else f"from {one} to {other}")
        case SwappedMedia(names=(one, other)):
            return f"{one_line(one)} and {one_line(other)} changed places"


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def _after(text: str) -> str:
    return f"after {quoted(text)}" if text else "at the start"


def _system(text: str) -> str:
    return quoted(text) if text else "an empty one"


def _space(text: str) -> str:
    return quoted(text) if text else "none"


class TurnMark(msgspec.Struct, frozen=True):
    """The beginning of a turn, in pieces."""

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
        """The turns; empty if no user turn is marked, because the other turns can't be distinguished then."""
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


class _Item(msgspec.Struct, frozen=True):
    """A picture or video within a differing block of one side."""

    block: int
    at: int
    content: Hashable


def media_changes(sides: Sides, blocks: Sequence[Block]) -> Iterator[tuple[Change, list[Block]]]:
    """Yield each change with the blocks that it explains: those that hold only media, special tokens and white
    space."""
    items = [_items(side, blocks, number) for number, side in enumerate(sides)]
    pairs, others = _paired(*items)
    found: list[tuple[Change, list[int]]] = []
    swapped = _swapped(pairs)
    for one, other in swapped:
        names = (sides[0].name_of(sides[0].pieces[one[0].at]), sides[0].name_of(sides[0].pieces[other[0].at]))
        left, right = _ranges_of(sides, one[0].at, one[1].at)
        found.append((SwappedMedia(left=left, right=right, names=names), [one[0].block, other[0].block]))
    done = {pair for both in swapped for pair in both}
    for pair in pairs:
        change = _same_content(sides, *pair) if pair not in done else None
        if change is not None:
            found.append((change, [pair[0].block, pair[1].block]))
    found += _others(sides, blocks, *others)
    for change, numbers in found:
        yield change, [blocks[at] for at in dict.fromkeys(numbers) if _is_bare(sides, blocks[at])]


def _items(side: Outline, blocks: Sequence[Block], number: int) -> list[_Item]:
    return [
        _Item(at, place, side.content_of(side.pieces[place]))
        for at, block in enumerate(blocks)
        for place in range(*block.ranges[number])
        if side.pieces[place].kind == "media"
    ]


def _paired(
    left: Sequence[_Item], right: Sequence[_Item]
) -> tuple[list[tuple[_Item, _Item]], tuple[list[_Item], list[_Item]]]:
    """Pair equal content on both sides, in order; also return what only one side has."""
    rest = list(right)
    pairs: list[tuple[_Item, _Item]] = []
    alone: list[_Item] = []
    for item in left:
        twins = [one for one in rest if one.content == item.content]
        twin = next((one for one in twins if one.block == item.block), twins[0] if twins else None)
        if twin is None:
            alone.append(item)
        else:
            rest.remove(twin)
            pairs.append((item, twin))
    return pairs, (alone, rest)


def _swapped(pairs: Sequence[tuple[_Item, _Item]]) -> list[tuple[tuple[_Item, _Item], tuple[_Item, _Item]]]:
    """Return every two pairs whose items, of different content, are exchanged between two blocks."""
    found: list[tuple[tuple[_Item, _Item], tuple[_Item, _Item]]] = []
    for number, one in enumerate(pairs):
        for other in pairs[number + 1 :]:
            crossed = one[0].block == other[1].block != one[1].block == other[0].block
            if crossed and one[0].content != other[0].content and not any(one in both for both in found):
                found.append((one, other))
    return found


def _same_content(sides: Sides, one: _Item, other: _Item) -> Change | None:
    pieces = (sides[0].pieces[one.at], sides[1].pieces[other.at])
    left, right = _ranges_of(sides, one.at, other.at)
    name = sides[0].name_of(pieces[0])
    if pieces[0].text != pieces[1].text:
        return PlaceholderChange(left=left, right=right, texts=(pieces[0].text, pieces[1].text))
    assert pieces[0].media is not None and pieces[1].media is not None
    tokens = (pieces[0].media.tokens, pieces[1].media.tokens)
    if tokens[0] != tokens[1]:
        return MediaSizeChange(left=left, right=right, name=name, tokens=tokens)
    if sides[0].text_of(0, one.at) == sides[1].text_of(0, other.at):
        return None
    marks = (sides[0].turn_at(one.at), sides[1].turn_at(other.at))
    if marks[0] is None or marks[1] is None:
        return MovedContent(left=left, right=right, text=name, is_media=True, turns=None)
    titles = (marks[0].title, marks[1].title)
    was = [_count(side, one.content, titles[0]) for side in sides]
    now = [_count(side, one.content, titles[1]) for side in sides]
    is_true = was[0] == was[1] if titles[0] == titles[1] else was[0] > was[1] and now[0] < now[1]
    return MovedContent(left=left, right=right, text=name, is_media=True, turns=titles) if is_true else None


def _others(
    sides: Sides, blocks: Sequence[Block], left: Sequence[_Item], right: Sequence[_Item]
) -> Iterator[tuple[Change, list[int]]]:
    """Yield the changes for media that one side lacks, or has less often."""
    told: set[Hashable] = set()
    for number in sorted({item.block for item in (*left, *right)}):
        here = [[item for item in items if item.block == number] for items in (left, right)]
        both = min(map(len, here))
        for one, other in zip(here[0][:both], here[1][:both], strict=True):
            spans = _ranges_of(sides, one.at, other.at)
            names = (sides[0].name_of(sides[0].pieces[one.at]), sides[1].name_of(sides[1].pieces[other.at]))
            yield MediaChange(left=spans[0], right=spans[1], names=names), [number]
        for side, items in enumerate(here):
            for item in items[both:]:
                change = _only_text(sides, blocks[number], side, item) if len(items) == 1 else None
                if change is None and item.content not in told:
                    told.add(item.content)
                    change = _counted(sides, blocks[number], side, item)
                if change is not None:
                    yield change, [number]


def _only_text(sides: Sides, block: Block, side: int, item: _Item) -> Change | None:
    """Return the change if the other side has text here that only looks like a placeholder."""
    other = sides[1 - side]
    part = block.ranges[1 - side]
    match = None if other.has_media(*part) else PLACEHOLDER.search(other.text_of(*part))
    if match is None:
        return None
    left, right = ranges_of(sides, block)
    name, text = sides[side].name_of(sides[side].pieces[item.at]), match[0]
    if side == 0:
        return MediaChange(left=left, right=right, names=(name, text), is_text=(False, True))
    return MediaChange(left=left, right=right, names=(text, name), is_text=(True, False))


def _counted(sides: Sides, block: Block, side: int, item: _Item) -> Change:
    counts = [
        sum(piece.kind == "media" and one.content_of(piece) == item.content for piece in one.pieces) for one in sides
    ]
    left, right = ranges_of(sides, block)
    name = sides[side].name_of(sides[side].pieces[item.at])
    return MediaCountChange(left=left, right=right, name=name, counts=(counts[0], counts[1]))


def _count(side: Outline, content: Hashable, title: str) -> int:
    turn = next((one for one in side.turns if one.title == title), None)
    if turn is None:
        return 0
    pieces = side.pieces[turn.start : side.end_of(turn)]
    return sum(piece.kind == "media" and side.content_of(piece) == content for piece in pieces)


def _is_bare(sides: Sides, block: Block) -> bool:
    """Return whether only pictures, the tokens around them, white space and placeholders differ here."""
    for side, part in zip(sides, block.ranges, strict=True):
        text = "".join(piece.text for piece in side.pieces[slice(*part)] if piece.kind == "text")
        if PLACEHOLDER.sub("", text).strip():
            return False
    return True


def _ranges_of(sides: Sides, one: int, other: int) -> tuple[TokenRange, TokenRange]:
    return ranges_of(sides, Block((one, one + 1), (other, other + 1)))


_LEAST = 3
"""Characters; shorter texts are too common to be reported as moved."""


def text_moves(sides: Sides, blocks: Sequence[Block]) -> Iterator[tuple[Change, list[Block]]]:
    """Yield each move with the two blocks that it explains: the old place and the new one."""
    left, right = sides
    texts = [(left.text_of(*block.left).strip(), right.text_of(*block.right).strip()) for block in blocks]
    free = set(range(len(blocks)))
    for gone, (text, instead) in enumerate(texts):
        if gone not in free or len(text) < _LEAST or left.has_media(*blocks[gone].left):
            continue
        for came in sorted(free - {gone}):
            if texts[came] != (instead, text) or right.has_media(*blocks[came].right):
                continue
            pair = [_moved(sides, text, blocks[gone].left, blocks[came].right)]
            if instead:
                pair.append(_moved(sides, instead, blocks[came].left, blocks[gone].right))
            if all(pair):
                free -= {gone, came}
                yield from ((change, [blocks[gone], blocks[came]]) for change in pair if change)
            break


def _moved(sides: Sides, text: str, gone: tuple[int, int], came: tuple[int, int]) -> MovedContent | None:
    """Return the move; None where more than the place changed."""
    left, right = sides
    gone, came = _stripped(left, gone), _stripped(right, came)
    if left.text_of(0, gone[0]) == right.text_of(0, came[0]):
        return None
    spans = ranges_of(sides, Block(gone, came))
    turns = _turn_around(left, gone), _turn_around(right, came)
    if turns[0] is None or turns[1] is None:
        if left.text.count(text) != right.text.count(text):
            return None
        return MovedContent(left=spans[0], right=spans[1], text=text, is_media=False, turns=None)
    titles = (turns[0].title, turns[1].title)
    was = [side.text_of_turn(titles[0]).count(text) for side in sides]
    now = [side.text_of_turn(titles[1]).count(text) for side in sides]
    is_true = was[0] == was[1] if titles[0] == titles[1] else was[0] > was[1] and now[0] < now[1]
    return MovedContent(left=spans[0], right=spans[1], text=text, is_media=False, turns=titles) if is_true else None


def _stripped(side: Outline, part: tuple[int, int]) -> tuple[int, int]:
    """Drop white-space pieces from both ends."""
    start, end = part
    while start < end and not side.pieces[start].text.strip():
        start += 1
    while start < end and not side.pieces[end - 1].text.strip():
        end -= 1
    return start, end


def _turn_around(side: Outline, part: tuple[int, int]) -> TurnMark | None:
    """Return the turn whose content contains all of `part`; None where its head moved, too."""
    turn = side.turn_at(part[0])
    return turn if turn and turn.content <= part[0] and part[1] <= side.end_of(turn) else None


_CONTEXT = 12
"""Characters of context shown before or after a difference; more, to reach the end of a token."""
_HEAD_END = re.compile(r"<[^<>\s]*(?:header|middle|role)[^<>\s]*>")
"""A token that ends the name of a role: `<|end_header_id|>`."""
_ExplainedChange = tuple[Change, list[Block]]
"""A change, and the blocks that it explains completely."""


def changes_of(left: Outline, right: Outline, parts: Sequence[DiffBlock], generation_prompt: str) -> list[Change]:
    """Return the meaning of every differing block, in the order of the left prompt.

    `parts` is the diff of the two prompts; `generation_prompt` is the family's, empty where unknown.
    """
    sides = (left, right)
    blocks = _blocks(sides, parts)
    told: list[_ExplainedChange] = [
        *_beginnings(sides, blocks),
        *_system_prompts(sides, blocks),
        *media_changes(sides, blocks),
        *_generation_prompts(sides, blocks, generation_prompt.strip()),
    ]
    rest = _without(blocks, told)
    told += text_moves(sides, rest)
    changes = [change for change, _ in told]
    for block in _without(rest, told):
        changes += _plain(sides, block)
    return sorted(changes, key=lambda change: (change.left.start, change.right.start))


def _without(blocks: Sequence[Block], told: Sequence[_ExplainedChange]) -> list[Block]:
    known = {block for _, blocks in told for block in blocks}
    return [block for block in blocks if block not in known]


def _blocks(sides: Sides, parts: Sequence[DiffBlock]) -> list[Block]:
    """Return the differing blocks. A block that only one side has is moved to the start of a turn, or as late as
    possible: when text repeats, any of the copies may count as the added one."""
    found: list[Block] = []
    for number, part in enumerate(parts):
        if part.operation == "equal":
            continue
        block = Block((part.left_start, part.left_end), (part.right_start, part.right_end))
        if part.operation != "changed":
            room = [
                parts[at].left_end - parts[at].left_start if 0 <= at < len(parts) else 0
                for at in (number - 1, number + 1)
            ]
            block = _settled(sides, block, room)
        found.append(block)
    return found


def _settled(sides: Sides, block: Block, room: Sequence[int]) -> Block:
    side = 0 if block.right[0] == block.right[1] else 1
    rich = sides[side]
    start, end = block.ranges[side]
    place = block.ranges[1 - side][0]
    back = on = 0
    while back < room[0] and rich.key(start - back - 1) == rich.key(end - back - 1):
        back += 1
    while on < room[1] and rich.key(start + on) == rich.key(end + on):
        on += 1
    heads = {turn.start for turn in rich.turns}
    shift = next((step for step in range(on, -back - 1, -1) if start + step in heads), on)
    own, other = (start + shift, end + shift), (place + shift, place + shift)
    return Block(own, other) if side == 0 else Block(other, own)


def _beginnings(sides: Sides, blocks: Sequence[Block]) -> Iterator[_ExplainedChange]:
    """Find a special token that one side begins with more often than the other."""
    firsts = {one.key(0): one.pieces[0] for one in sides if one.pieces and one.pieces[0].kind == "special"}
    for key, piece in firsts.items():
        counts = (sides[0].leading(key), sides[1].leading(key))
        follow = [one.key(count) if count < len(one.pieces) else None for one, count in zip(sides, counts, strict=True)]
        if counts[0] != counts[1] and follow[0] == follow[1]:
            spans = ranges_of(sides, Block((0, counts[0]), (0, counts[1])))
            told = [one for one in blocks if one.left[1] <= counts[0] and one.right[1] <= counts[1]]
            yield ExtraStartToken(left=spans[0], right=spans[1], text=piece.text, counts=counts), told


def _system_prompts(sides: Sides, blocks: Sequence[Block]) -> Iterator[_ExplainedChange]:
    if not (sides[0].turns and sides[1].turns):
        return
    turns = [next((turn for turn in one.turns if turn.role == "system"), None) for one in sides]
    ranges = [(turn.start, one.end_of(turn)) if turn else None for one, turn in zip(sides, turns, strict=True)]
    texts = tuple(_content(one, turn) if turn else None for one, turn in zip(sides, turns, strict=True))
    if texts[0] == texts[1]:
        return
    told = [
        block for block in blocks if all(_is_inside(*each) for each in zip(sides, block.ranges, ranges, strict=True))
    ]
    block = Block(*(one or (0, 0) for one in ranges))
    left, right = ranges_of(sides, block)
    yield SystemPromptChange(left=left, right=right, texts=(texts[0], texts[1])), told


def _content(side: Outline, turn: TurnMark) -> str:
    """Return the turn's text without the tokens that end its role's name and the turn itself."""
    pieces = side.pieces[turn.content : side.end_of(turn)]
    text = "".join(piece.text for piece in pieces).strip()
    if pieces and pieces[0].kind == "special" and _HEAD_END.fullmatch(pieces[0].text):
        text = text.removeprefix(pieces[0].text)
    closing = next((piece for piece in reversed(pieces) if piece.text.strip()), None)
    if closing is not None and closing.kind == "special":
        text = text.removesuffix(closing.text.strip())
    return text.strip()


def _is_inside(side: Outline, part: tuple[int, int], inside: tuple[int, int] | None) -> bool:
    if inside is None:
        return not side.text_of(*part).strip()
    return part[0] == part[1] or inside[0] <= part[0] <= part[1] <= inside[1]


def _generation_prompts(sides: Sides, blocks: Sequence[Block], known: str) -> Iterator[_ExplainedChange]:
    last = blocks[-1]
    is_end = not any(
        one.text_of(part[1], len(one.pieces)).strip() for one, part in zip(sides, last.ranges, strict=True)
    )
    texts = [one.text.rstrip() for one in sides]
    inside = [one.text_of(*part).strip() for one, part in _each(sides, last)]
    for lacks in (0, 1):
        ending = _ending(sides[1 - lacks], texts[1 - lacks], known)
        goes_on = is_end and not inside[1 - lacks] and bool(inside[lacks])
        if not ending or texts[lacks].endswith(ending) or goes_on:
            continue
        told = is_end and not inside[lacks] and ending.endswith(inside[1 - lacks])
        ends = ranges_of(sides, Block(*((len(one.pieces), len(one.pieces)) for one in sides)))
        change = MissingGenerationPrompt(left=ends[0], right=ends[1], lacks=lacks, text=ending)
        yield change, [last] if told else []


def _ending(side: Outline, text: str, known: str) -> str:
    """Return the generation prompt that this side ends with; empty if it does not."""
    if known and text.endswith(known):
        return known
    turn = side.marks[-1] if side.marks else None
    if turn is None or turn.role != "assistant":
        return ""
    rest = side.text_of(turn.content, len(side.pieces)).strip()
    is_bare = not rest or (_HEAD_END.fullmatch(rest) and side.pieces[turn.content].kind == "special")
    return side.text_of(turn.start, len(side.pieces)).strip() if is_bare else ""


def _plain(sides: Sides, block: Block) -> Iterator[Change]:
    texts = (sides[0].text_of(*block.left), sides[1].text_of(*block.right))
    left, right = ranges_of(sides, block)
    after = _before(sides, block)
    if after is None or (texts[0] == texts[1] and any(one.has_media(*part) for one, part in _each(sides, block))):
        return
    if texts[0] == texts[1]:
        if texts[0]:
            yield TokenizationChange(left=left, right=right, text=texts[0], after=after)
        return
    if texts[0].strip() == texts[1].strip() and (spaces := list(_white_space(sides, block, texts))):
        yield from spaces
    elif all(PLACEHOLDER.fullmatch(text.strip()) for text in texts):
        yield PlaceholderChange(left=left, right=right, texts=(texts[0].strip(), texts[1].strip()))
    elif texts[0] and texts[1]:
        yield ReplacedText(left=left, right=right, texts=texts, after=after)
    else:
        side = 0 if texts[0] else 1
        is_end = all(part[1] == len(one.pieces) for one, part in _each(sides, block))
        yield AddedText(left=left, right=right, side=side, text=texts[side], after=after, is_end=is_end)


def _before(sides: Sides, block: Block) -> str | None:
    """Return what both sides have before the block; empty at the start, None where it cannot be shown."""
    if block.left[0] == block.right[0] == 0:
        return ""
    places = [one.starts[part[0]] for one, part in _each(sides, block)]
    first = (
        sides[0].starts[bisect_right(sides[0].starts, places[0] - _CONTEXT, hi=block.left[0]) - 1]
        if places[0] > _CONTEXT
        else 0
    )
    before = (sides[0].text[first : places[0]][::-1], sides[1].text[: places[1]][::-1])
    return before[0][: common_start(*before)][::-1] or None


def _white_space(sides: Sides, block: Block, texts: Sequence[str]) -> Iterator[Change]:
    """Yield the differences in white space before and after the block's words."""
    core = texts[0].strip()
    firsts = [
        one.starts[part[0]] + (len(text) - len(text.lstrip()) if core else 0)
        for (one, part), text in zip(_each(sides, block), texts, strict=True)
    ]
    left, right = ranges_of(sides, block)
    for offset in (0, len(core)) if core else (0,):
        runs = [_run(one.text, first + offset) for one, first in zip(sides, firsts, strict=True)]
        spaces = [one.text[start:end] for one, (start, end) in zip(sides, runs, strict=True)]
        last = sides[0].starts[bisect_left(sides[0].starts, min(runs[0][1] + _CONTEXT, len(sides[0].text)))]
        behind = (sides[0].text[runs[0][1] : last], sides[1].text[runs[1][1] :])
        following = behind[0][: common_start(*behind)]
        is_end = all(end == len(one.text) for one, (_, end) in zip(sides, runs, strict=True))
        if spaces[0] != spaces[1] and (following or is_end):
            yield WhiteSpaceChange(left=left, right=right, texts=(spaces[0], spaces[1]), before=following)


def _run(text: str, at: int) -> tuple[int, int]:
    """Return the run of white space around `at`."""
    behind = text[at:]
    return len(text[:at].rstrip()), at + len(behind) - len(behind.lstrip())


def _each(sides: Sides, block: Block) -> tuple[tuple[Outline, tuple[int, int]], tuple[Outline, tuple[int, int]]]:
    return (sides[0], block.left), (sides[1], block.right)


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
    """The attachments, in the order of their placeholders; they show whether two images are the same picture."""
    name: str = ""
    """The prompt's name in findings: `the chat template`; empty: `the left`, `the right`."""
    raw_bytes: Mapping[int, bytes] = msgspec.field(default_factory=dict)
    """The bytes of tokens that are not whole characters, by token id."""

    def pieces(self) -> list[Piece]:
        """Raise ValueError where the numbers of ids and texts differ."""
        return pieces_of(self.ids, self.texts, self.special_ids, self.media, self.attachments, self.raw_bytes)


class PromptDiff(msgspec.Struct, frozen=True):
    """The difference of two prompts."""

    spans: tuple[PromptSpan, ...]
    """The spans in order; joined they give both prompts."""
    identical: bool
    """True if token ids, images, videos and their places are equal."""
    first_divergence: int | None
    """Index of the first differing token, the same in both; an image counts from its first token."""
    first_turn: str = ""
    """The turn of the left prompt that has it (`user turn 2`); empty where that is not known."""
    changes: tuple[Change, ...] = ()
    """The differences in sentences."""
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
