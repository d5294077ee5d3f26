"""How images are drawn, and what terminals answer about it."""

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

from vlmtui.terminal import Answers, best_way, parse_answers, parse_place, passed_on, picture_ways
from vlmtui.ui.terminal.graphics import GRIDS, Graphics, GraphicsMode, Symbols, symbol_of, symbol_strips
from vlmtui.ui.terminal.painter import MARKS, PictureRun, picture_runs, placeholder_strip

_SIXEL = frozenset({4, 22})
_PLAIN = frozenset({22})
_KITTY = Answers(name="kitty(0.35.2)", attributes=_PLAIN, speaks_kitty=True)


@pytest.mark.parametrize(
    ("environment", "answers", "mode"),
    [
        ({"TERM": "xterm-256color"}, _KITTY, "kitty"),
        ({"TERM": "xterm-kitty", "TMUX": "/tmp/tmux"}, Answers(), "quadrant"),
        ({"TERM": "tmux-256color", "KITTY_WINDOW_ID": "1"}, Answers(), "quadrant"),
        ({"TERM": "tmux-256color"}, _KITTY, "kitty"),
        ({"TERM": "screen", "STY": "1.pts"}, Answers(own_attributes=_PLAIN), "quadrant"),
        ({"TERM": "xterm-256color"}, Answers(name="XTerm(370)", attributes=_SIXEL), "sixel"),
        ({"TERM": "xterm-256color"}, Answers(name="XTerm(370)", attributes=_PLAIN), "quadrant"),
        ({"TERM": "tmux", "TMUX_PANE": "%1"}, Answers(name="foot(1.16)", attributes=_SIXEL), "sixel"),
        ({"TERM": "tmux"}, Answers(name="XTerm(370)", attributes=_SIXEL), "quadrant"),
        ({"TERM": "tmux"}, Answers(own_attributes=_SIXEL), "sixel"),
        ({"TERM": "xterm-256color"}, Answers(name="WezTerm 2024", attributes=_SIXEL), "iterm"),
        ({"TERM": "xterm-256color"}, Answers(name="Konsole 23.08", attributes=_PLAIN, speaks_kitty=True), "sextant"),
        ({"TERM": "xterm-256color"}, Answers(name="VTE(7006)", attributes=_PLAIN), "sextant"),
        ({"TERM": "xterm-256color"}, Answers(name="VTE(5202)", attributes=_PLAIN), "quadrant"),
        ({"TERM": "xterm-256color", "LANG": "C"}, Answers(), "halfcell"),
        ({"TERM": "linux"}, Answers(), "halfcell"),
        ({"TERM": "dumb"}, Answers(), None),
        ({}, Answers(), "quadrant"),
    ],
)
def test_the_terminals_name_and_reports_choose_the_protocol(
    environment: dict[str, str], answers: Answers, mode: str | None
) -> None:
    ways = picture_ways(environment, answers)
    best = best_way(ways)
    assert (best.name if best else None) == mode
    assert all(way.reason for way in ways)


@pytest.mark.parametrize(
    ("answer", "is_behind", "expected"),
    [
        (b"\x1b[6;22;11t\x1b[?62;4;22c", False, Answers(attributes=_SIXEL, cell=(11, 22))),
        (b"\x1b[6;0;0t\x1b[?4c", False, Answers(attributes=frozenset())),
        (b"typed ahead\x1b[?62;4;22c", False, Answers(attributes=_SIXEL)),
        (b"\x1bP>|foot(1.16)\x1b\\\x1b[?62;22c", False, Answers(name="foot(1.16)", attributes=_PLAIN)),
        (b"\x1b[?1;2c", True, Answers(own_attributes=frozenset({2}))),
        (
            b"\x1b[?1;2c\x1b_Gi=31;OK\x1b\\\x1bP>|kitty(0.35.2)\x1b\\\x1b[?62;22c",
            True,
            Answers(name="kitty(0.35.2)", attributes=_PLAIN, own_attributes=frozenset({2}), speaks_kitty=True),
        ),
        (b"\x1b_Gi=31;ENOTSUPPORTED\x1b\\", False, Answers()),
        (b"", True, Answers()),
    ],
)
def test_a_terminals_answers(answer: bytes, is_behind: bool, expected: Answers) -> None:
    assert parse_answers(answer, is_behind=is_behind) == expected


def test_sequences_pass_tmux() -> None:
    assert passed_on("\x1b_Gx\x1b\\") == "\x1bPtmux;\x1b\x1b_Gx\x1b\x1b\\\x1b\\"


