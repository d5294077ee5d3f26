"""Decides which exchanges of a long conversation have widgets. Pure arithmetic on their weights.

A weight is roughly the number of widgets that an exchange needs. The window extends beyond the view; it moves only when
the view comes near its edge, and then far, so that most scrolling moves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

NEWEST = 60
"""Weight of the window of an opened conversation: thirty exchanges of text."""
NEAR = 20
"""Weight next to the view below which the window is extended; more if the view itself holds more."""
_REACH = 2
"""A side is extended to, and cut back to, this many times NEAR."""
_FAR = 3
"""A side is cut if it is longer than this many times NEAR."""


class Window(NamedTuple):
    """The exchanges from `first` to `last`, exclusive."""

    first: int
    last: int


def newest_window(weights: Sequence[int]) -> Window:
    """Return the window at the end of a conversation."""
    return Window(_above(weights, len(weights), NEWEST), len(weights))


def window_after_adding(window: Window, weights: Sequence[int]) -> Window:
    """Return the window after exchanges were added at the end and scrolled to: it keeps its exchanges, unless it did
    not reach the end or too much was added."""
    whole = Window(window.first, len(weights))
    is_near = window.last > window.first and sum(weights[window.last :]) <= NEWEST
    return whole if is_near and sum(weights[whole.first :]) <= 2 * _FAR * NEWEST else newest_window(weights)


def window_at(window: Window, weights: Sequence[int], place: int) -> Window:
    """Return the window that contains the exchange at `place`, and some around it; `window` itself if it does."""
    if window.first <= place < window.last:
        return window
    return Window(_above(weights, place, _REACH * NEAR), _below(weights, place + 1, _REACH * NEAR))


def window_around(window: Window, weights: Sequence[int], view: Window) -> Window:
    """Return the window for a view inside `window`; `window` itself as long as it suffices."""
    near = max(NEAR, sum(weights[view.first : view.last]))
    first, last = window
    above, below = sum(weights[first : view.first]), sum(weights[view.last : last])
    if above < near or above > _FAR * near:
        first = _above(weights, view.first, _REACH * near)
    if below < near or below > _FAR * near:
        last = _below(weights, view.last, _REACH * near)
    return Window(first, last)


def is_near_top(weights: Sequence[int], view: Window) -> bool:
    """Return whether so little is left above the view that more must be loaded."""
    return sum(weights[: view.first]) < max(NEAR, sum(weights[view.first : view.last]))


def _above(weights: Sequence[int], end: int, reach: int) -> int:
    """Return the last index from which the exchanges up to `end` weigh `reach`; 0 if they weigh less."""
    first = end
    while first > 0 and reach > 0:
        first -= 1
        reach -= weights[first]
    return first


def _below(weights: Sequence[int], start: int, reach: int) -> int:
    """Return the first index up to which the exchanges from `start` weigh `reach`, or the end."""
    last = start
    while last < len(weights) and reach > 0:
        reach -= weights[last]
        last += 1
    return last
