"""`vlmtui completion bash`: a completion script, written from the parser of the commands."""

from __future__ import annotations

import argparse
import shlex

from vlmtui.cli.parser import CommandParser, make_parser

_SCRIPT = """\
# bash completion of vlmtui: source <(vlmtui completion bash)
_vlmtui() {{
    local known current="${{COMP_WORDS[COMP_CWORD]}}" path="" word
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "$path $word" in
{nested}
        esac
    done
    case "$path" in
{words}
    esac
    COMPREPLY=($(compgen -W "$known" -- "$current"))
}}
complete -o default -o bashdefault -F _vlmtui vlmtui
"""


def completion(arguments: argparse.Namespace) -> int:
    print(bash_script(make_parser()), end="")
    return 0


def bash_script(parser: argparse.ArgumentParser) -> str:
    """Return a script that completes commands, their subcommands and options. Other words are completed as file names
    are."""
    known = _words("", parser)
    nested = (f"            {shlex.quote(path)}) path={shlex.quote(path)} ;;" for path in known if path)
    words = (f"        {shlex.quote(path)}) known={shlex.quote(' '.join(found))} ;;" for path, found in known.items())
    return _SCRIPT.format(nested="\n".join(nested), words="\n".join(words))


def _words(path: str, parser: argparse.ArgumentParser) -> dict[str, list[str]]:
    """Return what may follow each command, by its names joined with spaces; the empty path is `vlmtui` itself."""
    if isinstance(parser, CommandParser):
        parser.filled()
    found: dict[str, list[str]] = {path: []}
    for action in parser._actions:
        found[path] += action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            found[path] += action.choices
            for name, below in action.choices.items():
                found |= _words(f"{path} {name}", below)
    return found
