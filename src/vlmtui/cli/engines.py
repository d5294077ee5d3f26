"""`vlmtui engines`: list, install, verify, add and remove engines."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import tempfile
import time
from pathlib import Path

import msgspec

from vlmtui.bootstrap import build_for
from vlmtui.cli.checks import Check
from vlmtui.cli.engine_offer import ProgressLine, install_with_progress
from vlmtui.cli.interrupts import run_interruptible
from vlmtui.cli.output import note, print_json, print_table
from vlmtui.domain.backend_choice import BackendChoice
from vlmtui.domain.engine import PINNED_BACKEND
from vlmtui.engines.records import ChosenEngine, EngineRecord, Engines, choose_engine
from vlmtui.engines.variants import VARIANTS, EngineBuild
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.paths import Paths

_GB = 1e9
_WHICH = re.compile(r"(\d[\d.]*)(?:-(cpu|cuda))?|(cpu|cuda)")
"""What can be installed: a version, a variant, or both."""


def engines(arguments: argparse.Namespace) -> int:
    """Raises VlmtuiError."""
    paths = Paths.default()
    match arguments.action:
        case "install":
            python = Path(arguments.python).expanduser() if arguments.python else None
            record = install_with_progress(paths, install_build(arguments.which), python=python, as_json=arguments.json)
            if arguments.json:
                print(json.dumps({"installed": record.name}), flush=True)
            else:
                note(
                    f"{record.name} is installed ({record.size_bytes / _GB:.1f} GB); `vlmtui engines verify` tries it."
                )
        case "add":
            line = ProgressLine()
            from vlmtui.engines.install import add_engine

            try:
                record = add_engine(Engines(paths), Path(arguments.python), lambda progress: line.show(*progress))
            finally:
                line.end()
            note(f"{record.name} will be used, unless vLLM is installed in vlmtui's own environment.")
            if arguments.json:
                print_json({"added": record.name})
        case "remove":
            Engines(paths).remove(arguments.name)
            note(f"{arguments.name} is removed.")
            if arguments.json:
                print_json({"removed": arguments.name})
        case "verify":
            return _verify(paths, arguments.name, as_json=arguments.json)
        case "probe":
            from vlmtui.cli.servers import probe_servers

            return probe_servers(arguments)
        case _:
            _list(paths, as_json=arguments.json)
    return 0


def install_build(which: str | None) -> EngineBuild:
    """Return what to install: `cpu`, `cuda`, a version, or both as in `0.23.0-cpu`. Raises VlmtuiError."""
    from vlmtui.engines.hardware import find_hardware
    from vlmtui.engines.pinned import pinned_build

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
    build = VARIANTS[chosen] if not version or version == VARIANTS[chosen].version else pinned_build(version, chosen)
    if hardware is not None and not variant:
        note(f"Found: {hardware.describe()}. Installing {build.title}.")
    return build


def _list(paths: Paths, *, as_json: bool) -> None:
    engines = Engines(paths)
    chosen, records, incomplete = choose_engine(engines), engines.all(), engines.incomplete()
    if as_json:
        used = None if chosen is None else msgspec.to_builtins(chosen)
        installed = [msgspec.to_builtins(record) for record in records]
        print_json({"used": used, "installed": installed, "incomplete": incomplete, "folder": str(engines.folder)})
        return
    rows = [_row(record, chosen) for record in records]
    if chosen is not None and chosen.record is None:
        rows.insert(0, ["*", "beside vlmtui", "", "", "", "", chosen.interpreter])
    if rows:
        print_table(["", "NAME", "VERSION", "PYTHON", "SIZE", "VERIFIED", "WHERE"], rows)
    else:
        note("No engine is installed. `vlmtui engines install` installs vLLM for this machine.")
    for name in incomplete:
        note(f"{name} is incomplete and not used: install it again to continue, or `vlmtui engines remove {name}`.")


def _row(record: EngineRecord, chosen: ChosenEngine | None) -> list[str]:
    is_used = chosen is not None and chosen.record == record
    verified = time.strftime("%Y-%m-%d", time.localtime(record.verified_at)) if record.verified_at else "no"
    size = f"{record.size_bytes / _GB:.1f} GB" if record.size_bytes else ""
    mark = f"=={record.version.partition('+')[0]}" if record.pinned else "*" if is_used else ""
    return [mark, record.name, record.version, record.python, size, verified, record.interpreter]


def _verify(paths: Paths, name: str | None, *, as_json: bool) -> int:
    chosen = choose_engine(Engines(paths)) if name is None else _named(paths, name)
    if chosen is None:
        raise bad_input("No engine is installed.", hint="`vlmtui engines install` installs vLLM for this machine.")
    check = _run_check(chosen)
    if as_json:
        print_json({"engine": chosen.record.name if chosen.record else None, **msgspec.to_builtins(check)})
    if check.status != "ok":
        raise VlmtuiError(ErrorKind.ENGINE_DIED, check.message, hint=check.hint)
    if chosen.record is not None:
        Engines(paths).write(msgspec.structs.replace(chosen.record, verified_at=time.time()))
    note(f"{chosen.record.name if chosen.record else 'The engine beside vlmtui'}: {check.message}")
    return 0


def _named(paths: Paths, name: str) -> ChosenEngine:
    for record in Engines(paths).all():
        if record.name == name:
            return ChosenEngine(record.interpreter, record)
    raise bad_input(f"Unknown engine: {name!r}.", hint="`vlmtui engines` lists them.")


def _run_check(engine: ChosenEngine) -> Check:
    """Have the bundled model answer in this engine, regardless of other running workers."""
    from vlmtui.cli.doctor import check_engine

    checks: list[Check] = []
    record = engine.record
    pinned = record is not None and record.pinned
    choice = BackendChoice(PINNED_BACKEND, record.version.partition("+")[0]) if record is not None and pinned else None
    runtime = Path(tempfile.mkdtemp(prefix="vlmtui-verify-"))

    async def check() -> int:
        checks.append(await check_engine(lambda: build_for(engine, runtime), as_json=False, choice=choice))
        return 0

    try:
        code = run_interruptible(check)
    finally:
        shutil.rmtree(runtime, ignore_errors=True)
    return checks[0] if checks else Check("engine", "fail", f"interrupted ({code})")
