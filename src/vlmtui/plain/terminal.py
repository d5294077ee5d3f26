"""The terminal in plain mode: reads lines and appends text. It never writes escape sequences."""

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
_SIGNAL_CHECK_S = 0.3
_READLINE_SETTINGS = ("enable-bracketed-paste off", "enable-meta-key off", "bell-style none")


class TerminalGone(Exception):
    """The terminal is gone, or a signal ended the session. `typed`: the unfinished line."""

    def __init__(self, typed: str = "") -> None:
        super().__init__("the terminal is gone")
        self.typed = typed


class LineTerminal:
    """Reads lines, with readline's editing and history unless stdin is a pipe or Emacs edits the lines. Only for the
    main thread, which receives the signals."""

    def __init__(self, history: PromptHistory) -> None:
        self._history = history
        self._is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        is_edited = self._is_terminal and not os.environ.get("INSIDE_EMACS")
        self._readline = self._import_readline() if is_edited else None
        self._is_reading = False
        self._is_line_start = True
        """True if the cursor is at the start of a line."""
        self._is_second = False
        """True if the next Ctrl+C is the second in a row."""
        self.ended_by = 0
        """The signal that ended the session; SIGHUP also if the terminal is gone; 0: none."""
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
        """Append text, with control characters made visible."""
        if not text or self.ended_by:
            return
        try:
            sys.stdout.write(visible(text))
            sys.stdout.flush()
        except (OSError, ValueError):
            self._end(signal.SIGHUP)
        self._is_line_start = text.endswith("\n")

    def write_line(self, text: str) -> None:
        """Append text that begins and ends a line."""
        self.write(("" if self._is_line_start else "\n") + text + "\n")

    def read_message(self, prompt: str) -> str | None:
        """Read a message: a line; a backslash at its end continues it on the next. Ctrl+C clears the line, which stays
        in the history. Return None at the end of the input, or after two Ctrl+C in a row. Raises TerminalGone with the
        text typed so far."""
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
        """Read the answer to a question; empty at the end of the input or after Ctrl+C. Raises TerminalGone."""
        try:
            return self._read(prompt).strip()
        except (EOFError, KeyboardInterrupt):
            return ""
        except TerminalGone as gone:
            raise TerminalGone from gone  # without the text: it is not part of the draft

    @staticmethod
    def detach() -> None:
        """Send the standard streams to /dev/null, so that nothing fails or blocks on a terminal that is gone."""
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
            # readline handles a signal only while it waits for a key. The timer ends that wait, so none is missed.
            signal.setitimer(signal.ITIMER_REAL, _SIGNAL_CHECK_S, _SIGNAL_CHECK_S)
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
        if self.ended_by:  # a lost terminal makes the unfinished line look complete
            raise TerminalGone(line)
        if not sys.stdin.isatty() or is_over:  # nothing echoed the line, and the output should read as a conversation
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
        """Return GNU readline or libedit, set up to write no escape sequences."""
        named = os.environ.get("TERM")
        os.environ["TERM"] = "dumb"  # so that the import writes no escape sequences
        try:
            import readline
        finally:
            if named is None:
                del os.environ["TERM"]
            else:
                os.environ["TERM"] = named
        for setting in _READLINE_SETTINGS:
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
