"""The differences of two prompts: as data, each with its place in both, and in words."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from vlmtui.text import one_line, quoted

SideNumber = int
"""0: left prompt, 1: right prompt."""


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
