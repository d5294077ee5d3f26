"""Fewer tokens: a picture at half its sides, a video with half its frames, and the notes about it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from PIL import Image

from vlmtui.domain.conversation import Attachment, VideoSampling
from vlmtui.errors import VlmtuiError
from vlmtui.media.changed_images import fewer_frames, smaller_image
from vlmtui.media.images import open_prepared
from vlmtui.media.stage import stage


@pytest.fixture
def picture(tmp_path: Path) -> Attachment:
    Image.new("RGB", (800, 600), "red").save(tmp_path / "a.png")
    return stage(tmp_path / "a.png", tmp_path / "store")


def test_twice_smaller_shows_the_original_size(picture: Attachment, tmp_path: Path) -> None:
    noted = msgspec.structs.replace(picture, notes=("CMYK to RGB",))
    once = smaller_image(noted, tmp_path / "store")
    twice = smaller_image(once, tmp_path / "store")
    assert (once.width, once.height, once.notes) == (400, 300, ("CMYK to RGB", "made smaller from 800 × 600"))
    assert (twice.width, twice.height, twice.notes) == (200, 150, ("CMYK to RGB", "made smaller from 800 × 600"))
    assert open_prepared(twice.path).size == (200, 150)
    with pytest.raises(VlmtuiError, match="Can't make"):
        smaller_image(smaller_image(twice, tmp_path / "store"), tmp_path / "store")


def test_older_stored_attachments_stay_readable(picture: Attachment, tmp_path: Path) -> None:
    stored = msgspec.json.decode(msgspec.json.encode(picture))
    del stored["scaled_from"]
    stored["notes"] = ["made smaller from 1600 × 1200"]
    old = msgspec.convert(stored, Attachment)
    assert old.scaled_from is None
    assert smaller_image(old, tmp_path / "store").notes == (
        "made smaller from 1600 × 1200",
        "made smaller from 800 × 600",
    )


def test_fewer_frames(picture: Attachment) -> None:
    film = msgspec.structs.replace(picture, modality="video", sampling=VideoSampling(num_frames=3))
    fewer = fewer_frames(film)
    assert fewer.sampling == VideoSampling(num_frames=1)
    with pytest.raises(VlmtuiError, match="only one frame"):
        fewer_frames(fewer)
