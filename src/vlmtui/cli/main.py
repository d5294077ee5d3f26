"""The command line: its commands, the app's options, and the exit code."""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from vlmtui import __version__
from vlmtui.cli.streams import drop, is_of_output, is_output_lost, open_missing
from vlmtui.errors import VlmtuiError, bad_input

_AROUND = 20
"""Characters to show on each side of what is not UTF-8."""

COMMANDS = {
    "ask": ("ask.ask", "ask one question and print the answer"),
    "batch": ("batch.batch", "ask many questions, and append each answer to a file"),
    "models": ("models.models", "list the known models; show one; create a record of your own"),
    "prompt": ("prompt.prompt", "print the prompt that a model would get; no engine is needed"),
    "lint": ("lint.lint", "check a model's chat template and tokenizer; no engine is loaded"),
    "check": ("check.check", "run the same cases on several engines, and find out where they differ"),
    "conversations": ("conversations.conversations", "list the stored conversations"),
    "export": ("conversations.export", "write conversations as Markdown, HTML, JSON or OpenAI messages"),
    "import": ("conversations.import_", "read exported conversations"),
    "store": ("store.store", "check, back up or restore the stored conversations"),
    "config": ("config.config", "show file locations and effective settings"),
    "engines": ("engines.engines", "list the engines; install, add or remove one"),
    "serve": ("serve.serve", "print the `vllm serve` command line for a model, with the reason for each flag"),
    "top": ("running.top", "show what a loaded model or a vLLM server is doing"),
    "doctor": ("doctor.doctor", "check whether this machine is ready"),
    "ps": ("running.ps", "list the loaded models"),
    "stop": ("running.stop", "unload a model and free its memory"),
    "completion": (
        "completion.completion",
        "print a script that completes commands, options and names in bash, zsh, fish or tcsh",
    ),
    "help": ("help.help_", "show a page of the documentation"),
}
"""The commands: name → `MODULE.FUNCTION` in `vlmtui.cli`, and a line for `vlmtui --help`. `fill_FUNCTION` in that
module adds the arguments."""

_EPILOG = """\
exit codes: 0 fine, 1 failed, 2 bad usage or bad input, 128 + n ended by signal n (130: Ctrl+C)
answers and tables go to stdout; progress, notes and errors to stderr
settings: config.toml in the config folder, then VLMTUI_* in the environment, then the options here
"""

APP_OPTIONS = ("model", "graphics", "theme", "keep_alive")
"""Options of the app that override settings."""
_MOVED = {"golden": "check record DIR --model M` and `check DIR", "replay": "check FILE", "parity": "check --on ENGINE"}
"""Former commands, and the commands that took their place."""
_APP_ONLY = ("continue", "resume", "plain")
_WITH_VALUE = (*APP_OPTIONS, "backend", "preset", "engine", "key_env")


class _Parser(argparse.ArgumentParser):
    """A parser with `--data-dir`, for the app and every command."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.add_argument(
            "--data-dir",
            metavar="DIR",
            default=argparse.SUPPRESS,
            help="keep everything below this folder, like VLMTUI_DATA_DIR",
        )

    def error(self, message: str) -> NoReturn:
        """Print a usage error, and end. For a command that is gone, name the one that replaced it."""
        former = next(
            (name for name in _MOVED if message.startswith("argument COMMAND") and f"'{name}'" in message), ""
        )
        super().error(f"{former} is now `{_MOVED[former]}`" if former else message)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print a message. argparse ignores an OSError of stdout; here it is raised."""
        if file is sys.stdout:
            file.write(message)
        else:
            super()._print_message(message, file)


class CommandParser(_Parser):
    """The parser of a command. It imports the command's module, which adds the arguments, only when it needs them:
    importing all would make `vlmtui --help` slow."""

    def __init__(self, *, command: str = "", **options: Any) -> None:
        super().__init__(**options)
        self._command = command

    def fill(self) -> None:
        command, self._command = self._command, ""
        if command:
            module, _, function = COMMANDS[command][0].partition(".")
            getattr(importlib.import_module(f"vlmtui.cli.{module}"), f"fill_{function.rstrip('_')}")(self)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, and let options stand between the files of a command that takes several."""
        is_first = bool(self._command)
        self.fill()
        if is_first and any(one.nargs in ("*", "+") and not one.option_strings for one in self._actions):
            return self.parse_known_intermixed_args(args, namespace)  # which calls this again
        return super().parse_known_args(args, namespace)

    def format_help(self) -> str:
        self.fill()
        return super().format_help()


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the app and all commands."""
    parser = _make_app_parser()
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=CommandParser)
    for name, (_, told) in COMMANDS.items():
        commands.add_parser(name, help=told, command=name).set_defaults(command=name)
    return parser


