"""A sound drawn as its waveform: as a picture, and as a line of block characters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

    from vlmtui.media.sound import Samples

SIZE = (1200, 300)
"""Width and height of the picture, in pixels."""
_BACKGROUND, _WAVE = (24, 26, 32), (120, 190, 240)
_BLOCKS = " ▁▂▃▄▅▆▇█"


def sound_picture(path: Path, size: tuple[int, int] = SIZE) -> Image:
    """Return the waveform, RGB. Blocking. Raises VlmtuiError if the file is missing or damaged."""
    from vlmtui.media.sound import read_sound

    return draw_sound(read_sound(path), size)


def draw_sound(samples: Samples, size: tuple[int, int]) -> Image:
    """Return the waveform of one channel, RGB."""
    from PIL import Image, ImageDraw

    from vlmtui.media.sound import loudness

    width, height = size
    picture = Image.new("RGB", size, _BACKGROUND)
    draw = ImageDraw.Draw(picture)
    middle = (height - 1) / 2
    for x, share in enumerate(loudness(samples, width)):
        draw.line((x, middle - share * middle, x, middle + share * middle), fill=_WAVE)
    return picture


def sound_rows(shares: Sequence[float], rows: int) -> list[str]:
    """Return `rows` lines of block characters, a column for each loudness from 0 to 1; what is not silent is seen."""
    most = len(_BLOCKS) - 1
    levels = [0 if share <= 0 else max(1, round(share * rows * most)) for share in shares]
    heights = ([min(max(level - row * most, 0), most) for level in levels] for row in reversed(range(rows)))
    return ["".join(_BLOCKS[height] for height in row) for row in heights]
