"""Stages files and web addresses: checks them, converts them if necessary, and stores them as attachments. The content
determines a file's type."""

from __future__ import annotations

import asyncio
from importlib import import_module
from pathlib import Path

import msgspec

from vlmtui.domain.conversation import Attachment, Modality, VideoSampling
from vlmtui.errors import bad_input
from vlmtui.media import images
from vlmtui.media.pages import SOUND_OF, sound_source, stage_page, with_page
from vlmtui.media.paths import address_file_name, is_url, public_address
from vlmtui.media.sniff import HEAD_BYTES, FileType, Kind, sniff
from vlmtui.reading import is_file, opened, read_whole, shown_name

FILE_BYTES_MAX = 16_000_000_000
_MAY_BE_SOUND = frozenset({FileType.MP4_SOUND, FileType.OGG, FileType.MP4, FileType.MATROSKA, FileType.WINDOWS_MEDIA})
_NOUNS: dict[Modality, str] = {"image": "an image", "video": "a video", "audio": "a sound"}
_SUPPORTED = (
    "Supported: JPEG, PNG, WebP, GIF, BMP, TIFF, HEIC and AVIF images; pages of PDF documents; "
    "MP4, MKV, WebM, MOV and AVI videos; WAV, MP3, FLAC, Ogg and M4A sounds."
)


def stage(
    path: Path,
    store: Path,
    *,
    sampling: VideoSampling | None = None,
    page: int = 1,
    dots: int | None = None,
    still: bool = False,
) -> Attachment:
    """Check the file at `path`, convert it if necessary and store it. Blocking: call it in a thread.

    Animated GIF, WebP, AVIF and PNG files become videos; with `still`, an image of their first frame. `page` (from 1)
    selects a page of a TIFF or PDF, `dots` the dots per inch for a PDF; `#page=N` and `&dpi=N` at the end of the path
    do the same. `#sound` at the end of a video's path selects its audio track. `sampling` is for videos only. Raises
    VlmtuiError (BAD_INPUT) naming the file and why it cannot be attached.
    """
    path, page, dots = with_page(path, page, dots)
    if path.name.endswith(SOUND_OF) and not is_file(path):
        return _stage_sound(sound_source(path), store)
    found = file_type(path)
    if found.kind is Kind.DOCUMENT:
        return stage_page(path, store, page=page, dots=dots)
    if dots is not None:
        raise bad_input(f"{shown_name(path)} is not a PDF document: it has no dots per inch.")
    if found is FileType.CAMERA_RAW:
        raise images.camera_raw(path)
    if found.kind is Kind.OTHER:
        raise bad_input(f"{shown_name(path)} is {found.title}, not an image, a video or a sound.", hint=_SUPPORTED)
    if found.kind is Kind.SOUND or is_sound(path, found):
        return _stage_sound(path, store)
    if found.kind is Kind.VIDEO or (not still and _is_animated(path, found)):
        if page != 1:
            raise bad_input(f"{shown_name(path)} has no page {page}: it is {found.title}, attached as a video.")
        from vlmtui.media.video import stage_video

        return stage_video(path, store, sampling)
    return images.stage_image(path, store, page=page)


def stage_as(
    modality: Modality,
    path: Path,
    store: Path,
    *,
    sampling: VideoSampling | None = None,
    page: int = 1,
    dots: int | None = None,
) -> Attachment:
    """Stage a file with this modality. An animation can be an image or a video; a video can also give its audio track.

    Raises VlmtuiError as `stage` does, and if the file has another modality.
    """
    if modality == "audio":
        return _stage_sound(path if is_file(path) else sound_source(path), store)
    found = stage(path, store, sampling=sampling, page=page, dots=dots, still=modality == "image")
    if found.modality != modality:
        raise bad_input(f"{shown_name(path)} is {_NOUNS[found.modality]}, not {_NOUNS[modality]}.")
    return found


def _stage_sound(path: Path, store: Path) -> Attachment:
    from vlmtui.media.sound import stage_sound  # PyAV takes a while to import

    return stage_sound(path, store)


def is_sound(path: Path, found: FileType) -> bool:
    """Return True if a file of a container format for audio and video has only audio. Blocking."""
    from vlmtui.media.sound import has_sound_only

    return found in _MAY_BE_SOUND and has_sound_only(path)


async def stage_source(
    source: Path | str, store: Path, downloads: Path, sampling: VideoSampling | None = None
) -> Attachment:
    """Stage a file in a thread, or a web address (a string), which is first downloaded into `downloads`. Cancelling
    stops the download.

    Raises VlmtuiError: BAD_INPUT, or NO_NETWORK if the server cannot be reached.
    """
    if isinstance(source, Path):
        return await asyncio.to_thread(stage, source, store, sampling=sampling)
    file = await download_source(source, downloads)
    return from_address(await asyncio.to_thread(stage, file, store, sampling=sampling), source)


def from_address(attachment: Attachment, url: str) -> Attachment:
    """Return the attachment of a downloaded file with the name and source that its address has."""
    name = address_file_name(url) or attachment.name
    return msgspec.structs.replace(attachment, name=name, source=public_address(url))


async def download_source(url: str, downloads: Path) -> Path:
    """Download the file at a web address into `downloads`. Raises VlmtuiError: BAD_INPUT, or NO_NETWORK."""
    await asyncio.to_thread(import_module, "vlmtui.media.download")  # the HTTP client is slow to import
    from vlmtui.media.download import download

    return await download(url, downloads)


def restage(attachment: Attachment, *, store: Path, page: int) -> Attachment:
    """Stage another page of an attachment's original file, or a frame of an animation as an image. Blocking.

    Raises VlmtuiError if that file is missing, has changed its type, or has no such page.
    """
    if is_url(attachment.source):
        raise bad_input(f"{attachment.name} came from the web: download and attach the file to use another part of it.")
    return stage(Path(attachment.source), store, page=page, still=True)


def file_type(path: Path) -> FileType:
    """Return the type of the file at `path`. Raises VlmtuiError (BAD_INPUT) if it cannot be opened."""
    with opened(path, bytes_max=FILE_BYTES_MAX) as file:
        return sniff(file.read(HEAD_BYTES))


def _is_animated(path: Path, found: FileType) -> bool:
    if found.kind is not Kind.ANIMATION and found is not FileType.PNG:
        return False
    return images.is_animation(read_whole(path, bytes_max=images.BYTES_MAX), path)
