"""The app in a pseudo-terminal, where signals and hang-ups are real. Its engine is the scripted one."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from pathlib import Path

import pyte
import pytest

pytestmark = pytest.mark.process

WAITING_MAX = 32 * 1024
"""Small, so that a slow machine fills it too."""

_PROGRAM = f"""
import asyncio, sys
from pathlib import Path
from tests.support.scripted_engine import Hold, ScriptedEngine, ScriptedHost
from vlmtui.config.settings import Settings
from vlmtui.paths import Paths
from vlmtui.registry.loader import Registry
from vlmtui.ui.terminal import driver
from vlmtui.ui.app import VlmtuiApp
from vlmtui.session.async_store import AsyncStore
from vlmtui.ui.services import Services

folder = Path(sys.argv[1])
driver.WAITING_MAX = {WAITING_MAX}
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
        store=AsyncStore(Paths.below(folder)),
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
    """Start the app, and wait until it loads a model. Yield its pid, and our end of its terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        # readline, which pytest brings, leaves LINES and COLUMNS in the environment that `execv` would hand on; a
        # process of pytest-xdist has them in `os.environ`, too
        given = {name: value for name, value in os.environ.items() if name not in ("LINES", "COLUMNS")}
        environment = {**given, "TERM": "xterm-256color"}
        os.execve(sys.executable, [sys.executable, "-c", _PROGRAM, str(tmp_path)], environment)
    said = b""
    while b"Loading shapes" not in said:
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


def is_stalled(terminal: int) -> bool:
    """Make the app redraw again and again without reading its output; return whether the terminal's buffer is full."""
    waiting = 0
    for number in range(400):
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100 + number % 2, 0, 0))
        time.sleep(0.02)
        before, waiting = waiting, struct.unpack("i", fcntl.ioctl(terminal, termios.FIONREAD, b"\0" * 4))[0]
        if number > 200 and number % 2 == 0 and waiting == before:
            return True
    return False


def ended(pid: int, *, within_s: float = 30.0) -> int | None:
    """Return the exit code of a process; kill it and return None if it does not end."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def test_a_signal_ends_the_app_although_the_terminal_does_not_read(
    loading_app: tuple[int, int], tmp_path: Path
) -> None:
    pid, terminal = loading_app
    assert is_stalled(terminal)
    os.kill(pid, signal.SIGTERM)
    assert ended(pid) == 128 + signal.SIGTERM
    assert (tmp_path / "ended").exists()
    os.close(terminal)


def test_a_stalled_terminal_that_goes_away_leaves_nothing_behind(loading_app: tuple[int, int], tmp_path: Path) -> None:
    pid, terminal = loading_app
    assert is_stalled(terminal)
    os.close(terminal)
    assert ended(pid) == 128 + signal.SIGHUP
    assert (tmp_path / "ended").exists()


def test_a_terminal_that_reads_again_shows_the_whole_screen(loading_app: tuple[int, int]) -> None:
    pid, terminal = loading_app
    assert is_stalled(terminal)
    said, display = b"", [""]
    deadline = time.monotonic() + 60
    while "Help" not in display[-1] and time.monotonic() < deadline:
        pause = time.monotonic() + 3
        while time.monotonic() < pause and select.select([terminal], [], [], 0.7)[0]:
            said += os.read(terminal, 65536)
        screen = pyte.Screen(100, 30)
        pyte.ByteStream(screen).feed(said)
        display = screen.display
    assert len(said) < WAITING_MAX, "frames were left out"
    assert "Loading shapes" in "\n".join(display)
    assert "Help" in display[-1]
    os.kill(pid, signal.SIGTERM)
    rest_of(terminal)
    assert ended(pid) == 128 + signal.SIGTERM
    os.close(terminal)
