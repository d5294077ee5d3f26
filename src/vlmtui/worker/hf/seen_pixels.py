"""Turn the processor's tensors back into images, to show what the model sees of an attachment. Does not import vLLM.

It reads these layouts, all from the image processors of Transformers, of vLLM, and of the models' repositories:

- whole images and tiles, `(…, 3, height, width)`
- patches as in Qwen2-VL, with a grid (frames, rows, columns); in row order, or grouped by the token into which the
  model merges them
- patches in row order, with the numbers of rows and columns: `spatial_shapes` of SigLIP 2 (channels last) and
  `image_grid_hws` and `grid_thws` of MoonViT, and `image_sizes` in pixels of Nemotron Parse (channels first)
- patches with a column and a row each (Gemma 4)
- strips of patches with the numbers of rows and columns: `tgt_sizes` of MiniCPM-V
- square tiles of patches, channels last (Molmo)
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from PIL import Image

from vlmtui.domain.conversation import Modality
from vlmtui.domain.generation import SeenMedium, SeenPicture, View
from vlmtui.errors import bad_input
from vlmtui.files import write_private
from vlmtui.media.images import as_png
from vlmtui.paths import is_private_dir
from vlmtui.worker.hf.media_items import PIXELS, MediaItem

BLACK, WHITE = 0, 255
_SAME = 0.01
"""A pixel's range (white − black) agrees with the median range if the relative difference is below this."""
_MOST = 0.9
"""The fraction of pixels, padding excluded, whose range must agree with the median."""


def blank_items(items: Sequence[MediaItem], level: int) -> list[MediaItem]:
    """Return images and videos of the same sizes as `items`, with all pixels at `level` (0..255). Audio stays
    unchanged."""
    blank: list[MediaItem] = []
    for item in items:
        data, uuid = item.data, f"{item.uuid} at {level}"
        if item.modality == "image":
            item = MediaItem("image", Image.new("RGB", data.size, (level,) * 3), uuid)
        elif item.modality == "video":
            item = MediaItem("video", (np.full_like(data[0], level), data[1]), uuid)
        blank.append(item)
    return blank


def measured(how: Normalisation, black: Mapping[str, Any], white: Mapping[str, Any]) -> Normalisation:
    """Return `how` with a measured mean and standard deviation. `black`, `white`: the processor's tensors of a black
    and of a white image of equal size. Returns `how` unchanged if the pixels do not agree.

    Ignores padding, which is the same in both.
    """
    dark, bright = ([np.asarray(one) for one in images_in(data, how)[2]] for data in (black, white))
    if not dark or [one.shape for one in dark] != [one.shape for one in bright]:
        return how
    lows = np.concatenate([one.reshape(len(one), -1) for one in dark], axis=1)
    spans = np.concatenate([one.reshape(len(one), -1) for one in bright], axis=1) - lows
    mean, std = [], []
    for low, span in zip(lows, spans, strict=True):
        is_image = np.abs(span) > 0
        middle = float(np.median(span[is_image])) if is_image.any() else 0.0
        if middle <= 0 or np.mean(np.abs(span[is_image] - middle) <= _SAME * middle) < _MOST:
            return how
        std.append(1 / middle)
        mean.append(-float(np.median(low[is_image])) / middle)
    return msgspec.structs.replace(how, mean=tuple(mean), std=tuple(std))


_BLOCKS = 2
"""The test image of `cuts_row_by_row` has this many merged patches per side."""


