"""What one prompt has that the other has not: as data, each with its place in both, and true of both token by token."""

from __future__ import annotations

import msgspec

SideNumber = int
"""0: the left prompt, 1: the right one."""


class TokenRange(msgspec.Struct, frozen=True):
    """Tokens `start:end` of a prompt; where nothing stands there, both are the place."""

    start: int
    end: int


class PromptChange(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A difference. `left` and `right` are its places in the two prompts. Texts are hostile."""

    left: TokenRange
    right: TokenRange


class Begins(PromptChange, frozen=True, kw_only=True):
    """A special token at the very start stands there more often on one side: BOS, mostly."""

    text: str
    counts: tuple[int, int]


class SystemPrompt(PromptChange, frozen=True, kw_only=True):
    """The system turns differ."""

    texts: tuple[str | None, str | None]
    """None: that side has no system turn."""


class NoGenerationPrompt(PromptChange, frozen=True, kw_only=True):
    """Only one side ends with the beginning of an answer."""

    lacks: SideNumber
    text: str


class WhiteSpace(PromptChange, frozen=True, kw_only=True):
    """The white space between two equal texts."""

    texts: tuple[str, str]
    before: str
    """What follows it on both sides; empty: it is the end of both."""


class Added(PromptChange, frozen=True, kw_only=True):
    """Only one side has this text between what both have."""

    side: SideNumber
    text: str
    after: str
    """What stands before it on both sides; empty at the start."""
    is_end: bool


class Replaced(PromptChange, frozen=True, kw_only=True):
    """Another text at the same place."""

    texts: tuple[str, str]
    after: str
    """What stands before it on both sides; empty at the start."""


class OtherTokens(PromptChange, frozen=True, kw_only=True):
    """The same text, taken apart into other tokens."""

    text: str
    after: str


class OtherPlaceholder(PromptChange, frozen=True, kw_only=True):
    """Each side has its own placeholder at the same place."""

    texts: tuple[str, str]


class OtherMedia(PromptChange, frozen=True, kw_only=True):
    """Another picture or video at the same place, or a text that only looks like a placeholder."""

    names: tuple[str, str]
    is_text: tuple[bool, bool] = (False, False)


class MediaSize(PromptChange, frozen=True, kw_only=True):
    """The same picture or video takes another number of tokens."""

    name: str
    tokens: tuple[int, int]


class MediaCount(PromptChange, frozen=True, kw_only=True):
    """A picture or video stands there more often on one side."""

    name: str
    counts: tuple[int, int]


class Moved(PromptChange, frozen=True, kw_only=True):
    """Something stands as often in both, but elsewhere."""

    text: str
    is_media: bool
    turns: tuple[str, str] | None
    """`user turn 1`; None where the turns are not known: then the tokens' numbers tell."""


class Swapped(PromptChange, frozen=True, kw_only=True):
    """Two pictures or videos stand in each other's place."""

    names: tuple[str, str]


Change = (
    Begins | SystemPrompt | NoGenerationPrompt | WhiteSpace | Added | Replaced | OtherTokens | OtherPlaceholder
    | OtherMedia | MediaSize | MediaCount | Moved | Swapped
)  # fmt: skip
