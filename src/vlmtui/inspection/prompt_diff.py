"""Compare two prompts token by token, and describe their differences in sentences (findings).

The diff consists of pieces (`tokens.py`). A differing `Block` of pieces becomes a `Change` with a sentence: about the
beginning, the system prompt, images and videos, the generation prompt, or else the differing text.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import msgspec

from vlmtui.domain.conversation import Attachment
from vlmtui.domain.generation import MediaSpan
from vlmtui.inspection.sequence_diff import DiffBlock, Operation, common_start, diff_blocks
from vlmtui.inspection.tokens import Piece, attachment_of, pieces_of
from vlmtui.text import counted, one_line, quoted

PLACEHOLDER = re.compile(
    r"<(?![^<>]*(?:/|end|begin|_start))\|?[^<>\s]*(?:image|img|video|vision|media|patch)[^<>\s]*>|\[IMG\]",
    re.IGNORECASE,
)
"""Matches a text that looks like a placeholder of a model family."""
_ROLES = {"system": "system", "developer": "system", "user": "user", "human": "user", "assistant": "assistant",
          "model": "assistant", "tool": "tool"}  # fmt: skip
_ROLE_TOKEN = re.compile(r"<[|｜](system|user|assistant)[|｜]>", re.IGNORECASE)
_LONGEST_ROLE = max(map(len, _ROLES))


MOST = 12
"""The most sentences in the result; further differences are only counted."""


class Change(NamedTuple):
    """A difference at the tokens with indices `left` and `right` of the two prompts."""

    left: int
    right: int
    sentence: str
    """The difference in words. Safe to show."""


def _sentences(changes: Sequence[Change]) -> tuple[str, ...]:
    said = list(dict.fromkeys(change.sentence for change in changes))
    more = len(said) - MOST
    return tuple(said) if more <= 0 else (*said[:MOST], counted(more, "more difference"))


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def _after(text: str) -> str:
    return f"after {quoted(text)}" if text else "at the start"


def _shown(text: str, empty: str) -> str:
    return quoted(text) if text else empty


class TurnMark(msgspec.Struct, frozen=True):
    """The beginning of a turn, as indices of pieces."""

    role: str
    number: int
    """The turn's number among those of its role, from 1."""
    start: int
    content: int
    """The first piece after the name of the role."""

    @property
    def title(self) -> str:
        """The turn's name in findings: `user turn 2`."""
        return f"{self.role} turn {self.number}"


