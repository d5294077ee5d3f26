"""Runs plain mode: the terminal in the main thread, the session in another one. Only events pass between them."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from vlmtui.plain.commands import slash_commands
from vlmtui.plain.output import Done, Event, Line, PlainOutput, Question, TextPiece
from vlmtui.plain.parts import PlainServices
from vlmtui.plain.session import NextLine, PlainReport, PlainSession
from vlmtui.plain.terminal import LineTerminal, TerminalGone
from vlmtui.session.prompt_history import PromptHistory

_T = TypeVar("_T")


def run_plain(services: PlainServices) -> tuple[int, PlainReport]:
    """Run a session until the user quits, the input ends, or the terminal goes away. Return the exit code, and what
    remains."""
    terminal = LineTerminal(PromptHistory(services.paths.state / "prompts.jsonl"), commands=slash_commands())
    return _Conductor(services, terminal).run()


class _Conductor:
    """Reads lines and hands them over; writes what the session tells meanwhile."""

    def __init__(self, services: PlainServices, terminal: LineTerminal) -> None:
        self._terminal = terminal
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="session", daemon=True)
        self._session = PlainSession(services, PlainOutput(self._events.put))
        terminal.on_interrupt = self._interrupt
        terminal.on_end = lambda: self._events.put(Line(""))  # wakes the terminal's thread

    def run(self) -> tuple[int, PlainReport]:
        """Run the session."""
        self._thread.start()
        try:
            with self._terminal.signals():
                return self._converse()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _interrupt(self) -> None:
        self._loop.call_soon_threadsafe(self._session.interrupt)

    def _converse(self) -> tuple[int, PlainReport]:
        report: PlainReport | None = None
        try:
            self._read_lines()
            report = self._follow(self._session.leave())
        except TerminalGone as gone:
            self._terminal.detach()
            report = self._leave_at_once(gone.typed)
            return 128 + gone.number, report
        finally:
            if report is None:  # a fault, which the command line reports
                self._leave_at_once()
        return 0 if report.is_saved else 1, report

    def _leave_at_once(self, typed: str = "") -> PlainReport:
        """Store everything, without the terminal; a running answer goes on in the engine."""
        leaving = self._session.leave(hung_up=True, typed=typed)
        return asyncio.run_coroutine_threadsafe(leaving, self._loop).result()

    def _read_lines(self) -> None:
        """Hand over lines until the session or the input is over."""
        following = self._follow(self._session.begin())
        while following is not None:
            try:
                line = self._read(following)
            except EOFError:
                return
            except KeyboardInterrupt:
                self._terminal.write_line("Ctrl+D quits; /help lists the commands.")
                continue
            following = self._follow(self._session.take(line))

    def _read(self, following: NextLine) -> str:
        """Read a line; one that ends with a backslash goes on with the next."""
        self._drain()
        line = self._terminal.read(following.prompt, prefill=following.prefill)
        while line.endswith("\\"):
            line = f"{line[:-1]}\n{self._terminal.read('… ')}"
        return line

    def _follow(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run something in the session's thread to its end, and write what it tells. Raises TerminalGone."""
        future: Future[_T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        future.add_done_callback(lambda done: self._events.put(Done(done)))
        while True:
            event = self._events.get()
            self._terminal.require()
            if isinstance(event, Done) and event.future is future:
                return future.result()
            self._take(event)

    def _drain(self) -> None:
        """Write what was told while a line was read."""
        while True:
            try:
                event = self._events.get_nowait()
            except queue.Empty:
                return
            self._take(event)

    def _take(self, event: Event) -> None:
        match event:
            case Line(text=text):
                self._terminal.write_line(text)
            case TextPiece(text=text):
                self._terminal.write(text)
            case Question(prompt=prompt, answer=answer):
                answer(self._answer_to(prompt))
            case Done():
                pass

    def _answer_to(self, prompt: str) -> str | None:
        try:
            return self._terminal.read(prompt, remember=False)
        except (EOFError, KeyboardInterrupt):
            return None
