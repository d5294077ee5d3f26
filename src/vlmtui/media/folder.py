"""What a folder holds, and in which order it is shown. No widgets here."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.media.paths import looks_like_media
from vlmtui.media.sniff import Kind
from vlmtui.text import human_bytes, one_line

_DIGITS = re.compile(r"(\d+)")
_VIDEO_NAME = re.compile(r".*\.(mp4|m4v|mkv|webm|mov|avi|mpe?g|m?2?ts|flv|ogv|wmv|asf|3gp)", re.IGNORECASE | re.DOTALL)
"""The endings of videos among those of `looks_like_media`."""


class Sort(StrEnum):
    """The order of the files."""

    NAME = "by name"
    NEWEST = "newest first"
    LARGEST = "largest first"

    @property
    def next(self) -> Sort:
        """The one that follows; after the last, the first."""
        members = list(Sort)
        return members[(members.index(self) + 1) % len(members)]


class MediaFilter(StrEnum):
    """Which files are shown."""

    ALL = "images and videos"
    IMAGES = "images"
    VIDEOS = "videos"

    @property
    def next(self) -> MediaFilter:
        """The one that follows; after the last, the first."""
        members = list(MediaFilter)
        return members[(members.index(self) + 1) % len(members)]


class FolderEntry(msgspec.Struct, frozen=True):
    """A folder, or a picture or video."""

    path: Path
    name: str
    """The path's last part; of a recent folder all of it, with `~` for one's own folder."""
    is_folder: bool
    size: int
    """Bytes; 0 for a folder."""
    modified: float
    """Seconds since the epoch."""
    is_video: bool = False

    @property
    def shown(self) -> str:
        """The name, with a slash behind a folder's; control characters visible."""
        return one_line(self.name + ("/" if self.is_folder else ""))


@dataclass(slots=True)
class FolderView:
    """How folders are looked at. Kept by whoever opens the browser, it stays the same next time."""

    sort: Sort = Sort.NAME
    media: MediaFilter = MediaFilter.ALL
    hidden: bool = False
    """Whether files are shown whose names begin with a dot."""

    def arranged(self, entries: list[FolderEntry]) -> list[FolderEntry]:
        """Entries that are sorted by name, in the order that is asked for. Folders stay first."""
        match self.sort:
            case Sort.NEWEST:
                return sorted(entries, key=lambda entry: (not entry.is_folder, -entry.modified))
            case Sort.LARGEST:
                return sorted(entries, key=lambda entry: (not entry.is_folder, -entry.size))
            case _:
                return entries

    def wants(self, entry: FolderEntry) -> bool:
        """Whether the sort of file is asked for. Folders always are."""
        return self.media is MediaFilter.ALL or entry.is_folder or entry.is_video == (self.media is MediaFilter.VIDEOS)

    def shown(self, entries: Iterable[FolderEntry], wanted: str) -> list[FolderEntry]:
        """Those whose name holds `wanted`, in any case. A dot at its beginning asks for hidden files too."""
        wanted = wanted.lower()
        hidden = self.hidden or wanted.startswith(".")
        every = self.media is MediaFilter.ALL
        return [
            entry
            for entry in entries
            if (every or self.wants(entry))
            and (hidden or not entry.name.startswith("."))
            and (not wanted or wanted in entry.name.lower())
        ]

    def summary(
        self,
        entries: Iterable[FolderEntry],
        shown: Iterable[FolderEntry],
        marked: Collection[FolderEntry],
        *,
        are_recent: bool = False,
    ) -> str:
        """What is marked, how much is shown of how much, and the order, in a line. `are_recent`: all are folders."""
        parts = [f"{len(marked):,} marked, {human_bytes(sum(entry.size for entry in marked))}"] if marked else []
        folders = [entry.is_folder for entry in shown]
        files, of_all = folders.count(False), [entry.is_folder for entry in self.shown(entries, "")].count(False)
        if not are_recent:
            parts.append(f"{files:,} of {_count(of_all, 'file')}" if files < of_all else _count(files, "file"))
        parts += [_count(folders.count(True), "folder")] if any(folders) or are_recent else []
        parts.append(Sort.NEWEST if are_recent else self.sort)
        parts += [f"{self.media} only"] if self.media is not MediaFilter.ALL else []
        parts += ["hidden too"] if self.hidden else []
        return " · ".join(parts)


def natural(name: str) -> tuple[list[str | int], str, str]:
    """A key for sorting by name as people count, in any case; `cat.png` before `cat2.png` before `cat10.png`."""
    stem, dot, ending = name.rpartition(".")
    stem, ending = (stem, ending.casefold()) if dot and stem else (name, "")
    return [int(part) if part.isdecimal() else part.casefold() for part in _DIGITS.split(stem)], ending, name


def list_folder(folder: Path) -> list[FolderEntry]:
    """Folders first, then media files, each by name, hidden ones too. Blocking. Raises VlmtuiError.

    Numbers in names count as numbers: 2 before 10.
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
        raise bad_input(f"The folder {name} cannot be read: {why}.") from error
    return sorted(entries, key=lambda entry: (not entry.is_folder, natural(entry.name)))


def list_folders(folders: Iterable[Path]) -> list[FolderEntry]:
    """These folders by their whole path, without those that are gone. Blocking."""
    entries: list[FolderEntry] = []
    for folder in folders:
        with suppress(OSError, ValueError):
            if folder.is_dir():
                entries.append(FolderEntry(folder, home_short(folder), True, 0, folder.stat().st_mtime))
    return entries


def home_short(path: Path) -> str:
    """The path, with `~` for one's own folder."""
    with suppress(RuntimeError, ValueError):
        below = path.relative_to(Path.home())
        return "~" if below == Path() else f"~/{below}"
    return str(path)


def typed_path(text: str) -> tuple[Path, str] | None:
    """A path that is being typed, as its folder and the beginning of a name in it; None for any other text.

    `/data/ca` is `ca` in `/data`; `~` is one's own folder.
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


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _entry(item: os.DirEntry[str]) -> FolderEntry | None:
    """None for what is neither a folder nor a media file, or vanished meanwhile."""
    path = Path(item.path)
    try:
        is_folder = item.is_dir()
        if not is_folder and not looks_like_media(path):
            return None
        found = item.stat()
    except OSError:
        return None
    size = 0 if is_folder else found.st_size
    return FolderEntry(path, item.name, is_folder, size, found.st_mtime, not is_folder and _is_video(path))


def _is_video(path: Path) -> bool:
    """By the name's ending; only a name without one has the file opened."""
    if path.suffix:
        return _VIDEO_NAME.fullmatch(path.name) is not None
    from vlmtui.media.stage import file_type

    with suppress(VlmtuiError, OSError):
        return file_type(path).kind is Kind.VIDEO
    return False