class Block(msgspec.Struct, frozen=True):
    """Differing pieces: a range (start, end) of indices on each side."""

    left: tuple[int, int]
    right: tuple[int, int]

    @property
    def ranges(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return self.left, self.right


class Outline:
    """One prompt of a comparison, with its text and turns. Indices count pieces."""

    def __init__(self, pieces: Sequence[Piece], attachments: Sequence[Attachment], name: str) -> None:
        self.pieces = pieces
        self.name = name
        """The prompt's name in sentences: `the chat template`."""
        self._attachments = attachments

    @cached_property
    def text(self) -> str:
        """The joined texts of the pieces; an image contributes its token once."""
        return "".join(piece.text for piece in self.pieces)

    @cached_property
    def starts(self) -> list[int]:
        """The offset of each piece in `text`, then the length of `text`."""
        return [0, *accumulate(len(piece.text) for piece in self.pieces)]

    @cached_property
    def marks(self) -> list[TurnMark]:
        """The beginnings of turns: special tokens with the name of a role, in order."""
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
        """The turns; empty if no user turn was found, because the others cannot be trusted then."""
        return self.marks if any(turn.role == "user" for turn in self.marks) else []

    def turn_at(self, at: int) -> TurnMark | None:
        """Return the turn of a piece, or None before the first turn."""
        number = bisect_right([turn.start for turn in self.turns], at) - 1
        return self.turns[number] if number >= 0 else None

    def end_of(self, turn: TurnMark) -> int:
        """Return the index of the next turn's first piece."""
        return next((one.start for one in self.turns if one.start > turn.start), len(self.pieces))

    def text_of(self, start: int, end: int) -> str:
        return self.text[self.starts[start] : self.starts[end]]

    def has_media(self, start: int, end: int) -> bool:
        return any(piece.kind == "media" for piece in self.pieces[start:end])

    def leading(self, key: Hashable) -> int:
        """Return the number of pieces with this key at the prompt's beginning."""
        return next((at for at in range(len(self.pieces)) if self.key(at) != key), len(self.pieces))

    def key(self, at: int) -> Hashable:
        """Return the key by which pieces are compared: a token's id; for an image its content and token count."""
        piece = self.pieces[at]
        if piece.media is None:
            return piece.ids[0]
        return (self.content_of(piece), piece.media.tokens, piece.media.length, piece.text)

    def content_of(self, piece: Piece) -> Hashable:
        """Return the identity of an image or video: its hash or, if that is unknown, its index."""
        assert piece.media is not None
        item = attachment_of(piece.media, self._attachments)
        return (piece.media.modality, item.sha256 if item is not None else piece.media.index)

    def name_of(self, piece: Piece) -> str:
        """Return an attachment's name; with the start of its hash if another attachment has the same name."""
        assert piece.media is not None
        item = attachment_of(piece.media, self._attachments)
        if item is None:
            return f"{piece.media.modality} {piece.media.index + 1}"
        twins = {other.sha256 for other in self._attachments if other.name == item.name}
        return one_line(f"{item.name} ({item.sha256[:8]})" if len(twins) > 1 else item.name)

    def place(self, at: int) -> int:
        """Return the token index of a piece's first token; after the last piece, the number of tokens."""
        return self.pieces[at].offset if at < len(self.pieces) else sum(len(piece.ids) for piece in self.pieces)

    def _head(self, at: int) -> tuple[str, int] | None:
        """Return (role, index of the piece after its name) if a turn begins with this special token, else None."""
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
"""The left and the right prompt."""


def _at(sides: Sides, block: Block, sentence: str) -> Change:
    return Change(sides[0].place(block.left[0]), sides[1].place(block.right[0]), sentence)


def _by_count(sides: Sides, counts: tuple[int, int]) -> tuple[str, str]:
    """Return the names of both sides, the side with the larger of `counts` first."""
    left, right = sides
    return (left.name, right.name) if counts[0] > counts[1] else (right.name, left.name)


class _Item(msgspec.Struct, frozen=True):
    """An image or video in a differing block of one side."""

    block: int
    """The block's index."""
    at: int
    """The piece's index."""
    content: Hashable


def media_changes(sides: Sides, blocks: Sequence[Block]) -> Iterator[tuple[Change, list[Block]]]:
    """Yield the changes of images and videos, each with the blocks that it fully explains. Such a block contains only
    media, special tokens and white space."""
    items = [_items(side, blocks, number) for number, side in enumerate(sides)]
    pairs, others = _paired(*items)
    found: list[tuple[Change, list[int]]] = []
    swapped = _swapped(pairs)
    for one, other in swapped:
        names = [sides[0].name_of(sides[0].pieces[pair[0].at]) for pair in (one, other)]
        change = _at_items(sides, *one, f"{names[0]} and {names[1]} changed places")
        found.append((change, [one[0].block, other[0].block]))
    done = {pair for both in swapped for pair in both}
    for pair in pairs:
        said = _same_content(sides, *pair) if pair not in done else ""
        if said:
            found.append((_at_items(sides, *pair, said), [pair[0].block, pair[1].block]))
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
    """Pair items of equal content in order. Return the pairs, and the other items of each side."""
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
    """Find images or videos that have changed places with one another. Returns couples of items; each item is given on
    the left and on the right."""
    found: list[tuple[tuple[_Item, _Item], tuple[_Item, _Item]]] = []
    for number, one in enumerate(pairs):
        for other in pairs[number + 1 :]:
            crossed = one[0].block == other[1].block != one[1].block == other[0].block
            if crossed and one[0].content != other[0].content and not any(one in both for both in found):
                found.append((one, other))
    return found


def _at_items(sides: Sides, one: _Item, other: _Item, sentence: str) -> Change:
    return _at(sides, Block((one.at, one.at + 1), (other.at, other.at + 1)), sentence)


def _same_content(sides: Sides, one: _Item, other: _Item) -> str:
    """Return a sentence about an image that both sides have, if its placeholder, token count or place differs; else
    ""."""
    left, right = sides
    pieces = (left.pieces[one.at], right.pieces[other.at])
    name = left.name_of(pieces[0])
    if pieces[0].text != pieces[1].text:
        return _different_placeholders(sides, pieces[0].text, pieces[1].text)
    assert pieces[0].media is not None and pieces[1].media is not None
    tokens = (pieces[0].media.tokens, pieces[1].media.tokens)
    if tokens[0] != tokens[1]:
        return f"{name} takes {tokens[0]:,} tokens in {left.name}, {tokens[1]:,} in {right.name}"
    if left.text_of(0, one.at) == right.text_of(0, other.at):
        return ""
    marks = (left.turn_at(one.at), right.turn_at(other.at))
    if marks[0] is None or marks[1] is None:
        return f"{name} moved from token {left.place(one.at):,} to token {right.place(other.at):,}"
    titles = (marks[0].title, marks[1].title)
    was = [_count(side, one.content, titles[0]) for side in sides]
    now = [_count(side, one.content, titles[1]) for side in sides]
    if titles[0] == titles[1]:
        return f"{name} moved within {titles[0]}" if was[0] == was[1] else ""
    return f"{name} moved from {titles[0]} to {titles[1]}" if was[0] > was[1] and now[0] < now[1] else ""


def _different_placeholders(sides: Sides, one: str, other: str) -> str:
    return f"different placeholders: {one_line(one)} in {sides[0].name}, {one_line(other)} in {sides[1].name}"


def _others(
    sides: Sides, blocks: Sequence[Block], left: Sequence[_Item], right: Sequence[_Item]
) -> Iterator[tuple[Change, list[int]]]:
    """Yield a change, with its block's index, for each image or video that one side lacks or has less often."""
    told: set[Hashable] = set()
    for number in sorted({item.block for item in (*left, *right)}):
        here = [[item for item in items if item.block == number] for items in (left, right)]
        both = min(map(len, here))
        for one, other in zip(here[0][:both], here[1][:both], strict=True):
            names = [side.name_of(side.pieces[item.at]) for side, item in zip(sides, (one, other), strict=True)]
            said = f"{sides[0].name} has {names[0]} where {sides[1].name} has {names[1]}"
            yield _at_items(sides, one, other, said), [number]
        for side, items in enumerate(here):
            for item in items[both:]:
                change = _only_text(sides, blocks[number], side, item) if len(items) == 1 else None
                if change is None and item.content not in told:
                    told.add(item.content)
                    change = _counted(sides, blocks[number], side, item)
                if change is not None:
                    yield change, [number]


def _only_text(sides: Sides, block: Block, side: int, item: _Item) -> Change | None:
    """Return a change if the other side has text in this block that looks like a placeholder, else None."""
    other = sides[1 - side]
    part = block.ranges[1 - side]
    match = None if other.has_media(*part) else PLACEHOLDER.search(other.text_of(*part))
    if match is None:
        return None
    rich, name = sides[side], sides[side].name_of(sides[side].pieces[item.at])
    said = f"{rich.name} has {name} where {other.name} has {quoted(match[0])} that is not a picture"
    return _at(sides, block, said)


def _counted(sides: Sides, block: Block, side: int, item: _Item) -> Change:
    left, right = (
        sum(piece.kind == "media" and one.content_of(piece) == item.content for piece in one.pieces) for one in sides
    )
    name = sides[side].name_of(sides[side].pieces[item.at])
    rich, poor = _by_count(sides, (left, right))
    few, many = sorted((left, right))
    lacks = f"{name} appears {_times(many)} in {rich}, {_times(few)} in {poor}" if few else f"{poor} lacks {name}"
    return _at(sides, block, lacks)


def _count(side: Outline, content: Hashable, title: str) -> int:
    turn = next((one for one in side.turns if one.title == title), None)
    if turn is None:
        return 0
    pieces = side.pieces[turn.start : side.end_of(turn)]
    return sum(piece.kind == "media" and side.content_of(piece) == content for piece in pieces)


def _is_bare(sides: Sides, block: Block) -> bool:
    """Return True if the block has only media, special tokens, white space and placeholders."""
    for side, part in zip(sides, block.ranges, strict=True):
        text = "".join(piece.text for piece in side.pieces[slice(*part)] if piece.kind == "text")
        if PLACEHOLDER.sub("", text).strip():
            return False
    return True


_CONTEXT = 12
"""The characters of context before or after a difference, rounded up to whole tokens."""
_HEAD_END = re.compile(r"<[^<>\s]*(?:header|middle|role)[^<>\s]*>")
"""A token after the name of a role, such as `<|end_header_id|>`."""
_ExplainedChange = tuple[Change, list[Block]]
"""A change, and the blocks that need no further sentence."""


def changes_of(left: Outline, right: Outline, parts: Sequence[DiffBlock], generation_prompt: str) -> list[Change]:
    """Return the changes in the order of the left prompt.

    `parts`: the diff of the two prompts' pieces. `generation_prompt`: the model family's; "" if unknown.
    """
    sides = (left, right)
    blocks = _blocks(sides, parts)
    told: list[_ExplainedChange] = [
        *_beginnings(sides, blocks),
        *_system_prompts(sides, blocks),
        *media_changes(sides, blocks),
        *_generation_prompts(sides, blocks, generation_prompt.strip()),
    ]
    known = {block for _, blocks in told for block in blocks}
    changes = [change for change, _ in told]
    for block in blocks:
        if block not in known:
            changes += _plain(sides, block)
    return sorted(changes, key=lambda change: change[:2])


def _blocks(sides: Sides, parts: Sequence[DiffBlock]) -> list[Block]:
    """Return the differing blocks.

    If a text is repeated, the diff can't tell which copy was added. Its block is moved back to the start of a turn or,
    if no turn starts there, as far as possible.
    """
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
    """Yield the change if the prompts begin with different numbers of a special token (BOS)."""
    firsts = {one.key(0): one.pieces[0] for one in sides if one.pieces and one.pieces[0].kind == "special"}
    for key, piece in firsts.items():
        counts = (sides[0].leading(key), sides[1].leading(key))
        follow = [one.key(count) if count < len(one.pieces) else None for one, count in zip(sides, counts, strict=True)]
        if counts[0] != counts[1] and follow[0] == follow[1]:
            told = [one for one in blocks if one.left[1] <= counts[0] and one.right[1] <= counts[1]]
            (rich, poor), token = _by_count(sides, counts), quoted(piece.text)
            said = f"{poor} does not begin with {token}, {rich} does"
            if min(counts):
                said = f"{rich} begins with {token} {_times(max(counts))}, {poor} {_times(min(counts))}"
            yield _at(sides, Block((0, 0), (0, 0)), said), told


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
    (left, right), (one, other) = sides, texts
    if one is not None and other is not None:
        shown = [_shown(text, "an empty one") for text in (one, other)]
        said = f"the system prompts differ: {shown[0]} in {left.name}, {shown[1]} in {right.name}"
    else:
        added = _shown(one or other or "", "an empty one")
        said = f"{left.name if other is None else right.name} adds a system prompt: {added}"
    yield _at(sides, Block(*(part or (0, 0) for part in ranges)), said), told


def _content(side: Outline, turn: TurnMark) -> str:
    """Return the turn's text without the special tokens after its role and at its end."""
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
        end = Block(*((len(one.pieces), len(one.pieces)) for one in sides))
        said = f"{sides[lacks].name} does not end with the generation prompt {quoted(ending)}"
        yield _at(sides, end, said), [last] if told else []


def _ending(side: Outline, text: str, known: str) -> str:
    """Return the generation prompt at this side's end; "" if there is none."""
    if known and text.endswith(known):
        return known
    turn = side.marks[-1] if side.marks else None
    if turn is None or turn.role != "assistant":
        return ""
    rest = side.text_of(turn.content, len(side.pieces)).strip()
    is_bare = not rest or (_HEAD_END.fullmatch(rest) and side.pieces[turn.content].kind == "special")
    return side.text_of(turn.start, len(side.pieces)).strip() if is_bare else ""


def _plain(sides: Sides, block: Block) -> Iterator[Change]:
    left, right = sides
    texts = (left.text_of(*block.left), right.text_of(*block.right))
    after = _before(sides, block)
    if after is None or (texts[0] == texts[1] and any(one.has_media(*part) for one, part in _each(sides, block))):
        return
    if texts[0] == texts[1]:
        if texts[0]:
            one, other = (side.place(part[1]) - side.place(part[0]) for side, part in _each(sides, block))
            tokens = f"{counted(one, 'token')} in {left.name}, {other:,} in {right.name}"
            yield _at(sides, block, f"{_after(after)}: {quoted(texts[0])} tokenized differently, {tokens}")
        return
    if texts[0].strip() == texts[1].strip() and (spaces := list(_white_space(sides, block, texts))):
        yield from spaces
    elif all(PLACEHOLDER.fullmatch(text.strip()) for text in texts):
        yield _at(sides, block, _different_placeholders(sides, texts[0].strip(), texts[1].strip()))
    elif texts[0] and texts[1]:
        said = f"{_after(after)}: {quoted(texts[0])} in {left.name}, {quoted(texts[1])} in {right.name}"
        yield _at(sides, block, said)
    else:
        side = 0 if texts[0] else 1
        is_end = all(part[1] == len(one.pieces) for one, part in _each(sides, block))
        where = "at the end" if is_end else _after(after)
        yield _at(sides, block, f"{sides[side].name} adds {quoted(texts[side])} {where}")


def _before(sides: Sides, block: Block) -> str | None:
    """Return the text that both sides have before the block: "" at the start, None if their texts differ there."""
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
    for offset in (0, len(core)) if core else (0,):
        runs = [_run(one.text, first + offset) for one, first in zip(sides, firsts, strict=True)]
        spaces = [one.text[start:end] for one, (start, end) in zip(sides, runs, strict=True)]
        last = sides[0].starts[bisect_left(sides[0].starts, min(runs[0][1] + _CONTEXT, len(sides[0].text)))]
        behind = (sides[0].text[runs[0][1] : last], sides[1].text[runs[1][1] :])
        following = behind[0][: common_start(*behind)]
        is_end = all(end == len(one.text) for one, (_, end) in zip(sides, runs, strict=True))
        if spaces[0] != spaces[1] and (following or is_end):
            where = f"before {quoted(following)}" if following else "at the end"
            shown = [f"{_shown(space, 'none')} in {one.name}" for one, space in zip(sides, spaces, strict=True)]
            yield _at(sides, block, f"white space {where}: {shown[0]}, {shown[1]}")


def _run(text: str, at: int) -> tuple[int, int]:
    behind = text[at:]
    return len(text[:at].rstrip()), at + len(behind) - len(behind.lstrip())


def _each(sides: Sides, block: Block) -> tuple[tuple[Outline, tuple[int, int]], tuple[Outline, tuple[int, int]]]:
    return (sides[0], block.left), (sides[1], block.right)


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


class PromptDiff(msgspec.Struct, frozen=True):
    """The difference of two prompts."""

    spans: tuple[PromptSpan, ...]
    """The spans in order. Joined, they are both prompts."""
    identical: bool
    """True if token ids, images, videos and their places are equal."""
    first_divergence: int | None
    """The index of the first differing token, the same in both prompts; of a differing image, its first token."""
    first_turn: str = ""
    """The turn of the left prompt with the first difference (`user turn 2`); empty if unknown."""
    findings: tuple[str, ...] = ()
    """The differences in sentences. Safe to show."""


def prompt_diff(left: PromptTokens, right: PromptTokens, *, generation_prompt: str = "") -> PromptDiff:
    """Compare two prompts.

    `generation_prompt`: the generation prompt of the model's family; the findings say if one side lacks it. Raises
    ValueError if a prompt's numbers of token ids and token texts differ.
    """
    one = Outline(left.pieces(), left.attachments, left.name or "the left")
    other = Outline(right.pieces(), right.attachments, right.name or "the right")
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
    if keys[0] == keys[1]:
        return PromptDiff(spans=spans, identical=True, first_divergence=None, findings=("no difference",))
    first = common_start(*keys)
    turn = one.turn_at(first) if first < len(one.pieces) else None
    return PromptDiff(
        spans=spans,
        identical=False,
        first_divergence=one.place(first),
        first_turn=turn.title if turn else "",
        findings=_sentences(changes_of(one, other, parts, generation_prompt)),
    )
