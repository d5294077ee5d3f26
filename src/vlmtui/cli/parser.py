"""The arguments of every command. Nothing heavy is imported here: `vlmtui --help` must be instant."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from vlmtui import __version__

_EPILOG = """\
exit codes: 0 fine, 1 failed, 2 bad usage or bad input, 128 + n ended by signal n (130: Ctrl+C)
answers and tables go to stdout; progress, notes and errors to stderr
settings: config.toml in the config folder, then VLMTUI_* in the environment, then the options here
"""

APP_OPTIONS = ("model", "graphics", "theme", "keep_alive")


class _AppendMedia(argparse.Action):
    """Collects --image and --video in one list, in the order given."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        given = getattr(namespace, self.dest) or []
        setattr(namespace, self.dest, [*given, (self.const, values)])


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="vlmtui",
        description="Chat with vision-language models in the terminal. Without a command: open the app.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"vlmtui {__version__}")
    app = parser.add_argument_group("options of the app", "They cannot stand before a command, which has its own.")
    app.add_argument("--model", metavar="M", dest="app_model", help="load this model at once")
    app.add_argument(
        "--graphics",
        choices=("auto", "kitty", "sixel", "halfcell", "off"),
        dest="app_graphics",
        help="how pictures are drawn",
    )
    app.add_argument("--theme", metavar="NAME", dest="app_theme", help="a theme's name")
    app.add_argument(
        "--keep-alive", metavar="DUR", dest="app_keep_alive", help="how long a model stays once the app has gone"
    )
    parser.set_defaults(command="app")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    _add_ask(commands)
    _add_models(commands)
    _add_prompt(commands)
    _add_doctor(commands)
    _add_ps(commands)
    _add_stop(commands)
    return parser


def _add_ask(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    ask = commands.add_parser(
        "ask",
        help="ask one question and print the answer",
        description="Ask one question. The answer is streamed to stdout. A worker of that model that already runs is "
        "used at once; otherwise one is started, and stays for --keep-alive.",
    )
    ask.add_argument("question", metavar="QUESTION", help="the question; - reads it from stdin")
    ask.add_argument("--model", metavar="M", help="a family, a repository id or a local folder (default: shapes)")
    for kind in ("image", "video"):
        ask.add_argument(
            f"--{kind}",
            dest="media",
            action=_AppendMedia,
            const=kind,
            metavar="P",
            help=f"{'an' if kind == 'image' else 'a'} {kind} file; may be repeated, the order is kept",
        )
    ask.add_argument("--system", metavar="S", dest="system_prompt", help="the system prompt")
    ask.add_argument("--max-tokens", type=int, metavar="N", help="the longest answer, in tokens")
    ask.add_argument("--temperature", type=float, metavar="T", help="0 is greedy")
    ask.add_argument("--top-p", type=float, metavar="P", help="share of the probability mass to choose from")
    ask.add_argument("--seed", type=int, metavar="N", help="the same seed gives the same answer")
    ask.add_argument(
        "--keep-alive",
        metavar="DUR",
        help="how long the model stays loaded afterwards: 5m, 90s, 0, forever (default: 5m)",
    )
    ask.add_argument(
        "--trust-remote-code",
        action="store_true",
        help="let the model's repository run its own Python code on this machine; never the default",
    )
    ask.add_argument(
        "--engine-arg",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a vLLM engine argument on top of the record's, for instance max_model_len=4096; may be repeated",
    )
    ask.add_argument("--json", action="store_true", help="print one JSON object at the end instead of streaming")
    ask.set_defaults(command="ask")


def _add_models(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    models = commands.add_parser(
        "models",
        help="list the models that are known; show one; begin a record of your own",
        description="List the families of models that are known, and whether they run here.",
    )
    models.add_argument("--json", action="store_true", help="print a JSON array")
    models.add_argument("--modality", choices=("image", "video"), help="only those that take it")
    models.add_argument("--runnable", action="store_true", help="only those that the installed vLLM runs")
    models.set_defaults(command="models", action="list")
    actions = models.add_subparsers(metavar="ACTION")
    show = actions.add_parser("show", help="the whole record of a family, resolved", description="Print a record.")
    show.add_argument("name", metavar="FAMILY", help="a family, a repository id or a local folder")
    show.add_argument("--json", action="store_true", help="print one JSON object instead of TOML")
    show.set_defaults(action="show")
    new = actions.add_parser(
        "new",
        help="write the commented skeleton of a record into the folder of your own",
        description="Write a commented record; of a known family, one that changes some of it.",
    )
    new.add_argument("name", metavar="FAMILY", help="the family's name")
    new.set_defaults(action="new")


def _add_prompt(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    prompt = commands.add_parser(
        "prompt",
        help="print what a model would be sent; no engine is needed",
        description="Print the raw prompt or the messages of one question, as `ask` and the app would send them.",
    )
    prompt.add_argument("family", metavar="FAMILY", help="a family, a repository id or a local folder")
    prompt.add_argument("question", metavar="QUESTION", help="the question; - reads it from stdin")
    prompt.add_argument("--images", type=_count, default=0, metavar="N", help="with so many images")
    prompt.add_argument("--videos", type=_count, default=0, metavar="N", help="with so many videos")
    prompt.add_argument("--mode", choices=("raw", "chat"), default="raw", help="the raw prompt, or messages (raw)")
    prompt.add_argument("--system", metavar="S", dest="system_prompt", help="the system prompt")
    prompt.add_argument("--json", action="store_true", help="print one JSON object")
    prompt.set_defaults(command="prompt")


def _count(text: str) -> int:
    count = int(text)
    if count < 0:
        raise ValueError
    return count


def _add_doctor(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    doctor = commands.add_parser(
        "doctor",
        help="find out whether this machine is fit",
        description="Look at Python, terminal, vLLM, torch, GPUs, memory, disk and hub; then load the bundled model, "
        "ask it one question about a bundled picture, and check the answer. Exit code 1 when something fails.",
    )
    doctor.add_argument("--json", action="store_true", help="print one JSON object")
    doctor.set_defaults(command="doctor")


def _add_ps(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    ps = commands.add_parser("ps", help="list the models that are loaded", description="List the running workers.")
    ps.add_argument("--json", action="store_true", help="print a JSON array")
    ps.set_defaults(command="ps")


def _add_stop(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    stop = commands.add_parser(
        "stop",
        help="unload a model and free its memory",
        description="End the worker of a model, loading or not, with every process of it.",
    )
    which = stop.add_mutually_exclusive_group()
    which.add_argument("model", metavar="MODEL", nargs="?", help="its name or pid as `vlmtui ps` shows it")
    which.add_argument("--all", action="store_true", help="every model")
    stop.set_defaults(command="stop")


def misplaced_option(arguments: argparse.Namespace) -> str | None:
    """An option of the app that stands before a command, where it would have no effect."""
    given = [name for name in APP_OPTIONS if getattr(arguments, f"app_{name}") is not None]
    return f"--{given[0].replace('_', '-')}" if given and arguments.command != "app" else None
