"""Starts, pauses and goes on with batches that need no terminal.

Such a batch is a process in a session of its own. Nothing has to look after it: its engine is a worker, which outlives
it and has a guardian, and its answers are in its output file, so that the same command goes on after any end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.files import not_written, open_to_append
from vlmtui.paths import Paths, private_dir
from vlmtui.processes import python_command, safe_environment
from vlmtui.reading import read_tail
from vlmtui.session.batch.records import BatchRecord, BatchRecords, BatchState
from vlmtui.text import one_line, visible

COMMAND = "batch"
STDIN = "-"
_SAID_MAX = 4_000
_DATA_DIR = "--data-dir"


class BackgroundBatches:
    """The batches of this machine. Methods block, and raise VlmtuiError."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self.records = BatchRecords(paths)

    def start(self, words: Sequence[str], folder: Path, *, own: Sequence[str] = ()) -> Path:
        """Start `vlmtui WORDS` in a folder; return its output file once it has checked its arguments and files and is
        about to load its model. own: options of this run alone. Raises the error that it ended with."""
        at = command_at(words)
        if at is None:
            raise bad_input("This is not a command line of `vlmtui batch`.")
        ready, written = os.pipe()
        options = ["--ready", str(written), *own]
        command = python_command(sys.executable, "-m", "vlmtui", *words[: at + 1], *options, *words[at + 1 :])
        log = private_dir(self.records.folder) / f".starting-{os.getpid()}-{written}"
        try:
            with os.fdopen(open_to_append(log), "wb") as said:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                    cwd=folder,
                    env=safe_environment(os.environ),
                    start_new_session=True,
                    pass_fds=(written,),
                )
        except OSError as error:
            os.close(ready)
            log.unlink(missing_ok=True)
            raise not_written(log.name, log.parent, error) from error
        finally:
            os.close(written)
        try:
            with os.fdopen(ready, "rb") as pipe:
                output = os.fsdecode(pipe.read())
            if not output:
                raise _refused(process.wait(), log)
            log.replace(self.records.log(Path(output)))
            threading.Thread(target=process.wait, name="batch", daemon=True).start()  # so that no zombie stays
            return Path(output)
        finally:
            log.unlink(missing_ok=True)

    def pause(self, record: BatchRecord) -> None:
        """Have a running batch stop as Ctrl+C does; its answers so far are whole. Returns at once."""
        if self.records.state(record) is not BatchState.RUNNING:
            raise bad_input(f"{one_line(record.name)} is not being written: no batch runs.")
        with suppress(ProcessLookupError):
            os.kill(record.pid, signal.SIGINT)

    def resume(self, record: BatchRecord, *, own: Sequence[str] = ()) -> None:
        """Go on with a batch where it stopped. own: options of this run alone."""
        if self.records.state(record) is BatchState.RUNNING:
            raise bad_input(f"The batch of {one_line(record.name)} is running.")
        if record.input == STDIN:
            hint = "Run the same command with the same lines."
            raise bad_input("The batch read its items from stdin, which only you can give it again.", hint=hint)
        folder = Path(record.folder)
        if not folder.is_dir():
            raise bad_input(f"The folder {one_line(record.folder)}, where the batch was started, is gone.")
        self.start(record.words, folder, own=own)

    def require(self, output: Path) -> BatchRecord:
        """Return the record of an output file."""
        if (record := self.records.find(output)) is None:
            hint = "`vlmtui batches` lists the batches that this machine has run."
            raise bad_input(f"No batch that this machine has run writes {one_line(output.name)}.", hint=hint)
        return record

    def log_end(self, record: BatchRecord) -> str:
        """Return the end of what a batch without a terminal has said."""
        try:
            return read_tail(self.records.log(Path(record.output)), bytes_max=_SAID_MAX).decode("utf-8", "replace")
        except VlmtuiError:
            return ""


def command_at(words: Sequence[str]) -> int | None:
    """Return the place of `batch` in a command line; None if it is of another command."""
    for place, word in enumerate(words):
        if word == COMMAND and (place == 0 or words[place - 1] != _DATA_DIR):
            return place
    return None


def _refused(code: int, log: Path) -> VlmtuiError:
    """Return what a batch said that ended before it began."""
    try:
        said = read_tail(log, bytes_max=_SAID_MAX).decode("utf-8", "replace").strip()
    except VlmtuiError:
        said = ""
    first, _, rest = visible(said).partition("\n")
    message = first.removeprefix("vlmtui: ") or f"The batch ended with exit code {code} before it began."
    return VlmtuiError(ErrorKind.BAD_INPUT, message, detail=rest)
