"""After any sequence of frames, the terminal shows the same as after a full repaint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.content import Content
from textual.geometry import Region
from textual.strip import Strip

from tests.support.cases import examples
from tests.support.emulators import Pyte, Tmux, differences
from vlmtui.ui.document.lines import wrapped
from vlmtui.ui.terminal.frames import FrameLayer

SIZE = (48, 14)
PANE = 33
"""The column where a panel begins that does not move with the lines beside it."""
_STYLES = [
    Style(),
    Style(color="#ff0000"),
    Style(color="#c0c0c0", bgcolor="#101020"),
    Style(bgcolor="#101020"),
    Style(bold=True),
    Style(bold=True, dim=True, color="#00ff00"),
    Style(dim=True, italic=True),
    Style(underline=True, strike=True),
    Style(reverse=True, color="red"),
    Style(color="bright_blue", bgcolor="color(99)"),
    Style(link="https://example.org/a"),
]
_PLAIN = ["a ", "word ", "   ", "            ", "│ ", "▌", "日本", "語 ", "é", "e\u0301x", "🙂", "0123456789", "…"]
_DOUBTFUL = [*_PLAIN, "👨\u200d👩\u200d👧", "🇩🇪", "❤\ufe0f", "\u0301", "שלום", "\u200bz"]
_CONSOLE = Console(color_system="truecolor", force_terminal=True)


class Screens:
    """A screen with two columns of strips, as the compositor returns them, changed at random."""

    def __init__(self, random: Random, texts: Sequence[str]) -> None:
        self._random = random
        self._texts = texts
        self.rows = [[self._strip(PANE), self._strip(SIZE[0] - PANE)] for _ in range(SIZE[1])]

    def full(self) -> LayoutUpdate:
        return LayoutUpdate(list(self.rows), Region(0, 0, *SIZE))

    def change(self) -> LayoutUpdate | ChopsUpdate:
        """Change a part of the screen, as an app does."""
        kind = self._random.choice(["line", "line", "tail", "move", "move", "move", "pane", "nothing", "all"])
        before = [list(row) for row in self.rows]
        if kind == "all":
            self.__init__(self._random, self._texts)  # type: ignore[misc]
            return self.full()
        if kind == "move":
            self._move(self._random.choice([1, 1, 2, 3, -1, -2]), both=self._random.random() < 0.3)
        elif kind in ("line", "tail"):
            y = self._random.randrange(SIZE[1])
            self.rows[y][0] = self._strip(PANE) if kind == "line" else self._tail(self.rows[y][0])
        elif kind == "pane":
            self.rows[self._random.randrange(SIZE[1])][1] = self._strip(SIZE[0] - PANE)
        changed = [y for y in range(SIZE[1]) if any(a is not b for a, b in zip(self.rows[y], before[y], strict=True))]
        return self._partial(changed or [0])

    def _partial(self, lines: Sequence[int]) -> ChopsUpdate:
        chops = [dict(zip((0, PANE), row, strict=True)) for row in self.rows]
        return ChopsUpdate(chops, [(y, 0, SIZE[0]) for y in lines], [[PANE, SIZE[0]] for _ in self.rows])

    def _move(self, lines: int, *, both: bool) -> None:
        top = self._random.randrange(SIZE[1] // 2)
        bottom = self._random.randrange(top + 1, SIZE[1])
        sources = {y: self.rows[y + lines] for y in range(top, bottom + 1) if top <= y + lines <= bottom}
        for y in range(top, bottom + 1):
            row = sources.get(y, [self._strip(PANE), self._strip(SIZE[0] - PANE)])
            again = [Strip(list(strip), strip.cell_length) for strip in row]  # equal, but rendered anew
            self.rows[y] = again if both else [again[0], self.rows[y][1]]

    def _tail(self, strip: Strip) -> Strip:
        cut = self._random.randrange(PANE)
        return Strip.join([strip.crop(0, cut), self._strip(PANE - cut)])

    def _strip(self, width: int) -> Strip:
        segments: list[Segment] = []
        room = width
        while room > 0 and self._random.random() < 0.9:
            segment = Segment(self._random.choice(self._texts), self._random.choice(_STYLES))
            if segment.cell_length > room:
                break
            segments.append(segment)
            room -= segment.cell_length
        return Strip([*segments, Segment(" " * room, self._random.choice(_STYLES))] if room else segments, width)


def shown_by(terminal: Pyte | Tmux, screens: Screens, *, frames: int, random: Random) -> FrameLayer:
    """Send frames to a terminal, some of them for several updates; return the layer that made them."""
    layer = FrameLayer()
    assert layer.take(screens.full())
    terminal.feed(layer.send())
    for _ in range(frames):
        assert layer.take(screens.change())
        if random.random() < 0.8:
            terminal.feed(layer.send())
    terminal.feed(layer.send())
    return layer


def repainted(screens: Screens) -> str:
    """Return the text of a full frame, as Textual draws it."""
    return screens.full().render_segments(_CONSOLE)


def repainted_by_layer(screens: Screens) -> str:
    layer = FrameLayer()
    assert layer.take(screens.full())
    return layer.send()


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 2**32))
def test_any_frames_give_the_cells_of_textuals_repaint(seed: int) -> None:
    random = Random(seed)
    screens, terminal, anew = Screens(random, _PLAIN), Pyte(SIZE), Pyte(SIZE)
    shown_by(terminal, screens, frames=12, random=random)
    anew.feed(repainted(screens))
    assert not differences(terminal.cells(), anew.cells())


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 2**32))
def test_characters_of_doubtful_width_shift_nothing(seed: int) -> None:
    random = Random(seed)
    screens, terminal, anew = Screens(random, _DOUBTFUL), Pyte(SIZE), Pyte(SIZE)
    terminal.feed("\x1b[?7l")
    anew.feed("\x1b[?7l")
    shown_by(terminal, screens, frames=12, random=random)
    anew.feed(repainted_by_layer(screens))
    assert not differences(terminal.cells(), anew.cells())


@pytest.mark.process
@pytest.mark.parametrize("seed", range(25))
def test_tmux_shows_the_cells_of_textuals_own_repaint(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    screens = Screens(random, _PLAIN)
    with Tmux(SIZE, tmp_path) as terminal:
        shown_by(terminal, screens, frames=25, random=random)
        found = terminal.cells()
        terminal.feed(f"\x1b[m\x1b[2J{repainted(screens)}")
        assert not differences(found, terminal.cells())


def test_an_unchanged_screen_needs_no_frame() -> None:
    screens, layer = Screens(Random(1), _PLAIN), FrameLayer()
    assert layer.take(screens.full())
    assert layer.send()
    assert layer.take(screens.full())
    assert layer.send() == ""
    screens.rows = [[Strip(list(strip), strip.cell_length) for strip in row] for row in screens.rows]
    assert layer.take(screens.full())
    assert layer.send() == "", "it was rendered anew, and is the same"


def test_lines_that_moved_are_scrolled() -> None:
    letters = Random(1)
    texts = ["".join(letters.choices("abcdefgh ", k=SIZE[0])) for _ in range(40)]
    words = [[Strip([Segment(text)])] for text in texts]
    layer = FrameLayer()
    for top in (0, 3):
        assert layer.take(LayoutUpdate(list(words[top : top + SIZE[1]]), Region(0, 0, *SIZE)))
        sent = layer.send()
    assert "\x1b[3M" in sent
    assert len(sent) < 6 * SIZE[0], "three lines are new"


def test_after_forget_the_frame_is_a_full_one() -> None:
    screens, layer = Screens(Random(1), _PLAIN), FrameLayer()
    assert layer.take(screens.full())
    first = layer.send()
    layer.forget()
    assert not layer.knows(SIZE)
    assert layer.take(screens.full())
    assert layer.send() == first


@pytest.mark.parametrize("segment", [Segment("\x1b[31mred"), Segment("x", None, [(1,)]), Segment("tab\there")])  # type: ignore[list-item]
def test_sequences_for_the_terminal_are_not_taken(segment: Segment) -> None:
    layer = FrameLayer()
    assert not layer.take(LayoutUpdate([[Strip([segment], 8)]], Region(0, 0, 8, 1)))
    assert not layer.knows((8, 1))


def test_a_kitty_image_is_not_scrolled() -> None:
    part = Segment("\U0010eeee\u0305\u0305")
    letters = Random(1)
    texts = ["".join(letters.choices("abcdefgh ", k=SIZE[0] - 1)) for _ in range(40)]
    words = [[Strip([Segment(text)]), Strip([part])] for text in texts]
    layer = FrameLayer()
    for top in (0, 3):
        assert layer.take(LayoutUpdate(list(words[top : top + SIZE[1]]), Region(0, 0, *SIZE)))
        sent = layer.send()
    assert "M" not in sent


_SCRIPTS = {
    "Devanagari": "हिन्दी भाषा में लिखो और पढ़ो",
    "Bengali": "বাংলা ভাষায় লিখি",
    "Gujarati": "ગુજરાતી ભાષા",
    "Tamil": "தமிழ் மொழி கொடு",
    "Telugu": "తెలుగు భాష",
    "Kannada": "ಕನ್ನಡ ಭಾಷೆ",
    "Malayalam": "മലയാളം ഭാഷ",
    "Sinhala": "සිංහල භාෂාව",
    "Thai": "ภาษาไทยน้ำ",
    "Lao": "ພາສາລາວ",
    "Khmer": "ភាសាខ្មែរ",
    "Myanmar": "မြန်မာဘာသာ",
    "Tibetan": "བོད་སྐད་",
    "Arabic": "العربيّة",
    "Hebrew": "שָׁלוֹם",
    "Korean Jamo": "\u1112\u1161\u11ab\u1100\u1173\u11af",
    "Chinese with variation selectors": "葛\U000e0100飾区 辻\ufe00",
    "joined emoji": "👨\u200d👩\u200d👧 👩🏽\u200d💻",  # of a fourth one tmux has no room in a cell
    "flags and keycaps": "🇩🇪🇫🇷 1\ufe0f\u20e3#\ufe0f\u20e3",
    "skin tones": "👋🏽👍🏿 ok",
    "combining marks": "e\u0301a\u0308\u0323o\u0328 Z\u0351\u036b",
    "both forms of a symbol": "❤\ufe0f☀\ufe0f ⌚\ufe0e",
    "zero width": "a\u200bb\u2060c",
}


def _row(text: str, width: int) -> list[Strip]:
    left = Strip([Segment(text)]).adjust_cell_length(width)
    return [left, Strip([Segment("│ pane")]).adjust_cell_length(SIZE[0] - width)]


@pytest.mark.process
def test_tmux_shows_all_of_a_text_in_every_script(tmp_path: Path) -> None:
    """A row has the room that the layout leaves for a terminal that draws the text wider. In one that draws it
    narrower, blanks stand behind it."""
    texts = [piece for text in _SCRIPTS.values() for piece in _fitting(text, PANE - 1)]
    layer, height = FrameLayer(), SIZE[1]
    with Tmux(SIZE, tmp_path) as tmux:
        tmux.feed("\x1b[?7l")
        for first in range(0, len(texts), height // 2):
            shown = texts[first : first + height]
            shown += ["x" * (PANE - 2)] * (height - len(shown))
            rows: list[Iterable[Strip]] = [_row(text, PANE) for text in shown]
            layer.take(LayoutUpdate(rows, Region(0, 0, *SIZE)))
            tmux.feed(layer.send())
            for text, line in zip(shown, tmux.text(), strict=True):
                before, bar, pane = line.partition("│")
                assert ("".join(before.split()), bar, pane) == ("".join(text.split()), "│", " pane")
        rows = [_row("x", PANE) for _ in range(height)]
        layer.take(LayoutUpdate(rows, Region(0, 0, *SIZE)))
        tmux.feed(layer.send())
        assert [line.split() for line in tmux.text()] == [["x", "│", "pane"]] * height, "something is left over"


def _fitting(text: str, width: int) -> list[str]:
    return [line.plain for line in wrapped(Content(text), width)]
