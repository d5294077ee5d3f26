"""Prepares a test's own process for Transformers, as the worker prepares engine processes."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path

import vlmtui.worker


@cache
def watch_for_torchvision() -> None:
    """Make torchvision importable beside a CPU build of torch."""
    path = Path(vlmtui.worker.__file__).parent / "site" / "sitecustomize.py"
    spec = importlib.util.spec_from_file_location("engine_site", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.watch_for_torchvision()
