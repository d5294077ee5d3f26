"""The differences of two prompts as data, each with its place in both."""

from __future__ import annotations

import msgspec

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
