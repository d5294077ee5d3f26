"""Lists, filters and sorts the media files of a folder, for the file browser."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

import msgspec

from vlmtui.errors import bad_input
from vlmtui.media.paths import looks_like_media
from vlmtui.text import counted, human_bytes, one_line

_DIGITS = re.compile(r"(\d+)")


class Sort(StrEnum):
    NAME = "by name"
    NEWEST = "newest first"
    LARGEST = "largest first"

    @property
    def next(self) -> Sort:
        members = list(Sort)
        return members[(members.index(self) + 1) % len(members)]


class FolderEntry(msgspec.Struct, frozen=True):
    path: Path
    name: str
    is_folder: bool
    size: int
    """Bytes; 0 for a folder."""
    modified: float
    """Seconds since the epoch."""

    @property
    def shown(self) -> str:
        """The name for display, with a slash after a folder's name and control characters made visible."""
        return one_line(self.name + ("/" if self.is_folder else ""))


class FolderView(msgspec.Struct):
    """Sort order and filters of the file browser. They are kept when the browser is closed and opened again."""

    sort: Sort = Sort.NAME
    hidden: bool = False

    def arranged(self, entries: list[FolderEntry]) -> list[FolderEntry]:
        """Sort entries (already sorted by name) in the chosen order. Folders stay first."""
        match self.sort:
            case Sort.NEWEST:
                return sorted(entries, key=lambda entry: (not entry.is_folder, -entry.modified))
            case Sort.LARGEST:
                return sorted(entries, key=lambda entry: (not entry.is_folder, -entry.size))
            case _:
                return entries

    def shown(self, entries: Iterable[FolderEntry], wanted: str) -> list[FolderEntry]:
        """Return the entries whose name contains `wanted`, ignoring case. A leading dot includes hidden files."""
        wanted = wanted.lower()
        hidden = self.hidden or wanted.startswith(".")
        return [
            entry
            for entry in entries
            if (hidden or not entry.name.startswith(".")) and (not wanted or wanted in entry.name.lower())
        ]

    def summary(
        self,
        entries: Iterable[FolderEntry],
        shown: Iterable[FolderEntry],
        marked: Collection[FolderEntry],
    ) -> str:
        """Return a line with the numbers of marked files, files and folders, and the sort order."""
        parts = [f"{len(marked):,} marked, {human_bytes(sum(entry.size for entry in marked))}"] if marked else []
        folders = [entry.is_folder for entry in shown]
        files, of_all = folders.count(False), [entry.is_folder for entry in self.shown(entries, "")].count(False)
        parts.append(f"{files:,} of {counted(of_all, 'file')}" if files < of_all else counted(files, "file"))
        parts += [counted(folders.count(True), "folder")] if any(folders) else []
        parts.append(self.sort)
        parts += ["hidden too"] if self.hidden else []
        return " · ".join(parts)


def natural(name: str) -> tuple[list[str | int], str, str]:
    """Return a sort key for natural order, ignoring case: `cat.png`, `cat2.png`, `cat10.png`."""
    stem, dot, ending = name.rpartition(".")
    stem, ending = (stem, ending.casefold()) if dot and stem else (name, "")
    return [int(part) if part.isdecimal() else part.casefold() for part in _DIGITS.split(stem)], ending, name


def list_folder(folder: Path) -> list[FolderEntry]:
    """Return folders, then media files, each in natural order by name, including hidden ones. Blocking. Raises
    VlmtuiError.
    """
    entries: list[FolderEntry] = []
    try:
        with os.scandir(folder) as found:
            for item in found:
                entry = _entry(item)
                if entry is not None:
                    entries.append(entry)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        name = os.fsencode(folder).decode(errors="replace")
        raise bad_input(f"Can't read the folder {name}: {why}.") from error
    return sorted(entries, key=lambda entry: (not entry.is_folder, natural(entry.name)))


def home_short(path: Path) -> str:
    """Return the path with `~` for the home folder."""
    with suppress(RuntimeError, ValueError):
        below = path.relative_to(Path.home())
        return "~" if below == Path() else f"~/{below}"
    return str(path)


def typed_path(text: str) -> tuple[Path, str] | None:
    """Split a partly typed path into its folder and the beginning of a name; None for any other text.

    `/data/ca` becomes `/data` and `ca`; `~` is the home folder.
    """
    if not text.startswith(("/", "~")):
        return None
    head, slash, name = text.rpartition("/")
    if not slash:
        head, name = text, ""
    expanded = os.path.expanduser(head + slash)  # noqa: PTH111  (Path.expanduser raises for an unknown user)
    if not expanded.startswith("/"):
        return None
    return Path(os.path.normpath(expanded)), name


def _entry(item: os.DirEntry[str]) -> FolderEntry | None:
    path = Path(item.path)
    try:
        is_folder = item.is_dir()
        if not is_folder and not looks_like_media(path):
            return None
        found = item.stat()
    except OSError:
        return None
    size = 0 if is_folder else found.st_size
    return FolderEntry(path, item.name, is_folder, size, found.st_mtime)
