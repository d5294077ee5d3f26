"""A build of two tiny packages in a folder, and a process that installs it and may be killed."""

from __future__ import annotations

import base64
import hashlib
import os
import random
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

from vlmtui.engines.builds import EngineBuild

PACKAGES = {"vllm": "0.0.1", "lightpkg": "2.5"}
INSTALLING = """
import os, signal, sys
from pathlib import Path
from tests.unit.engines.light import light_variant
from vlmtui.engines import installed, uv
from vlmtui.paths import Paths

root, point = Path(sys.argv[1]), sys.argv[2]
if point:
    where, _, name = point.partition(".")
    holder = {"installed": installed, "Uv": uv.Uv, "Engines": installed.Engines}[where]
    name, _, count = name.partition("#")
    calls, real = [], getattr(holder, name)

    def killing(*args, **options):
        calls.append(1)
        if len(calls) > int(count or 0):
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **options)

    setattr(holder, name, killing)
record = installed.install_engine(installed.Engines(Paths.below(root / "app")), light_variant(root), print)
print(record.name)
"""


def make_wheels(root: Path, *, tag: str = "py3-none-any", padding: int = 0) -> None:
    """Write the wheels and their lock. `padding`: incompressible bytes in each of them."""
    (root / "wheels").mkdir()
    lines = []
    for name, version in PACKAGES.items():
        path = write_wheel(root / "wheels", name, version, tag=tag, padding=padding)
        lines.append(f"{name}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n")
    (root / "light.txt").write_text("".join(lines), encoding="utf-8")


def write_wheel(folder: Path, name: str, version: str, *, tag: str = "py3-none-any", padding: int = 0) -> Path:
    """Write the wheel of a package that has only its version, and return its path."""
    stem = name.replace("-", "_")
    path = folder / f"{stem}-{version}-{tag}.whl"
    info = f"{stem}-{version}.dist-info"
    files = {
        f"{stem}/__init__.py": f"__version__ = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    if padding:
        files[f"{stem}/weight.txt"] = random.Random(name).randbytes(padding // 2).hex()
    record = "".join(f"{file},sha256={_digest(text)},{len(text)}\n" for file, text in files.items())
    files[f"{info}/RECORD"] = record + f"{info}/RECORD,,\n"
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in files.items():
            wheel.writestr(file, text)
    return path


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def light_variant(root: Path) -> EngineBuild:
    return EngineBuild("light", "0.0.1", 0.01, root / "light.txt")


def environment(root: Path) -> dict[str, str]:
    """No network: packages come from the folder. uv is found where there is one beside this Python or on the path."""
    beside = Path(sys.executable).parent
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))},
        "PATH": os.pathsep.join([str(beside), os.environ["PATH"]]),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(root / "wheels"),
        "PIP_CONFIG_FILE": os.devnull,
    }


def has_uv(root: Path) -> bool:
    return shutil.which("uv", path=environment(root)["PATH"]) is not None


def install(
    root: Path, *, killed_at: str = "", extra: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Install the variant in a process; `killed_at` names the function at whose call it is killed:
    `installed.describe_interpreter`, with `#1` at its second call."""
    return subprocess.run(
        [sys.executable, "-c", INSTALLING, str(root), killed_at],
        env={**environment(root), **(extra or {})},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
