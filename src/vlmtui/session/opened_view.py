"""The images that a model sees of an attachment, each compared with the part of the attachment that it shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
from PIL import Image, ImageChops

from vlmtui.domain.conversation import Attachment
from vlmtui.errors import bad_input
from vlmtui.media.images import BYTES_MAX, open_image, open_prepared
from vlmtui.media.thumbnails import open_pixels
from vlmtui.reading import is_file, read_whole
from vlmtui.session.seeing import ModelView
from vlmtui.text import one_line

LEVELS_MAX = 20.0
"""The largest mean difference, in levels of 255, between an image and the part that it shows."""
_SIDE = 24
"""Pixels per side at which parts are compared."""
Region = tuple[float, float, float, float]
"""Left, top, right and bottom as fractions of the image; below 0 and above 1 is padding."""


class FoundRegion(msgspec.Struct, frozen=True):
    """A part of the sent image, and its mean difference from the image that the model sees, in levels from 0 to 255."""

    region: Region
    levels: float


class SeenDifference(msgspec.Struct, frozen=True):
    """The difference between an image that the model sees and the part of the sent image that it shows."""

    image: Image.Image
    """The absolute differences, four times as bright."""
    mean: float
    """Levels of 255, over all channels."""
    largest: int


class OpenedView(msgspec.Struct, frozen=True, kw_only=True):
    """The pixels of a `ModelView`: the sent and seen images, and which part each seen image shows."""

    view: ModelView
    sent: tuple[Image.Image, ...]
    """The sent image, or a video's frames."""
    seen: tuple[Image.Image, ...]
    regions: tuple[FoundRegion | None, ...]
    times_s: tuple[float, ...] = ()
    """The times of a video's frames, in seconds."""

    def difference(self, number: int) -> SeenDifference | None:
        """Return the difference between seen image `number`, from 0, and its part of the sent image; None: unknown."""
        found = self.regions[number]
        sent = self.frame(number)
        return None if found is None else difference_between(sent, self.seen[number], found.region)

    def frame(self, number: int) -> Image.Image:
        """Return the sent image, or the sent frame `number` of a video."""
        return self.sent[min(number, len(self.sent) - 1)]


def open_model_view(view: ModelView) -> OpenedView:
    """Open an attachment's images as they were sent, and as the model's processor made them. Blocking. Raises
    VlmtuiError if one is missing."""
    seen = tuple(open_prepared(one.path) for one in view.medium.pictures)
    pixels = open_pixels(view.attachment)
    if view.attachment.modality == "video":
        sent = tuple(pixels.image(at) for at in range(len(pixels.times_s)))
        pairs = zip(sent, seen, strict=False) if len(sent) == len(seen) else ()
        regions = [found for frame, one in pairs for found in find_regions(frame, [one])]
        regions += [None] * (len(seen) - len(regions))
    else:
        sent = (pixels.image(0),)
        regions = find_regions(sent[0], seen)
    return OpenedView(view=view, sent=sent, seen=seen, regions=tuple(regions), times_s=tuple(pixels.times_s))


def open_original(attachment: Attachment) -> Image.Image:
    """Return the image in the user's file, before it was rotated and converted. Blocking. Raises VlmtuiError."""
    path = Path(attachment.source)
    if attachment.modality != "image":
        raise bad_input(f"The file of {one_line(attachment.name)} is no image. Sent shows what was made of it.")
    if not attachment.source or not path.is_absolute() or not is_file(path):
        raise bad_input("The original file is gone. Sent shows the copy that was sent.")
    try:
        with open_image(read_whole(path, bytes_max=BYTES_MAX), path) as image:
            image.draft("RGB", (2048, 2048))
            return image.convert("RGB")
    except (OSError, ValueError) as error:
        raise bad_input("Can't open the original file any more.") from error


