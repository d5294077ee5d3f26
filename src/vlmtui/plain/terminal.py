"""The terminal in plain mode: lines in, lines out, not one escape sequence. Used by the main thread only."""

from __future__ import annotations

import os
import signal
import sys
import termios
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from types import FrameType
from typing import TYPE_CHECKING

from vlmtui.plain.signals import handled_signals
from vlmtui.text import one_line, visible

if TYPE_CHECKING:
    from vlmtui.session.prompt_history import PromptHistory

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SETTINGS = ("enable-bracketed-paste off", "enable-meta-key off", "page-completions off", "bell-style none")


class TerminalGone(Exception):
    """The terminal disappeared, or the process was asked to end. `typed` is the line that was being typed."""

    def __init__(self, typed: str = "", number: int = signal.SIGHUP) -> None:
        super().__init__("the terminal is gone")
        self.typed = typed
        self.number = number


class LineTerminal:
    """Appends text, and reads lines: with editing and history, unless the terminal edits lines itself."""

    def __init__(self, history: PromptHistory, *, commands: tuple[str, ...] = ()) -> None:
        """`commands`: what Tab completes at the start of a line."""
        self._history = history
        self._is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        self._readline = _Readline(history.entries, commands) if self._is_terminal and _edits_lines() else None
        self._is_reading = False
        self._at_start = True
        """Whether the cursor stands at the start of a line."""
        self._ended_by = 0
        """The signal that asked the process to end; 0: none."""
        self.on_interrupt: Callable[[], None] = lambda: None
        """Called on Ctrl+C while no line is being read."""
        self.on_end: Callable[[], None] = lambda: None
        """Called when the process is asked to end while no line is being read."""

    def signals(self) -> AbstractContextManager[None]:
        """Handle Ctrl+C, SIGTERM and SIGHUP meanwhile."""
        return handled_signals(_SIGNALS, self._on_signal)

    def require(self) -> None:
        """Raise TerminalGone if the process was asked to end."""
        if self._ended_by:
            raise TerminalGone(number=self._ended_by)

    def write(self, text: str) -> None:
        """Append text, control characters made visible. Raises TerminalGone."""
        shown = visible(text)
        if not shown:
            return
        try:
            sys.stdout.write(shown)
            sys.stdout.flush()
        except (OSError, ValueError) as error:
            raise TerminalGone from error
        self._at_start = shown.endswith("\n")

    def write_line(self, text: str) -> None:
        """Append lines of their own. Raises TerminalGone."""
        self.write(("" if self._at_start else "\n") + text + "\n")

    def read(self, prompt: str, *, prefill: str = "", remember: bool = True) -> str:
        """Read a line. `prefill` stands in it where lines can be edited, and above it elsewhere.

        Raises EOFError at the end of the input, KeyboardInterrupt on Ctrl+C, and TerminalGone.
        """
        self.require()
        if prefill and self._readline is None:
            self.write_line(f"Draft (Enter on an empty line sends it): {prefill}")
        if not self._at_start:
            self.write("\n")
        try:
            line = self._read(one_line(prompt), prefill)
        except OSError as error:
            raise TerminalGone from error
        except EOFError:
            self._at_start = False
            if self._ended_by or self._is_gone():
                raise TerminalGone(number=self._ended_by or signal.SIGHUP) from None
            self.write("\n")  # what is told next stands in a line of its own
            raise
        if self._ended_by or self._is_gone():
            # When the terminal goes away, what was typed so far reads as a whole line.
            raise TerminalGone(line, self._ended_by or signal.SIGHUP)
        if not sys.stdin.isatty():  # nobody has seen the line: a log is to read as a conversation
            self.write(f"{line}\n")
        self._at_start = sys.stdin.isatty()  # it echoed the line's end
        if remember and line.strip():
            self.remember(line)
        return line

    def remember(self, line: str) -> None:
        """Add a line to the history."""
        self._history.add(line)
        if self._readline is not None:
            self._readline.remember(line)

    @staticmethod
    def detach() -> None:
        """Let nothing fail or block on a terminal that is gone."""
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        os.close(null)

    def _read(self, prompt: str, prefill: str) -> str:
        if self._readline is not None:
            self._readline.prefill = prefill
        self._is_reading = True
        try:
            return input(prompt)
        finally:
            self._is_reading = False

    def _is_gone(self) -> bool:
        if not self._is_terminal:
            return False
        try:
            termios.tcgetattr(0)
        except termios.error:
            return True
        return False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        typed = self._readline.typed if self._readline is not None and self._is_reading else ""
        if number != signal.SIGINT:
            self._ended_by = number
            if self._is_reading:
                raise TerminalGone(typed, number)
            self.on_end()
        elif self._is_reading:
            self._at_start = False
            if typed.strip():
                self.remember(typed)
            raise KeyboardInterrupt
        else:
            self.on_interrupt()


def _edits_lines() -> bool:
    """Return whether lines are edited here: Emacs' shell edits them itself."""
    return not os.environ.get("INSIDE_EMACS")


class _Readline:
    """GNU readline or libedit, told that the terminal can do nothing but append."""

    def __init__(self, entries: list[str], commands: tuple[str, ...]) -> None:
        named = os.environ.get("TERM")
        os.environ["TERM"] = "dumb"  # read when the module is imported; then it writes no escape sequences
        try:
            import readline
        finally:
            if named is None:
                del os.environ["TERM"]
            else:
                os.environ["TERM"] = named
        self._module = readline
        self._commands = commands
        self.prefill = ""
        for setting in _SETTINGS:
            readline.parse_and_bind(f"set {setting}")
        readline.parse_and_bind("tab: complete")
        with suppress(AttributeError):  # libedit may lack it
            readline.set_auto_history(False)
        for entry in entries:
            if "\n" not in entry:
                readline.add_history(entry)
        readline.set_completer_delims(" ")
        readline.set_completer(self._complete)
        readline.set_startup_hook(self._begin)

    @property
    def typed(self) -> str:
        """The line being typed."""
        return self._module.get_line_buffer()

    def remember(self, line: str) -> None:
        self._module.add_history(line)

    def _begin(self) -> None:
        if self.prefill:
            self._module.insert_text(self.prefill)
        self.prefill = ""

    def _complete(self, text: str, at: int) -> str | None:
        if self._module.get_begidx() or not text.startswith("/"):
            return None
        found = [command for command in self._commands if command.startswith(text)]
        return f"{found[at]} " if at < len(found) else None
