"""The results of the screens that the app opens for another feature."""

from __future__ import annotations

from pathlib import Path

import msgspec

from vlmtui.domain.attachment import VideoSampling


class FilesChoice(msgspec.Struct, frozen=True):
    """The files chosen in the browser, and the folder that it showed last."""

    paths: tuple[Path, ...]
    folder: Path


class FramesChoice(msgspec.Struct, frozen=True):
    """Which frames of a video to send, and whether to send them as separate images."""

    sampling: VideoSampling
    as_images: bool
