"""Which build of PyTorch the CPU variant gets: a small CPU build where one can be had, else PyPI's own."""

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

PUBLIC_INDEX = "https://download.pytorch.org/whl/cpu"
"""PyTorch's own index of CPU builds."""
INDEX_VARIABLE = "TORCH_INDEX"
"""Names another index of CPU builds; nobody has to set it."""
_ANSWER_S = 4.0
_CHUNK = 65_536
_PAGE_MAX = 4_000_000
_LOOK_TIMEOUT_S = 90.0


class TorchBuild(NamedTuple):
    """What to ask the installer for: a requirement, or PyPI's lock."""

    is_cpu: bool
    origin: str
    """Where it comes from, for people."""
    requirement: str = ""
    lock: Path | None = None


PYPI_BUILD = TorchBuild(False, "PyPI's own build", lock=TORCH_LOCK)


def find_torch(uv: list[str], python: Path, environment: Mapping[str, str]) -> TorchBuild:
    """The first of: a CPU build that the configuration offers, one of PyTorch's CPU index, PyPI's own build.

    `uv`: the command that may install; empty: plain pip will. `python`: the interpreter that gets it.
    """
    pinned = f"torch=={TORCH}+cpu"
    if is_offered(pinned, uv, python, environment):
        return TorchBuild(True, "the configured package indexes", pinned)
    index = environment.get(INDEX_VARIABLE, "").strip() or PUBLIC_INDEX
    if requirement := requirement_of(index, python):
        return TorchBuild(True, "PyTorch's index of CPU builds", requirement)
    return PYPI_BUILD


def is_offered(requirement: str, uv: list[str], python: Path, environment: Mapping[str, str]) -> bool:
    """Whether the configured indexes and folders have this very build for this interpreter."""
    dry = ["install", "--dry-run", "--no-deps", requirement]
    command = [*uv, "pip", *dry, "--python", str(python)] if uv else [str(python), "-m", "pip", *dry, "--quiet"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_LOOK_TIMEOUT_S, check=False, env=dict(environment))
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def requirement_of(index: str, python: Path, *, page_s: float = 15.0) -> str:
    """`torch @ <address>#sha256=…` of the wheel that fits, from an index that answers within seconds; else empty.
    `page_s`: for all of its page, whatever the server does; PyTorch's own takes a second."""
    page = f"{index.rstrip('/')}/torch/"
    request = urllib.request.Request(page, headers={"Accept": "text/html"})
    try:
        deadline = time.monotonic() + page_s
        with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:
            text = _page(answer, deadline).decode("utf-8", "replace")
            page = answer.url
    except (OSError, ValueError, http.client.HTTPException):
        return ""
    machine, version = os.uname().machine, interpreter_tag(python)
    name = rf"torch-{re.escape(TORCH)}(?:\+|%2B)cpu-{version}-{version}-[\w.]*linux[\w.]*_{machine}\.whl"
    for link in re.findall(r'href="([^"]{1,2000})"', text):
        address = urllib.parse.urljoin(page, html.unescape(link))
        if re.search(rf"{name}(#sha256=[0-9a-f]{{64}})?$", address):
            return f"torch @ {address}"
    return ""


def _page(answer: http.client.HTTPResponse, deadline: float) -> bytes:
    """What comes until the deadline, up to a size; a server may send a byte now and then for ever."""
    data = bytearray()
    while len(data) < _PAGE_MAX and (chunk := answer.read1(_CHUNK)):
        data += chunk
        if time.monotonic() > deadline:
            raise TimeoutError("the page does not end")
    return bytes(data)


def interpreter_tag(python: Path) -> str:
    """An interpreter's tag in the names of wheels, `cp313`; empty where it does not start."""
    code = "import sys; print('cp%d%d' % sys.version_info[:2])"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip()
