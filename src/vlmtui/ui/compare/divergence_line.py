"""The first differing token of two answers in one line, with the probability that each side gave to both."""

from __future__ import annotations

import math

from textual.content import Content

from vlmtui.session.difference import Difference, TokenAt
from vlmtui.text import one_line

LEFT, RIGHT = "$text-error", "$text-success"
_SPACES = str.maketrans({"\n": "↵", "\t": "⇥", "\r": "␍", " ": "·"})


def divergence_line(difference: Difference) -> Content:
    """Return `First difference: token 4 · chat blue 91% (red 4%) · raw red 88% (blue 2%)`; empty while there is
    nothing to compare. Probabilities are included if they were requested."""
    found, answers = difference.divergence, difference.answers
    if answers is None or difference.failed:
        return Content()
    if found is None:
        same = "Answers: identical" if answers.identical else ""
        return Content.styled(same, "$text-success")
    return Content.assemble(
        (f"First difference: token {found.index:,}", "bold"),
        ("  chat ", "$muted"),
        *_side(found.left, found.right, LEFT),
        ("   raw ", "$muted"),
        *_side(found.right, found.left, RIGHT),
    )


def shown_token(text: str) -> str:
    """Return a token on one line, with white space visible, also if it is empty."""
    return one_line(text.translate(_SPACES)) or "∅"


def _side(token: TokenAt | None, other: TokenAt | None, colour: str) -> list[tuple[str, str]]:
    """Return a side's token, and the probability of the other side's."""
    if token is None:
        return [("ended", "$muted")]
    parts = [(shown_token(token.text), f"bold {colour} on $panel")]
    if token.logprob is not None:
        parts.append((f" {math.exp(token.logprob):.0%}", ""))
        given = next((logprob for text, logprob in token.top if other is not None and text == other.text), None)
        if other is not None:
            known = f"{math.exp(given):.0%}" if given is not None else "unlikely"
            parts.append((f" ({shown_token(other.text)} {known})", "$muted"))
    return parts
