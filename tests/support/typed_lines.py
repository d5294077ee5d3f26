"""A terminal of plain mode with prepared input, for tests without a pseudo-terminal."""

from __future__ import annotations

from collections.abc import Iterable

from vlmtui.plain.terminal import LineTerminal


class TypedLines(LineTerminal):
    """Reads the given lines, answers yes to every question, and keeps the output."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self.text = ""
        self.ended_by = 0

    def write(self, text: str) -> None:
        self.text += text

    def write_line(self, text: str) -> None:
        self.text += f"{text}\n"

    def read_message(self, prompt: str) -> str | None:
        return next(self._lines, None)

    def read_answer(self, prompt: str) -> str:
        return "y"