@pytest.mark.parametrize(
    ("answer", "origin"),
    [
        ("40 10 on bottom", (40, 10)),
        ("0 0 on top", (0, 1)),
        ("0 3 2 top", (0, 5)),
        ("0 0 off top", (0, 0)),
        ("", (0, 0)),
    ],
)
def test_where_a_pane_of_tmux_is(answer: str, origin: tuple[int, int]) -> None:
    assert parse_place(answer) == origin


def test_the_marks_of_placeholders_are_kittys() -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "__stdout__", None)  # it would ask the terminal
        from textual_image.renderable.tgp import _NUMBER_TO_DIACRITIC

        assert tuple(map(ord, MARKS)) == tuple(_NUMBER_TO_DIACRITIC)


def test_placeholders_tell_their_place_however_they_are_cut() -> None:
    strip = placeholder_strip(7, 2, 10).crop(3, 8)
    layer_chars = [" ", *[strip.text[at : at + 4] for at in range(0, len(strip.text), 4)], "x"]
    assert picture_runs(5, layer_chars) == [PictureRun(5, 1, 7, 2, 3, 5)]


@pytest.mark.parametrize("symbols", ["halfcell", "quadrant", "sextant"])
def test_symbols_draw_their_own_shapes_exactly(symbols: Symbols) -> None:
    """A cell with two colours is drawn exactly, whatever their pixels."""
    across, down = GRIDS[symbols]
    count = across * down
    image = Image.new("RGB", (across << count, down), (10, 20, 30))
    for mask in range(1 << count):
        for bit in range(count):
            if mask >> bit & 1:
                image.putpixel((mask * across + bit % across, bit // across), (200, 150, 100))
    [strip] = symbol_strips(image, 1 << count, 1, symbols)
    symbol_masks = {symbol_of(mask, symbols): mask for mask in range(1 << count)}
    cells = [(char, style) for text, style, _ in strip for char in text]
    assert len(symbol_masks) == 1 << count == len(cells)
    for mask, (char, style) in enumerate(cells):
        assert style is not None and style.color is not None and style.bgcolor is not None
        colours = [colour.get_truecolor() for colour in (style.bgcolor, style.color)]
        drawn = [tuple(colours[symbol_masks[char] >> bit & 1]) for bit in range(count)]
        assert drawn == [(200, 150, 100) if mask >> bit & 1 else (10, 20, 30) for bit in range(count)]


def test_without_colours_nothing_is_drawn_with_characters() -> None:
    assert Graphics.detect("halfcell", coloured=False).mode == "off"


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
    """An app that shows one image."""

    def __init__(self, mode: GraphicsMode) -> None:
        super().__init__()
        self.made = Graphics(mode).widget_for(Image.new("RGB", (200, 100), "red"), columns=20, rows=10)

    def compose(self) -> ComposeResult:
        yield self.made or Widget()


@pytest.mark.parametrize("mode", ["halfcell", "quadrant", "sextant", "sixel", "iterm", "kitty"])
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
import select, sys, termios
from vlmtui.ui.terminal.graphics import Graphics
from vlmtui.terminal import TerminalQuestion
before = sys.stdin.readline() and termios.tcgetattr(0)
print("LISTENS", flush=True)
while not select.select([0], [], [], 0)[0]: pass  # until there is a line
with TerminalQuestion(within_s=2.0).ask() as question:  # who answers may be slow
    graphics = Graphics.detect("auto", question)
print("TYPED", question.take_typed(), termios.tcgetattr(0) == before)
print("MODE", graphics.mode, *graphics.cell, flush=True)
"""


@pytest.mark.parametrize(("answer", "told"), [(b"\x1b[6;24;12t\x1b[?62;4c", "sixel 12 24"), (b"", "quadrant 10 20")])
def test_the_terminal_is_questioned_and_its_settings_restored(answer: bytes, told: str) -> None:
    """The terminal is a pseudo-terminal that answers, or does not."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        for name in ("TMUX", "STY", "KITTY_WINDOW_ID", "TERM_PROGRAM", "LC_ALL", "LC_CTYPE", "LANG", "LC_TERMINAL"):
            os.environ.pop(name, None)
        os.execv(sys.executable, [sys.executable, "-c", _ASKS])
    said = b""
    os.write(terminal, b"go\r")
    early, later = b"early\r", b"later" + answer
    to_come = [(b"LISTENS", early), (b"\x1b[c", later)]
    while b"MODE" not in said or not said.endswith(b"\n"):
        said += os.read(terminal, 4096)
        if to_come and to_come[0][0] in said:
            os.write(terminal, to_come.pop(0)[1])
    assert told in said.decode()
    assert f"TYPED {early + later!r} True" in said.decode(), "a key is lost, or the settings are not restored"
    assert os.waitpid(pid, 0)[1] == 0
    os.close(terminal)
