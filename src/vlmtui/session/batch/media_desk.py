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
from collections import Counter, OrderedDict, deque
from contextlib import suppress
from pathlib import Path

import msgspec

from vlmtui.domain.attachment import Attachment, Modality, VideoSampling
from vlmtui.errors import bad_input
from vlmtui.files import write_atomically
from vlmtui.media.content_store import FLAT
from vlmtui.media.stage import FILE_BYTES_MAX, download_source, stage
from vlmtui.media.web_address import is_url, public_address
from vlmtui.paths import private_dir
from vlmtui.reading import opened, unreadable
from vlmtui.session.batch.item import MediaSource
from vlmtui.text import one_line

_CHUNK = 1 << 20
_RECENT = 32
"""Prepared media that are held in case that the next item has the same."""
_UNUSED = 64
"""Copies that are no longer used and not yet removed."""
_DOWNLOADS = 8
"""Downloads at the same time."""
_SUFFIXES: dict[str, str] = {"image": ".png", "video": ".mp4", "audio": ".wav"}
_LOCK = "lock"


class MediaDesk:
    """Prepares media; methods may be called from several threads. `close` removes the copies."""

    def __init__(self, cache: Path, *, num_frames: int, keep_in: Path | None = None) -> None:
        """`cache`: the application's cache folder. num_frames: of a video. keep_in: a folder for the copies, which then
        stay. Raises VlmtuiError."""
        parent = private_dir(private_dir(cache) / "batches")
        _remove_abandoned_folders(parent)
        self._folder = private_dir(parent / f"{os.getpid()}-{os.urandom(4).hex()}")
        self._lock_file = os.open(self._folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._keeps = keep_in is not None
        self._store = keep_in or self._folder / f"copies{FLAT}"
        self._sampling = VideoSampling(num_frames=num_frames)
        self._uses: Counter[str] = Counter()
        self._unused: deque[str] = deque()
        self._recent: OrderedDict[tuple[object, ...], Attachment] = OrderedDict()
        self._guard = threading.Lock()
        self._downloading = asyncio.Semaphore(_DOWNLOADS)

    @property
    def sampling(self) -> VideoSampling:
        """Which frames of a video are used."""
        return self._sampling

    def content(self, source: MediaSource) -> str:
        """Return a text that is the same for the same content. Blocking. A web address stands for what is behind it.

        Raises VlmtuiError if the file cannot be read."""
        mark = f"{source.modality} {source.pixel} "
        if source.encoded:
            return mark + hashlib.blake2b(source.encoded.encode("ascii", "replace"), digest_size=16).hexdigest()
        if is_url(source.place):
            return mark + source.place
        path, page = _split_page(source.place)
        digest = hashlib.blake2b(digest_size=16)
        with opened(path, bytes_max=FILE_BYTES_MAX) as file:
            try:
                while chunk := file.read(_CHUNK):
                    digest.update(chunk)
            except OSError as error:
                raise unreadable(path, error) from error
        return f"{mark}{page} {digest.hexdigest()}"

    async def prepare(self, source: MediaSource) -> Attachment:
        """Return a medium as it is sent; `release` it in the end. Raises VlmtuiError with the file and the reason."""
        if is_url(source.place):
            return await self._download(source)
        return await asyncio.to_thread(self.prepare_file, source)

    def prepare_file(self, source: MediaSource) -> Attachment:
        """Return a medium that is no web address, in the same way. Blocking."""
        return self._prepare(source, source.place)

    def release(self, attachments: tuple[Attachment, ...]) -> None:
        """Give back attachments; copies that nothing uses any more are removed in a while."""
        with self._guard:
            for attachment in attachments:
                self._release(attachment.path)

    def close(self) -> None:
        """Remove all copies."""
        shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._lock_file)

    async def _download(self, source: MediaSource) -> Attachment:
        async with self._downloading:
            file = await download_source(source.place, self._folder / "downloads")
        try:
            attachment = await asyncio.to_thread(self._prepare, source, str(file))
        finally:
            with suppress(OSError):
                file.unlink()
        return msgspec.structs.replace(attachment, source=public_address(source.place))

    def _prepare(self, source: MediaSource, place: str) -> Attachment:
        key = self._version(source, place)
        with self._guard:
            known = self._recent.get(key)
            if known is not None:
                self._recent.move_to_end(key)
                self._uses[known.path] += 1
                return known
        while True:
            attachment = self._staged(source, place)
            with self._guard:
                self._uses[attachment.path] += 1
                if Path(attachment.path).exists():
                    self._hold(key, attachment)
                    return attachment
                self._uses[attachment.path] -= 1  # it was removed as unused in the moment before

    def _hold(self, key: tuple[object, ...], attachment: Attachment) -> None:
        if key in self._recent:
            return
        self._recent[key] = attachment
        self._uses[attachment.path] += 1
        if len(self._recent) > _RECENT:
            self._release(self._recent.popitem(last=False)[1].path)

    def _release(self, path: str) -> None:
        self._uses[path] -= 1
        if self._uses[path] or self._keeps:
            return
        self._unused.append(path)
        while len(self._unused) > _UNUSED:
            oldest = self._unused.popleft()
            if not self._uses[oldest]:
                del self._uses[oldest]
                with suppress(OSError):
                    Path(oldest).unlink()

    def _staged(self, source: MediaSource, place: str) -> Attachment:
        if source.encoded:
            return self._from_bytes(source, _decoded(source))
        if source.pixel is not None:
            return self._from_bytes(source, _with_pixel(place, source.pixel))
        return self._checked(source, self._stage(source, Path(place)))

    def _stage(self, source: MediaSource, path: Path) -> Attachment:
        """Check and store a file; as a sound, of a video its audio track."""
        if source.modality != "audio":
            return stage(path, self._store, sampling=self._sampling, still=source.modality == "image")
        from vlmtui.media.pages import sound_source
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
        """What is the same for as long as a file stays as it is."""
        content: tuple[object, ...] = ()
        if source.encoded:
            content = (hashlib.blake2b(source.encoded.encode("ascii", "replace"), digest_size=16).digest(),)
        else:
            with suppress(OSError, ValueError):
                found = _split_page(place)[0].stat()
                content = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
        return (source.modality, place, source.pixel, *content)


def _decoded(source: MediaSource) -> bytes:
    try:
        return base64.b64decode(source.encoded, validate=True)
    except (binascii.Error, ValueError):
        pass
    try:
        return base64.b64decode("".join(source.encoded.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise bad_input(f"Can't read the {source.modality}: it is not base64.", detail=str(error)) from error


def _with_pixel(place: str, pixel: tuple[int, int, int]) -> bytes:
    from vlmtui.media.images import BYTES_MAX, as_png, open_image
    from vlmtui.reading import read_whole

    path = Path(place)
    with open_image(read_whole(path, bytes_max=BYTES_MAX), path) as image:
        changed = image.convert("RGB")
    changed.putpixel((0, 0), pixel)
    return as_png(changed)


_NOUNS: dict[Modality, str] = {"image": "a picture", "video": "a video", "audio": "a sound"}


def _split_page(place: str) -> tuple[Path, str]:
    if Path(place).exists():
        return Path(place), ""
    from vlmtui.media.pages import SOUND_OF, sound_source, split_pages

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