def find_regions(sent: Image.Image, seen: Sequence[Image.Image]) -> list[FoundRegion | None]:
    """Return the part of `sent` that each seen image shows, found by its pixels; None if no part is similar."""
    best: list[FoundRegion] = []
    for regions in _arrangements(sent.size, seen):
        found = [
            FoundRegion(region, _levels(crop_region(sent, region, (_SIDE, _SIDE)), one))
            for region, one in zip(regions, seen, strict=True)
        ]
        if not best or sum(one.levels for one in found) < sum(one.levels for one in best) - 0.01 * len(found):
            best = found
    return [one if one.levels <= LEVELS_MAX else None for one in best]


def crop_region(sent: Image.Image, region: Region, size: tuple[int, int]) -> Image.Image:
    """Return a part of an RGB image, resized to `size`; padding is grey."""
    left, top, right, bottom = (value * side for value, side in zip(region, (*sent.size, *sent.size), strict=True))
    inside = max(0.0, left), max(0.0, top), min(float(sent.width), right), min(float(sent.height), bottom)
    across, down = size[0] / (right - left), size[1] / (bottom - top)
    target = max(1, round((inside[2] - inside[0]) * across)), max(1, round((inside[3] - inside[1]) * down))
    part = sent.resize(target, Image.Resampling.BICUBIC, box=inside, reducing_gap=3.0)
    if target == size:
        return part
    whole = Image.new("RGB", size, (127, 127, 127))
    whole.paste(part, (round((inside[0] - left) * across), round((inside[1] - top) * down)))
    return whole


def difference_between(sent: Image.Image, seen: Image.Image, region: Region) -> SeenDifference:
    """Compare a seen image with its part of the sent image."""
    levels = ImageChops.difference(crop_region(sent, region, seen.size), seen)
    values = np.asarray(levels, np.uint8)
    bright = Image.fromarray(np.minimum(values.astype(np.uint16) * 4, 255).astype(np.uint8))
    return SeenDifference(bright, float(values.mean()), int(values.max()))


def _arrangements(size: tuple[int, int], seen: Sequence[Image.Image]) -> Iterator[list[Region]]:
    count = len(seen)
    if count == 0:
        return
    if count == 1:
        for region in _wholes(size, seen[0].size):
            yield [region]
        return
    first, last = _wholes(size, seen[0].size), _wholes(size, seen[-1].size)
    for rows in range(1, count + 1):
        if count % rows == 0:
            yield _grid(rows, count // rows)
        if (count - 1) % rows == 0:
            tiles = _grid(rows, (count - 1) // rows)
            yield from ([whole, *tiles] for whole in first)
            yield from ([*tiles, whole] for whole in last)


def _wholes(size: tuple[int, int], seen: tuple[int, int]) -> list[Region]:
    """Return the regions that a seen image may show if it shows the whole image: stretched, padded on both sides or on
    one side, or cropped to its middle."""
    scale_in = min(seen[0] / size[0], seen[1] / size[1])
    scale_over = max(seen[0] / size[0], seen[1] / size[1])
    wide, high = seen[0] / scale_in / size[0], seen[1] / scale_in / size[1]
    narrow, low = seen[0] / scale_over / size[0], seen[1] / scale_over / size[1]
    return [
        (0.0, 0.0, 1.0, 1.0),
        (0.5 - wide / 2, 0.5 - high / 2, 0.5 + wide / 2, 0.5 + high / 2),
        (0.0, 0.0, wide, high),
        (0.5 - narrow / 2, 0.5 - low / 2, 0.5 + narrow / 2, 0.5 + low / 2),
    ]


def _grid(rows: int, columns: int) -> list[Region]:
    return [
        (column / columns, row / rows, (column + 1) / columns, (row + 1) / rows)
        for row in range(rows)
        for column in range(columns)
    ]


def _levels(one: Image.Image, other: Image.Image) -> float:
    small = other.convert("RGB").resize((_SIDE, _SIDE), Image.Resampling.BICUBIC, reducing_gap=3.0)
    return float(np.asarray(ImageChops.difference(one, small), np.float32).mean())
