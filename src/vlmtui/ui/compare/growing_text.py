"""What is shown of a long answer while it grows: laying all of it out again and again would leave no time for keys."""

from __future__ import annotations

GROWING_MAX = 6000
"""Characters of an answer that are shown until it is complete."""


def growing(text: str) -> str:
    """The end of a long text, below a line that says what is above; a short text as it is."""
    if len(text) <= GROWING_MAX:
        return text
    cut = len(text) - GROWING_MAX
    space = max(text.rfind(" ", cut, cut + 200), text.rfind("\n", cut, cut + 200))
    cut = space + 1 if space >= 0 else cut
    return f"⋯ {cut:,} characters above, shown once the answer is complete ⋯\n{text[cut:]}"
