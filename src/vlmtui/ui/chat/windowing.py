"""Which exchanges of a long conversation are on the screen as widgets. Pure arithmetic over their weights.

A weight is about the number of widgets that an exchange takes. A window reaches some way beyond what is in view; it
moves only when one comes near its edge, and then by a good deal, so that most scrolling moves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

NEWEST = 60
"""Weight of the window that a conversation opens with: thirty exchanges of text."""
NEAR = 20
"""Weight beside the view below which the window is drawn out; more where the view itself holds more."""
_REACH, _FAR = 2, 3
"""A side is drawn out to, and cut back to, so many times NEAR; it is cut where it is longer than `_FAR` times NEAR."""


class Window(NamedTuple):
    """The exchanges from `first` up to, not including, `last`."""

    first: int
    last: int


def newest_window(weights: Sequence[int]) -> Window:
    """The window at the end of a conversation."""
    return Window(_above(weights, len(weights), NEWEST), len(weights))


def window_after_adding(window: Window, weights: Sequence[int]) -> Window:
    """The window once exchanges were added at the end, where one goes: what stands there stays, unless it is not the
    end that is shown, or too much was added at once."""
    whole = Window(window.first, len(weights))
    is_near = window.last > window.first and sum(weights[window.last :]) <= NEWEST
    return whole if is_near and sum(weights[whole.first :]) <= 2 * _FAR * NEWEST else newest_window(weights)


def window_at(window: Window, weights: Sequence[int], place: int) -> Window:
    """The window that has the exchange at `place`, and some beside it; `window` itself where it has that."""
    if window.first <= place < window.last:
        return window
    return Window(_above(weights, place, _REACH * NEAR), _below(weights, place + 1, _REACH * NEAR))


def window_around(window: Window, weights: Sequence[int], view: Window) -> Window:
    """The window for what is in view, which lies inside `window`; `window` itself as long as it will do."""
    near = max(NEAR, sum(weights[view.first : view.last]))
    first, last = window
    above, below = sum(weights[first : view.first]), sum(weights[view.last : last])
    if above < near or above > _FAR * near:
        first = _above(weights, view.first, _REACH * near)
    if below < near or below > _FAR * near:
        last = _below(weights, view.last, _REACH * near)
    return Window(first, last)


def is_near_top(weights: Sequence[int], view: Window) -> bool:
    """Whether so little stands above what is in view that more is to be loaded."""
    return sum(weights[: view.first]) < max(NEAR, sum(weights[view.first : view.last]))


def _above(weights: Sequence[int], end: int, reach: int) -> int:
    """The last index from which the exchanges up to `end` weigh `reach`; 0 where there are not so many."""
    first = end
    while first > 0 and reach > 0:
        first -= 1
        reach -= weights[first]
    return first


def _below(weights: Sequence[int], start: int, reach: int) -> int:
    """The first index up to which the exchanges from `start` weigh `reach`, or the end."""
    last = start
    while last < len(weights) and reach > 0:
        reach -= weights[last]
        last += 1
    return last
