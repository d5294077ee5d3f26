"""The terminal in plain mode: lines are read and appended, and no escape byte is ever written."""

from __future__ import annotations

import os
import signal
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, ModuleType

from vlmtui.session.prompt_history import PromptHistory
from vlmtui.text import one_line, visible

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOOKS_S = 0.3
_READLINE = ("enable-bracketed-paste off", "enable-meta-key off", "bell-style none")


class TerminalGone(Exception):
    """The terminal has gone, or the process was asked to end. `typed`: the line that was being typed."""

    def __init__(self, typed: str = "") -> None:
        super().__init__("the terminal is gone")
        self.typed = typed


class LineTerminal:
    """Reads lines with editing and history by readline, unless stdin is a pipe or Emacs edits the lines. Used by the
    main thread, which gets the signals."""

    def __init__(self, history: PromptHistory) -> None:
        self._history = history
        self._is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        is_edited = self._is_terminal and not os.environ.get("INSIDE_EMACS")
        self._readline = self._import_readline() if is_edited else None
        self._is_reading = False
        self._is_line_start = True
        """True while the cursor stands at the start of a line."""
        self._is_second = False
        """True if the next Ctrl+C is the second in a row."""
        self.ended_by = 0
        """The signal that ends the session; 0: none. SIGHUP, too, when the terminal has gone."""
        self.on_interrupt: Callable[[bool], object] = lambda is_second: None
        """Called on Ctrl+C while no line is read."""
        self.on_end: Callable[[], object] = lambda: None
        """Called when the session has to end while no line is read."""

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Handle Ctrl+C, SIGTERM and SIGHUP inside the `with` block."""
        before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        before[signal.SIGALRM] = signal.signal(signal.SIGALRM, lambda number, frame: None)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def write(self, text: str) -> None:
        """Append text, control characters made visible."""
        if not text or self.ended_by:
            return
        try:
            sys.stdout.write(visible(text))
            sys.stdout.flush()
        except (OSError, ValueError):
            self._end(signal.SIGHUP)
        self._is_line_start = text.endswith("\n")

    def write_line(self, text: str) -> None:
        """Append lines of their own."""
        self.write(("" if self._is_line_start else "\n") + text + "\n")

    def read_message(self, prompt: str) -> str | None:
        """Read a message: a line, and the next one after a backslash at its end. Ctrl+C clears the line, which stays
        in the history. Return None when the input ends, or after two Ctrl+C in a row. Raises TerminalGone with all
        that was typed."""
        read = ""
        while True:
            try:
                line = self._read("… " if read else prompt)
            except EOFError:
                return None
            except KeyboardInterrupt as interrupt:
                read, typed = "", str(interrupt)
                if self._is_second and not typed:
                    return None
                self._is_second = True
                self.write_line("Ctrl+C again or Ctrl+D quits; /help lists the commands.")
                continue
            except TerminalGone as gone:
                raise TerminalGone(read + gone.typed) from gone
            self._remember(line)
            if not line.endswith("\\"):
                return read + line
            read += f"{line[:-1]}\n"

    def read_answer(self, prompt: str) -> str:
        """Read the answer to a question; empty at the end of the input and after Ctrl+C. Raises TerminalGone."""
        try:
            return self._read(prompt).strip()
        except (EOFError, KeyboardInterrupt):
            return ""
        except TerminalGone as gone:
            raise TerminalGone from gone  # an answer is no part of the draft

    @staticmethod
    def detach() -> None:
        """Let nothing fail or block on a terminal that is gone."""
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        os.close(null)

    def _read(self, prompt: str) -> str:
        """Read a line. Raises EOFError, KeyboardInterrupt with the line typed so far, and TerminalGone."""
        self.write("" if self._is_line_start else "\n")
        if self.ended_by:
            raise TerminalGone
        line, is_over = "", False
        try:
            self._is_reading = True
            # readline looks for a signal only when one ends its wait for a key: it misses one that comes before.
            signal.setitimer(signal.ITIMER_REAL, _LOOKS_S, _LOOKS_S)
            line = input(one_line(prompt))
        except EOFError:
            is_over = True
        except OSError:
            self.ended_by = signal.SIGHUP
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._is_reading = False
        if not self.ended_by and self._is_terminal and _is_hung_up():
            self.ended_by = signal.SIGHUP
        if self.ended_by:  # when the terminal goes away, what was typed so far reads as a whole line
            raise TerminalGone(line)
        if not sys.stdin.isatty() or is_over:  # nobody has seen the line: a log is to read as a conversation
            self.write(f"{line}\n")
        if is_over:
            raise EOFError
        self._is_line_start, self._is_second = True, False
        return line

    def _remember(self, line: str) -> None:
        if line.strip():
            self._history.add(line)
            if self._readline is not None:
                self._readline.add_history(line)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        is_reading, self._is_reading = self._is_reading, False
        typed = self._readline.get_line_buffer() if self._readline is not None and is_reading else ""
        if number != signal.SIGINT and is_reading:
            self.ended_by = number
            raise TerminalGone(typed)
        if number != signal.SIGINT:
            self._end(number)
        elif is_reading:
            self._is_line_start = False
            self._remember(typed)
            raise KeyboardInterrupt(typed)
        else:
            is_second, self._is_second = self._is_second, True
            self.on_interrupt(is_second)

    def _end(self, number: int) -> None:
        if not self.ended_by:
            self.ended_by = number
            self.on_end()

    def _import_readline(self) -> ModuleType:
        """Return GNU readline or libedit, set up for a terminal that can only append."""
        named = os.environ.get("TERM")
        os.environ["TERM"] = "dumb"  # read when the module is imported; then it writes no escape sequences
        try:
            import readline
        finally:
            if named is None:
                del os.environ["TERM"]
            else:
                os.environ["TERM"] = named
        for setting in _READLINE:
            readline.parse_and_bind(f"set {setting}")
        with suppress(AttributeError):  # libedit may lack it
            readline.set_auto_history(False)
        for entry in self._history.entries:
            if "\n" not in entry:
                readline.add_history(entry)
        return readline


def _is_hung_up() -> bool:
    try:
        termios.tcgetattr(0)
    except termios.error:
        return True
    return False
