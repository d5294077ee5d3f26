"""A prompt's media: decoding them for a processor, and finding their tokens in the prompt. Does not import vLLM."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec

from vlmtui.domain.conversation import Attachment, Modality, VideoSampling
from vlmtui.domain.generation import MediaSpan

AUDIO_RATE = 16_000
"""The sample rate of audio in Hz, for a model that does not tell its own."""


class MediaItem(msgspec.Struct, frozen=True):
    """One image, video or audio as vLLM's `multi_modal_data` expects it."""

    modality: Modality
    data: Any
    """Image: PIL, RGB. Video: (frames as uint8 (T, H, W, 3), metadata). Audio: float32 (N,), mono, at the model's
    sample rate. None: vLLM's processor cache has the content."""
    uuid: str
    """The key in vLLM's processor cache: a hash of the content, a video's frame sampling and the audio's rate."""


async def load_items(attachments: Sequence[Attachment], rate: int = AUDIO_RATE) -> list[MediaItem]:
    """Decode attachments in parallel and return them in order. `rate`: the sample rate for audio, in Hz. Raises
    VlmtuiError naming an unreadable file."""
    return list(await asyncio.gather(*(asyncio.to_thread(load_item, attachment, rate) for attachment in attachments)))


def cached_items(attachments: Sequence[Attachment], rate: int = AUDIO_RATE) -> list[MediaItem]:
    """Return items without content. vLLM finds the content in its processor cache by the item's `uuid`."""
    return [MediaItem(attachment.modality, None, _uuid(attachment, rate)) for attachment in attachments]


def audio_rate_of(processor: Any) -> int:
    """Return the sample rate for audio in Hz. `processor`: vLLM's multimodal processor, or None."""
    parser = getattr(getattr(processor, "info", None), "data_parser", None)
    rate = getattr(getattr(parser, "audio_resampler", None), "target_sr", None)
    return int(rate) if rate else AUDIO_RATE


def load_item(attachment: Attachment, rate: int = AUDIO_RATE) -> MediaItem:
    """Decode an attachment. Raises VlmtuiError naming an unreadable file."""
    uuid = _uuid(attachment, rate)
    if attachment.modality == "audio":
        from vlmtui.media.sound import read_sound

        # At the model's own rate vLLM does not resample.
        return MediaItem("audio", read_sound(Path(attachment.path), rate), uuid)
    if attachment.modality == "image":
        from vlmtui.media.images import open_prepared

        return MediaItem("image", open_prepared(attachment.path), uuid)
    from vlmtui.media.frames import sample_frames

    frames = sample_frames(Path(attachment.path), attachment.sampling or VideoSampling())
    return MediaItem("video", (frames.frames, frames.vllm_metadata()), uuid)


def _uuid(attachment: Attachment, rate: int) -> str:
    if attachment.modality == "image":
        return attachment.sha256
    if attachment.modality == "audio":
        return hashlib.sha256(f"{attachment.sha256} sound {rate}".encode()).hexdigest()
    sampling = attachment.sampling or VideoSampling()
    return hashlib.sha256(attachment.sha256.encode() + msgspec.json.encode(sampling)).hexdigest()


MODALITIES: tuple[Modality, ...] = get_args(Modality)
VISUAL: tuple[Modality, ...] = ("image", "video")
"""The visual modalities."""
_REMEMBERED_MAX = 4096
"""The most items whose facts are cached."""
PIXELS = (
    "pixel_values", "image_pixel_values", "input_image_embeds", "pixel_values_videos", "pixel_values_flat",
    "pixel_values_images", "images", "video",
)  # fmt: skip
"""Names of the tensors in which processors return pixels."""
_GRIDS = ("grid_thw", "grid_thws", "grid_hws", "grid_hw")
_IMAGE_MIN = 32
"""Pixels per side. A smaller tensor is a patch, not an image."""


class TensorFacts(msgspec.Struct, frozen=True):
    """The facts about a processed image or video that can be read from its tensors."""

    resized: tuple[int, int] | None = None
    """(width, height) in pixels; None if unknown."""
    grid: tuple[int, ...] = ()
    """The grid of patches if the processor returns one, else (number of tiles,) if there are several."""
    tensors: dict[str, tuple[int, ...]] = {}
    """The shapes of the tensors."""


class MediaSpans:
    """Reads from vLLM's inputs where each item's tokens are, and its size and tensor shapes.

    Caches the facts of earlier items by hash, since vLLM leaves out tensors that the engine core has cached."""

    def __init__(self, patch_size: int | None) -> None:
        self._patch_size = patch_size
        self._facts: dict[str, TensorFacts] = {}

    def of(self, rendered: Mapping[str, Any]) -> tuple[MediaSpan, ...]:
        """Return the spans in prompt order. `rendered`: vLLM's input with `mm_placeholders`, `mm_kwargs` and
        `mm_hashes`, each by modality."""
        return tuple(sorted(self._spans(rendered), key=lambda span: span.offset))

    def _spans(self, rendered: Mapping[str, Any]) -> Iterator[MediaSpan]:
        for modality in MODALITIES:
            made = of_modality(rendered.get("mm_kwargs"), modality)
            hashes = of_modality(rendered.get("mm_hashes"), modality)
            for index, place in enumerate(of_modality(rendered.get("mm_placeholders"), modality)):
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

    def _facts_of(self, item: Mapping[str, Any] | None, digest: str) -> TensorFacts:
        data = {name: element.data for name, element in (item or {}).items() if element.data is not None}
        if not data:
            return self._facts.get(digest) or TensorFacts()
        facts = tensor_facts(data, self._patch_size)
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


def tensor_facts(data: Mapping[str, Any], patch_size: int | None) -> TensorFacts:
    """Return the facts about one item. `data`: the processor's tensors; `patch_size`: pixels per side of a patch."""
    shapes = {name: shape for name, value in sorted(data.items()) if (shape := shape_of(value))}
    for name, value in data.items():
        if not name.endswith(_GRIDS) or name not in shapes:
            continue
        flat = value.flatten().tolist() if hasattr(value, "flatten") else []
        if len(flat) in (2, 3) and all(isinstance(one, int) for one in flat):
            size = (flat[-1] * patch_size, flat[-2] * patch_size) if patch_size else None
            return TensorFacts(size, tuple(flat), shapes)
    for name in PIXELS:
        match shapes.get(name, ()):
            case (1 | 3, height, width) if min(height, width) >= _IMAGE_MIN:
                return TensorFacts((width, height), (), shapes)
            case (count, 1 | 3, height, width) if min(height, width) >= _IMAGE_MIN:
                return TensorFacts((width, height), (count,) if count > 1 else (), shapes)
    return TensorFacts(tensors=shapes)


def shape_of(value: Any) -> tuple[int, ...]:
    """Return the shape of a tensor or of a list of equally shaped tensors; () for numbers and mixed shapes."""
    if isinstance(value, list | tuple):
        inner = {shape_of(one) for one in value}
        return (len(value), *inner.pop()) if len(inner) == 1 else ()
    return tuple(int(side) for side in getattr(value, "shape", ()))


CHUNKS = "vision_chunk"
"""vLLM's name for the images of a model that takes images and parts of videos as one modality (Kimi-K2.5)."""


def of_modality(by_modality: Mapping[str, Sequence[Any]] | None, modality: Modality) -> Sequence[Any]:
    """Return the entries of one modality from a field of vLLM's input. `by_modality`: the field, such as
    `mm_placeholders`."""
    found = by_modality or {}
    return found.get(modality) or (found.get(CHUNKS) if modality == "image" else None) or ()
