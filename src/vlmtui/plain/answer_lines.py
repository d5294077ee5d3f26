"""An answer as text that only grows, word by word."""

from __future__ import annotations

import asyncio

from vlmtui.plain.output import PlainOutput
from vlmtui.session.answer_line import answer_line
from vlmtui.session.generation import Answer


class AnswerLines:
    """Writes an answer while it arrives: whole words, so that a screen reader never reads half of one."""

    def __init__(self, output: PlainOutput, answer: Answer, *, shows_reasoning: bool) -> None:
        self._output = output
        self._answer = answer
        self._shows_reasoning = shows_reasoning
        self._reasoning = ""
        """What is written of it."""
        self._text = ""
        self._has_reasoned = False
        self._over = asyncio.Event()
        answer.on_event = self._grown
        self._grown()

    async def wait(self) -> None:
        """Wait until the answer has ended."""
        await self._over.wait()

    def has(self, answer: Answer) -> bool:
        """Return whether the text of another answer, to the same message, is the one written here."""
        return self._answer.text == answer.text

    def go_on_with(self, answer: Answer) -> None:
        """Write another answer from now on, without what it has in common with the start of the first one."""
        self._answer = answer
        answer.on_event = self._grown
        self._grown()

    def end(self, marks: str = "") -> None:
        """Write the rest, how the answer ended, and its facts. `marks`: its branches."""
        self._answer.on_event = None
        self._grown()
        if facts := answer_line(self._answer, marks):
            self._output.line(f"[{facts}]")
        if self._answer.failure is not None:
            self._output.tell_error(self._answer.failure.error())

    def _grown(self) -> None:
        is_over = self._answer.outcome is not None
        if is_over:
            self._over.set()
        parts = self._answer.parts(self._answer.text)
        if parts.thinking.strip():
            if not self._has_reasoned:
                self._has_reasoned = True
                self._output.line("Reasoning:" if self._shows_reasoning else "Reasoning (/thinking shows it) …")
            if self._shows_reasoning:
                self._reasoning = self._grow(self._reasoning, parts.thinking, is_over=not parts.is_thinking)
        if parts.answer.strip():
            if self._has_reasoned and not self._text:
                self._output.line("Answer:")
            self._text = self._grow(self._text, parts.answer, is_over=is_over)

    def _grow(self, written: str, text: str, *, is_over: bool) -> str:
        """Write what is new, up to the last whole word; return what is written now."""
        if written.startswith(text):
            return written
        if not text.startswith(written):
            self._output.line()
            written = ""
        end = len(text) if is_over else max(text.rfind(" "), text.rfind("\n")) + 1
        if end <= len(written):
            return written
        self._output.piece(text[len(written) : end])
        return text[:end]
