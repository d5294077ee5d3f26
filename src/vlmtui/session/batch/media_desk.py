"""Opens and checks the media of items, and holds their prepared copies for as long as an answer needs them.

The copies are in a folder of the batch's own, not among the conversations' media: a hundred thousand pictures pass
through it, and it is removed at the end, or by the next batch after a kill.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import fcntl
import hashlib
import os
import shutil
import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from vlmtui.domain.attachment import Attachment, Modality, VideoSampling
from vlmtui.errors import bad_input
from vlmtui.files import write_atomically
from vlmtui.media.content_store import FLAT
from vlmtui.media.images import BYTES_MAX, as_png, open_image
from vlmtui.media.pages import SOUND_OF, sound_source, split_pages
from vlmtui.media.stage import FILE_BYTES_MAX, download_source, stage
from vlmtui.media.web_address import is_url, public_address
from vlmtui.paths import private_dir
from vlmtui.reading import opened, read_whole, unreadable
from vlmtui.session.batch.item import MediaSource
from vlmtui.text import one_line

_CHUNK = 1 << 20
_KEPT = 64
"""Most copies that are kept although no item uses them, as the next item may have the same medium."""
_DOWNLOADS = 8
"""Downloads at the same time."""
_SUFFIXES: dict[Modality, str] = {"image": ".png", "video": ".mp4", "audio": ".wav"}
_NOUNS: dict[Modality, str] = {"image": "a picture", "video": "a video", "audio": "a sound"}
_LOCK = "lock"


class MediaDesk:
    """Prepares media; methods may be called from several threads. `close` removes the copies."""

    def __init__(self, cache: Path, *, num_frames: int) -> None:
        """`cache`: the application's cache folder. num_frames: of a video. Raises VlmtuiError."""
        parent = private_dir(private_dir(cache) / "batches")
        _remove_abandoned_folders(parent)
        self.sampling = VideoSampling(num_frames=num_frames)
        self._folder = private_dir(parent / f"{os.getpid()}-{os.urandom(4).hex()}")
        self._lock_file = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._store = self._folder / f"copies{FLAT}"
        self._prepared: OrderedDict[tuple[object, ...], Attachment] = OrderedDict()
        """By what tells a medium's version, the one that was used longest ago first."""
        self._uses: Counter[str] = Counter()
        """Number of items that use a copy, by its path."""
        self._guard = threading.Lock()
        self._downloading = asyncio.Semaphore(_DOWNLOADS)

    def content(self, source: MediaSource) -> str:
        """Return a text that is the same for the same content. Blocking. A web address stands for what is behind it.

        Raises VlmtuiError if the file cannot be read."""
        mark = f"{source.modality} {source.pixel} "
        if source.encoded:
            return mark + hashlib.blake2b(source.encoded.encode("ascii", "replace"), digest_size=16).hexdigest()
        if is_url(source.place):
            return mark + source.place
        path, part = _split(source.place)
        digest = hashlib.blake2b(digest_size=16)
        with opened(path, bytes_max=FILE_BYTES_MAX) as file:
            try:
                while chunk := file.read(_CHUNK):
                    digest.update(chunk)
            except OSError as error:
                raise unreadable(path, error) from error
        return f"{mark}{part} {digest.hexdigest()}"

    async def prepare(self, source: MediaSource) -> Attachment:
        """Return a medium as it is sent; `release` it in the end. Raises VlmtuiError with the file and the reason."""
        if not is_url(source.place):
            return await asyncio.to_thread(self._prepare, source, source.place)
        async with self._downloading:
            file = await download_source(source.place, self._folder / "downloads")
        try:
            attachment = await asyncio.to_thread(self._prepare, source, str(file))
        finally:
            with suppress(OSError):
                file.unlink()
        return msgspec.structs.replace(attachment, source=public_address(source.place))

    def release(self, attachments: Sequence[Attachment]) -> None:
        """Give back attachments; copies that nothing uses any more are removed in a while."""
        with self._guard:
            for attachment in attachments:
                self._uses[attachment.path] -= 1
            unused = [key for key, one in self._prepared.items() if not self._uses[one.path]]
            for key in unused[: max(0, len(unused) - _KEPT)]:
                path = self._prepared.pop(key).path
                if all(path != one.path for one in self._prepared.values()):
                    del self._uses[path]
                    with suppress(OSError):
                        Path(path).unlink()

    def close(self) -> None:
        """Remove all copies."""
        shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._lock_file)

    def _prepare(self, source: MediaSource, place: str) -> Attachment:
        key = self._version(source, place)
        while True:
            with self._guard:
                if (known := self._prepared.get(key)) is not None:
                    self._prepared.move_to_end(key)
                    self._uses[known.path] += 1
                    return known
            attachment = self._staged(source, place)
            with self._guard:
                if Path(attachment.path).exists():  # else it was removed as unused in the moment before
                    self._prepared[key] = attachment

    def _staged(self, source: MediaSource, place: str) -> Attachment:
        if source.encoded:
            return self._from_bytes(source, _decoded(source))
        if source.pixel is not None:
            return self._from_bytes(source, _with_pixel(Path(place), source.pixel))
        return self._checked(source, self._stage(source, Path(place)))

    def _stage(self, source: MediaSource, path: Path) -> Attachment:
        """Check and store a file; as a sound, of a video its audio track."""
        if source.modality != "audio":
            return stage(path, self._store, sampling=self.sampling, still=source.modality == "image")
        from vlmtui.media.sound import stage_sound  # PyAV takes a while to import

        return stage_sound(path if path.exists() else sound_source(path), self._store)

    def _from_bytes(self, source: MediaSource, data: bytes) -> Attachment:
        file = private_dir(self._folder / "new") / f"{os.urandom(8).hex()}{_SUFFIXES[source.modality]}"
        try:
            write_atomically(file, data)
            attachment = self._stage(source, file)
        finally:
            with suppress(OSError):
                file.unlink()
        name = Path(source.place).name or f"{source.modality} of the line"
        return self._checked(source, msgspec.structs.replace(attachment, name=name, source=source.place))

    def _checked(self, source: MediaSource, attachment: Attachment) -> Attachment:
        if attachment.modality != source.modality:
            kinds = _NOUNS[attachment.modality], _NOUNS[source.modality]
            raise bad_input(f"{one_line(attachment.name)} is {kinds[0]}, not {kinds[1]}.")
        return attachment

    def _version(self, source: MediaSource, place: str) -> tuple[object, ...]:
        """Return a value that stays the same for as long as the medium does."""
        content: tuple[object, ...] = ()
        if source.encoded:
            content = (hashlib.blake2b(source.encoded.encode("ascii", "replace"), digest_size=16).digest(),)
        else:
            with suppress(OSError, ValueError):
                found = _split(place)[0].stat()
                content = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        return (source.modality, place, source.pixel, *content)


def _decoded(source: MediaSource) -> bytes:
    try:
        return base64.b64decode("".join(source.encoded.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise bad_input(f"Can't read the {source.modality}: it is not base64.", detail=str(error)) from error


def _with_pixel(path: Path, pixel: tuple[int, int, int]) -> bytes:
    """Return a picture as PNG, with another first pixel."""
    with open_image(read_whole(path, bytes_max=BYTES_MAX), path) as image:
        changed = image.convert("RGB")
    changed.putpixel((0, 0), pixel)
    return as_png(changed)


def _split(place: str) -> tuple[Path, str]:
    """Return the file of a place, and the part of it that is used: `3&300` or `#sound`; empty: all."""
    if Path(place).exists():
        return Path(place), ""
    if place.endswith(SOUND_OF):
        return sound_source(Path(place)), SOUND_OF
    chosen = split_pages(place)
    dots = f"&{chosen.dots}" if chosen.dots is not None else ""
    return Path(chosen.file), f"{chosen.pages.start}{dots}" if chosen.pages else ""


def _remove_abandoned_folders(parent: Path) -> None:
    """Remove the folders of batches that were killed: nobody has locked them."""
    for folder in parent.iterdir():
        with suppress(OSError):
            descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
