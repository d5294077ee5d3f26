"""The real app in a pseudo-terminal with the real engine: attach an image, ask, read the answer off the screen."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.pictures import Easel
from tests.support.terminal import Terminal, search_paths
from vlmtui.engine.local.processes import worker_processes
from vlmtui.paths import Paths
from vlmtui.protocol.endpoint import Endpoint
from vlmtui.registry.match import Model

pytestmark = [pytest.mark.engine, pytest.mark.e2e]
APP = [sys.executable, "-m", "vlmtui"]


def environment(paths: Paths, **more: str) -> dict[str, str]:
    return {
        "HOME": str(paths.config.parent),
        **search_paths(),
        "VLMTUI_DATA_DIR": str(paths.config.parent),
        "VLMTUI_GRAPHICS": "halfcell",
        **more,
    }


def open_chat(terminal: Terminal) -> None:
    terminal.wait_for("No model is chosen")
    terminal.press("enter")
    terminal.wait_for("Shapes (bundled)")
    terminal.press("enter")
    terminal.wait_for(lambda text: "Message, or / for commands" in text and "ready" in text)


@pytest.mark.parametrize(("columns", "rows"), [(120, 40), (80, 24)])
def test_attach_ask_and_read_the_answer(loaded_worker: Paths, tmp_path: Path, columns: int, rows: int) -> None:
    easel = Easel(tmp_path)
    first, second = easel.picture(("red", "circle", "top left")), easel.picture(("blue", "square", "center"))
    with Terminal(APP, env=environment(loaded_worker), columns=columns, rows=rows) as terminal:
        open_chat(terminal)
        terminal.paste(str(first.path))
        terminal.wait_for(first.path.name)
        terminal.type("What is in this image?")
        terminal.press("enter")
        terminal.wait_for(first.answer)
        terminal.wait_for("<|im_end|>")
        terminal.type(f"/attach {second.path}")
        terminal.press("enter")
        terminal.wait_for(lambda text: "[Image #2]" in text and second.path.name in text)
        terminal.type("What is in this image?")
        terminal.press("enter")
        terminal.wait_for(second.answer)
        terminal.wait_for("<|im_end|>")
        terminal.press("ctrl+q")
        assert terminal.wait_for_end() == 0
        assert "stays loaded" in terminal.raw.decode(errors="replace")


def test_a_lost_terminal_ends_the_app_and_leaves_the_engine(loaded_worker: Paths, shapes: Model) -> None:
    with Terminal(APP, env=environment(loaded_worker)) as terminal:
        open_chat(terminal)
        app = psutil.Process(terminal.pid)
        terminal.hang_up()
    app.wait(60)
    assert worker_processes(Endpoint.of(loaded_worker, shapes.spec))


def test_quitting_while_loading_leaves_nothing(short_path: Path, shapes: Model) -> None:
    paths = Paths.below(short_path)
    with Terminal(APP, env=environment(paths)) as terminal:
        terminal.wait_for("No model is chosen")
        terminal.press("enter")
        terminal.wait_for("Shapes (bundled)")
        terminal.press("enter")
        terminal.wait_for("Loading")
        terminal.wait_for("importing vLLM")
        terminal.signal(signal.SIGTERM)
        terminal.wait_for_end()
    assert worker_processes(Endpoint.of(paths, shapes.spec)) == []


def test_a_terminal_without_colours_still_works(loaded_worker: Paths) -> None:
    with Terminal(APP, env=environment(loaded_worker, NO_COLOR="1", TERM="xterm", VLMTUI_GRAPHICS="off")) as terminal:
        open_chat(terminal)
        terminal.type("hello")
        terminal.press("enter")
        terminal.wait_for("<|im_end|>")


def test_hostile_text_reaches_the_terminal_escaped(loaded_worker: Paths, tmp_path: Path) -> None:
    hostile = tmp_path / "x\x1b]0;owned\x07[red].png"
    Easel(tmp_path).picture(("red", "circle", "top")).path.rename(hostile)
    with Terminal(APP, env=environment(loaded_worker)) as terminal:
        open_chat(terminal)
        terminal.type("/attach ")
        terminal.paste(str(tmp_path / "missing\x1b]0;owned\x07.png"))
        terminal.press("enter")
        terminal.wait_for("missing")
        assert b"\x1b]0;owned" not in terminal.raw
