"""A terminal that draws images: it answers queries as kitty, WezTerm, iTerm2 or xterm does, decodes its input, and
gives the pixels of each cell."""

from __future__ import annotations

import io
import os
import re
import select
import time
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Literal, Self

import msgspec
import pyte
from PIL import Image
from ptyprocess import PtyProcess

from vlmtui.ui.terminal.painter import picture_cell

CELL = (10, 20)
Pixels = dict[tuple[int, int], Image.Image]
"""Pixels by column and line of each cell that shows a part of an image."""


class Kind(msgspec.Struct, frozen=True):
    """A terminal's answers to queries."""

    name: str
    attributes: str
    speaks: frozenset[Literal["kitty", "sixel", "iterm"]]


KINDS = {
    "kitty": Kind("kitty(0.35.2)", "62;", frozenset({"kitty"})),
    "wezterm": Kind("WezTerm 20240203-110809-5046fc22", "65;4;6;18;22", frozenset({"kitty", "sixel", "iterm"})),
    "foot": Kind("foot(1.16.2)", "62;4;22", frozenset({"sixel"})),
    "xterm": Kind("XTerm(370)", "64;1;2;6;9;15;22", frozenset()),
}

_SPECIAL = re.compile(
    rb"\x1b_(?P<apc>[^\x1b]*)\x1b\\"
    rb"|\x1bP(?P<dcs>[^\x1b]*)\x1b\\"
    rb"|\x1b\](?P<osc>[^\x07\x1b]*)(?:\x07|\x1b\\)"
    rb"|(?P<query>\x1b\[>q|\x1b\[>c|\x1b\[0?c|\x1b\[16t|\x1b\[\?2026\$p)"
    rb"|\x1b\[[<>=][0-9;]*[a-zA-Z]|\x1b\[\?[0-9;]*(?:u|\$p)|\x1b\[[0-9;]*t"
)
_UNFINISHED = re.compile(rb"\x1b(?:[_P\]][^\x07\x1b]*\x1b?|\[[0-9;?<>=$]*)?\Z")
_SIXEL = re.compile(rb'"[0-9;]+|#[0-9;]+|![0-9]+[?-~]|[?-~]|\$|-')


