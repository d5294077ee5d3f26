"""Tells how far a batch is, on stderr: one line that changes on a terminal, otherwise a line now and then."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TextIO

from vlmtui.cli.output import is_tty, write_notice
from vlmtui.config.duration import describe_duration
from vlmtui.session.batch.tally import Tally

_TERMINAL_S = 0.25
_PLAIN_S = 10.0
_CLEAR = "\r\x1b[K"


class BatchProgress:
    """Call it with the counts whenever they have changed; it writes when it is time. share: of the input that was read,
    from 0 to 1, or None."""

    def __init__(self, stream: TextIO, share: Callable[[], float | None]) -> None:
        self._stream = stream
        self._share = share
        self._updates = is_tty(stream) and os.environ.get("TERM", "dumb") != "dumb"
        self._started = self._shown = time.monotonic()

    def __call__(self, tally: Tally) -> None:
        now = time.monotonic()
        if now - self._shown < (_TERMINAL_S if self._updates else _PLAIN_S):
            return
        self._shown = now
        text = self._line(tally, now - self._started)
        if not self._updates:
            write_notice(self._stream, text + "\n")
            return
        try:
            width = os.get_terminal_size(self._stream.fileno()).columns
        except OSError:
            width = 80
        write_notice(self._stream, _CLEAR + text[: max(1, width - 1)])

    def clear(self) -> None:
        """Remove the line."""
        if self._updates:
            write_notice(self._stream, _CLEAR)

    def _line(self, tally: Tally, elapsed_s: float) -> str:
        new = tally.answered + tally.failed
        parts = [
            f"{tally.done:,} done",
            f"{new / elapsed_s:.1f} items/s",
            f"{tally.media_tokens / elapsed_s:,.0f} image tokens/s",
            f"{tally.failed:,} failed",
        ]
        share = self._share()
        if share and 0 < share < 1:
            left_s = elapsed_s * (1 - share) / share
            parts += [f"{share:.0%} read", f"~{describe_duration(max(1, round(left_s)))} left"]
        return " · ".join(parts)
