"""The reasoning in an answer: the tags around it, and what it took."""

from __future__ import annotations

import msgspec


class ThinkingTags(msgspec.Struct, frozen=True):
    """What a model writes before and after its reasoning."""

    open: str
    close: str


COMMON_TAGS = ThinkingTags("<think>", "</think>")
"""Those of most models: for models whose record names none."""


class Thought(msgspec.Struct, frozen=True, kw_only=True):
    """The reasoning of an answer that has ended it."""

    tags: ThinkingTags = COMMON_TAGS
    tokens: int | None = None
    """Its tokens, tags included; None: unknown."""
    seconds: float | None = None
    """From the first token to the closing tag; None: unknown."""
