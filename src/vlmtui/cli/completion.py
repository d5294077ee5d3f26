"""Shell completion, with argcomplete: `vlmtui completion SHELL` prints a script that asks `vlmtui` for completions."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterator, Sequence

from vlmtui.cli.main import CommandParser
from vlmtui.errors import VlmtuiError
from vlmtui.text import one_line

SHELLS = ("bash", "zsh", "fish", "tcsh")
_CONVERSATIONS = 100
"""Most conversations to offer."""
_PLAIN = re.compile(r"[\w./:@+=%,-]+")
"""Words that no shell needs to quote; only these are offered."""


def fill_completion(completion: argparse.ArgumentParser) -> None:
    completion.description = (
        "Print a completion script for commands, options, models and conversations. Bash: add `source "
        "<(vlmtui completion bash)` to ~/.bashrc. Zsh: the same with zsh in ~/.zshrc, after compinit. Fish: `vlmtui "
        "completion fish > ~/.config/fish/completions/vlmtui.fish`."
    )
    completion.add_argument("shell", choices=SHELLS, help="the shell")


def completion(arguments: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    print(shellcode(["vlmtui"], shell=arguments.shell), end="")
    return 0


def complete(parser: argparse.ArgumentParser) -> None:
    """Print the completions of the shell's command line, and end the process."""
    from argcomplete import autocomplete

    for action in _actions(parser, os.environ.get("COMP_LINE", "").split()):
        if source := _SOURCES.get(str(action.metavar)):
            action.completer = _completer(source)  # type: ignore[attr-defined]
    autocomplete(parser, always_complete_options=False)


def _actions(parser: argparse.ArgumentParser, words: Sequence[str]) -> Iterator[argparse.Action]:
    """Yield the arguments of the app, and of each command whose name is in `words`, the words of the command line."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                if isinstance(below, CommandParser) and name in words:
                    below.fill()
                yield from _actions(below, words)


def _completer(source: Callable[[], dict[str, str]]) -> Callable[..., dict[str, str]]:
    """Return a completer for argcomplete: words from `source`, each with its description on one line."""

    def words(**_: object) -> dict[str, str]:
        try:
            return {word: one_line(meaning) for word, meaning in source().items() if _PLAIN.fullmatch(word)}
        except (OSError, VlmtuiError):
            return {}

    return words


def _models() -> dict[str, str]:
    """Return the model families, and the models in this machine's hub cache."""
    from vlmtui.paths import Paths
    from vlmtui.registry.hub_cache import downloaded_models
    from vlmtui.registry.loader import Registry

    families = dict.fromkeys(Registry.with_users(Paths.default().families), "family")
    return families | {model.name: "downloaded" for model in downloaded_models()}


def _loaded() -> dict[str, str]:
    from vlmtui.paths import Paths
    from vlmtui.protocol.endpoint import Endpoint

    records = (endpoint.read_record() for endpoint in Endpoint.all(Paths.default()))
    return {record.spec.name: "loaded" for record in records if record is not None}


def _conversations() -> dict[str, str]:
    from vlmtui.cli.conversations import newest_conversations

    return {one.id: one.title for one in newest_conversations(_CONVERSATIONS)}


_SOURCES = {
    "M": _models,
    "FAMILY": _models,
    "MODEL": _models,
    "MODEL|PID": _loaded,
    "MODEL|ENGINE": _loaded,
    "ID": _conversations,
}
"""Where an argument's values come from, by its placeholder in the help."""
