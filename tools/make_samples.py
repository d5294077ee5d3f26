"""Writes the sample images and the sample clip that ship with the program.

    python tools/make_samples.py

Needs Pillow and PyAV. The scenes come from the sample namespace of seeds, so no training or evaluation scene is used.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import av
import numpy as np

import scenes

FOLDER = Path(__file__).parent.parent / "src" / "vlmtui" / "bundled" / "samples"
PICTURES: dict[str, tuple[scenes.Scene, scenes.Size]] = {
    "circle.png": (scenes.Scene((scenes.Shape("red", "circle", 4),), 11), (320, 320)),
    "two-shapes.png": (
        scenes.Scene((scenes.Shape("yellow", "star", 0), scenes.Shape("blue", "square", 5)), 12), (480, 320),
    ),
    "three-shapes.png": (
        scenes.Scene((
            scenes.Shape("green", "triangle", 1),
            scenes.Shape("purple", "circle", 3),
            scenes.Shape("orange", "star", 8),
        ), 13), (300, 400),
    ),
    "banner.png": (
        scenes.Scene((scenes.Shape("black", "square", 3), scenes.Shape("red", "triangle", 5)), 14), (600, 200),
    ),
}  # fmt: skip
CLIP = scenes.Clip(scenes.Shape("blue", "circle", 4), "right", None, 8, 15)
CLIP_SIZE = (256, 192)
FRAMES_PER_SECOND = 4


def write_clip(path: Path) -> None:
    """Write the clip as an MP4 file."""
    with av.open(str(path), "w", options={"movflags": "faststart"}) as container:
        stream = container.add_stream("libx264", rate=FRAMES_PER_SECOND)
        stream.width, stream.height, stream.pix_fmt = *CLIP_SIZE, "yuv420p"
        stream.options = {"crf": "18"}
        for image in scenes.draw_clip(CLIP, CLIP_SIZE):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(np.asarray(image), format="rgb24")))
        container.mux(stream.encode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, (scene, size) in PICTURES.items():
        scenes.draw(scene, size).save(folder / name, optimize=True)
        print(f"{name}: {scenes.describe(scene)}")
    write_clip(folder / "moving-circle.mp4")
    print(f"moving-circle.mp4: {scenes.describe_clip(CLIP)}")


if __name__ == "__main__":
    main()
