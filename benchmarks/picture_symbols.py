"""How near pictures of characters come to the picture, and what they cost.

`python -m benchmarks.picture_symbols [FILE ...]`: prints a table for each file (the photograph of the repository, a
drawn sample and a page of text by default): error of half cells, quadrants and sextants, with colours and dithered, in
40×20 cells. The error is the root of the mean squared difference to the picture at the size of the cells, both
blurred by half a cell as an eye at a distance does, of 255. Exits 1 when quadrants or sextants are no nearer than half
cells with colours.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter
from textual._compositor import LayoutUpdate
from textual.geometry import Region
from textual.strip import Strip

from vlmtui.paths import bundled
from vlmtui.ui.terminal.frames import FrameLayer
from vlmtui.ui.terminal.symbol_picture import GRIDS, Symbols, Tones, symbol_of, symbol_strips

_CELLS = (40, 20)
_CELL = (12, 24)
"""Pixels of a cell; each symbol divides it evenly."""
_BLUR = 3


def page_of_text() -> Image.Image:
    image = Image.new("RGB", (480, 480), "white")
    for line in range(18):
        ImageDraw.Draw(image).text((12, 12 + line * 26), "The quick brown fox jumps " * 2, fill="black", font_size=22)
    return image


def pixels_of(strips: list[Strip], symbols: Symbols) -> Image.Image:
    """What a terminal with white text on black shows."""
    across, down = GRIDS[symbols]
    masks = {symbol_of(mask, symbols): mask for mask in range(1 << across * down)}
    small = Image.new("RGB", (_CELLS[0] * across, _CELLS[1] * down))
    for y, strip in enumerate(strips):
        x = 0
        for text, style, _ in strip:
            ink = tuple(style.color.get_truecolor()) if style and style.color else (255, 255, 255)
            paper = tuple(style.bgcolor.get_truecolor()) if style and style.bgcolor else (0, 0, 0)
            for char in text:
                for bit in range(across * down):
                    colour = ink if masks[char] >> bit & 1 else paper
                    small.putpixel((x * across + bit % across, y * down + bit // across), colour)
                x += 1
    return small.resize((_CELLS[0] * _CELL[0], _CELLS[1] * _CELL[1]), Image.Resampling.NEAREST)


def error(picture: Image.Image, drawn: Image.Image) -> float:
    seen = [np.asarray(one.filter(ImageFilter.GaussianBlur(_BLUR)), np.float64) for one in (picture, drawn)]
    return float(np.sqrt(((seen[0] - seen[1]) ** 2).mean()))


def measure(image: Image.Image, symbols: Symbols, tones: Tones) -> tuple[float, float, int]:
    """Error, milliseconds to draw, bytes for the terminal."""
    wanted = image.resize((_CELLS[0] * _CELL[0], _CELLS[1] * _CELL[1]))
    wanted = wanted if tones == "colour" else wanted.convert("L").convert("RGB")
    began = time.perf_counter()
    strips = symbol_strips(image, *_CELLS, symbols, tones)
    took = time.perf_counter() - began
    layer = FrameLayer()
    layer.take(LayoutUpdate([[strip] for strip in strips], Region(0, 0, *_CELLS)))
    return error(wanted, pixels_of(strips, symbols)), took * 1000, len(layer.send().encode())


def main() -> int:
    files = [Path(name) for name in sys.argv[1:]]
    files = files or [Path(__file__).parent.parent / "tools/photographs/cat.jpg", bundled("samples") / "two-shapes.png"]
    pictures = {file.name: Image.open(file).convert("RGB") for file in files}
    if len(sys.argv) == 1:
        pictures["a page of text"] = page_of_text()
    print(f"{'picture':<18}{'drawn with':<12}{'tones':<12}{'error':>7}{'of half cells':>15}{'ms':>7}{'bytes':>8}")
    is_worse = False
    for name, image in pictures.items():
        for tones in ("colour", "bright_ink"):
            base = 0.0
            for symbols in GRIDS:
                found, took_ms, size = measure(image, symbols, tones)
                base = base or found
                print(
                    f"{name:<18}{symbols:<12}{tones:<12}{found:>7.1f}{found / base:>15.2f}{took_ms:>7.1f}{size:>8}",
                    flush=True,
                )
                is_worse = is_worse or (tones == "colour" and symbols != "halfcell" and found >= base)
    return int(is_worse)


if __name__ == "__main__":
    sys.exit(main())
