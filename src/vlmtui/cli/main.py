"""Runs a command and turns its outcome into an exit code."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Sequence

from vlmtui.cli.parser import COMMANDS, make_parser, misplaced_option
from vlmtui.cli.streams import drop, is_of_output, is_output_lost, open_missing
from vlmtui.errors import VlmtuiError


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    open_missing()
    words = sys.argv[1:] if argv is None else argv
    parser = make_parser()
    if "_ARGCOMPLETE" in os.environ:
        from vlmtui.cli.completion import complete

        complete(parser)
    try:
        arguments = parser.parse_args(words)
    except OSError as error:
        return _output_lost(error)
    except SystemExit as end:
        if is_output_lost() and not end.code:
            return _output_lost()
        raise
    if misplaced := misplaced_option(arguments):
        parser.error(misplaced)
    if "data_dir" in arguments:
        if not arguments.data_dir:
            parser.error("--data-dir needs the name of a folder")
        from vlmtui.paths import use_data_dir

        use_data_dir(arguments.data_dir)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        place = "app.app" if arguments.command == "app" else COMMANDS[arguments.command][0]
        module, _, function = place.partition(".")
        status: int = getattr(importlib.import_module(f"vlmtui.cli.{module}"), function)(arguments)
        sys.stdout.flush()
    except VlmtuiError as error:
        from vlmtui.cli.output import print_error

        print_error(error)
        return error.exit_code
    except BrokenPipeError:
        # The reader of our output has gone. Without this, flushing stdout at exit would fail again.
        drop(1)
        return 128 + signal.SIGPIPE
    except OSError as error:
        return _output_lost(error) if is_of_output(error) else _internal_error(error)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except Exception as error:
        return _internal_error(error)
    return status


def _output_lost(error: OSError | None = None) -> int:
    from vlmtui.cli.output import note

    drop(1)
    reason = f": {error.strerror}" if error is not None and error.strerror else ""
    note(f"vlmtui: the output could not be written{reason}.")
    return 1


def _internal_error(error: Exception) -> int:
    """Report an unexpected exception, which is a bug in vlmtui; its traceback goes to the log."""
    import logging

    from vlmtui.cli.output import note
    from vlmtui.logs import log_to_file
    from vlmtui.paths import Paths

    note(f"vlmtui: internal error: {type(error).__name__}: {error}")
    try:
        log = Paths.default().logs / "cli.log"
        log_to_file(log)
    except (OSError, VlmtuiError):
        return 1
    logging.getLogger(__name__).error("uncaught", exc_info=error)
    note(f"The traceback is in {log}; please report it.")
    return 1
