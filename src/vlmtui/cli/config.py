"""`vlmtui config`: shows file locations and effective settings."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator

import msgspec

from vlmtui.bootstrap import key_warnings
from vlmtui.cli.output import note, print_json, print_table
from vlmtui.config.settings import config_file, load_settings, setting_names, sources
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import Paths
from vlmtui.store.opening import FILE


def fill_config(config: argparse.ArgumentParser) -> None:
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


def config(arguments: argparse.Namespace) -> int:
    """Run the command. Raises VlmtuiError if no action is given."""
    match arguments.action:
        case "paths":
            return _paths(as_json=arguments.json)
        case "show":
            return _show(as_json=arguments.json)
        case _:
            raise VlmtuiError(ErrorKind.BAD_USAGE, "Use `vlmtui config paths` or `vlmtui config show`.")


def _paths(*, as_json: bool) -> int:
    paths = Paths.default()
    named = {
        "config": paths.config,
        "settings": config_file(paths),
        "families": paths.families,
        "data": paths.data,
        "conversations": paths.data / FILE,
        "media": paths.media,
        "inbox": paths.inbox,
        "state": paths.state,
        "logs": paths.logs,
        "cache": paths.cache,
        "runtime": paths.runtime,
    }
    if as_json:
        print_json({name: str(path) for name, path in named.items()})
    else:
        print_table(["WHAT", "WHERE"], [[name, str(path)] for name, path in named.items()])
    return 0


def _show(*, as_json: bool) -> int:
    paths = Paths.default()
    in_force = load_settings(paths, os.environ)
    settings = msgspec.to_builtins(in_force)
    origins = sources(paths, os.environ)
    rows: list[tuple[str, object, str]] = []
    for name in setting_names():
        value: object = settings
        for part in name.split("."):
            assert isinstance(value, dict)
            value = value[part]
        rows.append((name, value, origins.get(name, "default")))
    if as_json:
        print_json({name: {"value": value, "source": source} for name, value, source in rows})
    else:
        lines = [[*line, source] for name, value, source in rows for line in _lines(name, value)]
        print_table(["SETTING", "VALUE", "FROM"], lines)
    for warning in key_warnings(in_force):
        note(f"warning: {warning}")
    return 0


def _lines(name: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield the name and value of a setting. A table such as `[keys]` yields the name and value of each of its
    entries."""
    if isinstance(value, dict) and value:
        for entry, inner in value.items():
            yield from _lines(f"{name}.{entry}", inner)
    else:
        yield name, _shown(value)


def _shown(value: object) -> str:
    return "–" if value is None else msgspec.json.encode(value).decode()
