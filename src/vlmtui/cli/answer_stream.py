"""The answers of lanes on stdout, one after the other."""

from __future__ import annotations

from vlmtui.cli.output import write_answer
from vlmtui.session.lanes import Lane, Lanes


class AnswerStream:
    """Prints the first answer as it comes, then the others in their order, each below its label where it has one."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._at = 0
        """The lane that is printed now; beyond the last one, all are."""
        self._pieces = -1
        """How many pieces of its answer are printed; -1: not even its label."""

    async def run(self) -> None:
        """Ask all lanes, and print. What was printed of an answer that breaks off ends with a line break."""
        try:
            self._print()
            await self._lanes.run(self._changed)
        finally:
            if self._at < len(self._lanes):
                self._end_line(self._lanes[self._at])

    def _changed(self, lane: Lane) -> None:
        if self._at < len(self._lanes) and lane is self._lanes[self._at]:
            self._print()

    def _print(self) -> None:
        """All that is there of the lane, and of those after it where it is at its end."""
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