def cuts_row_by_row(processor: Any, patch: int, merge: int) -> bool:
    """Return whether the processor outputs patches in row order; False if it groups those that become one token.

    `patch`: pixels per side of a patch. `merge`: patches per side of a token. The answer comes from a test image; it
    is False if the processor rejects that."""
    if merge < 2:
        return False
    side = _BLOCKS * merge
    shades = np.arange(side * side, dtype=np.uint8).reshape(side, side) * (255 // (side * side))
    drawing = Image.fromarray(np.kron(shades, np.ones((patch, patch), np.uint8))).convert("RGB")
    try:
        values = processor(images=[drawing], do_resize=False, return_tensors="np")["pixel_values"]
        means = np.asarray(values, np.float32).reshape(side * side, -1).mean(axis=1)
    except (ArithmeticError, AttributeError, ImportError, LookupError, RuntimeError, TypeError, ValueError):
        return False  # it rejects the test image, or does not cut it into these patches
    return bool((np.diff(means) > 0).all())


IMAGES_MAX = 64
"""The most images that are written for one attachment; further tiles and frames are left out."""
_PIXELS_MAX = 64_000_000
_GRIDS = ("image_grid_thw", "video_grid_thw", "grid_thw", "vision_grid_thw", "grids", "video_grids")
_FLAT_GRIDS = ("spatial_shapes", "image_grid_hws", "image_grid_hw", "grid_hws")
_STRIPS = ("tgt_sizes", "video_tgt_sizes")
_SQUARES = ("image_input_idx", "image_token_pooling", "video_token_pooling")
"""Outputs that identify Molmo's processors."""
_PLACES = ("pixel_position_ids", "pixel_position_ids_videos", "image_position_ids", "video_position_ids")
"""vLLM's names, and those of Transformers."""
_SIDE_MIN = 8
_NORMALISED_MAX = 16.0
Floats = np.ndarray[Any, np.dtype[np.float32]]
_Layout = Literal["", "picture", "tiles", "patches"]


class Normalisation(msgspec.Struct, frozen=True):
    """How a processor normalises values from 0 to 1, `(value - mean) / std`, and cuts patches. None: unknown."""

    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    patch: int | None = None
    merge: int = 1
    temporal: int = 1
    row_by_row: bool = False
    """True if patches are in row order; False if they are grouped by the token into which the model merges them."""

    def pixels(self, values: Floats) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Convert normalised values, `(3, height, width)`, to uint8 pixels, `(height, width, 3)`. If the normalisation
        is unknown, the least value becomes black and the largest white."""
        if self.mean is None or self.std is None:
            low, high = float(values.min()), float(values.max())
            shown = (values - low) / (high - low or 1.0)
        else:
            mean, std = (np.asarray(one, np.float32).reshape(-1, 1, 1) for one in (self.mean, self.std))
            shown = values * std + mean
        whole = np.clip(np.nan_to_num(np.rint(shown * 255)), 0, 255).astype(np.uint8)
        if whole.shape[0] == 1:
            whole = np.repeat(whole, 3, axis=0)
        return np.ascontiguousarray(whole.transpose(1, 2, 0))

    def normalised(self, levels: Floats) -> Floats:
        """Return pixel values from 0 to 255, `(3, height, width)`, as the processor would normalise them."""
        mean, std = (np.asarray(one or (0.0,), np.float32).reshape(-1, 1, 1) for one in (self.mean, self.std))
        return np.asarray((levels / 255 - mean) / (std if self.std is not None else 1.0), np.float32)


def normalisation_of(processor: Any, modality: Modality) -> Normalisation:
    wanted = ("image_processor", "video_processor") if modality == "image" else ("video_processor", "image_processor")
    names = (*wanted, "mimo_processor")
    found: list[Any] = [one for name in names if (one := getattr(processor, name, None)) is not None]
    found.append(processor)

    def first(*names: str) -> Any:
        return next((value for one in found for name in names if (value := getattr(one, name, None)) is not None), None)

    mean, std = _three(first("image_mean", "MEAN")), _three(first("image_std", "STD"))
    if mean is None or std is None:  # InternVL's processor has them in its module
        homes = [vars(module) for one in found if (module := sys.modules.get(type(one).__module__)) is not None]
        mean = next((value for home in homes if (value := _three(home.get("IMAGENET_MEAN")))), None)
        std = next((value for home in homes if (value := _three(home.get("IMAGENET_STD")))), None)
        for home in homes:  # MiMo's, in levels of 255
            levels = _three(home.get("_PIXEL_MEAN")), _three(home.get("_PIXEL_STD"))
            if levels[0] and levels[1]:
                mean, std = (tuple(one / 255 for one in values) for values in levels if values)
    if first("do_normalize") is False:
        mean, std = (0.0,), (1.0,)
    scale = first("rescale_factor")
    if first("do_rescale") is False or (isinstance(scale, float) and abs(scale - 1 / 255) > 1e-6):
        mean = std = None
    sizes = [
        first("patch_size", "encoder_patch_size"),
        first("merge_size", "hidden_stride"),
        first("temporal_patch_size"),
    ]
    patch, merge, temporal = (size if isinstance(size, int) else None for size in sizes)
    by_rows = patch is not None and cuts_row_by_row(found[0], patch, merge or 1)
    return Normalisation(mean, std, patch, merge or 1, temporal or 1, by_rows)


def images_in(data: Mapping[str, Any], how: Normalisation) -> tuple[_Layout, str, Iterator[Floats]]:
    """Return the layout ("" if unknown), the tensor's name, and its images as `(channels, height, width)`.

    `data`: the processor's tensors of one attachment, by name."""
    name = next((name for name in PIXELS if data.get(name) is not None), "")
    if not name:
        return "", "", iter(())
    value = data[name]
    grid = next((_whole(data[one]) for one in _GRIDS if data.get(one) is not None), ())
    rows = next((_whole(data[one]) for one in _FLAT_GRIDS if data.get(one) is not None), ())
    is_tensor = not isinstance(value, list | tuple)
    if len(grid) == 3 and how.patch and is_tensor:
        return "patches", name, _merged_patches(_floats(value), grid, how)
    if len(rows) >= 2 and len(rows) % 2 == 0 and how.patch and is_tensor:
        is_last = data.get("spatial_shapes") is not None
        return "patches", name, _patches_in_rows(_floats(value), rows, how.patch, last=is_last)
    chunk = _whole(data["grid_thws"]) if data.get("grid_thws") is not None else ()
    if len(chunk) == 3 and is_tensor and value.ndim == 4:
        shapes = chunk[1:] * chunk[0]
        return "patches", name, _patches_in_rows(_floats(value), shapes, int(value.shape[-1]), last=False)
    size = _whole(data["image_sizes"]) if data.get("image_sizes") is not None else ()
    if len(size) == 2 and is_tensor and value.ndim == 2:
        patch = round((value.shape[-1] / 3) ** 0.5)
        return "patches", name, _patches_in_rows(_floats(value), [one // patch for one in size], patch, last=False)
    strips = next((_whole(data[one]) for one in _STRIPS if data.get(one) is not None), ())
    if strips:
        return "tiles" if len(strips) > 2 else "picture", name, _strips(value, strips)
    if any(data.get(one) is not None for one in _SQUARES) and is_tensor:
        return "tiles", name, _square_tiles(_floats(value))
    places = next((data[one] for one in _PLACES if data.get(one) is not None), None)
    if places is not None and how.patch and is_tensor:
        return "patches", name, _placed_patches(_floats(value), _floats(places))
    images = list(_whole_images(value))
    return ("tiles" if len(images) > 1 else "picture" if images else ""), name, iter(images)


def write_seen(
    data: Mapping[str, Any],
    how: Normalisation,
    by_model: Normalisation | None = None,
    *,
    modality: Modality,
    index: int,
    ranges: Sequence[tuple[int, int]],
    view: View,
    request_id: str,
) -> SeenMedium:
    """Write an attachment's processed images as PNG files into the view's folder, and return them as a list.

    `data`: the attachment's tensors. `by_model`: how the model itself normalises levels of 0 to 255; None: as the
    processor would. `ranges`: offset and length of each run of the attachment's tokens in the prompt.
    With `view.values`, also write the normalised values as NumPy files. Raises VlmtuiError if the folder is not private
    or writing fails.
    """
    folder = Path(view.folder)
    if not folder.is_absolute() or not is_private_dir(folder):
        raise bad_input("The folder for what the model sees is not a private folder of yours.")
    layout, name, images = images_in(data, how)
    levels_by: Normalisation | None = None
    if name and _are_levels(data[name]):
        levels_by = by_model or how
        how = msgspec.structs.replace(how, mean=(0.0,), std=(1 / 255,))
    prefix = "".join(char for char in request_id if char.isascii() and char.isalnum())[:64]
    stem = folder / f"{prefix}-{modality}-{index}"
    values = list(images)
    written = _write_images(values, how, stem)
    parts = shares(ranges, len(values))
    return SeenMedium(
        modality=modality,
        index=index,
        layout="frames" if layout and modality == "video" else layout,
        tensor=name,
        pictures=tuple(
            msgspec.structs.replace(one, offset=part[0], length=part[1]) if part else one
            for one, part in zip(written, parts[: len(written)] if parts else [None] * len(written), strict=True)
        ),
        is_exact=how.mean is not None and how.std is not None,
        left_out=len(values) - len(written),
        values=_write_values(data.get(name), values[: len(written)], levels_by, stem) if view.values else (),
    )


def _write_images(values: Sequence[Floats], how: Normalisation, stem: Path) -> list[SeenPicture]:
    """Write images as PNG files, as many as the limits allow."""
    written: list[SeenPicture] = []
    pixels = 0
    for number, one in enumerate(values[:IMAGES_MAX]):
        pixels += one.shape[1] * one.shape[2]
        if pixels > _PIXELS_MAX:
            break
        path = stem.with_name(f"{stem.name}-{number}.png")
        write_private(path, as_png(Image.fromarray(how.pixels(one))))
        written.append(SeenPicture(path=str(path), width=int(one.shape[2]), height=int(one.shape[1])))
    return written


def _write_values(tensor: Any, images: Sequence[Floats], by_model: Normalisation | None, stem: Path) -> tuple[str, ...]:
    """Write the values that the model computes with as NumPy files. If the layout is unknown, writes the whole
    `tensor`.

    `by_model`: how the model normalises the images' values; None: the processor has done it.
    """
    found = list(images)
    if not found and hasattr(tensor, "shape") and _floats(tensor).size <= 3 * _PIXELS_MAX:
        found = [_floats(tensor)]
    files = []
    for number, values in enumerate(found):
        if by_model is not None and images:
            values = by_model.normalised(values)
        content = BytesIO()
        np.save(content, np.ascontiguousarray(values, np.float32), allow_pickle=False)
        path = stem.with_name(f"{stem.name}-{number}.npy")
        write_private(path, content.getvalue())
        files.append(str(path))
    return tuple(files)


def _are_levels(value: Any) -> bool:
    """Return True if the values are still pixels from 0 to 255, because the model normalises them itself (vLLM's
    `mm_device_do_normalize`, and openPangu-VL). Normalised values are far smaller."""
    if "uint8" in str(getattr(value, "dtype", "")):
        return True
    return not isinstance(value, list | tuple) and float(value.max()) > _NORMALISED_MAX


def shares(ranges: Sequence[tuple[int, int]], count: int) -> list[tuple[int, int]]:
    """Divide runs of tokens among `count` images: a run each, or equal parts of one run; empty if neither fits."""
    if len(ranges) == count:
        return list(ranges)
    if len(ranges) == 1 and count and ranges[0][1] % count == 0:
        offset, each = ranges[0][0], ranges[0][1] // count
        return [(offset + at * each, each) for at in range(count)]
    return []


def _merged_patches(values: Floats, grid: Sequence[int], how: Normalisation) -> Iterator[Floats]:
    """Undo the patches of Qwen2VLImageProcessor, and yield an image for each frame.

    The processor repeats a single image to fill the temporal patch; the copies are not yielded.
    """
    frames, rows, columns = grid
    patch, merge, temporal = how.patch or 1, 1 if how.row_by_row else how.merge, how.temporal
    if values.size == 3 * frames * rows * columns * patch * patch:
        temporal = 1  # openPangu-VL: the model doubles an image's patches, not the processor
    channels = values.size // max(1, frames * rows * columns * temporal * patch * patch)
    if channels not in (1, 3) or rows % merge or columns % merge:
        return
    shape = (frames, rows // merge, columns // merge, merge, merge, channels, temporal, patch, patch)
    laid = values.reshape(shape).transpose(0, 6, 5, 1, 3, 7, 2, 4, 8)
    laid = laid.reshape(frames * temporal, channels, rows * patch, columns * patch)
    for at, one in enumerate(laid):
        if frames > 1 or at % temporal == 0 or not np.array_equal(one, laid[at - 1]):
            yield one


def _placed_patches(values: Floats, places: Floats) -> Iterator[Floats]:
    """Yield an image for each frame, put together from its patches (channels last). `places`: the (column, row) of each
    patch; negative numbers mark padding."""
    size = values.shape[-1]
    patch = round((size / 3) ** 0.5)
    if 3 * patch * patch != size or values.size // size != places.size // 2:
        return
    of_frames = zip(values.reshape(-1, *values.shape[-2:]), places.reshape(-1, *places.shape[-2:]), strict=True)
    for patches, cells in of_frames:
        is_used = cells[:, 0] >= 0
        columns, rows = cells[is_used].astype(int).T
        if not len(columns):
            return
        laid = np.zeros((rows.max() + 1, columns.max() + 1, patch, patch, 3), np.float32)
        laid[rows, columns] = patches[is_used].reshape(-1, patch, patch, 3)
        yield laid.transpose(4, 0, 2, 1, 3).reshape(3, laid.shape[0] * patch, laid.shape[1] * patch)


def _patches_in_rows(values: Floats, shapes: Sequence[int], patch: int, *, last: bool) -> Iterator[Floats]:
    """Undo patches in row order. `shapes`: rows and columns of each tile. `last`: channels last.

    If there are several tiles, they are either padded to an equal number of patches, or follow each other without
    padding.
    """
    values = values[0] if values.ndim > 3 and values.shape[0] == 1 else values
    if values.size % (3 * patch * patch):
        return
    flat = values.reshape(-1, *((patch, patch, 3) if last else (3, patch, patch)))
    grids = list(zip(shapes[::2], shapes[1::2], strict=True))
    padded = values.shape[1] if values.ndim == 3 and len(grids) == values.shape[0] else None
    begin = 0
    for number, (rows, columns) in enumerate(grids):
        at = number * padded if padded is not None else begin
        part = flat[at : at + rows * columns]
        begin += rows * columns
        if len(part) != rows * columns or rows < 1 or columns < 1:
            return
        part = part.transpose(0, 3, 1, 2) if last else part
        laid = part.reshape(rows, columns, 3, patch, patch).transpose(2, 0, 3, 1, 4)
        yield laid.reshape(3, rows * patch, columns * patch)


def _strips(value: Any, shapes: Sequence[int]) -> Iterator[Floats]:
    """Undo `reshape_by_patch` of MiniCPM-V: `(3, patch, patches × patch)`, a tile's patches in row order."""
    strips = list(_whole_images(value, side_min=1))
    if len(strips) != len(shapes) // 2:
        return
    for strip, rows, columns in zip(strips, shapes[::2], shapes[1::2], strict=True):
        channels, patch, length = strip.shape
        if length < rows * columns * patch:
            return
        laid = strip[:, :, : rows * columns * patch].reshape(channels, patch, rows, columns, patch)
        yield laid.transpose(0, 2, 1, 3, 4).reshape(channels, rows * patch, columns * patch)


def _square_tiles(values: Floats) -> Iterator[Floats]:
    """Undo the patches of Molmo: `(tiles, patches, patch × patch × 3)`, each tile with as many rows as columns."""
    if values.ndim != 3:
        return
    rows, patch = round(values.shape[1] ** 0.5), round((values.shape[2] / 3) ** 0.5)
    if rows * rows != values.shape[1] or 3 * patch * patch != values.shape[2]:
        return
    for tile in values.reshape(-1, rows, rows, patch, patch, 3):
        yield tile.transpose(4, 0, 2, 1, 3).reshape(3, rows * patch, rows * patch)


def _whole_images(value: Any, *, side_min: int = _SIDE_MIN) -> Iterator[Floats]:
    if isinstance(value, list | tuple):
        for one in value:
            yield from _whole_images(one, side_min=side_min)
        return
    values = _floats(value)
    if values.ndim < 3:
        return
    if values.shape[-3] not in (1, 3) and values.shape[-1] in (1, 3):
        values = np.moveaxis(values, -1, -3)
    if values.shape[-3] in (1, 3) and min(values.shape[-2:]) >= side_min:
        yield from values.reshape(-1, *values.shape[-3:])


def _floats(value: Any) -> Floats:
    """Return a tensor as float32, since NumPy has no bfloat16."""
    tensor = value.detach().float().cpu() if hasattr(value, "detach") else value
    return np.asarray(tensor, dtype=np.float32)


def _whole(value: Any) -> tuple[int, ...]:
    flat = value.flatten().tolist() if hasattr(value, "flatten") else []
    return tuple(flat) if all(isinstance(one, int) for one in flat) else ()


def _three(value: Any) -> tuple[float, ...] | None:
    if isinstance(value, int | float):
        return (float(value),)
    if isinstance(value, list | tuple) and len(value) in (1, 3) and all(isinstance(one, int | float) for one in value):
        return tuple(float(one) for one in value)
    return None
