"""The reasoning in an answer: the tags around it, its tokens and its time."""

from __future__ import annotations

import msgspec


class ThinkingTags(msgspec.Struct, frozen=True):
    """What a model writes before and after its reasoning."""

    open: str
    close: str


COMMON_TAGS = ThinkingTags("<think>", "</think>")
"""The tags of most models; used if the family's record names none."""


class Thought(msgspec.Struct, frozen=True, kw_only=True):
    """The complete reasoning of an answer."""

    tags: ThinkingTags = COMMON_TAGS
    tokens: int | None = None
    """The number of tokens of the reasoning, tags included; None: unknown."""
    seconds: float | None = None
    """Seconds from the first token to the closing tag; None: unknown."""
