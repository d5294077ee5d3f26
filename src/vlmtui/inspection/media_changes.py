"""How the pictures and videos of two prompts differ: moved, swapped, missing, of another size."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import msgspec

from vlmtui.inspection.prompt_changes import (
    Change,
    MediaChange,
    MediaCountChange,
    MediaSizeChange,
    MovedContent,
    PlaceholderChange,
    SwappedMedia,
    TokenRange,
)
from vlmtui.inspection.prompt_outline import PLACEHOLDER, Block, Outline, Sides, ranges_of


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
    """Return pairs of different content that stand in each other's block."""
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
