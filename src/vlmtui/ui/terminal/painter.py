"""Images that the terminal itself draws, with the protocol of kitty, iTerm2 or Sixel.

Textual sees placeholder characters in the cells of an image; the painter sends the pixels to the terminal.
"""

from __future__ import annotations

import io
import random
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from vlmtui.terminal import Passage

if TYPE_CHECKING:
    from PIL.Image import Image

PLACEHOLDER: Final = "\U0010eeee"
COLOUR: Final = random.randrange(16, 256)
"""A random part of each image's id in the terminal, since other programs there may have images too. It is an indexed
colour, which passes through multiplexers without true colour."""
PICTURES_MAX: Final = 255
# fmt: off
_CODES: Final = (
    0x305, 0x30d, 0x30e, 0x310, 0x312, 0x33d, 0x33e, 0x33f, 0x346, 0x34a, 0x34b, 0x34c, 0x350, 0x351, 0x352, 0x357,
    0x35b, 0x363, 0x364, 0x365, 0x366, 0x367, 0x368, 0x369, 0x36a, 0x36b, 0x36c, 0x36d, 0x36e, 0x36f, 0x483, 0x484,
    0x485, 0x486, 0x487, 0x592, 0x593, 0x594, 0x595, 0x597, 0x598, 0x599, 0x59c, 0x59d, 0x59e, 0x59f, 0x5a0, 0x5a1,
    0x5a8, 0x5a9, 0x5ab, 0x5ac, 0x5af, 0x5c4, 0x610, 0x611, 0x612, 0x613, 0x614, 0x615, 0x616, 0x617, 0x657, 0x658,
    0x659, 0x65a, 0x65b, 0x65d, 0x65e, 0x6d6, 0x6d7, 0x6d8, 0x6d9, 0x6da, 0x6db, 0x6dc, 0x6df, 0x6e0, 0x6e1, 0x6e2,
    0x6e4, 0x6e7, 0x6e8, 0x6eb, 0x6ec, 0x730, 0x732, 0x733, 0x735, 0x736, 0x73a, 0x73d, 0x73f, 0x740, 0x741, 0x743,
    0x745, 0x747, 0x749, 0x74a, 0x7eb, 0x7ec, 0x7ed, 0x7ee, 0x7ef, 0x7f0, 0x7f1, 0x7f3, 0x816, 0x817, 0x818, 0x819,
    0x81b, 0x81c, 0x81d, 0x81e, 0x81f, 0x820, 0x821, 0x822, 0x823, 0x825, 0x826, 0x827, 0x829, 0x82a, 0x82b, 0x82c,
    0x82d, 0x951, 0x953, 0x954, 0xf82, 0xf83, 0xf86, 0xf87, 0x135d, 0x135e, 0x135f, 0x17dd, 0x193a, 0x1a17, 0x1a75,
    0x1a76, 0x1a77, 0x1a78, 0x1a79, 0x1a7a, 0x1a7b, 0x1a7c, 0x1b6b, 0x1b6d, 0x1b6e, 0x1b6f, 0x1b70, 0x1b71, 0x1b72,
    0x1b73, 0x1cd0, 0x1cd1, 0x1cd2, 0x1cda, 0x1cdb, 0x1ce0, 0x1dc0, 0x1dc1, 0x1dc3, 0x1dc4, 0x1dc5, 0x1dc6, 0x1dc7,
    0x1dc8, 0x1dc9, 0x1dcb, 0x1dcc, 0x1dd1, 0x1dd2, 0x1dd3, 0x1dd4, 0x1dd5, 0x1dd6, 0x1dd7, 0x1dd8, 0x1dd9, 0x1dda,
    0x1ddb, 0x1ddc, 0x1ddd, 0x1dde, 0x1ddf, 0x1de0, 0x1de1, 0x1de2, 0x1de3, 0x1de4, 0x1de5, 0x1de6, 0x1dfe, 0x20d0,
    0x20d1, 0x20d4, 0x20d5, 0x20d6, 0x20d7, 0x20db, 0x20dc, 0x20e1, 0x20e7, 0x20e9, 0x20f0, 0x2cef, 0x2cf0, 0x2cf1,
    0x2de0, 0x2de1, 0x2de2, 0x2de3, 0x2de4, 0x2de5, 0x2de6, 0x2de7, 0x2de8, 0x2de9, 0x2dea, 0x2deb, 0x2dec, 0x2ded,
    0x2dee, 0x2def, 0x2df0, 0x2df1, 0x2df2, 0x2df3, 0x2df4, 0x2df5, 0x2df6, 0x2df7, 0x2df8, 0x2df9, 0x2dfa, 0x2dfb,
    0x2dfc, 0x2dfd, 0x2dfe, 0x2dff, 0xa66f, 0xa67c, 0xa67d, 0xa6f0, 0xa6f1, 0xa8e0, 0xa8e1, 0xa8e2, 0xa8e3, 0xa8e4,
    0xa8e5, 0xa8e6, 0xa8e7, 0xa8e8, 0xa8e9, 0xa8ea, 0xa8eb, 0xa8ec, 0xa8ed, 0xa8ee, 0xa8ef, 0xa8f0, 0xa8f1, 0xaab0,
    0xaab2, 0xaab3, 0xaab7, 0xaab8, 0xaabe, 0xaabf, 0xaac1, 0xfe20, 0xfe21, 0xfe22, 0xfe23, 0xfe24, 0xfe25, 0xfe26,
    0x10a0f, 0x10a38, 0x1d185, 0x1d186, 0x1d187, 0x1d188, 0x1d189, 0x1d1aa, 0x1d1ab, 0x1d1ac, 0x1d1ad, 0x1d242,
    0x1d243, 0x1d244,
)
# fmt: on
MARKS: Final = tuple(map(chr, _CODES))
"""Combining marks, from kitty's `rowcolumn-diacritics.txt`. Three follow a placeholder: row, column, and the first byte
of the image's id."""
CELLS_MAX: Final = len(MARKS)
_NUMBERS: Final = {mark: number for number, mark in enumerate(MARKS)}
Protocol = Literal["kitty", "iterm", "sixel"]
_CHUNK: Final = 4096
"""Most characters of kitty's payload in one sequence."""
_SEQUENCE_MAX: Final = 500_000
"""Most characters of a sequence: tmux accepts a megabyte, with each Escape doubled."""
_PARTS_MAX: Final = 64
"""Most parts of an image whose sequences are kept."""


