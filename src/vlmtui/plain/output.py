"""Tells and asks in lines."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from vlmtui.errors import Remedy, VlmtuiError
from vlmtui.plain.terminal import LineTerminal
from vlmtui.session.answer_line import answer_line
from vlmtui.session.generation import Answer
from vlmtui.session.teller import Severity
from vlmtui.text import is_number, one_line
from vlmtui.ui.actions import ACTIONS
from vlmtui.ui.actions.remedies import REMEDIES

_DETAIL_LINES = 12
"""Most lines of an error's technical detail; the log has all."""
_REMEDIES: Mapping[Remedy, str] = {
    Remedy.STOP_ANSWER: "Ctrl+C stops it.",
    Remedy.RESTART_ENGINE: "/model NAME loads it again.",
    Remedy.SHRINK_MESSAGE: "/detach removes an attachment; /new starts a new conversation.",
    Remedy.LEAVE_OUT_OLDEST: "/new starts a new conversation.",
}
"""Remedies that plain mode has in its own way."""


class PlainOutput:
    """A `Teller` that writes lines. `commands`: ids of the actions that a remedy may name."""

    def __init__(self, terminal: LineTerminal, commands: Collection[str]) -> None:
        self._terminal = terminal
        self._commands = commands

    def lines(self, texts: Iterable[str]) -> None:
        """Write lines of their own."""
        for text in texts:
            self._terminal.write_line(text)

    def piece(self, text: str) -> None:
        """Continue the current line."""
        self._terminal.write(text)

    def tell(
        self, text: str, remedy: Remedy | None = None, *, seconds: float = 4.0, severity: Severity = "information"
    ) -> None:
        """Tell something in a line, with its remedy. `seconds` do not matter: nothing disappears here."""
        mark = {"information": "", "warning": "Warning: ", "error": "Error: "}[severity]
        self.lines([f"{mark}{text} {self._way(remedy)}".rstrip()])

    def tell_error(self, error: VlmtuiError) -> None:
        """Tell an error: what happened, the detail, what to do."""
        self.lines([f"Error: {one_line(error.message)}"])
        self.lines(f"  {one_line(line)}" for line in error.detail.splitlines()[-_DETAIL_LINES:])
        self.lines(filter(None, [f"{one_line(error.hint)} {self._way(error.remedy)}".strip()]))

    def confirm(self, question: str) -> bool:
        """Ask a question whose answer is no unless it is y or yes. Raises TerminalGone."""
        self.lines([question])
        return self._terminal.read_answer("[y/N] ").lower() in ("y", "yes")

    def choose(self, options: Sequence[str]) -> int | None:
        """Let the user choose by number; return the option's index, or None for anything else. Raises TerminalGone."""
        self.lines(f"  {number}  {option}" for number, option in enumerate(options, 1))
        given = self._terminal.read_answer(f"Number, 1 to {len(options)} (Enter: none): ")
        return int(given) - 1 if is_number(given) and 1 <= int(given) <= len(options) else None

    def _way(self, remedy: Remedy | None) -> str:
        """Return the sentence that names a remedy's slash commands; empty if one of them is missing here."""
        if remedy is None or remedy in _REMEDIES:
            return _REMEDIES[remedy] if remedy is not None else ""
        named = re.findall(r"\{([a-z_.]+)\}", REMEDIES[remedy])
        if not all(id in self._commands for id in named):
            return ""
        return re.sub(r"\{([a-z_.]+)\}", lambda found: ACTIONS[found[1]].slash, REMEDIES[remedy])


class AnswerLines:
    """Writes an answer while it grows, in whole words: a screen reader never reads half of one."""

    def __init__(self, output: PlainOutput, answer: Answer) -> None:
        self._output = output
        self._written: dict[str, str] = {}
        """The text written so far, by its heading."""
        self.follow(answer)

    def follow(self, answer: Answer) -> None:
        """Write an answer from now on, without the text that is written already."""
        self.answer = answer
        answer.on_event = self._grown
        self._grown()

    def end(self, marks: str) -> None:
        """Write the facts of the answer and how it ended. `marks`: its branches."""
        self.answer.on_event = None
        self._output.lines(f"[{facts}]" for facts in [answer_line(self.answer, marks)] if facts)
        if self.answer.failure is not None:
            self._output.tell_error(self.answer.failure.error())

    def _grown(self) -> None:
        parts = self.answer.parts(self.answer.text)
        self._grow("Reasoning:", parts.thinking, is_over=not parts.is_thinking)
        self._grow("Answer:", parts.answer, is_over=self.answer.outcome is not None)

    def _grow(self, heading: str, text: str, *, is_over: bool) -> None:
        """Write the new text, up to the last whole word."""
        if not text.strip():
            return
        if heading not in self._written:
            self._output.lines([] if heading == "Answer:" and not self._written else [heading])
        written = self._written.setdefault(heading, "")
        if written.startswith(text):
            return
        if not text.startswith(written):
            self._output.lines([""])
            written = ""
        end = len(text) if is_over else max(text.rfind(" "), text.rfind("\n"), len(written) - 1) + 1
        self._output.piece(text[len(written) : end])
        self._written[heading] = text[:end]
