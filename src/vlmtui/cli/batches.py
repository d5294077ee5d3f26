"""`vlmtui batches`: list the batches of this machine; follow one, pause it, or go on with it."""

from __future__ import annotations

import argparse
import sys
import threading
from pathlib import Path

import msgspec

from vlmtui.cli.batch_progress import CountsLine, progress_text
from vlmtui.cli.output import note, print_json, print_table
from vlmtui.config.duration import describe_duration
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import Paths
from vlmtui.session.batch.background import BackgroundBatches
from vlmtui.session.batch.records import BatchRecord, BatchState
from vlmtui.text import one_line

_LOOK_S = 0.5


def batches(arguments: argparse.Namespace) -> int:
    """Run the command. Raises VlmtuiError."""
    found = BackgroundBatches(Paths.default())
    if arguments.action == "list":
        return _list(found, as_json=arguments.json)
    if arguments.output is None:
        message = f"{arguments.action} needs OUT, the file that the batch writes."
        raise VlmtuiError(ErrorKind.BAD_USAGE, message, hint="`vlmtui batches` lists them.")
    record = found.require(Path(arguments.output))
    match arguments.action:
        case "attach":
            return _attach(found, record)
        case "pause":
            found.pause(record)
            found.records.wait(Path(record.output))
            note(f"{one_line(record.name)} is paused. To go on: vlmtui batches resume {one_line(arguments.output)}")
        case _:
            found.resume(record)
            note(f"{one_line(record.name)} goes on. To see how far it is: vlmtui batches attach {arguments.output}")
    return 0


def _list(found: BackgroundBatches, *, as_json: bool) -> int:
    told = [(record, found.records.state(record)) for record in found.records.all()]
    if as_json:
        print_json([{**msgspec.to_builtins(record), "state": state.value} for record, state in told])
    elif not told:
        note("This machine has run no batch.")
    else:
        print_table(["STATE", "DONE", "FAILED", "READ", "TOOK", "OUT"], [_row(record, state) for record, state in told])
    return 0


def _row(record: BatchRecord, state: BatchState) -> list[str]:
    counts = record.progress
    return [
        state.value,
        f"{counts.done:,}",
        f"{counts.failed:,}",
        "" if counts.share is None else f"{counts.share:.0%}",
        describe_duration(max(1, round(counts.elapsed_s))) if counts.elapsed_s else "",
        one_line(record.output),
    ]


def _attach(found: BackgroundBatches, record: BatchRecord) -> int:
    """Show how far a batch is until it ends; return its exit code."""
    output = Path(record.output)
    ended = threading.Event()

    def wait() -> None:
        found.records.wait(output)
        ended.set()

    threading.Thread(target=wait, name="attach", daemon=True).start()
    line = CountsLine(sys.stderr)
    while not ended.wait(_LOOK_S):
        if (now := found.records.find(output)) is not None:
            line.show(progress_text(now.progress))
    line.clear()
    record = found.records.find(output) or record
    if said := found.log_end(record).strip():
        note(said)
    state = found.records.state(record)
    note(f"{one_line(record.name)}: {state.value}, {progress_text(record.progress)}.")
    return record.exit_code if record.exit_code is not None else 1
