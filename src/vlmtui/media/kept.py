"""Stored copies: named by the hash of what they hold, and held against it before they are shown or sent."""

from __future__ import annotations

import hashlib
import os
import re
from functools import lru_cache
from pathlib import Path

from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.media.files import opened, shown, visible

_BYTES_MAX = 16_000_000_000
_CHUNK = 4 * 1024 * 1024
_HASH = re.compile("[0-9a-f]{64}")


def require_kept(path: Path) -> None:
    """Raise VlmtuiError (BAD_INPUT) when a stored copy is gone or no longer holds what its name says.

    A file that is not named by a hash passes: it is no stored copy. Each version of a file is read once a process.
    """
    if not _HASH.fullmatch(path.stem):
        return
    try:
        found = path.stat()
        digest = _digest(path, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns))
    except (OSError, VlmtuiError) as error:
        raise bad_input(
            f"The stored copy {shown(path)} is gone or damaged.",
            detail=f"{path}: {error}",
            hint="Attach the file again.",
        ) from error
    if digest != path.stem:
        raise bad_input(
            f"The stored copy {shown(path)} is damaged: it was changed after it was attached.",
            detail=f"SHA-256 {digest}",
            hint=f"Delete {visible(str(path))} and attach the file again.",
        )


def source_text(path: Path) -> str:
    """Where a file is, as an absolute path; links are not followed, bytes that are not UTF-8 become U+FFFD."""
    return os.fsencode(path.absolute()).decode("utf-8", "replace")


@lru_cache(maxsize=512)
def _digest(path: Path, version: tuple[int, ...]) -> str:
    """The hex SHA-256 of the file; `version` is what tells a changed file from the one that was read before."""
    digest = hashlib.sha256()
    with opened(path, bytes_max=_BYTES_MAX) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
