"""The content store: media files named by their hash, which is checked before a file is shown or sent."""

from __future__ import annotations

import hashlib
import os
import re
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.files import TEMPORARY_PREFIX, new_file
from vlmtui.media.sniff import HEAD_BYTES, sniff
from vlmtui.paths import private_dir
from vlmtui.reading import opened, shown_name
from vlmtui.text import one_line

_BYTES_MAX = 16_000_000_000
_CHUNK = 4 * 1024 * 1024
_HASH = re.compile("[0-9a-f]{64}")
NAME = re.compile(r"([0-9a-f]{64})(\.[a-z0-9]{1,8})?")
"""The name of a stored file: its hash, and the suffix of its content."""


class StoredCopy(NamedTuple):
    """A file in the store: the hex SHA-256 of its bytes, and its path."""

    sha256: str
    path: Path


def store_bytes(data: bytes, store: Path, suffix: str, *, name: str) -> StoredCopy:
    """Store `data` as `store/ab/<sha256><suffix>` (0600), unless an intact copy exists already.

    `name`: the file's name in errors. Raises VlmtuiError if it cannot be written.
    """
    sha256 = hashlib.sha256(data).hexdigest()
    target = _folder_of(store, sha256) / f"{sha256}{suffix}"
    if not _is_intact(target, sha256):
        with new_file(target.parent, name) as new:
            new.file.write(data)
            new.replace(target)
    return StoredCopy(sha256, target)


def store_copy(source: BinaryIO, store: Path, suffix: str, *, name: str) -> StoredCopy:
    """Store a copy of an open file, as `store_bytes` does, but without reading it into memory as a whole."""
    digest = hashlib.sha256()
    source.seek(0)
    with new_file(private_dir(store), name) as new:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
            new.file.write(chunk)
        sha256 = digest.hexdigest()
        target = _folder_of(store, sha256) / f"{sha256}{suffix}"
        if not _is_intact(target, sha256):
            new.replace(target)
    return StoredCopy(sha256, target)


def place(store: Path, sha256: str) -> Path:
    """Return the path of the stored file with this hash; if there is none, its path without a suffix. Raises
    VlmtuiError if `sha256` is not a hash."""
    if not _HASH.fullmatch(sha256):
        raise bad_input(f"{sha256!r} is not the hash of a stored file.")
    folder = store / sha256[:2]
    known = sorted(folder.glob(f"{sha256}*"))
    sound = (file for file in known if NAME.fullmatch(file.name) and file.is_file() and not file.is_symlink())
    return next(sound, folder / sha256)


def store_medium(source: BinaryIO, store: Path, *, name: str) -> StoredCopy | None:
    """Store a copy of an image, video, audio file or PDF, with the suffix of its detected type; return None for any
    other file. `name`: the file's name in errors. Raises VlmtuiError."""
    source.seek(0)
    suffix = sniff(source.read(HEAD_BYTES)).suffix
    return store_copy(source, store, suffix, name=name) if suffix else None


def remove_copies(store: Path, sha256: str) -> None:
    """Delete all copies of this content, except a copy that another process has just begun to use. Only one process at
    a time may call it: it also deletes the temporary files that a killed process left. Raises OSError."""
    folder = store / sha256[:2]
    for path in folder.glob(f"{TEMPORARY_PREFIX}{sha256}*"):
        path.unlink()
    for path in folder.glob(f"{sha256}*"):
        hidden = path.with_name(f"{TEMPORARY_PREFIX}{path.name}")
        before = path.stat().st_mtime_ns
        path.replace(hidden)
        if hidden.stat().st_mtime_ns == before:
            hidden.unlink()
        else:
            hidden.replace(path)


def require_intact(path: Path) -> None:
    """Raise VlmtuiError (BAD_INPUT) if a stored copy is gone or its content does not match its name.

    Files not named by a hash are not stored copies and pass. Each version of a file is read once per process.
    """
    if not _HASH.fullmatch(path.stem):
        return
    try:
        digest = _digest_now(path)
    except (OSError, VlmtuiError) as error:
        raise bad_input(
            f"The stored copy {shown_name(path)} is missing or damaged.",
            detail=f"{path}: {error}",
            hint="Attach the file again.",
        ) from error
    if digest != path.stem:
        raise bad_input(
            f"The stored copy {shown_name(path)} was changed after it was attached.",
            detail=f"SHA-256 {digest}",
            hint=f"Delete {one_line(str(path))} and attach the file again.",
        )


def _folder_of(store: Path, sha256: str) -> Path:
    return private_dir(private_dir(store) / sha256[:2])


def _is_intact(target: Path, sha256: str) -> bool:
    """Return True if the file's content matches the hash in its name. A full or failing disk may have damaged it; the
    caller then writes it again. Updates the file's time, so that `remove_copies` notices that it is in use."""
    try:
        os.utime(target, follow_symlinks=False)
        return not target.is_symlink() and _digest_now(target) == sha256
    except (OSError, VlmtuiError):
        return False


def _digest_now(path: Path) -> str:
    found = path.stat()
    version = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    return _digest(path, version)


@lru_cache(maxsize=1024)
def _digest(path: Path, _version: tuple[int, ...]) -> str:
    digest = hashlib.sha256()
    with opened(path, bytes_max=_BYTES_MAX) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
