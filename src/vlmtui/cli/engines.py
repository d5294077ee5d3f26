"""`vlmtui engines`: lists, installs, adds and removes engines."""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from pathlib import Path

import msgspec

from vlmtui.cli.output import note, print_json, print_table
from vlmtui.engines.builds import VARIANTS, EngineBuild, build_of
from vlmtui.engines.bundle import unpacked, write_bundle
from vlmtui.engines.installed import Engines, choose_engine
from vlmtui.errors import bad_input
from vlmtui.paths import Paths

_GB = 1e9


def fill_engines(engines: argparse.ArgumentParser) -> None:
    engines.description = (
        "List the installed engines. An engine is a vLLM in its own environment in the data folder; "
        "the one marked with a star is the default, those marked with a version serve models that need that version."
    )
    engines.set_defaults(action="list")
    actions = engines.add_subparsers(metavar="ACTION")
    actions.add_parser("list", help="list the engines", description="List the installed engines.")
    install = actions.add_parser(
        "install",
        help="install vLLM for this machine, or another version for the models that need it",
        description="Install vLLM with uv. Run it again to continue an interrupted installation. Another version "
        "than the current one gets an environment of its own and serves only models that ask for it "
        "(--backend vllm==VERSION, or their record).",
    )
    install.add_argument("--from", metavar="FILE", type=Path, dest="bundle", help="take the packages from a bundle")
    bundle = actions.add_parser(
        "bundle",
        help="write the packages of an engine to a file, for a machine without a network",
        description="Download the packages of an engine, and write them to one file. `vlmtui engines install --from "
        "FILE` installs them on a machine of the same kind, with the same version of Python and of vlmtui.",
    )
    bundle.add_argument("file", metavar="FILE", type=Path, help="the file to write (tar)")
    for parser in (install, bundle):
        parser.add_argument(
            "version", metavar="VERSION", nargs="?", default="", help="of vLLM (default: the current one)"
        )
        parser.add_argument("--variant", choices=[*VARIANTS], help="(default: the variant for this machine)")
        parser.add_argument("--python", metavar="PATH", type=Path, help="the Python for its environment")
    add = actions.add_parser(
        "add",
        help="use a vLLM that is installed elsewhere",
        description="Use a vLLM that is installed elsewhere. Nothing is installed into its environment.",
    )
    add.add_argument("python", metavar="PYTHON", type=Path, help="the interpreter of its environment")
    remove = actions.add_parser("remove", help="delete an engine", description="Delete an engine and its folder.")
    remove.add_argument("name", metavar="NAME", help="the name in `vlmtui engines`")
    for parser in (engines, *actions.choices.values()):
        parser.add_argument("--json", action="store_true", help="print JSON")
    for name, parser in actions.choices.items():
        parser.set_defaults(action=name)


def engines(arguments: argparse.Namespace) -> int:
    """Run an action and return its exit code. Raises VlmtuiError."""
    installed = Engines(Paths.default())
    match arguments.action:
        case "install":
            from vlmtui.engines.installed import install_engine

            python = arguments.python and arguments.python.expanduser()
            with unpacked(arguments.bundle) if arguments.bundle else nullcontext():
                record = install_engine(installed, build_for(arguments.version, arguments.variant), note, python=python)
            _report(arguments, "installed", record.name, f"is installed ({record.size_bytes / _GB:.1f} GB).")
        case "bundle":
            from vlmtui.engines.installed import find_python

            build = build_for(arguments.version, arguments.variant)
            count = write_bundle(build, arguments.file, find_python(build, arguments.python))
            _report(arguments, "bundled", str(arguments.file), f"has {count} packages of {build.title}.")
        case "add":
            from vlmtui.engines.installed import add_engine

            record = add_engine(installed, arguments.python)
            _report(
                arguments, "added", record.name, "will be used, unless vLLM is installed in vlmtui's own environment."
            )
        case "remove":
            installed.remove(arguments.name, note)
            _report(arguments, "removed", arguments.name, "is removed.")
        case _:
            _list(installed, as_json=arguments.json)
    return 0


def build_for(version: str, variant: str | None = None) -> EngineBuild:
    """Return the build of vLLM `version` (empty: the current version) for `variant`, one of VARIANTS; None: the one
    that fits this machine. Raises VlmtuiError."""
    from vlmtui.engines.builds import find_hardware

    if variant == "cpu":
        return build_of(version, variant)
    hardware = find_hardware()
    if variant is not None and hardware.gpus and not hardware.supports(variant):
        message = f"{build_of(version, variant).title} does not run here: {hardware.describe()}."
        raise bad_input(message, hint=f"Update the driver, or `vlmtui engines install --variant {hardware.variant}`.")
    build = build_of(version, variant or hardware.variant)
    if variant is None:
        note(f"Found: {hardware.describe()}. Installing {build.title}.")
    return build


def _report(arguments: argparse.Namespace, done: str, name: str, more: str) -> None:
    note(f"{name} {more}")
    if arguments.json:
        print_json({done: name})


def _list(engines: Engines, *, as_json: bool) -> None:
    chosen, records, incomplete = choose_engine(engines), engines.all(), engines.incomplete()
    if as_json:
        used = None if chosen is None else msgspec.to_builtins(chosen)
        installed = [msgspec.to_builtins(record) for record in records]
        print_json({"used": used, "installed": installed, "incomplete": incomplete, "folder": str(engines.folder)})
        return
    rows = []
    if chosen is not None and chosen.record is None:
        rows.append(["*", "beside vlmtui", "", "", "", chosen.interpreter])
    for one in records:
        used_mark = "*" if chosen is not None and chosen.record == one else ""
        mark = f"=={one.version.partition('+')[0]}" if one.pinned else used_mark
        size = f"{one.size_bytes / _GB:.1f} GB" if one.size_bytes else ""
        rows.append([mark, one.name, one.version, one.python, size, one.interpreter])
    if rows:
        print_table(["", "NAME", "VERSION", "PYTHON", "SIZE", "WHERE"], rows)
    else:
        note("No engine is installed. `vlmtui engines install` installs vLLM for this machine.")
    for name in incomplete:
        note(f"{name} is incomplete and not used: install it again to continue, or `vlmtui engines remove {name}`.")
