"""Output of commands: answers, JSON and tables to stdout; notes, errors and progress to stderr. Control characters
are made visible."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TextIO

from vlmtui.cli.streams import drop, is_utf8
from vlmtui.config.duration import describe_duration
from vlmtui.domain.engine import LoadProgress
from vlmtui.errors import VlmtuiError
from vlmtui.text import one_line, visible

_TICK_S = 0.2
_CLEAR = "\r\x1b[K"
_NUMBERS = r"\[\n\s*\d+(?:,\n\s*\d+)*\n\s*\]"
"""An indented list of integers. JSON strings contain no line breaks, so this never matches inside one."""


def write_answer(text: str) -> None:
    """Write a piece of an answer: unchanged to a pipe, with control characters made visible to a terminal."""
    sys.stdout.write(visible(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def note(text: str) -> None:
    """Write a line to stderr; an OSError is ignored."""
    write_notice(sys.stderr, f"{visible(text)}\n")


def write_notice(stream: TextIO, text: str) -> None:
    """Write text that may be lost. If writing fails, send all later output of the stream to /dev/null."""
    try:
        stream.write(text)
        stream.flush()
    except OSError:
        drop(stream.fileno())


def print_error(error: VlmtuiError) -> None:
    """Write an error to stderr: message, detail, hint."""
    note(f"vlmtui: {error.message}")
    if error.detail:
        note("".join(f"    {line}\n" for line in error.detail.splitlines()).rstrip())
    if error.hint:
        note(error.hint)


def print_json(value: object) -> None:
    """Print a value as indented JSON, with lists of integers on one line. Only ASCII if stdout is a terminal, where
    other characters may be hostile, or can't encode all characters."""
    import json  # the app starts without it

    text = json.dumps(value, indent=2, ensure_ascii=sys.stdout.isatty() or not is_utf8())
    print(
        re.sub(_NUMBERS, lambda match: " ".join(match[0].split()).replace("[ ", "[").replace(" ]", "]"), text),
        flush=True,
    )


def stay_note(model: str, keep_alive_s: float | None) -> str:
    from shlex import quote

    stays = "until it is stopped" if keep_alive_s is None else f"for {describe_duration(keep_alive_s)}"
    return f"{model} stays loaded {stays}; `vlmtui stop {quote(model)}` frees it now."


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows below a header row, in columns as wide as their widest cell."""
    shown = [[one_line(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


class StatusLine:
    """A line that changes in place. It only works on a terminal (`updates`)."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.updates = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"

    def show(self, text: str) -> None:
        """Show a text, cut to the terminal's width; do nothing if the line can't change in place."""
        if not self.updates:
            return
        try:
            width = os.get_terminal_size(self.stream.fileno()).columns
        except OSError:
            width = 80
        write_notice(self.stream, _CLEAR + text[: max(1, width - 1)])

    def clear(self) -> None:
        if self.updates:
            write_notice(self.stream, _CLEAR)


class LoadLine:
    """Progress of a load: one line that changes in place on a terminal, otherwise a line per stage."""

    def __init__(self, name: str, stream: TextIO) -> None:
        self._name = name
        self._line = StatusLine(stream)
        self._started = time.monotonic()
        self._stage = ""
        self._detail = ""

    def show(self, progress: LoadProgress) -> None:
        share = "" if progress.fraction is None else f" {progress.fraction:.0%}"
        self._detail = share + (f" ({one_line(progress.detail)})" if progress.detail else "")
        if not self._line.updates and progress.stage != self._stage:
            write_notice(self._line.stream, f"loading {one_line(self._name)}: {progress.stage.label.lower()}\n")
        self._stage = progress.stage
        self._draw()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[LoadLine]:
        """Update the elapsed time until the block ends, then clear the line."""
        ticker = asyncio.create_task(self._tick())
        try:
            yield self
        finally:
            ticker.cancel()
            with suppress(asyncio.CancelledError):
                await ticker
            self._line.clear()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._draw()

    def _draw(self) -> None:
        elapsed = time.monotonic() - self._started
        self._line.show(f"loading {one_line(self._name)}: {self._stage or 'starting'}{self._detail} · {elapsed:.0f} s")
