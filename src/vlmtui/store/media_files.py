"""Stores the images and videos of an imported document."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from vlmtui.errors import bad_input
from vlmtui.media.content_store import store_bytes

_NAME = re.compile(r"([0-9a-f]{64})(\.[a-z0-9]{1,8})?")


def place(media: Path, sha256: str, suffix: str) -> Path:
    """Return the path for content with this hash: `media/ab/<sha256><suffix>`."""
    name = f"{sha256}{suffix}"
    if not _NAME.fullmatch(name):
        raise bad_input(f"{name!r} is no name of a stored file.")
    return media / sha256[:2] / name


def keep(media: Path, sha256: str, suffix: str, data: bytes) -> Path:
    """Write a file atomically (0600) unless an intact copy exists. Raises VlmtuiError if the content does not match the
    hash, or if it cannot be written."""
    target = place(media, sha256, suffix)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise bad_input(f"The file {sha256[:12]}… is damaged: its content is not what its hash says.")
    return store_bytes(data, media, suffix, name=target.name).path
