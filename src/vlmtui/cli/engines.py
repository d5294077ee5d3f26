"""`vlmtui engines`: list, install, add and remove engines."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import msgspec

from vlmtui.cli.output import note, print_json, print_table
from vlmtui.engines.records import ChosenEngine, EngineRecord, Engines, choose_engine
from vlmtui.engines.variants import VARIANTS, EngineBuild, build_of
from vlmtui.errors import bad_input
from vlmtui.paths import Paths

_GB = 1e9
_WHICH = re.compile(r"(\d[\d.]*)(?:-(cpu|cuda))?|(cpu|cuda)")
"""What can be installed: a version, a variant, or both."""


def engines(arguments: argparse.Namespace) -> int:
    """Raises VlmtuiError."""
    installed = Engines(Paths.default())
    match arguments.action:
        case "install":
            from vlmtui.engines.install import install_engine

            python = Path(arguments.python).expanduser() if arguments.python else None
            record = install_engine(installed, install_build(arguments.which), note, python=python)
            note(f"{record.name} is installed ({record.size_bytes / _GB:.1f} GB).")
            if arguments.json:
                print_json({"installed": record.name})
        case "add":
            from vlmtui.engines.install import add_engine

            record = add_engine(installed, Path(arguments.python))
            note(f"{record.name} will be used, unless vLLM is installed in vlmtui's own environment.")
            if arguments.json:
                print_json({"added": record.name})
        case "remove":
            installed.remove(arguments.name)
            note(f"{arguments.name} is removed.")
            if arguments.json:
                print_json({"removed": arguments.name})
        case "probe":
            from vlmtui.cli.running import probe_servers

            return probe_servers(arguments)
        case _:
            _list(installed, as_json=arguments.json)
    return 0


def install_build(which: str | None) -> EngineBuild:
    """Return what to install: `cpu`, `cuda`, a version, or both as in `0.23.0-cpu`. Raises VlmtuiError."""
    from vlmtui.engines.hardware import find_hardware

    version, variant = "", ""
    if which is not None:
        found = _WHICH.fullmatch(which)
        if found is None:
            known = ", ".join([*VARIANTS, "a version of vLLM such as 0.23.0", "or both: 0.23.0-cpu"])
            raise bad_input(f"Unknown engine: {which!r}.", hint=f"Available: {known}.")
        version, variant = found[1] or "", found[2] or found[3] or ""
    hardware = None if variant == "cpu" else find_hardware()
    if hardware is not None and variant == "cuda" and hardware.gpus and not hardware.driver_is_new_enough:
        message = f"vLLM for CUDA 13 does not run here: {hardware.describe()}."
        raise bad_input(message, hint="Update the driver, or `vlmtui engines install cpu`.")
    chosen = variant or (hardware.variant if hardware is not None else "cpu")
    build = build_of(version, chosen)
    if hardware is not None and not variant:
        note(f"Found: {hardware.describe()}. Installing {build.title}.")
    return build


def _list(engines: Engines, *, as_json: bool) -> None:
    chosen, records, incomplete = choose_engine(engines), engines.all(), engines.incomplete()
    if as_json:
        used = None if chosen is None else msgspec.to_builtins(chosen)
        installed = [msgspec.to_builtins(record) for record in records]
        print_json({"used": used, "installed": installed, "incomplete": incomplete, "folder": str(engines.folder)})
        return
    rows = [_row(record, chosen) for record in records]
    if chosen is not None and chosen.record is None:
        rows.insert(0, ["*", "beside vlmtui", "", "", "", chosen.interpreter])
    if rows:
        print_table(["", "NAME", "VERSION", "PYTHON", "SIZE", "WHERE"], rows)
    else:
        note("No engine is installed. `vlmtui engines install` installs vLLM for this machine.")
    for name in incomplete:
        note(f"{name} is incomplete and not used: install it again to continue, or `vlmtui engines remove {name}`.")


def _row(record: EngineRecord, chosen: ChosenEngine | None) -> list[str]:
    is_used = chosen is not None and chosen.record == record
    size = f"{record.size_bytes / _GB:.1f} GB" if record.size_bytes else ""
    mark = f"=={record.version.partition('+')[0]}" if record.pinned else "*" if is_used else ""
    return [mark, record.name, record.version, record.python, size, record.interpreter]
