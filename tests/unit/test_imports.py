"""The app's process never imports an engine's packages, and imports nothing before the first frame that the frame does
not need."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"vllm", "torch", "transformers", "torchvision", "huggingface_hub"}


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("vlmtui.cli", HEAVY | {"textual", "av", "numpy"}),
        ("vlmtui.plain.repl", HEAVY | {"textual", "rich", "av", "numpy"}),
        ("vlmtui.ui.app", HEAVY | {"av", "numpy", "markdown_it", "httpx2", "sqlite3", "PIL", "psutil"}),
        ("vlmtui.ui.widgets.attachment_view", HEAVY | {"av", "numpy"}),
        ("vlmtui.worker.__main__", HEAVY | {"textual"}),
    ],
)
def test_importing_stays_light(module: str, forbidden: set[str]) -> None:
    code = f"import sys; import {module}; print(' '.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert forbidden.isdisjoint(name.split(".")[0] for name in loaded)
