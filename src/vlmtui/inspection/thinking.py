"""Split a model's text into reasoning and answer."""

from __future__ import annotations

from typing import NamedTuple

_OPEN, _CLOSE = "<think>", "</think>"


class ThinkingParts(NamedTuple):
    """An answer's text, split into reasoning and answer."""

    thinking: str
    """The reasoning, without its tags; empty without any."""
    answer: str
    is_thinking: bool
    """Whether the reasoning is still being generated."""


def split_thinking(text: str, *, over: bool) -> ThinkingParts:
    """Split the text so far; `over` says that it is complete.

    A chat template may have opened the reasoning block, so that the text contains only the closing tag; this is known
    once the tag arrives. A text that is nothing but tags counts as the answer, so that something is shown.
    """
    parts = _split(text, over=over)
    return ThinkingParts("", text, False) if over and not parts.thinking.strip() and not parts.answer.strip() else parts


def _split(text: str, *, over: bool) -> ThinkingParts:
    start = text.lstrip()
    if not start.startswith(_OPEN):
        if not over and start and _OPEN.startswith(start):
            return ThinkingParts("", "", True)
        before, closed, after = text.partition(_CLOSE)
        return (
            ThinkingParts(before.strip("\n"), after.lstrip("\n"), False) if closed else ThinkingParts("", text, False)
        )
    thinking, closed, answer = start[len(_OPEN) :].partition(_CLOSE)
    return ThinkingParts(thinking.strip("\n"), answer.lstrip("\n"), not closed and not over)
