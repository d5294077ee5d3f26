"""The arguments of every command. Nothing heavy is imported here: `vlmtui --help` must be instant."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from vlmtui import __version__
from vlmtui.cli.ask_parser import add_media, fill_ask
from vlmtui.cli.batch_parser import fill_batch
from vlmtui.cli.completion import fill_completion
from vlmtui.cli.conversations_parser import fill_conversations, fill_export, fill_import
from vlmtui.cli.engines_parser import fill_engines
from vlmtui.cli.lab_parser import fill_golden, fill_lint, fill_parity, fill_replay
from vlmtui.cli.models_parser import fill_models
from vlmtui.cli.serve import fill_serve
from vlmtui.cli.store_parser import fill_store

_ITEMS_MAX = 10_000

_EPILOG = """\
exit codes: 0 fine, 1 failed, 2 bad usage or bad input, 128 + n ended by signal n (130: Ctrl+C)
answers and tables go to stdout; progress, notes and errors to stderr
settings: config.toml in the config folder, then VLMTUI_* in the environment, then the options here
"""

APP_OPTIONS = ("model", "graphics", "theme", "keep_alive")
"""Options of the app that are settings."""
_APP_ONLY = ("continue", "resume", "plain")
_WITH_VALUE = (*APP_OPTIONS, "backend", "engine", "key_env")


class _Parser(argparse.ArgumentParser):
    """A parser with `--data-dir`, which the app, every command and their subcommands accept."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.add_argument(
            "--data-dir",
            metavar="DIR",
            default=argparse.SUPPRESS,
            help="keep everything below this folder, like VLMTUI_DATA_DIR",
        )

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print a message. argparse ignores failures to write to stdout; here they are errors."""
        if file is sys.stdout:
            file.write(message)
        else:
            super()._print_message(message, file)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the app and all commands."""
    parser = _make_app_parser()
    parser.set_defaults(command="app")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=_Parser)
    for name, told, fill in (
        ("ask", "ask one question and print the answer", fill_ask),
        ("batch", "ask many questions, and append each answer to a file", fill_batch),
        ("models", "list the known models; show one; create a record of your own", fill_models),
        ("prompt", "print the prompt that a model would get; no engine is needed", _fill_prompt),
        ("lint", "check a model's chat template and tokenizer; no engine is loaded", fill_lint),
        ("golden", "record a model's prompts, and check whether they are still the same", fill_golden),
        ("replay", "answer kept comparisons and golden prompts again, on several engines", fill_replay),
        ("parity", "compare an engine with Transformers, stage by stage", fill_parity),
        ("conversations", "list the stored conversations", fill_conversations),
        ("export", "write conversations as Markdown, HTML, JSON or OpenAI messages", fill_export),
        ("import", "read exported conversations", fill_import),
        ("store", "check, back up, restore or measure the stored conversations", fill_store),
        ("config", "show file locations and effective settings", _fill_config),
        ("engines", "list the engines; install, verify, add or remove one", fill_engines),
        ("serve", "print the `vllm serve` command line for a model, with the reason for each flag", fill_serve),
        ("top", "show what a loaded model or a vLLM server is doing", _fill_top),
        ("doctor", "check whether this machine is ready", _fill_doctor),
        ("ps", "list the loaded models", _fill_ps),
        ("stop", "unload a model and free its memory", _fill_stop),
        (
            "completion",
            "print a script that completes commands, options and names in bash, zsh, fish or tcsh",
            fill_completion,
        ),
        ("help", "show a page of the documentation", _fill_help),
    ):
        command = commands.add_parser(name, help=told)
        fill(command)
        command.set_defaults(command=name)
    return parser


def _fill_help(help_: argparse.ArgumentParser) -> None:
    help_.description = "Show a page of the documentation, or the options of a command."
    help_.add_argument("topic", metavar="TOPIC", nargs="?", help="a topic or a command (default: list the topics)")


def misplaced_option(arguments: argparse.Namespace) -> str | None:
    """Return what is wrong with an option of the app before a command, where it would have no effect."""
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
    parser.add_argument("--version", action="version", version=f"vlmtui {__version__}")
    app = parser.add_argument_group("options of the app", "They can't be used before a command, which has its own.")
    _add_app_model(app)
    app.add_argument(
        "--graphics",
        choices=("auto", "kitty", "iterm", "sixel", "sextant", "quadrant", "halfcell", "off"),
        dest="app_graphics",
        help="how pictures are drawn",
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
        help="a chat in lines, which only appends: for screen readers and terminals without a screen",
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
        help="continue this one; `vlmtui conversations` lists them",
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
        "--engine",
        metavar="ENGINE",
        dest="app_engine",
        help="chat with a model of a vLLM server: http://HOST:PORT, unix:/PATH, or a name in config.toml "
        "([engines.NAME]); --model is one of its models",
    )
    app.add_argument(
        "--key-env", metavar="NAME", dest="app_key_env", help="the environment variable with the server's key"
    )


