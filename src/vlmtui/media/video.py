"""Stages videos: opens them with the right decoder, checks them, and stores them by content hash."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from vlmtui.domain.attachment import Attachment, VideoSampling
from vlmtui.errors import bad_input
from vlmtui.media.content_store import store_copy
from vlmtui.media.sampling import target_times
from vlmtui.media.sniff import HEAD_BYTES, Kind, sniff
from vlmtui.media.video_source import VideoSource
from vlmtui.reading import file_name, opened, shown_name, source_text

BYTES_MAX = 16_000_000_000
"""Most bytes of a video file."""


def stage_video(path: Path, store: Path, sampling: VideoSampling | None = None) -> Attachment:
    """Check a video file and store a copy. Blocking: call it in a thread.

    Decodes the first frame and locates the end. Raises VlmtuiError (BAD_INPUT) naming the file and the reason.
    """
    sampling = sampling or VideoSampling()
    with opened(path, bytes_max=BYTES_MAX) as file:
        with open_video(file, path) as source:
            facts = source.facts
            target_times(facts, sampling, shown_name(path))
        stored = store_copy(file, store, facts.suffix, name=shown_name(path))
        size_bytes = file.tell()
    return Attachment(
        modality="video",
        name=file_name(path),
        path=str(stored.path),
        sha256=stored.sha256,
        width=facts.width,
        height=facts.height,
        size_bytes=size_bytes,
        format=facts.format,
        notes=facts.notes,
        duration_s=facts.duration_s,
        fps=facts.fps,
        sampling=sampling,
        source=source_text(path),
    )


@contextmanager
def open_video(file: BinaryIO, path: Path) -> Iterator[VideoSource]:
    """Open the video in a file with the decoder for its format; `path` is for errors. Raises VlmtuiError."""
    found = sniff(file.read(HEAD_BYTES))
    file.seek(0)
    source: VideoSource
    if found.kind in (Kind.ANIMATION, Kind.IMAGE):
        from vlmtui.media.animation import AnimatedImage

        source = AnimatedImage(file, path)
    elif found.kind is Kind.VIDEO:
        from vlmtui.media.container import ContainerVideo

        source = ContainerVideo(file, path, found)
    else:
        raise bad_input(f"{shown_name(path)} is {found.title}, not a video.")
    try:
        yield source
    finally:
        source.close()
