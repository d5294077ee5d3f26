"""The app in a pseudo-terminal, where signals and hang-ups are real. Its engine is the scripted one."""

from __future__ import annotations

import os
import pty
import signal
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import asyncio, sys
from pathlib import Path
from tests.support.scripted_engine import Hold, ScriptedEngine, ScriptedHost
from vlmtui.config.settings import Settings
from vlmtui.paths import Paths
from vlmtui.registry.loader import Registry
from vlmtui.ui.app import VlmtuiApp
from vlmtui.ui.controllers.keeper import Keeper
from vlmtui.ui.services import Services

folder = Path(sys.argv[1])
shutdown = ScriptedEngine.shutdown
async def noted(self):
    await asyncio.sleep(0)
    await shutdown(self)
    (folder / "ended").touch()
ScriptedEngine.shutdown = noted

app = VlmtuiApp(
    Services(
        paths=Paths.below(folder),
        registry=Registry.bundled(),
        host=ScriptedHost(load=[Hold(asyncio.Event())]),
        settings=Settings(graphics="off"),
        keeper=Keeper(Paths.below(folder)),
        keep_alive_s=300.0,
        initial_model="shapes",
    )
)
app.run()
sys.exit(app.return_code)
"""
_LEAVE_ALTERNATE_SCREEN = b"\x1b[?1049l"


@pytest.fixture
def loading_app(tmp_path: Path) -> tuple[int, int]:
    """The app in the middle of a load: its pid, and our end of its terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(sys.executable, [sys.executable, "-c", _PROGRAM, str(tmp_path)])
    said = b""
    while b"Memory and KV cache" not in said:
        said += os.read(terminal, 4096)
    return pid, terminal


def rest_of(terminal: int) -> bytes:
    said = b""
    try:
        while more := os.read(terminal, 4096):
            said += more
    except OSError:
        pass
    return said


def test_a_terminal_that_goes_away_during_a_load_leaves_nothing_behind(
    loading_app: tuple[int, int], tmp_path: Path
) -> None:
    pid, terminal = loading_app
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 128 + signal.SIGHUP
    assert (tmp_path / "ended").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGINT, 0)])
def test_a_signal_during_a_load_ends_the_engine_and_restores_the_terminal(
    loading_app: tuple[int, int], tmp_path: Path, number: signal.Signals, code: int
) -> None:
    pid, terminal = loading_app
    os.kill(pid, number)
    said = rest_of(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == code
    assert (tmp_path / "ended").exists()
    assert _LEAVE_ALTERNATE_SCREEN in said
    assert b"Traceback" not in said
    os.close(terminal)
