"""Chooses the PyTorch build for the CPU variant: a small CPU build if available, else PyPI's."""

from __future__ import annotations

import html
import http.client
import os
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from vlmtui.engines.variants import TORCH, TORCH_LOCK
from vlmtui.processes import isolated_command, safe_environment

PUBLIC_INDEX = "https://download.pytorch.org/whl/cpu"
"""PyTorch's own index of CPU builds."""
INDEX_VARIABLE = "TORCH_INDEX"
"""Optional environment variable with another index of CPU builds."""
_ANSWER_S = 4.0
_CHUNK = 65_536
_PAGE_MAX = 4_000_000
_LOOK_TIMEOUT_S = 90.0


class TorchBuild(NamedTuple):
    """A PyTorch build: either a requirement, or PyPI's lock file."""

    is_cpu: bool
    origin: str
    """Where it comes from, for display."""
    requirement: str = ""
    lock: Path | None = None


def find_torch(
    uv: list[str],
    python: Path,
    environment: Mapping[str, str],
    *,
    version: str = TORCH,
    lock: Path = TORCH_LOCK,
) -> TorchBuild:
    """Return the first available: a CPU build from the configured indexes, one from PyTorch's CPU index, PyPI's build.

    `uv`: the installer command; empty: pip. `python`: the interpreter to install it for. `lock`: of PyPI's build.
    """
    pinned = f"torch=={version}+cpu"
    if is_available(pinned, uv, python, environment):
        return TorchBuild(True, "the configured package indexes", pinned)
    index = environment.get(INDEX_VARIABLE, "").strip() or PUBLIC_INDEX
    if requirement := wheel_requirement(index, python, version=version):
        return TorchBuild(True, "PyTorch's index of CPU builds", requirement)
    return TorchBuild(False, "PyPI's own build", lock=lock)


def is_available(requirement: str, uv: list[str], python: Path, environment: Mapping[str, str]) -> bool:
    """Whether the configured indexes and folders have this build for this interpreter."""
    dry = ["install", "--dry-run", "--no-deps", requirement]
    with_pip = isolated_command(python, "-m", "pip", *dry, "--quiet")
    command = [*uv, "pip", *dry, "--python", str(python)] if uv else with_pip
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            timeout=_LOOK_TIMEOUT_S,
            check=False,
            env=safe_environment(environment),
            cwd=os.sep,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def wheel_requirement(index: str, python: Path, *, version: str = TORCH, page_s: float = 15.0) -> str:
    """Return `torch @ <address>#sha256=…` for the matching wheel of an index; empty if there is none or the index is
    too slow. `page_s`: total seconds for its page; PyTorch's takes about one."""
    page = f"{index.rstrip('/')}/torch/"
    request = urllib.request.Request(page, headers={"Accept": "text/html"})
    try:
        deadline = time.monotonic() + page_s
        with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:
            text = _page(answer, deadline).decode("utf-8", "replace")
            page = answer.url
    except (OSError, ValueError, http.client.HTTPException):
        return ""
    machine, tag = os.uname().machine, interpreter_tag(python)
    name = rf"torch-{re.escape(version)}(?:\+|%2B)cpu-{tag}-{tag}-[\w.]*linux[\w.]*_{machine}\.whl"
    for link in re.findall(r'href="([^"]{1,2000})"', text):
        address = urllib.parse.urljoin(page, html.unescape(link))
        if re.search(rf"{name}(#sha256=[0-9a-f]{{64}})?$", address):
            return f"torch @ {address}"
    return ""


def _page(answer: http.client.HTTPResponse, deadline: float) -> bytes:
    """Read a page up to a size limit. Raises TimeoutError after the deadline, even if the server keeps sending."""
    data = bytearray()
    while len(data) < _PAGE_MAX and (chunk := answer.read1(_CHUNK)):
        data += chunk
        if time.monotonic() > deadline:
            raise TimeoutError("the page took too long")
    return bytes(data)


def interpreter_tag(python: Path) -> str:
    """Return an interpreter's wheel tag, such as `cp313`; empty if it does not start."""
    environment = safe_environment(os.environ)
    code = "import sys; print('cp%d%d' % sys.version_info[:2])"
    done = subprocess.run(
        isolated_command(python, "-c", code), capture_output=True, text=True, check=False, env=environment
    )
    return done.stdout.strip()
