"""Texts that both prompts contain at different places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vlmtui.inspection.prompt_changes import Change, MovedContent
from vlmtui.inspection.prompt_outline import Block, Outline, Sides, TurnMark, ranges_of

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
