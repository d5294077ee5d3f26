"""The attachments of a request, decoded for vLLM."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from vlmtui.domain.attachment import Attachment, Modality, VideoSampling


class MediaItem(msgspec.Struct, frozen=True):
    """One image or video as vLLM's `multi_modal_data` expects it."""

    modality: Modality
    data: Any
    """An image: PIL, RGB. A video: a tuple of frames, uint8 (T, H, W, 3), and metadata. None: what the cache has."""
    uuid: str
    """Identifies the content (and a video's sampling) in vLLM's processor cache."""


async def load_items(attachments: Sequence[Attachment]) -> list[MediaItem]:
    """Decode all attachments in parallel; the order is kept. Raises VlmtuiError naming the unreadable file."""
    return list(await asyncio.gather(*(asyncio.to_thread(_load, attachment) for attachment in attachments)))


def cached_items(attachments: Sequence[Attachment]) -> list[MediaItem]:
    """Return all attachments by their identifiers, without their content."""
    return [MediaItem(attachment.modality, None, _uuid(attachment)) for attachment in attachments]


def _load(attachment: Attachment) -> MediaItem:
    if attachment.modality == "image":
        from vlmtui.media.images import open_prepared

        return MediaItem("image", open_prepared(attachment.path), _uuid(attachment))
    from vlmtui.media.frames import sample_frames

    frames = sample_frames(Path(attachment.path), attachment.sampling or VideoSampling())
    return MediaItem("video", (frames.frames, frames.vllm_metadata()), _uuid(attachment))


def _uuid(attachment: Attachment) -> str:
    if attachment.modality == "image":
        return attachment.sha256
    sampling = attachment.sampling or VideoSampling()
    return hashlib.sha256(attachment.sha256.encode() + msgspec.json.encode(sampling)).hexdigest()
