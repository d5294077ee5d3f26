"""Find out what the differences of two prompts mean. Claims only what the tokens of both show."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from vlmtui.inspection.media_changes import media_changes
from vlmtui.inspection.prompt_changes import (
    AddedText,
    Change,
    ExtraStartToken,
    MissingGenerationPrompt,
    PlaceholderChange,
    ReplacedText,
    SystemPromptChange,
    TokenizationChange,
    WhiteSpaceChange,
)
from vlmtui.inspection.prompt_outline import PLACEHOLDER, Block, Outline, Sides, TurnMark, ranges_of
from vlmtui.inspection.sequence_diff import DiffBlock, common_start
from vlmtui.inspection.text_moves import text_moves

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
