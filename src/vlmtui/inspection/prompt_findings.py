"""The differences of two prompts in plain words: the only place where they become sentences."""

from __future__ import annotations

from collections.abc import Sequence

from vlmtui.inspection.prompt_changes import (
    Added,
    Begins,
    Change,
    MediaCount,
    MediaSize,
    Moved,
    NoGenerationPrompt,
    OtherMedia,
    OtherPlaceholder,
    OtherTokens,
    Replaced,
    Swapped,
    SystemPrompt,
    WhiteSpace,
)
from vlmtui.text import one_line, quoted

Names = tuple[str, str]
MOST = 12
"""Sentences; further differences are counted."""


def sentences(changes: Sequence[Change], names: Names) -> tuple[str, ...]:
    """One for each difference, the first `MOST` of them; quotes are cut and fit to be shown."""
    said = list(dict.fromkeys(in_words(change, names) for change in changes))
    more = len(said) - MOST
    return tuple(said) if more <= 0 else (*said[:MOST], f"{more:,} more difference{'' if more == 1 else 's'}")


def in_words(change: Change, names: Names) -> str:
    """One sentence. It claims what the change says of the tokens, and nothing else."""
    left, right = names
    match change:
        case Begins(counts=counts):
            rich, poor = (left, right) if counts[0] > counts[1] else (right, left)
            most, fewest = max(counts), min(counts)
            if not fewest:
                return f"{poor} does not begin with {quoted(change.text)}, {rich} does"
            return f"{rich} begins with {quoted(change.text)} {_times(most)}, {poor} {_times(fewest)}"
        case SystemPrompt(texts=(one, other)):
            if one is not None and other is not None:
                return f"the system prompts differ: {_system(one)} in {left}, {_system(other)} in {right}"
            return f"{left if other is None else right} adds a system prompt: {_system(one or other or '')}"
        case NoGenerationPrompt():
            return f"{names[change.lacks]} does not end with the generation prompt {quoted(change.text)}"
        case WhiteSpace(texts=(one, other)):
            where = f"before {quoted(change.before)}" if change.before else "at the end"
            return f"white space {where}: {_space(one)} in {left}, {_space(other)} in {right}"
        case Added():
            where = f"after {quoted(change.after)}" if change.after else "at the start"
            return f"{names[change.side]} adds {quoted(change.text)} {'at the end' if change.is_end else where}"
        case Replaced(texts=(one, other)):
            return f"{_after(change.after)}: {quoted(one)} in {left}, {quoted(other)} in {right}"
        case OtherTokens():
            tokens = [stretch.end - stretch.start for stretch in (change.left, change.right)]
            counted = f"{tokens[0]:,} in {left}, {tokens[1]:,} in {right}"
            return f"{_after(change.after)}: {quoted(change.text)} in other tokens, {counted}"
        case _:
            return _media_in_words(change, names)


def _media_in_words(
    change: OtherPlaceholder | OtherMedia | MediaSize | MediaCount | Moved | Swapped, names: Names
) -> str:
    left, right = names
    match change:
        case OtherPlaceholder(texts=(one, other)):
            return f"another placeholder: {one_line(one)} in {left}, {one_line(other)} in {right}"
        case OtherMedia(names=(one, other), is_text=(is_text, is_other_text)):
            if is_text or is_other_text:
                rich, poor = (right, left) if is_text else (left, right)
                name, text = (other, one) if is_text else (one, other)
                return f"{rich} has {one_line(name)} where {poor} has {quoted(text)} without a picture"
            return f"{left} has {one_line(one)} where {right} has {one_line(other)}"
        case MediaSize(tokens=(one, other)):
            return f"{one_line(change.name)} takes {one:,} tokens in {left}, {other:,} in {right}"
        case MediaCount(counts=counts):
            rich, poor = (left, right) if counts[0] > counts[1] else (right, left)
            if not min(counts):
                return f"{poor} lacks {one_line(change.name)}"
            return f"{one_line(change.name)} stands {_times(max(counts))} in {rich}, {_times(min(counts))} in {poor}"
        case Moved():
            what = one_line(change.text) if change.is_media else quoted(change.text)
            if change.turns is None:
                return f"{what} moved from token {change.left.start:,} to token {change.right.start:,}"
            one, other = change.turns
            return f"{what} moved " + (f"within {one}" if one == other else f"from {one} to {other}")
        case Swapped(names=(one, other)):
            return f"{one_line(one)} and {one_line(other)} changed places"


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def _after(text: str) -> str:
    return f"after {quoted(text)}" if text else "at the start"


def _system(text: str) -> str:
    return quoted(text) if text else "an empty one"


def _space(text: str) -> str:
    return quoted(text) if text else "none"
