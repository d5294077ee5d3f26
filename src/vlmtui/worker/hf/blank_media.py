"""How a processor normalises, measured where it does not say: by what it makes of black and of white pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from PIL import Image

from vlmtui.worker.hf.media_items import MediaItem
from vlmtui.worker.hf.seen_pixels import Normalisation, pictures_in

BLACK, WHITE = 0, 255
_SAME = 0.01
"""Most by which a pixel's share of white may differ from the middle one's, as a part of it."""
_MOST = 0.9
"""How many of the pixels that are not padding have to agree."""


def blank_items(items: Sequence[MediaItem], level: int) -> list[MediaItem]:
    """Return the attachments in their sizes, every pixel of which has this level of 255. Sounds stay."""
    return [_blank(item, level) for item in items]


def _blank(item: MediaItem, level: int) -> MediaItem:
    uuid = f"{item.uuid} at {level}"
    match item.modality:
        case "image":
            return MediaItem("image", Image.new("RGB", item.data.size, (level,) * 3), uuid)
        case "video":
            frames, metadata = item.data
            return MediaItem("video", (np.full_like(frames, level), metadata), uuid)
        case _:
            return item


def measured(how: Normalisation, black: Mapping[str, Any], white: Mapping[str, Any]) -> Normalisation:
    """Add mean and deviation to `how`, from the processor's tensors of a black and a white picture of one size.

    Padding is the same in both and is left out. Returns `how` where the pixels do not agree."""
    dark, bright = ([np.asarray(one) for one in pictures_in(data, how)[2]] for data in (black, white))
    if not dark or [one.shape for one in dark] != [one.shape for one in bright]:
        return how
    lows = np.concatenate([one.reshape(len(one), -1) for one in dark], axis=1)
    spans = np.concatenate([one.reshape(len(one), -1) for one in bright], axis=1) - lows
    mean, std = [], []
    for low, span in zip(lows, spans, strict=True):
        is_picture = np.abs(span) > 0
        middle = float(np.median(span[is_picture])) if is_picture.any() else 0.0
        if middle <= 0 or np.mean(np.abs(span[is_picture] - middle) <= _SAME * middle) < _MOST:
            return how
        std.append(1 / middle)
        mean.append(-float(np.median(low[is_picture])) / middle)
    return msgspec.structs.replace(how, mean=tuple(mean), std=tuple(std))
