"""When a text that grows is shown."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from textual.widget import Widget

INTERVAL_S = 0.1
"""Shortest interval in seconds in which a growing text is shown."""
_REST = 4.0
"""How many times as long as showing it takes other things have before the next time: keys, above all."""


class Rhythm:
    """Shows what came: at once after a pause, else in a while, together with all that comes until then."""

    def __init__(self, widget: Widget, show: Callable[[], None]) -> None:
        self._widget = widget
        self._show = show
        self._is_due = False
        self._shown_at = float("-inf")
        self._took_s = 0.0

    def wake(self) -> None:
        """Note that there is something to show."""
        if self._is_due:
            return
        self._is_due = True
        wait_s = self._shown_at + max(INTERVAL_S, self._took_s * (1 + _REST)) - time.monotonic()
        if wait_s > 0:
            asyncio.get_running_loop().call_later(wait_s, self._widget.call_next, self._beat)
        else:
            self._widget.call_next(self._beat)

    def _beat(self) -> None:
        self._is_due = False
        if self._widget.is_attached:
            self._shown_at = time.monotonic()
            self._show()
            self._took_s = time.monotonic() - self._shown_at
