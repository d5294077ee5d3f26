"""Split a model's text into its thinking and its answer."""

from __future__ import annotations

from typing import NamedTuple

_OPEN, _CLOSE = "<think>", "</think>"


class ThinkingParts(NamedTuple):
    """An answer's text, split into reasoning and answer."""

    thinking: str
    """Without its tags; empty where there is none."""
    answer: str
    is_thinking: bool
    """Whether the thinking is still going on."""


def split_thinking(text: str, *, over: bool) -> ThinkingParts:
    """Split what has come so far; `over` says that nothing more will.

    A chat template may have opened the block already, so that only its end is in the text. That is known once the end
    has come. A text that is nothing but tags is an answer: there would be nothing to show.
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