def misplaced_option(arguments: argparse.Namespace) -> str | None:
    """Return what is wrong with an app option before a command, where it has no effect; None if nothing is."""
    if arguments.command == "app":
        return None
    for name in _APP_ONLY:
        if getattr(arguments, f"app_{name}") is not None:
            return f"--{name} opens the app, without a command"
    given = [name for name in _WITH_VALUE if getattr(arguments, f"app_{name}") is not None]
    return f"--{given[0].replace('_', '-')} must stand after the command {arguments.command!r}" if given else None


def _make_app_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="vlmtui",
        description="Chat with vision-language models in the terminal. Without a command: open the app.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command="app")
    parser.add_argument("--version", action="version", version=f"vlmtui {__version__}")
    app = parser.add_argument_group("options of the app", "They can't be used before a command, which has its own.")
    _add_app_model(app)
    app.add_argument(
        "--graphics",
        choices=("auto", "kitty", "iterm", "sixel", "sextant", "quadrant", "halfcell", "off"),
        dest="app_graphics",
        help="how images are drawn",
    )
    app.add_argument("--theme", metavar="NAME", dest="app_theme", help="a theme's name")
    app.add_argument(
        "--keep-alive", metavar="DUR", dest="app_keep_alive", help="how long a model stays loaded after the app quits"
    )
    app.add_argument(
        "--plain",
        action="store_const",
        const=True,
        dest="app_plain",
        help="a chat in lines that only appends text: for screen readers and simple terminals",
    )
    which = app.add_mutually_exclusive_group()
    which.add_argument(
        "--continue",
        action="store_const",
        const=True,
        dest="app_continue",
        help="continue the most recently changed conversation",
    )
    which.add_argument(
        "--resume",
        metavar="ID",
        dest="app_resume",
        help="continue this conversation; `vlmtui conversations` lists the ids",
    )
    return parser


def _add_app_model(app: argparse._ArgumentGroup) -> None:
    app.add_argument("--model", metavar="M", dest="app_model", help="load this model at the start")
    app.add_argument(
        "--backend",
        metavar="BACKEND",
        dest="app_backend",
        help="what runs it here: vllm, transformers, or another version, as in vllm==0.23.0",
    )
    app.add_argument(
        "--preset",
        choices=("vllm-example",),
        dest="app_preset",
        help="load --model with the limits of vLLM's example scripts, for small GPUs",
    )
    app.add_argument(
        "--engine",
        metavar="ENGINE",
        dest="app_engine",
        help="chat with a model of a vLLM server: http://HOST:PORT, unix:/PATH, or a name in config.toml "
        "([engines.NAME]); --model is one of its models",
    )
    app.add_argument(
        "--key-env", metavar="NAME", dest="app_key_env", help="the environment variable with the server's key"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    open_missing()
    words = sys.argv[1:] if argv is None else argv
    # Making the parsers of all commands takes as long as importing the registry.
    parser = make_parser() if words or "_ARGCOMPLETE" in os.environ else _make_app_parser()
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
        run = getattr(importlib.import_module(f"vlmtui.cli.{module}"), function)
        if arguments.command != "app":  # which goes on importing
            gc.enable()
        status: int = run(arguments)
        sys.stdout.flush()
    except VlmtuiError as error:
        from vlmtui.cli.output import print_error

        print_error(error)
        return error.exit_code
    except BrokenPipeError:
        # The process that reads stdout has ended. Without this, the flush at exit would fail too.
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
    """Report an unexpected exception, a bug in vlmtui, and write its traceback to the log. For a text that is not
    UTF-8, report the text."""
    import logging

    from vlmtui.cli.output import note, print_error
    from vlmtui.logs import log_to_file
    from vlmtui.paths import Paths
    from vlmtui.text import quoted

    if isinstance(error, UnicodeEncodeError):
        found = error.object[max(0, error.start - _AROUND) : error.end + _AROUND]
        wrong = bad_input(f"{quoted(found)} is not UTF-8.", detail=str(error), hint="Rename it, or write it otherwise.")
        print_error(wrong)
        return wrong.exit_code
    note(f"vlmtui: internal error: {type(error).__name__}: {error}")
    try:
        log = Paths.default().logs / "cli.log"
    except VlmtuiError:
        return 1
    if not log_to_file(log):
        return 1
    logging.getLogger(__name__).error("uncaught", exc_info=error)
    note(f"The traceback is in {log}; please report it.")
    return 1
