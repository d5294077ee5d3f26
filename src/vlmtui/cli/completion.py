"""`vlmtui completion`: scripts for bash, zsh and fish, and the words that they offer.

The scripts hold no words: they send the typed ones, each ended by a NUL, to `vlmtui completion words`, which answers a
line a word, with a tab and what it means where that is known. So all shells offer the same.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from vlmtui.cli.parser import make_parser
from vlmtui.errors import VlmtuiError
from vlmtui.text import one_line

_CONVERSATIONS = 100
"""Most conversations to offer."""
_PLAIN = re.compile(r"[\w./:@+=%,-]+")
"""Words that need no quoting in any shell; others are not offered."""
SCRIPTS = {
    "bash": """\
# bash completion of vlmtui: source <(vlmtui completion bash)
_vlmtui() {
    local line word
    COMPREPLY=()
    while IFS= read -r line; do
        word="${line%%$'\\t'*}"
        [[ "$COMP_WORDBREAKS" == *:* && "$2" != *:* && "$word" == *:* ]] || COMPREPLY+=("$word")
    done < <(printf '%s\\0' "${COMP_WORDS[@]:1:COMP_CWORD}" | "${COMP_WORDS[0]}" completion words 2>/dev/null)
}
complete -o default -o bashdefault -F _vlmtui vlmtui
""",
    "zsh": """\
