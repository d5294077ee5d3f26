"""Texts that stand in both prompts, but elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vlmtui.inspection.prompt_changes import Change, Moved
from vlmtui.inspection.prompt_outline import Block, Outline, Sides, TurnMark, ranges_of

_LEAST = 3
"""Characters of a text that is said to have moved: shorter ones are everywhere."""


def text_moves(sides: Sides, blocks: Sequence[Block]) -> Iterator[tuple[Change, list[Block]]]:
    """Each with the blocks that it explains: where the text is gone, and where it came."""
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


def _moved(sides: Sides, text: str, gone: tuple[int, int], came: tuple[int, int]) -> Moved | None:
    """None where something else than its place has changed, too."""
    left, right = sides
    gone, came = _stripped(left, gone), _stripped(right, came)
    if left.text_of(0, gone[0]) == right.text_of(0, came[0]):
        return None
    spans = ranges_of(sides, Block(gone, came))
    turns = _turn_around(left, gone), _turn_around(right, came)
    if turns[0] is None or turns[1] is None:
        if left.text.count(text) != right.text.count(text):
            return None
        return Moved(left=spans[0], right=spans[1], text=text, is_media=False, turns=None)
    titles = (turns[0].title, turns[1].title)
    was = [side.text_of_turn(titles[0]).count(text) for side in sides]
    now = [side.text_of_turn(titles[1]).count(text) for side in sides]
    is_true = was[0] == was[1] if titles[0] == titles[1] else was[0] > was[1] and now[0] < now[1]
    return Moved(left=spans[0], right=spans[1], text=text, is_media=False, turns=titles) if is_true else None


def _stripped(side: Outline, part: tuple[int, int]) -> tuple[int, int]:
    """Without pieces of white space at its ends."""
    start, end = part
    while start < end and not side.pieces[start].text.strip():
        start += 1
    while start < end and not side.pieces[end - 1].text.strip():
        end -= 1
    return start, end


def _turn_around(side: Outline, part: tuple[int, int]) -> TurnMark | None:
    """The turn whose content holds all of it; None where its head is moved, too."""
    turn = side.turn_at(part[0])
    return turn if turn and turn.content <= part[0] and part[1] <= side.end_of(turn) else None