class PictureCell(NamedTuple):
    """A cell of an image."""

    number: int
    """The number of the image, as `Painter.take` returns it."""
    row: int
    column: int


class PictureRun(NamedTuple):
    """Neighbouring cells in one row of an image. On the screen they begin at column `x` of line `y`."""

    y: int
    x: int
    number: int
    row: int
    column: int
    width: int


def terminal_id(number: int) -> int:
    return number << 24 | COLOUR


def placeholder_strip(number: int, row: int, columns: int) -> Strip:
    """Return a strip of placeholder characters for one row of an image."""
    tail, start = MARKS[number], PLACEHOLDER + MARKS[row]
    text = "".join([f"{start}{MARKS[column]}{tail}" for column in range(columns)])
    return Strip([Segment(text, Style(color=f"color({COLOUR})"))], columns)


def picture_cell(char: str) -> PictureCell | None:
    """Return the cell of an image for which a placeholder character, with its combining marks, stands. None for any
    other character."""
    if len(char) != 4 or char[0] != PLACEHOLDER:
        return None
    numbers = [_NUMBERS.get(mark) for mark in char[1:]]
    row, column, number = numbers
    if row is None or column is None or number is None:
        return None
    return PictureCell(number, row, column)


def picture_runs(y: int, chars: Sequence[str]) -> list[PictureRun]:
    """Return the runs of cells of images in line `y` of the screen."""
    runs: list[PictureRun] = []
    for x, char in enumerate(chars):
        cell = picture_cell(char)
        if cell is None:
            continue
        last = runs[-1] if runs else None
        if (
            last is not None
            and (last.x + last.width, last.number, last.row) == (x, cell.number, cell.row)
            and last.column + last.width == cell.column
        ):
            runs[-1] = last._replace(width=last.width + 1)
        else:
            runs.append(PictureRun(y, x, cell.number, cell.row, cell.column, 1))
    return runs


class _ScaledImage:
    """An image, scaled to its cells."""

    def __init__(self, image: Image, size: tuple[int, int], cell: tuple[int, int], protocol: Protocol) -> None:
        self.columns, self.rows = size
        self._cell = cell
        image = image.convert("RGB")
        pixels = self.columns * cell[0], self.rows * cell[1]
        if protocol != "kitty" or pixels < image.size:  # kitty itself scales well, and need not be sent more pixels
            image = image.resize(pixels)
        self.image = image.quantize(256) if protocol == "sixel" else image
        self.sequences: dict[tuple[int, int, int, int], str] = {}
        """The sequences that draw parts of the image, by left, top, right and bottom in cells."""

    def cut(self, left: int, top: int, right: int, bottom: int) -> Image:
        wide, high = self._cell
        return self.image.crop((left * wide, top * high, right * wide, bottom * high))


