"""Attaching images that are small on the disk and large in memory, against decoding each once with Pillow.

`python -m benchmarks.large_pictures [--rounds N]`. Three files of a few megabytes: a PNG of 64 megapixels, which is
stored unchanged; a JPEG of 196, which is rotated by EXIF, and a WebP of 64, which are both shrunk. Attaching includes
checking, storing and a thumbnail. Measures processor time of all threads, each file in turn; prints medians.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
from PIL import Image

from vlmtui.media.stage import stage
from vlmtui.media.thumbnails import thumbnail

BUDGET = {"a.png": 4.0, "turned.jpg": 4.0, "a.webp": 4.0}
"""Allowed time, as a multiple of decoding the image once."""
_SIDES = {"a.png": 8000, "turned.jpg": 14000, "a.webp": 8000}
_ORIENTATION = 0x0112


def picture(side: int, block: int) -> Image.Image:
    """Return areas of one colour, `block` pixels a side, as in a scan or a rendering, so that the file has some
    megabytes."""
    random = np.random.default_rng(0)
    coarse = random.integers(0, 255, (side // block, side // block, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((side, side), Image.Resampling.NEAREST)


def make(folder: Path) -> list[Path]:
    exif = Image.Exif()
    exif[_ORIENTATION] = 6
    picture(_SIDES["a.png"], 8).save(folder / "a.png", compress_level=6)
    picture(_SIDES["turned.jpg"], 40).save(folder / "turned.jpg", quality=60, exif=exif)
    picture(_SIDES["a.webp"], 20).save(folder / "a.webp", quality=60, method=0)
    return [folder / name for name in _SIDES]


def decode(path: Path) -> None:
    with Image.open(path) as image:
        image.load()


def attach(path: Path, folder: Path) -> None:
    thumbnail(stage(path, folder / "media", still=True), folder / "cache", (320, 240))


def taken(work: Callable[[], None]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> bool:
    """Return True if each image is within its budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    Image.MAX_IMAGE_PIXELS = None
    is_good = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path in make(folder):
            rounds = [
                (taken(lambda: decode(path)), taken(lambda: attach(path, folder / str(number))))  # noqa: B023
                for number in range(options.rounds)
            ]
            bare, whole = (median(column) for column in zip(*rounds, strict=True))
            ratios = sorted(attached / decoded for decoded, attached in rounds)
            size, side = path.stat().st_size / 1e6, _SIDES[path.name]
            print(f"{path.name}, {side * side / 1e6:.0f} MP in {size:.1f} MB: attached in {whole:.2f} s", end=" ")
            print(f"({median(ratios):.2f} × decoding it once, {bare:.2f} s; budget {BUDGET[path.name]:g})")
            is_good &= median(ratios) <= BUDGET[path.name]
    return is_good


if __name__ == "__main__":
    sys.exit(not main())
