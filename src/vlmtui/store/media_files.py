"""The stored files of conversations: `media/ab/<sha256><suffix>`, with the suffix of the content."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import BinaryIO

from vlmtui.errors import bad_input
from vlmtui.media.content_store import StoredCopy, store_bytes, store_copy
from vlmtui.media.sniff import HEAD_BYTES, sniff

MEDIA_NAME = re.compile(r"([0-9a-f]{64})(\.[a-z0-9]{1,8})?")


def place(media: Path, sha256: str) -> Path:
    """Return the stored file with this hash, or where it would be without a suffix. Raises VlmtuiError for a text that
    is no hash."""
    if not re.fullmatch("[0-9a-f]{64}", sha256):
        raise bad_input(f"{sha256!r} is no hash of a stored file.")
    folder = media / sha256[:2]
    known = sorted(folder.glob(f"{sha256}*")) if folder.is_dir() else []
    sound = (file for file in known if MEDIA_NAME.fullmatch(file.name) and file.is_file() and not file.is_symlink())
    return next(sound, folder / sha256)


def keep(media: Path, sha256: str, data: bytes) -> Path | None:
    """Write a picture, video, sound or PDF document atomically (0600) unless an intact copy exists, and return its
    path; None for any other content. Raises VlmtuiError if it does not match the hash, or cannot be written."""
    suffix = sniff(data[:HEAD_BYTES]).suffix
    if hashlib.sha256(data).hexdigest() != sha256:
        raise bad_input(f"The file {sha256[:12]}… is damaged: its content is not what its hash says.")
    return store_bytes(data, media, suffix, name=sha256).path if suffix else None


def keep_copy(media: Path, source: BinaryIO, name: str) -> StoredCopy | None:
    """Store a copy of an open file as `keep` does, in bounded memory. `name` is for errors. Raises VlmtuiError."""
    source.seek(0)
    suffix = sniff(source.read(HEAD_BYTES)).suffix
    return store_copy(source, media, suffix, name=name) if suffix else None
