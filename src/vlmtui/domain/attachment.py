"""Attachments: images, videos and sounds that were checked and stored."""

from __future__ import annotations

from typing import Literal

import msgspec

Modality = Literal["image", "video", "audio"]


class VideoSampling(msgspec.Struct, frozen=True, kw_only=True):
    """Which frames of a video the model gets, spaced evenly between start and end.

    `num_frames` frames; or, if `fps` is set, that many frames per second of video, and `num_frames` is ignored.
    """

    num_frames: int = 8
    fps: float | None = None
    start_s: float = 0.0
    end_s: float | None = None
    """None: to the end of the video."""


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """One image, video or sound of a conversation.

    `path` is the stored copy, named by its content hash. It never changes: the preview and the model both use it.
    """

    modality: Modality
    name: str
    """The original file name. Hostile text: may contain markup or control characters."""
    path: str
    sha256: str
    """Hex digest of the bytes at `path`."""
    width: int
    """Pixels, after rotation by EXIF; 0 for sound."""
    height: int
    size_bytes: int
    """Size of the original file in bytes."""
    format: str
    """`JPEG`, `PNG`, … for images; the container's name for videos; with the codec for sound: `WAV, pcm_s16le`."""
    notes: tuple[str, ...] = ()
    """Changes made to the picture when it was attached (`turned upright by EXIF`, `transparency over white`), for
    display."""
    duration_s: float | None = None
    fps: float | None = None
    sampling: VideoSampling | None = None
    """Set for videos only."""
    sample_rate: int | None = None
    """Samples a second in the file; set for sound only."""
    channels: int | None = None
    """Number of channels in the file; set for sound only."""
    source: str = ""
    """Where the file came from: an absolute path or a URL. Hostile text, for display only."""
    page: int = 1
    """Page of a multi-page document (TIFF), from 1."""
    scaled_from: tuple[int, int] | None = None
    """Width and height before the user first made the picture smaller; None if unchanged."""
    pages: int = 1
    """Number of pages in the file, or of frames for an animation attached as a still image."""
