"""What a folder holds, for the file browser."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from vlmtui.errors import bad_input
from vlmtui.media.paths import looks_like_media


@dataclass(frozen=True, slots=True)
class Entry:
    """A folder, or a picture or video."""

    path: Path
    is_folder: bool
    size: int
    """Bytes; 0 for a folder."""
    modified: float
    """Seconds since the epoch."""


def list_folder(folder: Path) -> list[Entry]:
    """Folders first, then media files, each by name, hidden ones too. Blocking. Raises VlmtuiError."""
    entries: list[Entry] = []
    try:
        with os.scandir(folder) as found:
            for item in found:
                entry = _entry(item)
                if entry is not None:
                    entries.append(entry)
    except OSError as error:
        message = f"The folder {os.fsencode(folder).decode(errors='replace')} cannot be read: {error.strerror}."
        raise bad_input(message) from error
    return sorted(entries, key=lambda entry: (not entry.is_folder, entry.path.name.lower()))


def _entry(item: os.DirEntry[str]) -> Entry | None:
    """None for what is neither a folder nor a media file, or vanished meanwhile."""
    path = Path(item.path)
    try:
        is_folder = item.is_dir()
        if not is_folder and not looks_like_media(path):
            return None
        found = item.stat()
    except OSError:
        return None
    return Entry(path, is_folder, 0 if is_folder else found.st_size, found.st_mtime)
