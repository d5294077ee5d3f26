"""Black and white pictures show how a processor normalises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from vlmtui.worker.hf.media_items import MediaItem
from vlmtui.worker.hf.seen_pixels import BLACK, WHITE, Normalisation, blank_items, measured

MEAN, STD = (0.48, 0.45, 0.4), (0.27, 0.26, 0.28)
UNKNOWN = Normalisation(None, None)


def processed(item: MediaItem, padding: int = 0) -> dict[str, Any]:
    """Return an image as a processor makes it: normalised, and padded on the right with zeros."""
    pixels = np.asarray(item.data, np.float32).transpose(2, 0, 1) / 255
    mean, std = (np.asarray(one, np.float32).reshape(3, 1, 1) for one in (MEAN, STD))
    return {"pixel_values": np.pad((pixels - mean) / std, ((0, 0), (0, 0), (0, padding)))}


def blanks(padding: int = 0) -> list[dict[str, Any]]:
    photo = MediaItem("image", Image.new("RGB", (40, 30), "red"), "photo")
    return [processed(blank_items([photo], level)[0], padding) for level in (BLACK, WHITE)]


@pytest.mark.parametrize("padding", [0, 60])
def test_mean_and_deviation_are_measured_without_padding(padding: int) -> None:
    how = measured(UNKNOWN, *blanks(padding))
    assert how.mean == pytest.approx(MEAN, abs=1e-5)
    assert how.std == pytest.approx(STD, abs=1e-5)


def test_pixels_that_disagree_leave_the_normalisation_unknown() -> None:
    black, white = blanks()
    noise = np.random.default_rng(0).normal(size=white["pixel_values"].shape).astype(np.float32)
    assert measured(UNKNOWN, black, {"pixel_values": white["pixel_values"] + noise}) is UNKNOWN
    assert measured(UNKNOWN, black, black) is UNKNOWN
    assert measured(UNKNOWN, white, black) is UNKNOWN
    assert measured(UNKNOWN, {}, {}) is UNKNOWN
    assert measured(UNKNOWN, black, {"pixel_values": white["pixel_values"][..., :-1]}) is UNKNOWN


def test_blank_attachments_keep_size_and_order_with_new_ids() -> None:
    frames = np.full((2, 8, 6, 3), 7, np.uint8)
    sound = MediaItem("audio", np.zeros(5, np.float32), "s")
    items = [MediaItem("image", Image.new("RGB", (9, 4)), "i"), MediaItem("video", (frames, {"fps": 2}), "v"), sound]
    image, video, still = blank_items(items, WHITE)
    assert (image.data.size, image.data.getpixel((8, 3))) == ((9, 4), (255, 255, 255))
    assert video.data[0].shape == frames.shape and video.data[0].min() == 255 and video.data[1] == {"fps": 2}
    assert still is sound
    black = blank_items(items, BLACK)
    assert len({one.uuid for one in (items[0], items[1], image, video, *black[:2])}) == 6
    assert frames.max() == 7
