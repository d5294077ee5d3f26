"""How pictures are drawn, and what is learned of the terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import textwrap

import pytest
from PIL import Image
from textual.app import App, ComposeResult
from textual.widget import Widget

from vlmtui.ui.terminal.graphics import Graphics, GraphicsMode
from vlmtui.ui.terminal.query import mode_by_name, parse_answer


@pytest.mark.parametrize(
    ("environment", "mode"),
    [
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM": "xterm-ghostty"}, "kitty"),
        ({"TERM": "xterm-kitty", "TMUX": "/tmp/tmux"}, "halfcell"),
        ({"TERM": "tmux-256color"}, "halfcell"),
        ({"TERM": "foot"}, "sixel"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "sixel"),
        ({"TERM": "linux"}, "halfcell"),
        ({"TERM": "dumb"}, "off"),
        ({"TERM": "xterm-256color"}, None),
        ({}, None),
    ],
)
def test_the_name_of_a_terminal_tells_how_it_draws(environment: dict[str, str], mode: str | None) -> None:
    assert mode_by_name(environment) == mode


@pytest.mark.parametrize(
    ("answer", "sixel", "cell"),
    [
        (b"\x1b[6;22;11t\x1b[?62;4;22c", True, (11, 22)),
        (b"\x1b[?64;1;2;22c", False, None),
        (b"\x1b[6;0;0t\x1b[?4c", False, None),
        (b"typed ahead\x1b[?62;4c", True, None),
        (b"", False, None),
    ],
)
def test_a_terminals_answer(answer: bytes, sixel: bool, cell: tuple[int, int] | None) -> None:
    assert parse_answer(answer) == (sixel, cell)


@pytest.mark.parametrize(
    ("size", "box", "expected"),
    [
        ((300, 300), (40, 12), (24, 12)),
        ((3000, 300), (40, 12), (40, 2)),
        ((300, 3000), (40, 12), (2, 12)),
        ((20, 20), (40, 12), (2, 1)),
        ((1, 9000), (40, 12), (1, 12)),
        ((9000, 9000), (900, 900), (297, 148)),
    ],
)
def test_a_picture_keeps_its_aspect_ratio_and_is_never_enlarged(
    size: tuple[int, int], box: tuple[int, int], expected: tuple[int, int]
) -> None:
    graphics = Graphics("kitty", cell=(10, 20))
    assert graphics.fit(*size, columns=box[0], rows=box[1]) == expected


class OnePicture(App[None]):
    """Shows one picture."""

    def __init__(self, mode: GraphicsMode) -> None:
        super().__init__()
        self.made = Graphics(mode).widget_for(Image.new("RGB", (200, 100), "red"), columns=20, rows=10)

    def compose(self) -> ComposeResult:
        yield self.made or Widget()


@pytest.mark.parametrize("mode", ["halfcell", "sixel"])
async def test_a_picture_is_as_large_as_it_was_fitted(mode: GraphicsMode) -> None:
    app = OnePicture(mode)
    async with app.run_test() as pilot:
        await pilot.pause()
        assert app.made is not None
        assert app.made.size == (20, 5)


def test_off_means_no_widget_and_no_import() -> None:
    program = """
        import sys
        from vlmtui.ui.terminal.graphics import Graphics
        graphics = Graphics.detect("off")
        assert graphics.mode == "off"
        class Image: width = height = 9
        assert graphics.widget_for(Image(), columns=9, rows=9) is None
        assert "textual_image" not in sys.modules and "PIL" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


_ASKS = """
import sys
from vlmtui.ui.terminal import query
from vlmtui.ui.terminal.graphics import Graphics
query.ANSWER_WITHIN_S = 2.0  # who answers may be slow
graphics = Graphics.detect("auto")
print("MODE", graphics.mode, *graphics.cell, flush=True)
"""


@pytest.mark.parametrize(("answer", "told"), [(b"\x1b[6;24;12t\x1b[?62;4c", "sixel 12 24"), (b"", "halfcell 10 20")])
def test_the_terminal_is_asked_and_left_as_it_was(answer: bytes, told: str) -> None:
    """In a terminal of its own, which answers, or never does."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        for name in ("TMUX", "STY", "KITTY_WINDOW_ID", "TERM_PROGRAM"):
            os.environ.pop(name, None)
        os.execv(sys.executable, [sys.executable, "-c", _ASKS])
    said = b""
    answered = False
    while b"MODE" not in said or not said.endswith(b"\n"):
        said += os.read(terminal, 4096)
        if b"\x1b[c" in said and not answered:
            answered = True
            os.write(terminal, answer)
    assert told in said.decode()
    assert os.waitpid(pid, 0)[1] == 0
    os.close(terminal)