def _fill_top(top: argparse.ArgumentParser) -> None:
    top.description = (
        "Print once what the loaded models, or a vLLM server, are doing: requests, caches and tokens of each rank, and "
        "how long tokens take."
    )
    top.add_argument(
        "name",
        metavar="MODEL|ENGINE",
        nargs="?",
        help="a model that is loaded here (default: all), or a server: its address, such as http://127.0.0.1:8000 or "
        "unix:/PATH, or its name in config.toml",
    )
    top.add_argument("--key-env", metavar="NAME", help="the environment variable with the server's key")
    top.add_argument("--json", action="store_true", help="print one JSON object")


def _fill_prompt(prompt: argparse.ArgumentParser) -> None:
    prompt.description = (
        "Print the raw prompt or the messages of one question, as `ask` and the app would send them. With "
        "files, also print the estimated tokens of each, from the model's record."
    )
    prompt.add_argument("family", metavar="FAMILY", help="a family, a repository id or a local folder")
    prompt.add_argument("question", metavar="QUESTION", help="the question; - reads it from stdin")
    add_media(prompt)
    prompt.add_argument("--images", type=_item_count, default=0, metavar="N", help="with so many absent images")
    prompt.add_argument("--videos", type=_item_count, default=0, metavar="N", help="with so many absent videos")
    prompt.add_argument("--audios", type=_item_count, default=0, metavar="N", help="with so many absent sounds")
    prompt.add_argument("--mode", choices=("raw", "chat"), default="raw", help="the raw prompt, or messages (raw)")
    prompt.add_argument("--system", metavar="S", dest="system_prompt", help="the system prompt")
    prompt.add_argument(
        "--set",
        action="append",
        metavar="NAME=VALUE",
        dest="set_parameters",
        help="a parameter, as in `ask --set`: --json shows what the engine and its processor get; may be repeated",
    )
    prompt.add_argument("--json", action="store_true", help="print one JSON object")


def _item_count(text: str) -> int:
    """Parse a number of items, limited because each costs time and memory."""
    count = int(text)
    if count < 0:
        raise ValueError
    if count > _ITEMS_MAX:
        raise argparse.ArgumentTypeError(f"{text}: at most {_ITEMS_MAX:,}")
    return count


def _fill_config(config: argparse.ArgumentParser) -> None:
    config.description = "Show file locations, or the effective settings and where each comes from."
    config.set_defaults(action=None, json=False)
    actions = config.add_subparsers(metavar="ACTION")
    for name, text in (
        ("paths", "the folders and files of vlmtui"),
        ("show", "every setting, and where it comes from"),
    ):
        action = actions.add_parser(name, help=text, description=f"Print {text}.")
        action.add_argument("--json", action="store_true", help="print one JSON object")
        action.set_defaults(action=name)


def _fill_doctor(doctor: argparse.ArgumentParser) -> None:
    doctor.description = (
        "Check Python, settings, vLLM, torch, GPUs, memory, disk and terminal; then load the bundled model, "
        "ask it one question about a bundled picture, and check the answer. Exit code 1 when something fails. "
        "With --model: ask that model about drawn pictures whose content is known, and say whether it sees."
    )
    what = doctor.add_mutually_exclusive_group()
    what.add_argument("--model", metavar="MODEL", help="a family, a repository or a local folder to ask instead")
    doctor.add_argument("--backend", metavar="NAME", help="with --model: what runs it (that of its record)")
    doctor.add_argument("--trust-remote-code", action="store_true", help="with --model: let it run its own Python code")
    report = "print a block to paste into an issue, without paths, names, addresses, keys, prompts or messages"
    what.add_argument("--report", action="store_true", help=report)
    doctor.add_argument("--json", action="store_true", help="print one JSON object")


def _fill_ps(ps: argparse.ArgumentParser) -> None:
    ps.description = "List the running workers."
    ps.add_argument("--json", action="store_true", help="print a JSON array")


def _fill_stop(stop: argparse.ArgumentParser) -> None:
    stop.description = "Stop the worker of a model and all its processes, even during a load."
    which = stop.add_mutually_exclusive_group()
    which.add_argument("model", metavar="MODEL", nargs="?", help="its name or pid as listed by `vlmtui ps`")
    which.add_argument("--all", action="store_true", help="every model")
    stop.add_argument("--json", action="store_true", help="print a JSON array of what was stopped")
