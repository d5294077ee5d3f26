"""Stored copies: kept under the hash of what they hold, and held against it before they are shown or sent."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, NamedTuple

from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.files import TEMPORARY_PREFIX, new_file
from vlmtui.paths import private_dir
from vlmtui.reading import opened, shown_name
from vlmtui.text import one_line

_BYTES_MAX = 16_000_000_000
_CHUNK = 4 * 1024 * 1024
_HASH = re.compile("[0-9a-f]{64}")


class StoredCopy(NamedTuple):
    """A file of the store: the hex SHA-256 of its bytes, and where it lies."""

    sha256: str
    path: Path


def store_bytes(data: bytes, store: Path, suffix: str, *, name: str) -> StoredCopy:
    """Keep `data` as `store/ab/<sha256><suffix>` (0600), unless it is there already and sound.

    `name` is for errors. Raises VlmtuiError where it cannot be written.
    """
    sha256 = hashlib.sha256(data).hexdigest()
    _note_use(store, sha256)
    target = private_dir(private_dir(store) / sha256[:2]) / f"{sha256}{suffix}"
    if not _is_sound(target, sha256):
        with new_file(target.parent, name) as new:
            new.file.write(data)
            new.replace(target)
    return StoredCopy(sha256, target)


def store_copy(source: BinaryIO, store: Path, suffix: str, *, name: str) -> StoredCopy:
    """Keep a copy of an open file under its content hash, as `store_bytes` does, in bounded memory."""
    digest = hashlib.sha256()
    source.seek(0)
    with new_file(private_dir(store), name) as new:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
            new.file.write(chunk)
        sha256 = digest.hexdigest()
        _note_use(store, sha256)
        target = private_dir(store / sha256[:2]) / f"{sha256}{suffix}"
        if not _is_sound(target, sha256):
            new.replace(target)
    return StoredCopy(sha256, target)


def freed_marker(store: Path, sha256: str) -> Path:
    """An empty file that says since when nothing needs this content; it is not there while something does."""
    return freed_folder(store) / sha256


def freed_folder(store: Path) -> Path:
    """Where the markers of `freed_marker` lie."""
    return store / ".freed"


def remove_copies(store: Path, sha256: str, *, unless: Callable[[], bool]) -> None:
    """Remove what is stored of this content. `unless` is asked when the files have lost their names, so that whoever
    stores the same content now either sees no file or is seen: then they get their names back. Raises OSError."""
    for path in (store / sha256[:2]).glob(f"{sha256}*"):
        hidden = path.with_name(f"{TEMPORARY_PREFIX}{path.name}")
        path.replace(hidden)
        if unless():
            hidden.replace(path)
    for hidden in (store / sha256[:2]).glob(f"{TEMPORARY_PREFIX}{sha256}*"):
        hidden.unlink()


def require_intact(path: Path) -> None:
    """Raise VlmtuiError (BAD_INPUT) when a stored copy is gone or no longer holds what its name says.

    A file that is not named by a hash passes: it is no stored copy. Each version of a file is read once a process.
    """
    if not _HASH.fullmatch(path.stem):
        return
    try:
        digest = _digest_now(path)
    except (OSError, VlmtuiError) as error:
        raise bad_input(
            f"The stored copy {shown_name(path)} is gone or damaged.",
            detail=f"{path}: {error}",
            hint="Attach the file again.",
        ) from error
    if digest != path.stem:
        raise bad_input(
            f"The stored copy {shown_name(path)} is damaged: it was changed after it was attached.",
            detail=f"SHA-256 {digest}",
            hint=f"Delete {one_line(str(path))} and attach the file again.",
        )


def _note_use(store: Path, sha256: str) -> None:
    """Before the stored file is looked for: what waits to be removed waits anew. The file itself is not touched, as
    someone may be reading it."""
    with suppress(OSError):
        os.utime(freed_marker(store, sha256))


def _is_sound(target: Path, sha256: str) -> bool:
    """Whether the file holds what its name says: a full disk, a copied folder or a failing disk may have left another
    content behind, and it is written again then."""
    try:
        return not target.is_symlink() and _digest_now(target) == sha256
    except (OSError, VlmtuiError):
        return False


def _digest_now(path: Path) -> str:
    found = path.stat()
    version = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    return _digest(path, version)


@lru_cache(maxsize=1024)
def _digest(path: Path, _version: tuple[int, ...]) -> str:
    """The hex SHA-256 of the file, read once for each version of it."""
    digest = hashlib.sha256()
    with opened(path, bytes_max=_BYTES_MAX) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
