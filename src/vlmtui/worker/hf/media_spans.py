"""Where media are in the prompt, and how the model's processor resized them. Does not import vLLM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

import msgspec

from vlmtui.domain.attachment import Modality
from vlmtui.domain.generation import MediaSpan

MODALITIES: tuple[Modality, ...] = get_args(Modality)
PICTURES: tuple[Modality, ...] = ("image", "video")
"""Modalities that are seen."""
_REMEMBERED_MAX = 4096
"""Most items whose facts are cached."""
_PIXELS = (
    "pixel_values",
    "image_pixel_values",
    "input_image_embeds",
    "pixel_values_flat",
    "images",
    "pixel_values_images",
    "pixel_values_videos",
    "video",
)
_GRIDS = ("grid_thw", "grid_hws", "grid_hw")
_PICTURE_MIN = 32
"""Pixels per side; anything smaller is a patch, not a picture."""


class _Facts(msgspec.Struct, frozen=True):
    resized: tuple[int, int] | None
    grid: tuple[int, ...]
    tensors: dict[str, tuple[int, ...]]


class MediaSpans:
    """Reads media spans from the engine's inputs. vLLM leaves out data that the engine core has cached, so the facts
    of earlier items are remembered by their hash."""

    def __init__(self, patch_size: int | None) -> None:
        self._patch_size = patch_size
        self._facts: dict[str, _Facts] = {}

    def of(self, rendered: Mapping[str, Any]) -> tuple[MediaSpan, ...]:
        """Return the spans in prompt order. `rendered` is the engine's input: `mm_placeholders`, `mm_kwargs` and
        `mm_hashes`, each by modality."""
        return tuple(sorted(self._spans(rendered), key=lambda span: span.offset))

    def _spans(self, rendered: Mapping[str, Any]) -> Iterator[MediaSpan]:
        for modality in MODALITIES:
            made = _of(rendered.get("mm_kwargs"), modality)
            hashes = _of(rendered.get("mm_hashes"), modality)
            for index, place in enumerate(_of(rendered.get("mm_placeholders"), modality)):
                item = made[index] if index < len(made) else None
                facts = self._facts_of(item, hashes[index] if index < len(hashes) else "")
                yield MediaSpan(
                    modality=modality,
                    index=index,
                    offset=place.offset,
                    length=place.length,
                    tokens=place.get_num_embeds(),
                    resized=facts.resized,
                    grid=facts.grid,
                    tensors=facts.tensors,
                )

    def _facts_of(self, item: Mapping[str, Any] | None, digest: str) -> _Facts:
        data = {name: element.data for name, element in (item or {}).items() if element.data is not None}
        if not data:
            return self._facts.get(digest) or _Facts(None, (), {})
        shapes = {name: shape for name, value in sorted(data.items()) if (shape := shape_of(value))}
        facts = _Facts(*size_and_grid(data, shapes, self._patch_size), shapes)
        self._facts.pop(digest, None)
        self._facts[digest] = facts
        if len(self._facts) > _REMEMBERED_MAX:
            del self._facts[next(iter(self._facts))]
        return facts


def patch_size_of(config: Any) -> int | None:
    """Return the side of a patch in pixels from the model's config, or None."""
    inner = getattr(config, "thinker_config", config)
    for one in (getattr(inner, "vision_config", None), inner):
        size = one.get("patch_size") if isinstance(one, dict) else getattr(one, "patch_size", None)
        if isinstance(size, int):
            return size
    return None


def size_and_grid(
    data: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], patch_size: int | None
) -> tuple[tuple[int, int] | None, tuple[int, ...]]:
    """Return (width, height) in pixels and the grid: of patches if the processor reports one, else of tiles."""
    for name, value in data.items():
        if not name.endswith(_GRIDS) or name not in shapes:
            continue
        flat = value.flatten().tolist() if hasattr(value, "flatten") else []
        if len(flat) in (2, 3) and all(isinstance(one, int) for one in flat):
            size = (flat[-1] * patch_size, flat[-2] * patch_size) if patch_size else None
            return size, tuple(flat)
    for name in _PIXELS:
        match shapes.get(name, ()):
            case (1 | 3, height, width) if min(height, width) >= _PICTURE_MIN:
                return (width, height), ()
            case (count, 1 | 3, height, width) if min(height, width) >= _PICTURE_MIN:
                return (width, height), (count,) if count > 1 else ()
    return None, ()


def shape_of(value: Any) -> tuple[int, ...]:
    """Return the shape of a tensor or of a list of equally shaped tensors; () for numbers and mixed shapes."""
    if isinstance(value, list | tuple):
        inner = {shape_of(one) for one in value}
        return (len(value), *inner.pop()) if len(inner) == 1 else ()
    return tuple(int(side) for side in getattr(value, "shape", ()))


def _of(by_modality: Mapping[str, Sequence[Any]] | None, modality: Modality) -> Sequence[Any]:
    return by_modality[modality] if by_modality and modality in by_modality else ()
