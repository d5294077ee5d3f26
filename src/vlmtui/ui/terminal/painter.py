"""Has the terminal draw pictures where placeholders are."""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from vlmtui.terminal import Passage
from vlmtui.ui.terminal.placeholders import PICTURES_MAX, PictureRun, terminal_id

if TYPE_CHECKING:
    from PIL.Image import Image

Protocol = Literal["kitty", "iterm", "sixel"]

_CHUNK: Final = 4096
"""Most characters of kitty's payload in one sequence."""
_SEQUENCE_MAX: Final = 500_000
"""Longest sequence: tmux takes a megabyte, with each Escape doubled."""
_REMEMBERED: Final = 64
"""Parts of a picture whose sequences are kept."""


class _Part(NamedTuple):
    """Rows and columns of a picture, in cells; the ends are exclusive."""

    left: int
    top: int
    right: int
    bottom: int


class _Held:
    """A picture, scaled to the cells that it takes."""

    def __init__(self, image: Image, size: tuple[int, int], cell: tuple[int, int], protocol: Protocol) -> None:
        self.columns, self.rows = size
        self._cell = cell
        image = image.convert("RGB")
        pixels = self.columns * cell[0], self.rows * cell[1]
        if protocol != "kitty" or pixels < image.size:  # kitty itself scales well, and need not be sent more pixels
            image = image.resize(pixels)
        self.image = image.quantize(256) if protocol == "sixel" else image
        self.sequences: dict[_Part, str] = {}

    def cut(self, part: _Part) -> Image:
        wide, high = self._cell
        return self.image.crop((part.left * wide, part.top * high, part.right * wide, part.bottom * high))


class Painter:
    """Keeps the pictures that are on the screen, each by a number, and writes what draws them.

    kitty gets each picture once, and draws it where its placeholders are. For Sixel and iTerm2 the parts to be seen are
    drawn over blanks, whenever something else was written there.
    """

    def __init__(self, protocol: Protocol, cell: tuple[int, int], passage: Passage) -> None:
        """`cell`: width and height of a cell, in pixels. `passage`: the way to the terminal that draws."""
        self.protocol: Final = protocol
        self.passage: Final = passage
        self._cell = cell
        self._held: dict[int, _Held] = {}
        self._sent: set[int] = set()
        """Pictures that kitty has."""
        self._gone: list[int] = []
        """Pictures that kitty has and may delete."""
        self._last = 0

    @property
    def draws_over(self) -> bool:
        """Whether pictures are drawn over blanks, rather than where the placeholders are."""
        return self.protocol != "kitty"

    def take(self, image: Image, size: tuple[int, int]) -> int | None:
        """Keep a picture that takes `size` columns and rows. Returns its number; None if there are too many."""
        for _ in range(PICTURES_MAX):
            self._last = self._last % PICTURES_MAX + 1
            if self._last not in self._held and self._last not in self._gone:
                self._held[self._last] = _Held(image, size, self._cell, self.protocol)
                return self._last
        return None

    def leave(self, number: int) -> None:
        """Forget a picture that is no longer on the screen."""
        self._held.pop(number, None)
        if number in self._sent:
            self._sent.discard(number)
            self._gone.append(number)

    def forget(self) -> None:
        """Note that the terminal may have lost the pictures."""
        self._sent.clear()

    def before(self, numbers: Iterable[int]) -> str:
        """Return what goes to the terminal before placeholders of these pictures do."""
        if self.draws_over:
            return ""
        gone, self._gone = self._gone, []
        parts = [self.passage.wrap(f"\x1b_Ga=d,d=I,i={terminal_id(number)},q=2\x1b\\") for number in gone]
        for number in sorted(set(numbers) - self._sent):
            if (held := self._held.get(number)) is not None:
                parts += map(self.passage.wrap, _kitty(terminal_id(number), held))
                self._sent.add(number)
        return "".join(parts)

    def over(self, runs: Sequence[PictureRun]) -> str:
        """Return what draws these parts of pictures over the blanks that were written for them."""
        drawn = [self._drawn(run, rows) for run, rows in _rectangles(runs)]
        text = "".join(drawn)
        # A multiplexer holds text back; setting the margins makes tmux write it before the picture.
        return f"\x1b[r{text}" if text and self.passage.is_through else text

    def _drawn(self, run: PictureRun, rows: int) -> str:
        held = self._held.get(run.number)
        if held is None:
            return ""
        part = _Part(run.column, run.row, run.column + run.width, run.row + rows)
        sequence = held.sequences.get(part)
        if sequence is None:
            image = held.cut(part)
            sequence = _iterm(image, run.width, rows) if self.protocol == "iterm" else _sixel(image)
            if len(held.sequences) >= _REMEMBERED:
                held.sequences.clear()
            held.sequences[part] = sequence
        if len(sequence) > _SEQUENCE_MAX and rows > 1:
            half = rows // 2
            below = run._replace(y=run.y + half, row=run.row + half)
            return self._drawn(run, half) + self._drawn(below, rows - half)
        return self.passage.wrap_at(run.x, run.y, sequence)


def _rectangles(runs: Sequence[PictureRun]) -> list[tuple[PictureRun, int]]:
    """Join runs that stand below each other. Returns each one's first run, and how many rows it has."""
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


def _kitty(identity: int, held: _Held) -> list[str]:
    """Return the sequences that hand over a picture, and place it where its placeholders are."""
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
