"""Tells how far a batch is, on stderr: one line that changes on a terminal, otherwise a line now and then."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TextIO

from vlmtui.cli.output import is_tty, write_notice
from vlmtui.config.duration import describe_duration
from vlmtui.session.batch.records import BatchCounts, RunningBatch
from vlmtui.session.batch.tally import Tally

_TERMINAL_S = 0.25
_PLAIN_S = 10.0
_CLEAR = "\r\x1b[K"


class CountsLine:
    """A line on a stream that is not written more often than people, or a log, can use."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._updates = is_tty(stream) and os.environ.get("TERM", "dumb") != "dumb"
        self._shown = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether it is time to show the line again."""
        return time.monotonic() - self._shown >= (_TERMINAL_S if self._updates else _PLAIN_S)

    def show(self, text: str) -> None:
        """Show a text if it is time."""
        if not self.is_due:
            return
        self._shown = time.monotonic()
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


class BatchProgress:
    """Call it with the counts whenever they have changed; it writes when it is time. share: of the input that was read,
    from 0 to 1, or None. record: of the batch, which gets the counts, too."""

    def __init__(self, stream: TextIO, share: Callable[[], float | None], record: RunningBatch) -> None:
        self._line = CountsLine(stream)
        self._share = share
        self._record = record
        self._started = time.monotonic()

    def begin(self) -> None:
        """Count the time from now on: the engine is ready."""
        self._started = time.monotonic()
        self._record.begin()

    def __call__(self, tally: Tally) -> None:
        self._record.tell(tally, self._share())
        if self._line.is_due:
            self._line.show(progress_text(BatchCounts.of(tally, self._share(), time.monotonic() - self._started)))

    def clear(self) -> None:
        """Remove the line."""
        self._line.clear()


def progress_text(counts: BatchCounts) -> str:
    """Return how far a run is, for people."""
    if not counts.elapsed_s:
        return f"{counts.done:,} done · the engine is not ready yet"
    elapsed_s = max(counts.elapsed_s, 1e-9)
    parts = [
        f"{counts.done:,} done",
        f"{(counts.answered + counts.failed) / elapsed_s:.1f} items/s",
        f"{counts.media_tokens / elapsed_s:,.0f} image tokens/s",
        f"{counts.failed:,} failed",
    ]
    if counts.share and (left_s := counts.left_s) is not None:
        parts += [f"{counts.share:.0%}", f"~{describe_duration(max(1, round(left_s)))} left"]
    return " · ".join(parts)