class PictureTerminal:
    """Runs a command in a pseudo-terminal."""

    def __init__(self, command: Sequence[str], kind: Kind, *, env: Mapping[str, str]) -> None:
        self.screen = pyte.Screen(80, 24)
        self._stream = pyte.ByteStream(self.screen)
        self._kind = kind
        self._rest = b""
        self._parts: list[Image.Image] = []
        """Parts of the drawn images; a cell's character is the index."""
        self._kitty: dict[int, tuple[Image.Image, int, int]] = {}
        """kitty's images by id: pixels, columns, rows."""
        self._chunks: tuple[dict[str, str], bytes] | None = None
        self.sequences = 0
        """The image sequences received."""
        self._process = PtyProcess.spawn(list(command), env={**env}, dimensions=(24, 80))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.close(force=True)

    def type(self, text: str) -> None:
        self._process.write(text.encode())

    def text(self) -> list[str]:
        """The lines of the screen; cells of images are blank."""
        lines = [[self.screen.buffer[y][x].data for x in range(self.screen.columns)] for y in range(self.screen.lines)]
        return ["".join([char if len(char) == 1 else " " for char in line]).rstrip() for line in lines]

    def pixels(self) -> Pixels:
        """Pixels of every cell that shows a part of an image."""
        return {
            (x, y): part
            for y in range(self.screen.lines)
            for x in range(self.screen.columns)
            if (part := self._part(self.screen.buffer[y][x])) is not None
        }

    def read_until(self, found: Callable[[], bool]) -> None:
        """Read until `found()` is true. Raises AssertionError after a timeout."""
        deadline = time.monotonic() + 60
        while not found():
            assert time.monotonic() < deadline, "\n".join(self.text())
            self._read(0.05)

    def _read(self, timeout: float) -> None:
        if not select.select([self._process.fd], [], [], timeout)[0]:
            return
        try:
            data = self._rest + os.read(self._process.fd, 65536)
        except OSError as error:
            raise AssertionError("the program ended:\n" + "\n".join(self.text())) from error
        unfinished = _UNFINISHED.search(data)
        cut = unfinished.start() if unfinished else len(data)
        data, self._rest = data[:cut], data[cut:]
        at = 0
        for found in _SPECIAL.finditer(data):
            self._stream.feed(data[at : found.start()])
            at = found.end()
            self._take(found)
        self._stream.feed(data[at:])

    def _take(self, found: re.Match[bytes]) -> None:
        if (query := found["query"]) is not None:
            self._answer(query)
        elif (apc := found["apc"]) is not None and apc.startswith(b"G") and "kitty" in self._kind.speaks:
            self._take_kitty(apc[1:])
        elif (dcs := found["dcs"]) is not None and re.match(rb"[0-9;]*q", dcs) and "sixel" in self._kind.speaks:
            self._draw(decode_sixel(dcs.partition(b"q")[2]))
        elif (osc := found["osc"]) is not None and osc.startswith(b"1337;File=") and "iterm" in self._kind.speaks:
            keys, _, data = osc.partition(b":")
            wide, high = (int(one) for one in re.findall(rb"(?:width|height)=(\d+)", keys))
            image = Image.open(io.BytesIO(b64decode(data))).convert("RGB")
            self._draw(image.resize((wide * CELL[0], high * CELL[1])))

    def _answer(self, query: bytes) -> None:
        answers = {
            b"\x1b[>q": f"\x1bP>|{self._kind.name}\x1b\\",
            b"\x1b[>c": "\x1b[>1;4000;0c",
            b"\x1b[16t": f"\x1b[6;{CELL[1]};{CELL[0]}t",
            b"\x1b[?2026$p": "\x1b[?2026;2$y",
        }
        self.type(answers.get(query, f"\x1b[?{self._kind.attributes}c"))

    def _take_kitty(self, message: bytes) -> None:
        head, _, data = message.partition(b";")
        keys = dict(pair.split("=", 1) for pair in head.decode().split(","))
        if keys.get("a") == "q":
            self.type(f"\x1b_Gi={keys['i']};OK\x1b\\")
        elif keys.get("a") == "d":
            self._kitty.pop(int(keys["i"]), None)
        else:
            first, before = self._chunks or (keys, b"")
            self._chunks = (first, before + data)
            if keys.get("m") != "1":
                image = Image.open(io.BytesIO(b64decode(self._chunks[1]))).convert("RGB")
                assert first["U"] == "1", "drawn at the cursor"
                self._kitty[int(first["i"])] = image, int(first["c"]), int(first["r"])
                self._chunks = None
                self.sequences += 1

    def _draw(self, image: Image.Image) -> None:
        """Draw at the cursor, which does not move."""
        self.sequences += 1
        left, top = self.screen.cursor.x, self.screen.cursor.y
        for y in range(-(-image.height // CELL[1])):
            for x in range(-(-image.width // CELL[0])):
                place = (x * CELL[0], y * CELL[1], (x + 1) * CELL[0], (y + 1) * CELL[1])
                self._parts.append(image.crop(place))
                line = self.screen.buffer[top + y]
                line[left + x] = line[left + x]._replace(data=f"<part {len(self._parts) - 1}>")

    def _part(self, char: pyte.screens.Char) -> Image.Image | None:
        if char.data.startswith("<part "):
            return self._parts[int(char.data[6:-1])]
        cell = picture_cell(char.data)
        if cell is None or not char.fg:
            return None
        image, columns, rows = self._kitty[cell.number << 24 | _indexed(char.fg)]
        scaled = image.resize((columns * CELL[0], rows * CELL[1]))
        left, top = cell.column * CELL[0], cell.row * CELL[1]
        return scaled.crop((left, top, left + CELL[0], top + CELL[1]))


def _indexed(colour: str) -> int:
    """Return the index of a palette colour, of which pyte gives red, green and blue."""
    return next(number for number in range(16, 256) if pyte.graphics.FG_BG_256[number] == colour)


def decode_sixel(data: bytes) -> Image.Image:
    """Return the image in a Sixel sequence that states its size."""
    image, colours = Image.new("RGB", (1, 1)), {0: (0, 0, 0)}
    colour, x, y = 0, 0, 0
    for token in _SIXEL.findall(data):
        kind, numbers = token[:1], [int(one) for one in re.findall(rb"\d+", token)]
        if kind == b'"':
            image = Image.new("RGB", (numbers[2], numbers[3]))
        elif kind == b"#":
            colour = numbers[0]
            if len(numbers) == 5:
                colours[colour] = tuple(round(one * 255 / 100) for one in numbers[2:])  # type: ignore[assignment]
        elif kind == b"$":
            x = 0
        elif kind == b"-":
            x, y = 0, y + 6
        else:
            count, bits = (numbers[0] if kind == b"!" else 1), token[-1] - 63
            for column in range(x, min(x + count, image.width)):
                for row in range(6):
                    if bits >> row & 1 and y + row < image.height:
                        image.putpixel((column, y + row), colours[colour])
            x += count
    return image
