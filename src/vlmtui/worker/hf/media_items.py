"""The attachments of a request, decoded for vLLM."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from vlmtui.domain.attachment import Attachment, Modality, VideoSampling

RATE = 16_000
"""Samples of sound a second, where a model does not say."""


class MediaItem(msgspec.Struct, frozen=True):
    """One image, video or sound as vLLM's `multi_modal_data` expects it."""

    modality: Modality
    data: Any
    """An image: PIL, RGB. A video: a tuple of frames, uint8 (T, H, W, 3), and metadata. A sound: float32 (N,), one
    channel at the model's rate. None: what the cache has."""
    uuid: str
    """Identifies the content (and a video's sampling, a sound's rate) in vLLM's processor cache."""


async def load_items(attachments: Sequence[Attachment], rate: int = RATE) -> list[MediaItem]:
    """Decode all attachments in parallel; the order is kept. `rate`: samples of sound a second. Raises VlmtuiError
    naming the unreadable file."""
    return list(await asyncio.gather(*(asyncio.to_thread(_load, attachment, rate) for attachment in attachments)))


def cached_items(attachments: Sequence[Attachment], rate: int = RATE) -> list[MediaItem]:
    """Return all attachments by their identifiers, without their content."""
    return [MediaItem(attachment.modality, None, _uuid(attachment, rate)) for attachment in attachments]


def sound_rate_of(processor: Any) -> int:
    """Return how many samples a second the model's feature extractor takes. `processor` is vLLM's (None: none)."""
    parser = getattr(getattr(processor, "info", None), "data_parser", None)
    rate = getattr(getattr(parser, "audio_resampler", None), "target_sr", None)
    return int(rate) if rate else RATE


def _load(attachment: Attachment, rate: int) -> MediaItem:
    uuid = _uuid(attachment, rate)
    if attachment.modality == "audio":
        from vlmtui.media.sound import read_sound

        # Given at the model's own rate, so that vLLM has nothing to resample.
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