#compdef vlmtui
# zsh completion of vlmtui, after compinit: source <(vlmtui completion zsh)
_vlmtui() {
    local line
    local -a found told
    while IFS= read -r line; do
        found+=("${line%%$'\\t'*}")
        told+=("${line//$'\\t'/  -- }")
    done < <(printf '%s\\0' "${(@)words[2,CURRENT]}" | "${words[1]}" completion words 2>/dev/null)
    if (( $#found )); then
        compadd -l -d told -a found
    else
        _files
    fi
}
compdef _vlmtui vlmtui
""",
    "fish": """\
# fish completion of vlmtui: vlmtui completion fish | source
function __vlmtui_words
    set -l typed (commandline -opc) (commandline -ct)
    printf '%s\\0' $typed[2..-1] | $typed[1] completion words 2>/dev/null
end
complete -c vlmtui -f -n 'count (__vlmtui_words)' -a '(__vlmtui_words)'
complete -c vlmtui -F -n 'not count (__vlmtui_words)'
""",
}
"""The script of each shell. Where nothing is offered, it completes file names."""


class Word(NamedTuple):
    """A word to offer."""

    text: str
    meaning: str = ""


def completion(arguments: argparse.Namespace) -> int:
    """Print a shell's script, or the words that may stand where the cursor is."""
    if arguments.shell != "words":
        print(SCRIPTS[arguments.shell], end="")
        return 0
    *before, current = os.fsdecode(sys.stdin.buffer.read()).removesuffix("\0").split("\0")
    for word in words_for(before, current):
        print(f"{word.text}\t{word.meaning}" if word.meaning else word.text)
    return 0


def words_for(before: Sequence[str], current: str) -> list[Word]:
    """Return what may stand in place of the word `current` after the words `before`; [] for file names."""
    place = _Place(make_parser())
    for word in before:
        place.pass_word(word)
    if place.awaited is not None:
        return _starting(_values(place.awaited), current)
    option, equals, value = current.partition("=")
    if equals and (action := place.option(option)) is not None:
        return [Word(f"{option}={word.text}", word.meaning) for word in _starting(_values(action), value)]
    if current.startswith("-") and not place.only_positionals:
        return _starting(place.options(), current)
    positional = place.positional()
    return _starting(_values(positional) if positional else [], current)


def _starting(words: Sequence[Word], start: str) -> list[Word]:
    """Return the words that begin so and need no quoting. What one means is one line without control characters."""
    return [
        Word(word.text, one_line(word.meaning))
        for word in words
        if word.text.startswith(start) and _PLAIN.fullmatch(word.text)
    ]


class _Place:
    """Where in a command line one is: the parser of the command, and what it has got."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._parser = parser
        self._positionals = 0
        self.awaited: argparse.Action | None = None
        """The option whose value comes next."""
        self.only_positionals = False
        """Whether `--` was passed."""

    def pass_word(self, word: str) -> None:
        if self.awaited is not None:
            if word != "=":  # bash splits words there
                self.awaited = None
        elif word == "--":
            self.only_positionals = True
        elif word.startswith("-") and word != "-" and not self.only_positionals:
            action = self.option(word)
            self.awaited = action if action is not None and action.nargs is None else None
        else:
            action = self.positional()
            if isinstance(action, argparse._SubParsersAction) and word in action.choices:
                below = action.choices[word]
                self._parser = below
                self._positionals = 0
            else:
                self._positionals += 1

    def option(self, name: str) -> argparse.Action | None:
        return self._parser._option_string_actions.get(name)

    def options(self) -> list[Word]:
        shown = (action for action in self._parser._actions if action.help != argparse.SUPPRESS)
        return [Word(name, _help_of(action)) for action in shown for name in action.option_strings]

    def positional(self) -> argparse.Action | None:
        """Return what the next word without a dash is for; one that takes several words takes all that follow."""
        taken = 0
        for action in self._parser._actions:
            if action.option_strings:
                continue
            if taken == self._positionals or action.nargs in ("*", "+"):
                return action
            taken += 1
        return None


def _help_of(action: argparse.Action) -> str:
    return argparse.HelpFormatter("vlmtui")._expand_help(action) if action.help else ""


def _values(action: argparse.Action) -> list[Word]:
    """Return the values that an option or argument may have, where they can be told."""
    if isinstance(action, argparse._SubParsersAction):
        return [Word(choice.dest, choice.help or "") for choice in action._choices_actions]
    if action.choices is not None:
        return [Word(str(choice)) for choice in action.choices if choice != "words"]
    source = _SOURCES.get((action.dest, action.metavar)) or _SOURCES.get(("", action.metavar))
    try:
        return list(source()) if source else []
    except (OSError, VlmtuiError):
        return []


def _models() -> Iterator[Word]:
    """Yield the families, then the models of this machine's cache."""
    from vlmtui.paths import Paths
    from vlmtui.registry.hub_cache import downloaded_models
    from vlmtui.registry.loader import Registry

    paths = Paths.default()
    for name in Registry.with_users(paths.families):
        yield Word(name, "family")
    for model in downloaded_models():
        yield Word(model.name, "downloaded")


def _loaded() -> Iterator[Word]:
    from vlmtui.paths import Paths
    from vlmtui.protocol.endpoint import Endpoint

    records = (endpoint.read_record() for endpoint in Endpoint.all(Paths.default()))
    yield from (Word(record.spec.name, "loaded") for record in records if record is not None)


def _conversations() -> Iterator[Word]:
    from vlmtui.cli.conversations import newest_conversations

    yield from (Word(one.id, one.title) for one in newest_conversations(_CONVERSATIONS))


def _servers() -> Iterator[Word]:
    from vlmtui.config.settings import load_settings
    from vlmtui.paths import Paths

    yield from (Word(name, "server") for name in load_settings(Paths.default(), os.environ).engines)


def _installed() -> Iterator[Word]:
    from vlmtui.engines.records import Engines
    from vlmtui.paths import Paths

    yield from (Word(engine.name, engine.version) for engine in Engines(Paths.default()).all())


def _backends() -> Iterator[Word]:
    from vlmtui.engines.records import Engines
    from vlmtui.paths import Paths

    yield from (Word("vllm"), Word("transformers"))
    versions = {engine.version for engine in Engines(Paths.default()).all() if engine.engine == "vllm"}
    yield from (Word(f"vllm=={version}", "installed") for version in sorted(versions))


def _beside() -> Iterator[Word]:
    yield Word("here", "this machine's engine")
    yield from _backends()
    yield from _servers()


def _topics() -> Iterator[Word]:
    from vlmtui.cli.help import command_parsers, heading_of, topics

    pages = topics()
    yield from (Word(name, heading_of(page)) for name, page in pages.items())
    yield from (Word(name, "command") for name in command_parsers() if name not in pages)


_SOURCES: dict[tuple[str, object], Callable[[], Iterator[Word]]] = {
    ("", "M"): _models,
    ("", "FAMILY"): _models,
    ("", "MODEL"): _models,
    ("model", "MODEL"): _loaded,
    ("", "MODEL|ADDRESS"): _loaded,
    ("", "ID"): _conversations,
    ("", "ENGINE"): _servers,
    ("on", "ENGINE"): _beside,
    ("", "BACKEND"): _backends,
    ("name", "NAME"): _installed,
    ("", "TOPIC"): _topics,
}
"""Where values come from, by an argument's name (empty: any) and the word that stands for it in the help."""
