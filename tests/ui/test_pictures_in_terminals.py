"""Images in terminals, directly and through the real tmux and screen: the sent bytes are decoded and compared."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from PIL import Image, ImageChops, ImageStat

from tests.support.picture_app import ABOVE, COLUMNS, ROWS, make_picture
from tests.support.picture_terminal import CELL, KINDS, PictureTerminal, Pixels

_APP = [sys.executable, "-m", "tests.support.picture_app"]
_ANSWERS_WITHIN_S = "20"
"""Seconds to wait for expected reports, on a busy machine."""
_NOT_LONG_S = "1"
"""Seconds to wait for reports that never come."""
_MOST_DIFFERENT = 6.0
"""Largest mean difference of a cell, of 255: Sixel has 256 colours, in steps of a hundredth."""

_OF_THE_PALETTE = 48
"""Largest difference of a colour from the nearest of 256."""

needs_screen = pytest.mark.skipif(shutil.which("screen") is None, reason="GNU screen is not installed")
needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


def environment() -> dict[str, str]:
    left_out = ("TMUX", "TMUX_PANE", "STY", "KITTY_WINDOW_ID", "TERM_PROGRAM", "LC_TERMINAL", "NO_COLOR", "LC_ALL")
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return {**kept, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}


@contextmanager
def in_tmux(kind: str, folder: Path, *, passthrough: str, status: str = "off") -> Iterator[PictureTerminal]:
    """Run the app in tmux, in a terminal of this kind."""
    # pyte lacks `indn` and `rin`, and moves the cursor wrongly below a scroll region
    options = [f"set -g allow-passthrough {passthrough}", f"set -g status-position top; set -g status {status}"]
    options += ["set -g set-clipboard off", "set -ga terminal-overrides ',*:RGB:indn@:rin@:csr@'"]
    (folder / "conf").write_text("\n".join(options))
    server = ["tmux", "-S", str(folder / "tmux")]
    waits = _ANSWERS_WITHIN_S if passthrough == "on" else _NOT_LONG_S
    command = [*server, "-f", str(folder / "conf"), "new-session", " ".join([*_APP, waits])]
    try:
        with PictureTerminal(command, KINDS[kind], env=environment()) as terminal:
            yield terminal
    finally:
        subprocess.run([*server, "kill-server"], check=False, capture_output=True)


@contextmanager
def in_screen(kind: str, folder: Path) -> Iterator[PictureTerminal]:
    """Run the app in GNU screen, in a terminal of this kind."""
    folder.chmod(0o700)
    # pyte lacks what SF and SR are, and moves the cursor wrongly below a scroll region
    (folder / "conf").write_text("startup_message off\ndefutf8 on\ntermcapinfo * 'SF@:SR@:cs@'\n")
    env = {**environment(), "SCREENDIR": str(folder)}
    command = ["screen", "-U", "-c", str(folder / "conf"), "-S", "pictures", *_APP, _ANSWERS_WITHIN_S]
    try:
        with PictureTerminal(command, KINDS[kind], env=env) as terminal:
            yield terminal
    finally:
        subprocess.run(["screen", "-S", "pictures", "-X", "quit"], env=env, check=False, capture_output=True)


@contextmanager
def alone(kind: str) -> Iterator[PictureTerminal]:
    with PictureTerminal([*_APP, _ANSWERS_WITHIN_S], KINDS[kind], env=environment()) as terminal:
        yield terminal


def expected(top: int, *, first_line: int = 0, covered: frozenset[tuple[int, int]] = frozenset()) -> Pixels:
    """Return the image with its first row in line `top` of a screen that begins at line `first_line`."""
    image, found = make_picture(), {}
    for row in range(ROWS):
        for x in range(COLUMNS):
            y = top + row
            if y >= first_line and (x, y) not in covered:
                left, upper = x * CELL[0], row * CELL[1]
                found[x, y] = image.crop((left, upper, left + CELL[0], upper + CELL[1]))
    return found


def is_same(one: Image.Image, other: Image.Image) -> bool:
    return max(ImageStat.Stat(ImageChops.difference(one, other)).mean) <= _MOST_DIFFERENT


def shows(terminal: PictureTerminal, wanted: Pixels) -> Callable[[], bool]:
    """Return whether exactly these parts of the image are visible, each in its place."""

    def found() -> bool:
        seen = terminal.pixels()
        return seen.keys() == wanted.keys() and all(is_same(seen[at], part) for at, part in wanted.items())

    return found


def walk_through(terminal: PictureTerminal, *, first_line: int = 0) -> None:
    """Scroll the image half out of the screen and back, cover a part of it, and remove it."""
    top = first_line + ABOVE
    terminal.read_until(shows(terminal, expected(top)))
    terminal.type("jjj")
    terminal.read_until(shows(terminal, expected(top - 3)))
    terminal.type("jjjj")
    terminal.read_until(shows(terminal, expected(top - 7, first_line=first_line)))
    assert terminal.text()[first_line + 5].startswith("below 0")
    terminal.type("kkkkkkk")
    terminal.read_until(shows(terminal, expected(top)))
    terminal.type("c")
    covered = frozenset((x, first_line + y) for x in range(3, 7) for y in (5, 6))
    terminal.read_until(shows(terminal, expected(top, covered=covered)))
    assert terminal.text()[first_line + 5] == "   OVER"
    terminal.type("r")
    terminal.read_until(lambda: not terminal.pixels() and terminal.text()[top].startswith("below 0"))


@pytest.mark.parametrize("kind", ["kitty", "wezterm", "foot"])
def test_a_terminal_shows_the_picture_wherever_it_moves(kind: str) -> None:
    with alone(kind) as terminal:
        walk_through(terminal)


@needs_tmux
@pytest.mark.parametrize(("kind", "status"), [("kitty", "off"), ("wezterm", "off"), ("foot", "off"), ("foot", "on")])
def test_tmux_passes_the_picture_on(kind: str, status: str, tmp_path: Path) -> None:
    with in_tmux(kind, tmp_path, passthrough="on", status=status) as terminal:
        walk_through(terminal, first_line=int(status == "on"))


@needs_tmux
@pytest.mark.parametrize(
    ("kind", "passthrough"), [*((kind, "off") for kind in ("kitty", "wezterm", "foot", "xterm")), ("xterm", "on")]
)
def test_pictures_that_cannot_be_passed_on_are_drawn_with_characters(
    kind: str, passthrough: str, tmp_path: Path
) -> None:
    with in_tmux(kind, tmp_path, passthrough=passthrough) as terminal:
        terminal.read_until(lambda: terminal.text()[ABOVE + ROWS].startswith("below 0"))
        drawn = terminal.text()[ABOVE : ABOVE + ROWS]
        assert set("".join(drawn)) <= set(" ▘▝▀▖▌▞▛▗▚▐▜▄▙▟█"), drawn
        assert terminal.sequences == 0


@needs_screen
@pytest.mark.parametrize("kind", ["kitty", "xterm"])
def test_screen_gets_characters_of_256_colours(kind: str, tmp_path: Path) -> None:
    """screen mistakes true colours for other attributes. Every cell of this image has one colour."""
    with in_screen(kind, tmp_path) as terminal:
        terminal.read_until(lambda: terminal.text()[ABOVE + ROWS].startswith("below 0"))
        assert terminal.sequences == 0
        image = make_picture()
        for x, y in ((0, 0), (5, 1), (9, 4), (15, 7)):
            cell = terminal.screen.buffer[ABOVE + y][x]
            wanted = image.getpixel((x * CELL[0] + 5, y * CELL[1] + 10))
            assert isinstance(wanted, tuple)
            for colour in (cell.fg, cell.bg) if cell.data != " " else (cell.bg,):
                shown = bytes.fromhex(colour)
                assert max(abs(a - b) for a, b in zip(shown, wanted, strict=True)) <= _OF_THE_PALETTE, (x, y, cell)
