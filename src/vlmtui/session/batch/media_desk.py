"""Opens and checks the media of a batch's items, and keeps the prepared files until the items are answered.

The files lie in a temporary folder, since a batch may have 100,000 images. If the batch is killed, the next batch
removes the folder."""

from __future__ import annotations

import asyncio
import base64
import binascii
import fcntl
import hashlib
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

import msgspec

from vlmtui.domain.conversation import Attachment, VideoSampling
from vlmtui.errors import bad_input
from vlmtui.files import write_atomically
from vlmtui.media.images import BYTES_MAX, as_png, open_image
from vlmtui.media.pages import sound_source, with_page
from vlmtui.media.paths import is_url, public_address, shown_address
from vlmtui.media.stage import FILE_BYTES_MAX, download_source, from_address, stage_as
from vlmtui.paths import private_dir
from vlmtui.reading import opened, read_whole, unreadable
from vlmtui.session.batch.items import MediaSource
from vlmtui.session.batch.results import StoredResult
from vlmtui.text import one_line

_CHUNK = 1 << 20
_LOCK = "lock"
_OF_URLS = str.maketrans("-_", "+/")


class MediaDesk:
    """Prepares the media of items. `close` removes all prepared files."""

    def __init__(self, cache: Path, *, num_frames: int = 8) -> None:
        """cache: the application's cache folder. num_frames: frames to sample from a video. Raises VlmtuiError."""
        parent = private_dir(private_dir(cache) / "batches")
        _remove_abandoned_folders(parent)
        self.sampling = VideoSampling(num_frames=num_frames)
        self._folder = private_dir(parent / f"{os.getpid()}-{os.urandom(4).hex()}")
        self._lock_file = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._number = 0

    def content(self, source: MediaSource) -> str:
        """Return an identifier of a medium's content, or of its web address. Blocking. Raises VlmtuiError."""
        digest = hashlib.blake2b(digest_size=16)
        part = ""
        if source.encoded:
            digest.update(source.encoded.encode("ascii", "replace"))
        elif is_url(source.place):
            part = source.place
        else:
            path = with_page(sound_source(Path(source.place)))[0]
            part = source.place.removeprefix(str(path))
            with opened(path, bytes_max=FILE_BYTES_MAX) as file:
                try:
                    while chunk := file.read(_CHUNK):
                        digest.update(chunk)
                except OSError as error:
                    raise unreadable(path, error) from error
        return f"{source.modality} {source.pixel} {part} {digest.hexdigest()}"

    async def prepare(self, source: MediaSource) -> Attachment:
        """Return a medium ready to be sent; give it to `remove` afterwards. Raises VlmtuiError."""
        self._number += 1
        store = self._folder / str(self._number)
        if not is_url(source.place):
            return await asyncio.to_thread(self._prepare, source, source.place, store)
        file = await download_source(source.place, self._folder / "downloads")
        try:
            found = await asyncio.to_thread(self._prepare, source, str(file), store)
        finally:
            with suppress(OSError):
                file.unlink()
        return from_address(found, source.place)

    def prepare_again(self, result: StoredResult) -> list[Attachment]:
        """Prepare the media of a result, to look at them, and remove those of the last result. Blocking. Raises
        VlmtuiError if a file is missing or not the one that was sent, and for media that were no files."""
        store = self._folder / "looked at"
        shutil.rmtree(store, ignore_errors=True)
        found = []
        for at, source in enumerate(result.sources):
            if not source.place:
                raise bad_input(f"Can't show the {source.modality}: the results don't have its data.")
            if is_url(source.place):
                raise bad_input(f"Can't show the {source.modality}: it was at {shown_address(source.place)}.")
            attachment = stage_as(source.modality, Path(source.place), store)
            if result.media[at : at + 1] != (attachment.sha256,):
                raise bad_input(f"{one_line(attachment.name)} is not the file that was sent.")
            found.append(attachment)
        return found

    @staticmethod
    def remove(media: Sequence[Attachment]) -> None:
        """Remove prepared media. Blocking."""
        for one in media:
            shutil.rmtree(Path(one.path).parent, ignore_errors=True)

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._lock_file)

    def _prepare(self, source: MediaSource, place: str, store: Path) -> Attachment:
        if source.encoded:
            return self._from_bytes(source, _decoded(source), store)
        if source.pixel is not None:
            return self._from_bytes(source, _with_pixel(Path(place), source.pixel), store)
        return stage_as(source.modality, Path(place), store, sampling=self.sampling)

    def _from_bytes(self, source: MediaSource, data: bytes, store: Path) -> Attachment:
        folder = private_dir(self._folder / os.urandom(8).hex())
        file = folder / (Path(source.place).name or f"{source.modality} of the line")
        try:
            write_atomically(file, data)
            found = stage_as(source.modality, file, store, sampling=self.sampling)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return msgspec.structs.replace(found, source=source.place)


def stored_place(place: str) -> str:
    """Return a medium's place for storing: of a web address without what may be secret."""
    return public_address(place) if is_url(place) else place


def _decoded(source: MediaSource) -> bytes:
    """Decode base64, also the form for URLs (`-_`, without `=`, or with %3D)."""
    encoded = "".join(unquote(source.encoded).split()).rstrip("=").translate(_OF_URLS)
    try:
        return base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise bad_input(f"Can't read the {source.modality}: it is not base64.", detail=str(error)) from error


def _with_pixel(path: Path, pixel: tuple[int, int, int]) -> bytes:
    """Return an image as PNG, with its first pixel changed."""
    with open_image(read_whole(path, bytes_max=BYTES_MAX), path) as image:
        changed = image.convert("RGB")
    changed.putpixel((0, 0), pixel)
    return as_png(changed)


def _remove_abandoned_folders(parent: Path) -> None:
    """Remove the folders of killed batches. Each running batch has locked its folder."""
    for folder in parent.iterdir():
        with suppress(OSError):
            descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
