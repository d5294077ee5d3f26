"""From a path to an attachment: what the file is gets decided by its content, and what is wrong with it is said."""

from __future__ import annotations

from pathlib import Path

from vlmtui.domain.attachment import Attachment, VideoSampling
from vlmtui.errors import bad_input
from vlmtui.media import images
from vlmtui.media.files import opened, read_whole, shown
from vlmtui.media.sniff import HEAD_BYTES, Kind, Sniffed, sniff

FILE_BYTES_MAX = 16_000_000_000
"""Bytes of the largest file that is looked at; images have a lower limit of their own."""
_TAKEN = "vlmtui takes JPEG, PNG, WebP, GIF, BMP, TIFF, HEIC and AVIF pictures, and MP4, MKV, WebM, MOV and AVI videos."


def stage(
    path: Path, store: Path, *, sampling: VideoSampling | None = None, page: int = 1, still: bool = False
) -> Attachment:
    """Check the file at `path`, prepare it and keep it in `store`. Blocking: call it in a thread.

    Moving GIF, WebP, AVIF and PNG files are staged as videos; with `still` their first frame is taken as an image.
    `page` chooses a page of a TIFF, from 1. `sampling` is for videos only. Raises VlmtuiError (BAD_INPUT) that names
    the file and says in plain words why it cannot be attached.
    """
    sniffed = sniff_file(path)
    if sniffed.kind is Kind.OTHER:
        raise bad_input(f"{shown(path)} is {sniffed.what}, not a picture or a video.", hint=_TAKEN)
    if sniffed.kind is Kind.VIDEO or (not still and _moves(path, sniffed)):
        if page != 1:
            raise bad_input(f"{shown(path)} has no page {page}: it is {sniffed.what}, and is taken as a video.")
        from vlmtui.media.video import stage_video  # brings NumPy and libav, which most sessions never need

        return stage_video(path, store, sampling)
    return images.stage_image(path, store, page=page)


def sniff_file(path: Path) -> Sniffed:
    """What the file at `path` is. Raises VlmtuiError (BAD_INPUT) when it cannot be opened."""
    with opened(path, bytes_max=FILE_BYTES_MAX) as file:
        return sniff(file.read(HEAD_BYTES))


def _moves(path: Path, sniffed: Sniffed) -> bool:
    if sniffed.kind is not Kind.ANIMATION and sniffed.what != "a PNG picture":
        return False
    return images.is_animation(read_whole(path, bytes_max=images.BYTES_MAX), path)
