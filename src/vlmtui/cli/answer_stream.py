"""Streams the answers of several lanes to stdout, one after another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from vlmtui.cli.output import write_answer
from vlmtui.session.lanes import Lane, Lanes, OnChange


class AnswerStream:
    """Streams the first answer, then prints the others in order, each below its label if it has one."""

    def __init__(self, lanes: Lanes, run: Callable[[OnChange], Awaitable[None]] | None = None) -> None:
        """`run` runs the lanes; None: all at once."""
        self._lanes = lanes
        self._run = run or lanes.run
        self._at = 0
        """Index of the lane being printed; past the last one when all are printed."""
        self._pieces = -1
        """Number of pieces of its answer printed so far; -1: not even its label."""

    async def run(self) -> None:
        """Run all lanes and print their answers. A partial answer ends with a line break."""
        try:
            self._print()
            await self._run(self._changed)
        finally:
            if self._at < len(self._lanes):
                self._end_line(self._lanes[self._at])

    def _changed(self, lane: Lane) -> None:
        if self._at < len(self._lanes) and lane is self._lanes[self._at]:
            self._print()

    def _print(self) -> None:
        """Print the rest of the current lane's answer so far, and go on with the next ones if it has ended."""
        while self._at < len(self._lanes):
            lane = self._lanes[self._at]
            if self._pieces < 0:
                if lane.spec.label:
                    write_answer(("\n" if self._at else "") + f"== {lane.spec.label} ==\n")
                self._pieces = 0
            for piece in lane.answer.pieces[self._pieces :]:
                write_answer(piece)
            self._pieces = len(lane.answer.pieces)
            if lane.is_running:
                return
            self._end_line(lane)
            self._at, self._pieces = self._at + 1, -1

    def _end_line(self, lane: Lane) -> None:
        printed = "".join(lane.answer.pieces[: max(self._pieces, 0)])
        if printed and not printed.endswith("\n"):
            write_answer("\n")