class Painter:
    """Keeps the images on the screen, each by a number, and writes the sequences that draw them.

    kitty gets each image once, and draws it at its placeholders. With Sixel and iTerm2, the visible parts are drawn
    over blanks, again whenever something else was written there.
    """

    def __init__(self, protocol: Protocol, cell: tuple[int, int], passage: Passage) -> None:
        """`cell`: width and height of a cell in pixels. `passage`: sends sequences to the terminal, directly or through
        tmux."""
        self.protocol: Final = protocol
        self.passage: Final = passage
        self._cell = cell
        self._images: dict[int, _ScaledImage] = {}
        self._sent: set[int] = set()
        """Numbers of images that kitty has."""
        self._gone: list[int] = []
        """Numbers of images that kitty has and should delete."""
        self._last = 0

    @property
    def draws_over(self) -> bool:
        """True if images are drawn over blanks (Sixel, iTerm2); False: at placeholders (kitty)."""
        return self.protocol != "kitty"

    def take(self, image: Image, size: tuple[int, int]) -> int | None:
        """Keep an image of `size` columns and rows, and return its number; None if there are too many."""
        for _ in range(PICTURES_MAX):
            self._last = self._last % PICTURES_MAX + 1
            if self._last not in self._images and self._last not in self._gone:
                self._images[self._last] = _ScaledImage(image, size, self._cell, self.protocol)
                return self._last
        return None

    def leave(self, number: int) -> None:
        """Forget an image that is no longer on the screen."""
        self._images.pop(number, None)
        if number in self._sent:
            self._sent.discard(number)
            self._gone.append(number)

    def forget(self) -> None:
        """Forget which images kitty has, so that they are sent again: the terminal may have lost them."""
        self._sent.clear()

    def before(self, numbers: Iterable[int]) -> str:
        """Return the sequences for kitty that must precede the placeholders of these images."""
        if self.draws_over:
            return ""
        gone, self._gone = self._gone, []
        parts = [self.passage.wrap(f"\x1b_Ga=d,d=I,i={terminal_id(number)},q=2\x1b\\") for number in gone]
        for number in sorted(set(numbers) - self._sent):
            if (held := self._images.get(number)) is not None:
                parts += map(self.passage.wrap, _kitty(terminal_id(number), held))
                self._sent.add(number)
        return "".join(parts)

    def over(self, runs: Sequence[PictureRun]) -> str:
        """Return the sequences that draw these parts of images over the blank cells that were written for them."""
        drawn = [self._part_sequence(run, rows) for run, rows in _rectangles(runs)]
        text = "".join(drawn)
        # tmux delays text. Setting the margins makes it write the text before the image.
        return f"\x1b[r{text}" if text and self.passage.is_through else text

    def _part_sequence(self, run: PictureRun, rows: int) -> str:
        held = self._images.get(run.number)
        if held is None:
            return ""
        part = run.column, run.row, run.column + run.width, run.row + rows
        sequence = held.sequences.get(part)
        if sequence is None:
            image = held.cut(*part)
            sequence = _iterm(image, run.width, rows) if self.protocol == "iterm" else _sixel(image)
            if len(held.sequences) >= _PARTS_MAX:
                held.sequences.clear()
            held.sequences[part] = sequence
        if len(sequence) > _SEQUENCE_MAX and rows > 1:
            half = rows // 2
            below = run._replace(y=run.y + half, row=run.row + half)
            return self._part_sequence(run, half) + self._part_sequence(below, rows - half)
        return self.passage.wrap_at(run.x, run.y, sequence)


def _rectangles(runs: Sequence[PictureRun]) -> list[tuple[PictureRun, int]]:
    """Join runs that lie below each other in an image to rectangles. Return the first run and the number of rows of
    each rectangle."""
    found: list[tuple[PictureRun, int]] = []
    open_: dict[tuple[int, int], int] = {}
    for run in sorted(runs):
        at = open_.get((run.x, run.width))
        if at is not None:
            first, rows = found[at]
            if run == first._replace(y=first.y + rows, row=first.row + rows):
                found[at] = first, rows + 1
                continue
        open_[run.x, run.width] = len(found)
        found.append((run, 1))
    return found


def _kitty(identity: int, held: _ScaledImage) -> list[str]:
    """Return the sequences that send an image to kitty, and have it drawn at its placeholders."""
    data = b64encode(_png(held.image)).decode()
    chunks = [data[at : at + _CHUNK] for at in range(0, len(data), _CHUNK)]
    sequences = []
    for number, chunk in enumerate(chunks):
        more = int(number + 1 < len(chunks))
        keys = (
            f"a=T,U=1,f=100,t=d,i={identity},c={held.columns},r={held.rows},q=2,m={more}"
            if not number
            else f"m={more},q=2"
        )
        sequences.append(f"\x1b_G{keys};{chunk}\x1b\\")
    return sequences


def _iterm(image: Image, columns: int, rows: int) -> str:
    data = _png(image)
    size = f"width={columns};height={rows};preserveAspectRatio=0"
    return f"\x1b]1337;File=inline=1;size={len(data)};{size};doNotMoveCursor=1:{b64encode(data).decode()}\x07"


def _sixel(image: Image) -> str:
    from textual_image._sixel import image_to_sixels

    sixels: str = image_to_sixels(image)
    return sixels


def _png(image: Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=6)
    return file.getvalue()
