"""An image or a video that has been checked and stored, and can be sent."""

from __future__ import annotations

from typing import Literal

import msgspec

Modality = Literal["image", "video"]


class VideoSampling(msgspec.Struct, frozen=True, kw_only=True):
    """Which frames of a video the model is given, uniform in time between start and end.

    `num_frames` of them; or, where `fps` is set, as many as that makes (frames a second of the video), and
    `num_frames` is not looked at.
    """

    num_frames: int = 8
    fps: float | None = None
    start_s: float = 0.0
    end_s: float | None = None
    """None: to the end of the video."""


class Attachment(msgspec.Struct, frozen=True, kw_only=True):
    """One image or video of a conversation.

    `path` names the stored copy (a file named by its content hash), which never changes: what it holds is what the
    preview shows and what the model is given.
    """

    modality: Modality
    name: str
    """The file's own name as the user knows it. Hostile text: may hold markup or control characters."""
    path: str
    sha256: str
    """Hex digest of the bytes at `path`."""
    width: int
    """Pixels, upright."""
    height: int
    size_bytes: int
    """Bytes of the file as the user gave it."""
    format: str
    """`JPEG`, `PNG`, … for images; the container's name for videos."""
    notes: tuple[str, ...] = ()
    """What was done to the picture on the way in (`turned upright by EXIF`, `transparency over white`), for people."""
    duration_s: float | None = None
    fps: float | None = None
    sampling: VideoSampling | None = None
    """Set for videos only."""
    source: str = ""
    """Where the file was when it was attached: an absolute path, or a URL. Hostile text, for people only."""
    page: int = 1
    """Of a document of several pages (TIFF), which one this is; from 1."""
    scaled_from: tuple[int, int] | None = None
    """Width and height before the user made the picture smaller, however often; None: it is as it came."""
    pages: int = 1
    """How many pages or, of an animation taken as a still image, frames the file has."""
