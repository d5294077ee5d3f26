"""The worker's preparation of engine processes, for a test that uses Transformers in its own process."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

import vlmtui.worker


@cache
def watch_for_torchvision() -> None:
    """Let torchvision be imported beside a CPU build of torch."""
    path = Path(vlmtui.worker.__file__).parent / "site" / "sitecustomize.py"
    spec = importlib.util.spec_from_file_location("engine_site", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.watch_for_torchvision()
