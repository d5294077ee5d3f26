"""What plain mode writes, as events on their way from the session's thread to the terminal's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from vlmtui.errors import Remedy, VlmtuiError
from vlmtui.plain.wording import remedy_command
from vlmtui.session.teller import Severity
from vlmtui.text import is_number, one_line

_DETAIL_LINES = 12
"""Most lines of an error's technical detail; the log has all."""
_YES = frozenset({"y", "yes"})


class Line(NamedTuple):
    """Lines of their own. Hostile: the terminal makes control characters visible."""

    text: str


class TextPiece(NamedTuple):
    """Text that continues the line, such as an answer's next words. Hostile."""

    text: str


class Question(NamedTuple):
    """Asks for a line; `answer` gets it, or None at the end of the input."""

    prompt: str
    answer: Callable[[str | None], None]


class Done(NamedTuple):
    """The command that was given is over."""

    future: Future[Any]


Event = Line | TextPiece | Question | Done


class PlainOutput:
    """Tells and asks, from the session's thread. Never waits for the terminal to write."""

    def __init__(self, put: Callable[[Event], None]) -> None:
        self._put = put

    def line(self, text: str = "") -> None:
        """Write a line of its own."""
        self._put(Line(text))

    def lines(self, texts: Iterable[str]) -> None:
        for text in texts:
            self.line(text)

    def piece(self, text: str) -> None:
        """Continue the current line."""
        if text:
            self._put(TextPiece(text))

    def tell(
        self, text: str, remedy: Remedy | None = None, *, seconds: float = 4.0, severity: Severity = "information"
    ) -> None:
        """Tell something in a line, with its remedy. `seconds` do not matter: nothing disappears here."""
        mark = {"information": "", "warning": "Warning: ", "error": "Error: "}[severity]
        self.line(" ".join(filter(None, (f"{mark}{text}", remedy_command(remedy)))))

    def tell_error(self, error: VlmtuiError) -> None:
        """Tell an error: what happened, the detail, what to do."""
        self.line(f"Error: {one_line(error.message)}")
        self.lines(f"  {one_line(line)}" for line in error.detail.splitlines()[-_DETAIL_LINES:])
        if said := " ".join(filter(None, (one_line(error.hint), remedy_command(error.remedy)))):
            self.line(said)

    async def ask(self, prompt: str) -> str:
        """Ask for a line; empty at the end of the input."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str] = loop.create_future()

        def give(text: str | None) -> None:
            loop.call_soon_threadsafe(_resolve, answer, text or "")

        self._put(Question(prompt, give))
        return (await answer).strip()

    async def confirm(self, question: str) -> bool:
        """Ask a question whose answer is no unless it is y or yes."""
        self.line(question)
        return (await self.ask("[y/N] ")).lower() in _YES

    async def choose(self, options: Sequence[str]) -> int | None:
        """Let the user choose by number; return the option's index, or None for anything else."""
        self.lines(f"  {number}  {option}" for number, option in enumerate(options, 1))
        given = await self.ask(f"Number, 1 to {len(options)} (Enter: none): ")
        return int(given) - 1 if is_number(given) and 1 <= int(given) <= len(options) else None


def _resolve(answer: asyncio.Future[str], text: str) -> None:
    if not answer.done():
        answer.set_result(text)
