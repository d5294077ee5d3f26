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
    """One image or video as vLLM's multi-modal data takes it."""

    modality: Modality
    data: Any
    """A PIL image (RGB), or (frames (T, H, W, 3) uint8, metadata) of a video."""
    uuid: str
    """Names the content (and a video's sampling): what was processed once is not processed again."""


async def load_items(attachments: Sequence[Attachment]) -> list[MediaItem]:
    """Decode all attachments side by side, in order. Raises VlmtuiError naming the file that cannot be read."""
    return list(await asyncio.gather(*(asyncio.to_thread(_load, attachment) for attachment in attachments)))


def _load(attachment: Attachment) -> MediaItem:
    if attachment.modality == "image":
        from vlmtui.media.images import open_prepared

        return MediaItem("image", open_prepared(attachment.path), attachment.sha256)
    from vlmtui.media.frames import sample_frames

    sampling = attachment.sampling or VideoSampling()
    frames = sample_frames(Path(attachment.path), sampling)
    digest = hashlib.sha256(attachment.sha256.encode() + msgspec.json.encode(sampling)).hexdigest()
    return MediaItem("video", (frames.frames, frames.vllm_metadata()), digest)
