"""Completes paths after an `@` in a message. No widgets here."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from itertools import islice
from pathlib import Path

import msgspec

from vlmtui.media.folder import natural
from vlmtui.media.paths import looks_like_media
from vlmtui.text import one_line

FOLDER_MAX = 5000
"""Most names read from a folder."""
LOOK_S = 0.5
"""Seconds for opening files without a media suffix to detect their type; then the matches so far are used."""

_WORD = re.compile(r'(?<!\S)@(?:"([^"\n]*)|([^\s"]\S*)?)')


class Span(msgspec.Struct, frozen=True):
    """A path after an `@`: `text[start:end]` is all of it, `fragment` the part before the cursor."""

    start: int
    """Offset of the `@`."""
    end: int
    """Offset after the path, including a closing quote."""
    fragment: str
    """Without the `@` and quotes."""


class PathCompletion(msgspec.Struct, frozen=True):
    """A folder, picture or video."""

    path: Path
    is_folder: bool
    text: str
    """The whole path as typed: `~/pics/cat.png`, `sub/`."""
    size: int = 0
    """Bytes; 0 for a folder."""

    @property
    def name(self) -> str:
        """The last component, with a slash for a folder. Hostile text."""
        return self.text.rstrip("/").rpartition("/")[2] + ("/" if self.is_folder else "")

    @property
    def mention(self) -> str:
        """The text that replaces the span: `@sub/`, `@"my file.png"`; a folder's quote stays open."""
        if not any(char.isspace() for char in self.text) and not self.text.startswith('"'):
            return f"@{self.text}"
        return f'@"{self.text}' + ("" if self.is_folder else '"')


def path_at(text: str, cursor: int) -> Span | None:
    """Return the `@path` that contains or ends at the cursor (an offset), or None.

    An `@` counts only at the start and after white space, so not in `me@example.org`. After `@"` the path may contain
    spaces, up to the closing quote or the end of the line.
    """
    for match in _WORD.finditer(text, text.rfind("\n", 0, cursor) + 1):
        if match.start() >= cursor:
            return None
        is_quoted = match[1] is not None
        begin = match.start() + (2 if is_quoted else 1)
        if begin <= cursor <= match.end():
            is_closed = is_quoted and text[match.end() : match.end() + 1] == '"'
            end = match.end() + 1 if is_closed else cursor if is_quoted else match.end()
            return Span(match.start(), end, text[begin:cursor])
    return None


def complete(fragment: str, base: Path, *, limit: int = 50, look_s: float = LOOK_S) -> list[PathCompletion]:
    """Return folders and media files that complete `fragment`, best first. Blocking; never raises.

    A relative path starts at `base`. Names with the last component as prefix come first, then those that contain it,
    then those with its letters in order. Hidden names only if it begins with a dot.
    """
    if fragment == "~":
        fragment = "~/"
    head, slash, wanted = fragment.rpartition("/")
    try:
        folder = base / os.path.expanduser(head + slash)  # noqa: PTH111  (Path.expanduser raises for an unknown user)
        matches = _matches(folder, wanted)
    except (OSError, ValueError, RuntimeError):
        return []
    found: list[PathCompletion] = []
    until = time.monotonic() + look_s
    for _, name, is_folder in matches:
        path = folder / name
        if is_folder:
            found.append(PathCompletion(path, True, f"{head}{slash}{name}/"))
        elif looks_like_media(path):
            with suppress(OSError):
                found.append(PathCompletion(path, False, head + slash + name, path.stat().st_size))
        if len(found) >= limit or time.monotonic() > until:
            break
    return found


def _matches(folder: Path, wanted: str) -> list[tuple[object, str, bool]]:
    """Return matching names in `folder`, with whether they are folders, best first. Files may be of any type."""
    found: list[tuple[tuple[int, int, bool, object], str, bool]] = []
    with os.scandir(folder) as items:
        for item in islice(items, FOLDER_MAX):
            if item.name.startswith(".") and not wanted.startswith("."):
                continue
            rank = _rank(item.name.casefold(), wanted.casefold())
            if rank is not None:
                is_folder = _is_folder(item)
                # Continuing into a folder needs its name in the text.
                if is_folder and one_line(item.name) != item.name:
                    continue
                found.append(((*rank, not is_folder, natural(item.name)), item.name, is_folder))
    if wanted == "..":
        found.append(((0, 0, False, natural("..")), "..", True))
    return [(key, name, is_folder) for key, name, is_folder in sorted(found, key=lambda one: one[0])]


def _is_folder(item: os.DirEntry[str]) -> bool:
    try:
        return item.is_dir()
    except OSError:
        return False


def _rank(name: str, wanted: str) -> tuple[int, int] | None:
    """Return how well a name matches, lower is better: its class, and the distance of the letters. None: no match."""
    if name.startswith(wanted):
        return 0, 0
    if wanted in name:
        return 1, 0
    first = at = name.find(wanted[0])
    for char in wanted[1:]:
        if at < 0:
            break
        at = name.find(char, at + 1)
    return None if at < 0 else (2, at - first)
