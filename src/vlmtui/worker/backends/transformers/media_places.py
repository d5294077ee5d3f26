"""Where images and videos are in a prompt that a Transformers processor has expanded, and what it made of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import msgspec

from vlmtui.domain.attachment import Modality
from vlmtui.domain.generation import MediaSpan
from vlmtui.worker.hf.media_items import MediaItem
from vlmtui.worker.hf.media_spans import PICTURES, shape_of, size_and_grid

_TOKEN_FIELDS: dict[Modality, tuple[str, ...]] = {
    "image": ("image_token_ids", "image_token_id", "image_token_index"),
    "video": ("video_token_ids", "video_token_id", "video_token_index"),
}
"""Where processors and configs name the tokens that stand for pictures."""
_GRIDS: dict[Modality, tuple[str, ...]] = {
    "image": ("image_grid_thw", "grid_thw"),
    "video": ("video_grid_thw",),
}


TokensAlone = Callable[[Sequence[MediaItem]], Sequence[int]]
"""Returns how many tokens each item takes by itself; empty if unknown."""


class MediaTokens(msgspec.Struct, frozen=True):
    """The ids of the tokens that stand for images and videos."""

    image: frozenset[int]
    video: frozenset[int]

    def of(self, modality: Modality) -> frozenset[int]:
        """Return those of one modality."""
        return self.image if modality == "image" else self.video


def media_tokens(*sources: Any) -> MediaTokens:
    """Read the tokens from a processor and a config, the first that names them."""

    def found(modality: Modality) -> frozenset[int]:
        for source in sources:
            for name in _TOKEN_FIELDS[modality]:
                value = getattr(source, name, None)
                several = value if isinstance(value, list | tuple | set) else [value]
                if ids := frozenset(one for one in several if isinstance(one, int)):
                    return ids
        return frozenset()

    return MediaTokens(found("image"), found("video"))


def media_positions(ids: Sequence[int], tokens: MediaTokens, wanted: set[Modality]) -> dict[Modality, list[int]]:
    """Return the positions of each modality's tokens. Some processors write a video's frames as images."""
    found = {one: [at for at, token in enumerate(ids) if token in tokens.of(one)] for one in PICTURES}
    if wanted == {"video"} and not found["video"]:
        found = {"image": [], "video": found["image"]}
    return found


def media_spans(
    positions: Mapping[Modality, Sequence[int]],
    items: Sequence[MediaItem],
    outputs: Mapping[str, Any],
    tokens_alone: TokensAlone,
    patch_size: int | None,
) -> tuple[MediaSpan, ...]:
    """Return the spans in prompt order; none of a modality whose tokens cannot be told apart. `tokens_alone` is asked
    only where images follow each other without anything between them."""
    spans: list[MediaSpan] = []
    for modality in PICTURES:
        chosen = [item for item in items if item.modality == modality]
        for index, places in enumerate(_divided(positions[modality], chosen, tokens_alone)):
            data = item_tensors(outputs, modality, index, len(chosen))
            shapes = {name: shape for name, value in sorted(data.items()) if (shape := shape_of(value))}
            resized, grid = size_and_grid(data, shapes, patch_size)
            spans.append(
                MediaSpan(
                    modality=modality,
                    index=index,
                    offset=places[0],
                    length=places[-1] - places[0] + 1,
                    tokens=len(places),
                    resized=resized,
                    grid=grid,
                    tensors=shapes,
                )
            )
    return tuple(sorted(spans, key=lambda span: span.offset))


def runs_of(positions: Sequence[int]) -> list[list[int]]:
    """Return the positions in runs without gaps."""
    runs: list[list[int]] = []
    for at in positions:
        if runs and runs[-1][-1] == at - 1:
            runs[-1].append(at)
        else:
            runs.append([at])
    return runs


def _divided(
    positions: Sequence[int], items: Sequence[MediaItem], tokens_alone: TokensAlone
) -> Iterator[Sequence[int]]:
    count = len(items)
    if not count or not positions:
        return
    runs = runs_of(positions)
    if count == 1:
        yield positions
    elif len(runs) == count:
        yield from runs
    else:
        counts = tokens_alone(items)
        if len(counts) == count and sum(counts) == len(positions):
            ends = list(accumulate(counts))
            yield from (positions[end - length : end] for end, length in zip(ends, counts, strict=True))


def item_tensors(outputs: Mapping[str, Any], modality: Modality, index: int, count: int) -> dict[str, Any]:
    """Return the part of each of the processor's tensors that belongs to one item."""
    grid = next((outputs[name] for name in _GRIDS[modality] if name in outputs), None)
    found: dict[str, Any] = {}
    for name, value in outputs.items():
        if ("video" in name) != (modality == "video") or not hasattr(value, "shape"):
            continue
        rows = len(value) if value.ndim else 0
        if grid is not None and len(grid) == count and rows == int(grid.prod(-1).sum()):
            sizes = grid.prod(-1).tolist()
            start = sum(sizes[:index])
            found[name] = value[start : start + sizes[index]]
        elif rows == count:
            found[name] = value[index]
        elif rows == 1 and value.ndim > 1 and value.shape[1] == count:  # one conversation, then its images
            found[name] = value[0, index]
    return _unpadded(found)


def _unpadded(found: dict[str, Any]) -> dict[str, Any]:
    """Return an item's tensors without the padding to the largest picture of a prompt, which the model cuts off by
    `image_sizes` (Pixtral). Of tiles these are the sizes of the whole picture, so that they are left alone."""
    pixels, sizes = found.get("pixel_values"), found.get("image_sizes")
    if pixels is None or sizes is None or pixels.ndim != 3 or tuple(sizes.shape) != (2,):
        return found
    height, width = (int(side) for side in sizes)
    if not (0 < height <= pixels.shape[1] and 0 < width <= pixels.shape[2]):
        return found
    return {**found, "pixel_values": pixels[:, :height, :width]}
