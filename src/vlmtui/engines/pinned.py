"""Other versions of vLLM than the installed one, each in an environment of its own, for models that ask for it.

0.23.0, which several families need, has locks that ship with vlmtui. Others are resolved when they are installed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from vlmtui.engines.variants import LOCKS, VARIANTS, EngineBuild
from vlmtui.errors import bad_input

_VERSION = re.compile(r"\d{1,6}(\.\d{1,6}){1,3}")


class PinnedVersion(NamedTuple):
    """An older vLLM with locks of its own."""

    vllm: str
    torch: str
    """The PyTorch that its wheels are built for."""
    bounds: tuple[str, ...]
    """Requirements that its packages leave open."""
    more: tuple[str, ...]
    """What its models need besides."""
    newest_python_cuda: tuple[int, int]
    """The newest Python for which all packages of the CUDA set have wheels."""

    def lock(self, part: str) -> Path:
        """Return the path of a lock: `cpu`, `torch` (PyPI's, for `cpu`) or `cuda`."""
        return LOCKS / f"pinned-{self.vllm}-{part}.txt"


PINNED = {
    # The tokenizers and processors that checkpoints of these families bring are written for transformers 4.
    "0.23.0": PinnedVersion(
        "0.23.0",
        "2.11.0",
        ("torchvision==0.26.0", "transformers>=4.57.6,<5", "numpy<2.4", "networkx<3.7"),
        ("timm",),
        (3, 13),
    ),
}


def pinned_build(version: str, variant: str) -> EngineBuild:
    """Return how to install a version of vLLM for `cpu` or `cuda`. Raises VlmtuiError(BAD_INPUT) for no version."""
    if not _VERSION.fullmatch(version):
        raise bad_input(f"{version!r} is not a version of vLLM.", hint="Write it as in 0.23.0.")
    title = f"vLLM {version} for {'the CPU' if variant == 'cpu' else 'CUDA'}"
    known, newest = PINNED.get(version), VARIANTS[variant]
    driver, is_cpu = newest.driver, variant == "cpu"
    if known is None:
        size = newest.disk_gb_without_cpu_torch
        return EngineBuild(
            variant, "vllm", version, title, Path(), size, size, needs_torch=is_cpu, driver=driver, resolves=True,
            is_pinned=True,
        )  # fmt: skip
    small, large = (2.6, 6.0) if is_cpu else (10.0, 10.0)
    return EngineBuild(
        variant, "vllm", version, title, known.lock(variant), small, large, needs_torch=is_cpu, driver=driver,
        torch=known.torch, torch_lock=known.lock("torch"), is_pinned=True,
        newest_python=newest.newest_python if is_cpu else known.newest_python_cuda,
    )  # fmt: skip


def how_to_install(version: str) -> str:
    """Return the command that installs a version, with what it costs."""
    build = pinned_build(version, "cpu")
    return f"`vlmtui engines install {version}` installs it: {build.disk_gb:g} GB or more, some minutes."
