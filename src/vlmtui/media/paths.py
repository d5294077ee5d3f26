"""Recognises pasted or dropped text that consists of file paths, in any quoting style; and web addresses.

Only checks whether files exist and what they are. Ordinary text is never mistaken for a path.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, unquote_to_bytes, urlsplit, urlunsplit

from vlmtui.media.sniff import HEAD_BYTES, FileType, Kind, sniff
from vlmtui.text import cut, one_line

_LONGEST = 8000
_SHOWN_LONGEST = 120
_NAME_LONGEST = 120


def is_url(text: str) -> bool:
    """Return True if `text` is exactly one `http` or `https` address."""
    bare = text.strip()
    if not bare or len(bare) > _LONGEST or any(char.isspace() or char < " " for char in bare):
        return False
    try:
        parts = urlsplit(bare)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def public_address(url: str) -> str:
    """Return the address without credentials, query and fragment, which may be secret; for storing and exporting."""
    parts = urlsplit(url.strip())
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def address_file_name(url: str) -> str:
    """Return the file name in an address, the last part of its path; may be empty."""
    return unquote(urlsplit(url.strip()).path.rpartition("/")[2])[:_NAME_LONGEST]


def shown_address(url: str) -> str:
    """Return an address for display: one line, without credentials, query and fragment, which may be secret."""
    return cut(one_line(public_address(url)), _SHOWN_LONGEST)


TEXT_MAX = 100_000
"""Maximum number of characters; a longer paste is text."""
PATHS_MAX = 1000

_MEDIA_ENDINGS = (
    " jp jpe jpeg jpg jfif mpo png apng webp gif bmp dib tif tiff avif heic heif jp2 ico pbm pgm pnm ppm "
    "pdf mp4 m4v mkv webm mov avi mpg mpeg m2ts flv ogv wmv asf 3gp "
    "wav mp3 flac ogg oga opus m4a aac aif aiff wma "
)
"""The endings of media files. Not `.ts` and `.mts`: most such files are TypeScript, so their first bytes decide."""
_NEXT_PATH = re.compile(r"\s+(?=/|~/|file:/|\./|\.\./)")
_USER = re.compile(r"~[^/]*(?=/)")


def parse_paths(text: str) -> list[Path] | None:
    """Return the paths that `text` consists of, or None if it is anything else.

    Supports plain names with spaces, backslash escapes, single and double quotes, several paths separated by spaces or
    newlines, `file://` URLs with %-escapes, `~` and `~user`. Every path must exist. A bare word counts only if it has a
    media file's ending, so that a word that is also a file's name stays a word.
    """
    if not text.strip() or len(text) > TEXT_MAX or "\0" in text:
        return None
    for read in (_as_one, _as_lines, _as_shell_words, _as_spaced_paths):
        if paths := read(text):
            return paths
    return None


def pasted_media(text: str) -> list[Path] | None:
    """Return the paths as `parse_paths` does, but only if one of them is a media file; other paths stay text.

    Blocking: reads the first bytes of files without a known extension.
    """
    paths = parse_paths(text)
    return paths if paths and any(map(looks_like_media, paths)) else None


def has_media_name(name: str) -> bool:
    _, dot, ending = name.rpartition(".")
    return bool(dot) and ending.isalnum() and f" {ending.lower()} " in _MEDIA_ENDINGS


def looks_like_media(path: Path) -> bool:
    """Return True if a file is an image, video, audio file or PDF, by its extension or else by its first bytes."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return False
        return has_media_name(path.name) or sniffed(path).kind is not Kind.OTHER
    except (OSError, ValueError):
        return False


def sniffed(path: Path) -> FileType:
    """Return a file's type by its first bytes. Never blocks on a pipe. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        return sniff(file.read(HEAD_BYTES))


def resolved(name: str, base: Path) -> Path | None:
    """Return the path of a name or a `file:` URL, from the folder `base`; None for a URL of another machine."""
    if name.startswith("file:"):
        found = path_of_file_url(name)
        return None if found is None else Path(found)
    return base / os.path.expanduser(name)  # noqa: PTH111  (Path.expanduser raises for an unknown user)


def _as_one(text: str) -> list[Path] | None:
    """Read the whole text as one name, which may contain spaces, newlines and quotes."""
    bare = text.strip(" \t\r\n")
    for candidate in dict.fromkeys((text, text.removesuffix("\n"), bare)):
        # A backslash at the end belongs to the space that was stripped.
        if (candidate == text or not candidate.endswith("\\")) and (path := _existing(candidate)):
            return [path]
    return None


def _as_lines(text: str) -> list[Path] | None:
    """Read one path per line, as file managers copy them: each plain or quoted."""
    lines = [line for line in text.replace("\r\n", "\n").split("\n") if line.strip()]
    return _all_of(lines, lambda line: _as_one(line) or _as_shell_words(line)) if len(lines) > 1 else None


def _as_shell_words(text: str) -> list[Path] | None:
    words = split_words(text)
    return _all_of(words, _one_word) if words else None


def _as_spaced_paths(text: str) -> list[Path] | None:
    """Read several absolute paths with unquoted spaces: each begins where a space is followed by a slash."""
    parts = _NEXT_PATH.split(text.strip())
    return _all_of(parts, _as_one) if len(parts) > 1 else None


def _all_of(items: list[str], read: Callable[[str], list[Path] | None]) -> list[Path] | None:
    paths: list[Path] = []
    for item in items:
        found = read(item)
        if not found or len(paths) + len(found) > PATHS_MAX:
            return None
        paths += found
    return paths


def _one_word(word: str) -> list[Path] | None:
    path = _existing(word)
    return [path] if path else None


def _existing(name: str) -> Path | None:
    if name.startswith("file:"):
        name = path_of_file_url(name) or ""
    path = Path(name)
    if not _is_path_like(name, path):
        return None
    if _exists(path):
        return path
    if _USER.match(name):
        expanded = Path(os.path.expanduser(name))  # noqa: PTH111  (Path.expanduser raises for an unknown user)
        return expanded if _exists(expanded) else None
    return None


def _is_path_like(name: str, path: Path) -> bool:
    if path.name in ("", "..") or name.strip() in ("~", "."):
        return False
    return "/" in name or has_media_name(name)


def _exists(path: Path) -> bool:
    try:
        path.stat()
    except (OSError, ValueError):
        return False
    return True


def path_of_file_url(url: str) -> str | None:
    """Return the path in a `file:` URL; None if it is on another machine."""
    rest = url.removeprefix("file:")
    if rest.startswith("//"):
        host, slash, rest = rest[2:].partition("/")
        if host not in ("", "localhost", socket.gethostname()):
            return None
        rest = slash + rest
    return os.fsdecode(unquote_to_bytes(os.fsencode(rest))) if rest.startswith("/") else None


def split_words(text: str) -> list[str] | None:
    """Split into words as a shell does, without expansion; None if a quote or escape is unfinished."""
    try:
        return shlex.split(text)
    except ValueError:
        return None
