"""Late reports of a slow terminal, and bytes that are not text, in a pseudo-terminal."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.terminal import Terminal

_PROGRAM = """
import sys
from pathlib import Path
from tests.support.scripted_engine import ScriptedHost
from vlmtui.config.settings import Settings
from vlmtui.paths import Paths
from vlmtui.registry.loader import Registry
from vlmtui.session.async_store import AsyncStore
from vlmtui.ui.app import VlmtuiApp
from vlmtui.ui.services import Services

paths = Paths.below(Path(sys.argv[1]))
services = Services(
    paths=paths,
    registry=Registry.bundled(),
    host=ScriptedHost(),
    settings=Settings(graphics="off"),
    store=AsyncStore(paths),
    keep_alive_s=300.0,
    initial_model="shapes",
)
VlmtuiApp(services).run()
"""

_REPORTS = ("\x1b[?6c", "\x1b[6;24;12t", "\x1b]11;rgb:1e1e/1e1e/2e2e\x1b\\", "\x1b[?62;4c", "\x1bP>|tmux 3.4\x1b\\")


@pytest.mark.process
def test_late_reports_and_broken_bytes_are_not_typed(tmp_path: Path) -> None:
    with Terminal(
        [sys.executable, "-c", _PROGRAM, str(tmp_path)], env=dict(os.environ), columns=80, rows=24
    ) as terminal:
        terminal.wait_for("Message, or /")
        for report in _REPORTS:
            terminal.type(report)
            terminal.type("x")
        terminal.wait_for("xxxxx")
        terminal.type(b"\xff\xfey")
        text = terminal.wait_for(lambda text: "y" in text.partition("xxxxx")[2][:4])
        for rest in ("?6c", "24;12t", "rgb:", "62;4", "tmux 3"):
            assert rest not in text
        terminal.press("ctrl+q")
        assert terminal.wait_for_end() == 0


@pytest.mark.process
def test_escape_alone_is_a_key_also_after_the_start_of_a_report(tmp_path: Path) -> None:
    with Terminal(
        [sys.executable, "-c", _PROGRAM, str(tmp_path)], env=dict(os.environ), columns=80, rows=24
    ) as terminal:
        terminal.wait_for("Message, or /")
        for text in ("\x1b", "\x1b[?6c\x1b"):
            terminal.press("f1")
            terminal.wait_for("In a chat")
            terminal.type(text)
            terminal.wait_for(lambda screen: "In a chat" not in screen)
        terminal.press("ctrl+q")
        assert terminal.wait_for_end() == 0
