#!/usr/bin/env python3
"""Run Python with the code of another vLLM: `python tools/other_vllm.py VERSION [--with=PACKAGE…] PYTHON-ARGUMENTS…`.

Lays that release's wheel over the compiled parts of the installed vLLM, in a temporary folder, and puts the folder on
`PYTHONPATH`. So a release can be tried before there is a build of it for the CPU. The kernels and all other packages
stay those that are installed; it names the packages that the release wants in other versions. `--with` adds one of them
to the folder.

Exits as Python does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from zipfile import ZipFile

from packaging.requirements import Requirement

SITE = Path(__file__).resolve().parent.parent / "src" / "vlmtui" / "worker" / "site"


def download(version: str, folder: Path) -> Path:
    """Return the wheel of a release, without what it depends on."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", str(folder)]
    subprocess.run([*command, f"vllm=={version}"], check=True)
    return next(folder.glob("vllm-*.whl"))


def lay_over(wheel: Path, installed: Path, folder: Path) -> list[str]:
    """Put a package `vllm` and its metadata into `folder`; return the packages that the release asks for.

    `installed`: the package's folder, of which the compiled parts are linked."""
    for found in installed.rglob("*.so"):
        target = folder / "vllm" / found.relative_to(installed)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(found)
    release = wheel.name.split("-")[1]
    metadata = folder / f"vllm-{release}+cpu.dist-info"  # from the version, vLLM knows that it is built for the CPU
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {release}+cpu\n")
    with ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith("vllm/") and not name.endswith((".so", "/")):
                archive.extract(name, folder)
        own = f"vllm-{release}.dist-info"
        (metadata / "entry_points.txt").write_bytes(archive.read(f"{own}/entry_points.txt"))
        lines = archive.read(f"{own}/METADATA").decode().splitlines()
    return [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]


def unmet(requirements: Iterable[str]) -> Iterator[str]:
    """Yield each requirement that the environment does not meet, with the version that is there."""
    for requirement in map(Requirement, requirements):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            here = version_of(requirement.name)
        except PackageNotFoundError:
            here = ""
        if not here or not requirement.specifier.contains(here, prereleases=True):
            yield f"{requirement.name} {requirement.specifier} (here: {here or 'none'})"


def main(version: str = "", *arguments: str) -> int:
    if not version[:1].isdigit():
        print("Name a version: make test-vllm VERSION=0.33.0", file=sys.stderr)
        return 2
    installed = find_spec("vllm")
    if installed is None or installed.origin is None:
        print("vLLM is not installed: `make setup` installs it.", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix=f"vllm-{version}-") as made:
        folder = Path(made)
        (folder / "wheel").mkdir()
        wheel = download(version, folder / "wheel")
        wanted = lay_over(wheel, Path(installed.origin).parent, folder)
        wheel.unlink()
        added = [one.removeprefix("--with=") for one in takewhile(lambda one: one.startswith("--with="), arguments)]
        if added:
            install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", made, *added]
            subprocess.run(install, check=True)
        print(f"vLLM {version}, with packages that it wants otherwise:", *unmet(wanted), sep="\n  ", flush=True)
        path = os.pathsep.join(filter(None, [str(SITE), str(folder), os.environ.get("PYTHONPATH")]))
        return subprocess.run(
            [sys.executable, *arguments[len(added) :]], env={**os.environ, "PYTHONPATH": path}, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
