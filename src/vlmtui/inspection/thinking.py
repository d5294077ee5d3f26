"""Split a model's output into reasoning and answer."""

from __future__ import annotations

from typing import NamedTuple

from vlmtui.domain.thinking import COMMON_TAGS, ThinkingTags


class ThinkingParts(NamedTuple):
    """A model's output, split into reasoning and answer."""

    thinking: str
    """The reasoning without its tags, or empty."""
    answer: str
    is_thinking: bool


def split_thinking(text: str, tags: ThinkingTags = COMMON_TAGS, *, over: bool, is_open: bool = False) -> ThinkingParts:
    """Split the output so far. `over`: True if the output is complete. `is_open`: True if the prompt already ends with
    the opening tag, as some chat templates write it; the output then has only the closing tag.

    A closing tag without an opening tag also means that the output begins with reasoning. An output of nothing but tags
    counts as the answer, so that something is shown.
    """
    parts = _split(text, tags, over=over, is_open=is_open)
    return ThinkingParts("", text, False) if over and not parts.thinking.strip() and not parts.answer.strip() else parts


def _split(text: str, tags: ThinkingTags, *, over: bool, is_open: bool) -> ThinkingParts:
    start, opening = text.lstrip(), tags.open.strip()
    before, opened, inside = start.partition(opening)
    if opened and before and tags.close in inside and tags.close not in before and not is_open:
        thinking, _, answer = inside.partition(tags.close)  # a server may send text before the reasoning
        return ThinkingParts(thinking.strip("\n"), before + answer, False)
    if start.startswith(opening):
        inside = start[len(opening) :]
    elif not over and start and opening.startswith(start):
        return ThinkingParts("", "", True)
    elif is_open or tags.close in text:
        inside = text
    else:
        return ThinkingParts("", text, False)
    thinking, closed, answer = inside.partition(tags.close)
    if is_open and over and not closed and inside is text:
        return ThinkingParts("", text, False)
    if not closed and not over:
        thinking = _without_beginning(thinking, tags.close)
    return ThinkingParts(thinking.strip("\n"), answer.lstrip("\n"), not closed and not over)


def _without_beginning(text: str, tag: str) -> str:
    """Remove an incomplete tag from the end of a text that is still growing."""
    lengths = range(min(len(tag) - 1, len(text)), 0, -1)
    return next((text[:-length] for length in lengths if text.endswith(tag[:length])), text)
