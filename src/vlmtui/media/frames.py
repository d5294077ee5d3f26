"""Samples frames from videos.

`sample_frames` is used for the contact sheet and for the model, so that the user sees what is sent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from PIL import Image

from vlmtui.domain.conversation import Attachment, VideoSampling
from vlmtui.errors import bad_input
from vlmtui.media.content_store import require_intact, store_bytes
from vlmtui.media.describe import clock
from vlmtui.media.images import as_png
from vlmtui.media.sampling import VideoFacts, target_times
from vlmtui.media.video import BYTES_MAX, Pixels, open_video
from vlmtui.reading import opened, shown_name

FRAMES_PIXELS_MAX = 256_000_000
"""Maximum pixels of all sampled frames together (768 MB as RGB); beyond that, frames are scaled down."""


class Frames(msgspec.Struct, frozen=True, eq=False):
    """Frames of a video in order, without duplicates.

    frames: `(T, H, W, 3) uint8`, RGB, upright. times_s: when each appears, in seconds from the video's first frame.
    indices: each frame's number at a constant `fps`, so that `index / fps` is its time (at a constant frame rate, its
    number in the file). duration_s, total_frames: of the whole video.
    """

    frames: Pixels
    times_s: tuple[float, ...]
    indices: tuple[int, ...]
    fps: float
    duration_s: float
    total_frames: int

    def vllm_metadata(self) -> dict[str, Any]:
        """Return the metadata for vLLM's `(frames, metadata)` video item (transformers' `VideoMetadata`)."""
        return {
            "fps": self.fps,
            "duration": self.duration_s,
            "total_num_frames": self.total_frames,
            "frames_indices": list(self.indices),
            "video_backend": "pyav",
            "do_sample_frames": False,
        }


def sample_frames(path: str | Path, sampling: VideoSampling | None = None) -> Frames:
    """Return the frames that `sampling` selects (default: `VideoSampling()`), evenly spaced from start to end.

    Returns fewer if the video has fewer. Blocking; reads by seeking, so memory does not grow with the video's length.
    Raises VlmtuiError (BAD_INPUT) if the file cannot be read or has no frame in that range, and if a stored copy has
    changed.
    """
    path, sampling = Path(path), sampling or VideoSampling()
    require_intact(path)
    with opened(path, bytes_max=BYTES_MAX) as file, open_video(file, path) as source:
        facts = source.facts
        targets = target_times(facts, sampling, shown_name(path))
        size = _fitting_size(facts, len(targets))
        times: list[float] = []
        frames: list[Pixels] = []
        for time, pixels in source.frames_at(targets, size):
            if not times or time > times[-1]:
                times.append(time)
                frames.append(pixels)
    if not frames:
        raise bad_input(f"{shown_name(path)} has no readable frame in that range.")
    indices = _indices(times, facts.fps)
    return Frames(
        frames=np.stack(frames),
        times_s=tuple(times),
        indices=indices,
        fps=facts.fps,
        duration_s=facts.duration_s,
        total_frames=max(facts.total_frames, indices[-1] + 1),
    )


def frames_as_images(attachment: Attachment, store: Path, *, most: int) -> tuple[Attachment, ...]:
    """Store the sampled frames of a video as PNG attachments, for models that accept only images.

    If the sampling yields more than `most` frames (at least 1), `most` evenly spaced ones are used instead. Blocking.
    Raises VlmtuiError (BAD_INPUT) if the stored video cannot be read.
    """
    sampling = attachment.sampling or VideoSampling()
    fewer = msgspec.structs.replace(sampling, num_frames=most, fps=None)
    if sampling.fps is None and sampling.num_frames > most:
        sampling = fewer
    frames = sample_frames(attachment.path, sampling)
    if len(frames.frames) > most:
        frames = sample_frames(attachment.path, fewer)
    return tuple(_as_image(attachment, frames, number, store) for number in range(len(frames.frames)))


def _as_image(video: Attachment, frames: Frames, number: int, store: Path) -> Attachment:
    pixels = frames.frames[number]
    data = as_png(Image.fromarray(pixels))
    name = f"{video.name} @ {clock(frames.times_s[number])}"
    stored = store_bytes(data, store, ".png", name=shown_name(Path(video.name)))
    return Attachment(
        modality="image",
        name=name,
        path=str(stored.path),
        sha256=stored.sha256,
        width=pixels.shape[1],
        height=pixels.shape[0],
        size_bytes=len(data),
        format="PNG",
        notes=(f"frame {number + 1} of the {len(frames.frames)} sampled from a video", *video.notes),
        source=video.source,
    )


def _fitting_size(facts: VideoFacts, count: int) -> tuple[int, int]:
    pixels = facts.width * facts.height * count
    scale = min(1.0, math.sqrt(FRAMES_PIXELS_MAX / pixels))
    return max(1, int(facts.width * scale)), max(1, int(facts.height * scale))


def _indices(times: Sequence[float], fps: float) -> tuple[int, ...]:
    """Return strictly increasing indices, even if two frames are closer together than 1 / fps."""
    found: list[int] = []
    for time in times:
        index = round(time * fps)
        found.append(max(index, found[-1] + 1) if found else index)
    return tuple(found)
