"""Drawn scenes as files and attachments, with the answer that the bundled model should give."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

import scenes
from tests.support.videos import write_video
from vlmtui.domain.conversation import Attachment
from vlmtui.media.stage import stage


@dataclass(frozen=True)
class Picture:
    """A drawn scene: its file, its attachment and its content."""

    path: Path
    attachment: Attachment
    answer: str

    @property
    def inner(self) -> str:
        """The answer as it is written inside a longer answer."""
        return self.answer[0].lower() + self.answer[1:]


class Easel:
    """Draws scenes into files in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._store = folder / "store"
        self._random = Random(7)

    def picture(self, *shapes: tuple[str, str, str], size: tuple[int, int] = (224, 224)) -> Picture:
        """Draw a scene of (colour, kind, place). The same shapes in the same order give the same image."""
        ordered = sorted((scenes.Shape(c, k, scenes.PLACES.index(p)) for c, k, p in shapes), key=lambda s: s.place)
        scene = scenes.Scene(tuple(ordered), self._random.getrandbits(32))
        path = self._new("scene", "png")
        scenes.draw(scene, size).save(path)
        return Picture(path, stage(path, self._store), scenes.describe(scene))

    def _new(self, name: str, suffix: str) -> Path:
        return self._folder / f"{name}-{sum(1 for _ in self._folder.glob(f'{name}-*'))}.{suffix}"

    def clip(self, colour: str, kind: str, direction: str, *, frames: int = 8) -> Picture:
        """Draw a video of one moving shape."""
        place = 4
        clip = scenes.Clip(scenes.Shape(colour, kind, place), direction, None, frames, self._random.getrandbits(32))
        path = self._new("clip", "mp4")
        write_video(path, [np.asarray(frame) for frame in scenes.draw_clip(clip, (224, 224))])
        return Picture(path, stage(path, self._store), scenes.describe_clip(clip))
