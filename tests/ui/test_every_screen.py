"""Every screen, with an image in the conversation, in terminals without colours, with few, in another theme or
locale: none ends the app."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path

import pytest
from textual.screen import Screen

import vlmtui.ui
from tests.support.terminal import Terminal, search_paths

LEFT_OUT = {
    "FramesScreen": "needs a draft with a video only",
    "StoredComparisonScreen": "needs a stored comparison",
}
"""Screens that no action opens here, and why."""

pytestmark = pytest.mark.process


def screens() -> set[str]:
    """Return the names of the app's screens."""
    for module in pkgutil.walk_packages(vlmtui.ui.__path__, "vlmtui.ui."):
        importlib.import_module(module.name)
    found: set[str] = set()
    left: list[type[object]] = [Screen]
    while left:
        below = left.pop().__subclasses__()
        left += below
        found |= {one.__name__ for one in below if one.__module__.startswith("vlmtui.") and not one.__subclasses__()}
    return found


@pytest.mark.parametrize(
    "environment",
    [
        {"NO_COLOR": "1", "TERM": "xterm", "LANG": "C", "VLMTUI_THEME": "light"},
        {"NO_COLOR": "1", "VLMTUI_GRAPHICS": "kitty"},
    ],
    ids=["no-colours", "kitty"],
)
def test_no_screen_with_an_image_ends_the_app(tmp_path: Path, environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "tests.support.every_screen", str(tmp_path)]
    root = str(Path(__file__).parents[2])
    with Terminal(command, env={**search_paths(), **environment}, columns=80, rows=24, cwd=root) as terminal:
        status = terminal.wait_for_end(timeout=120)
        text = " ".join(terminal.text.split())
    assert status == 0, text
    missing = screens() - set((tmp_path / "seen").read_text().split())
    assert missing <= set(LEFT_OUT), text
