"""The files of stored images and videos: which are needed, and adding one whose hash is known."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from vlmtui.errors import bad_input
from vlmtui.paths import private_dir

_NAME = re.compile(r"([0-9a-f]{64})(\.[a-z0-9]{1,8})?")
_LEFT_OVER = ".new-"


def place(media: Path, sha256: str, suffix: str) -> Path:
    """Where a file of this content lies: `media/ab/<sha256><suffix>`."""
    name = f"{sha256}{suffix}"
    if not _NAME.fullmatch(name):
        raise bad_input(f"{name!r} is no name of a stored file.")
    return media / sha256[:2] / name


def keep(media: Path, sha256: str, suffix: str, data: bytes) -> Path:
    """Write a file (0600, whole or not at all); one that is there already is left alone. Raises VlmtuiError when the
    content is not what the hash says, OSError when it cannot be written."""
    target = place(media, sha256, suffix)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise bad_input(f"The file {sha256[:12]}… is damaged: its content is not what its hash says.")
    private_dir(media)
    private_dir(target.parent)
    if target.exists() and target.stat().st_size == len(data):
        return target
    descriptor, name = tempfile.mkstemp(prefix=_LEFT_OVER, dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(name).replace(target)
    finally:
        Path(name).unlink(missing_ok=True)
    return target


def remove(path: Path) -> bool:
    """Whether the file is gone now; one that may not be deleted stays."""
    with suppress(OSError):
        path.unlink(missing_ok=True)
        return True
    return False


def stored(media: Path, older_than_s: float) -> Iterator[tuple[str, Path]]:
    """Hash and path of every file that was not touched for so long; the hash is empty for what a writer that died left
    behind."""
    limit = time.time() - older_than_s
    for path in sorted((*media.glob("*"), *media.glob("*/*"))):
        match = _NAME.fullmatch(path.name)
        if not match and not path.name.startswith(_LEFT_OVER):
            continue
        try:
            found = path.lstat()
        except OSError:
            continue
        if not path.is_dir() and max(found.st_mtime, found.st_ctime) <= limit:
            yield (match[1] if match else ""), path
