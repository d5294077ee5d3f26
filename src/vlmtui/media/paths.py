"""Recognises pasted or dropped text that consists of file paths, in any quoting style; and web addresses.

Only checks whether files exist and what they are. Ordinary text is never mistaken for a path.
"""

from __future__ import annotations

import os
import re
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import SplitResult, unquote, unquote_to_bytes, urlsplit, urlunsplit

from vlmtui.media.sniff import HEAD_BYTES, Kind, sniff
from vlmtui.text import one_line

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
    """The name of the file that an address names: the last part of its path; empty where that has none."""
    return unquote(urlsplit(url.strip()).path.rpartition("/")[2])[:_NAME_LONGEST]


def shown_address(address: SplitResult) -> str:
    """Return the address for a message, on one line, without credentials and query, which may be secret."""
    port = f":{address.port}" if address.port else ""
    text = one_line(f"{address.scheme}://{address.hostname}{port}{address.path}")
    return text if len(text) <= _SHOWN_LONGEST else f"{text[: _SHOWN_LONGEST - 1]}…"


TEXT_MAX = 100_000
"""Characters; longer pastes are text."""
PATHS_MAX = 1000

_MEDIA_NAME = re.compile(
    r".*\.(jpe?g?|jpg|jfif|mpo|a?png|webp|gif|bmp|dib|tiff?|avif|hei[cf]|jp2|ico|p[pgbn]m"
    r"|pdf|mp4|m4v|mkv|webm|mov|avi|mpe?g|m2ts|flv|ogv|wmv|asf|3gp"
    r"|wav|mp3|flac|ogg|oga|opus|m4a|aac|aiff?|wma)",
    re.IGNORECASE | re.DOTALL,
)
"""Not `.ts` and `.mts`: most such files are TypeScript, so that their first bytes decide."""
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b", "E": "\x1b"}
_NUMBERED = re.compile(r"x([0-9a-fA-F]{1,2})|([0-7]{1,3})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})")
_NEXT_PATH = re.compile(r"\s+(?=/|~/|file:/|\./|\.\./)")
_USER = re.compile(r"~[^/]*(?=/)")


def parse_paths(text: str) -> list[Path] | None:
    """Return the paths that `text` consists of, or None if it is anything else.

    Supports plain names with spaces, backslash escapes, single, double and `$'…'` quotes, several paths separated
    by spaces or newlines, `file://` URLs with %-escapes, `~` and `~user`. Every path must exist. A bare word counts
    only when it has a media file's ending, so that a word that happens to be a file's name stays a word.
    """
    if not text.strip() or len(text) > TEXT_MAX or "\0" in text:
        return None
    for read in (_as_one, _as_lines, _as_shell_words, _as_spaced_paths):
        if paths := read(text):
            return paths
    return None


def pasted_media(text: str) -> list[Path] | None:
    """Like `parse_paths`, but also None if none of the files is a picture or video: such paths stay text.

    Blocking: reads the first bytes of files without a known extension.
    """
    paths = parse_paths(text)
    return paths if paths and any(map(looks_like_media, paths)) else None


def has_media_name(name: str) -> bool:
    """Return True if a name has a media file's ending."""
    return _MEDIA_NAME.fullmatch(name) is not None


def looks_like_media(path: Path) -> bool:
    """Return True if a file is a picture or video, by its extension or else by its first bytes."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return False
        if has_media_name(path.name):
            return True
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            return sniff(file.read(HEAD_BYTES)).kind is not Kind.OTHER
    except (OSError, ValueError):
        return False


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
    """Apply `read` to every item and join the results; None if it fails for one."""
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
    """Return the path for one unquoted name, if it exists."""
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
    """The path of a `file:` URL of this machine; None for another's."""
    rest = url.removeprefix("file:")
    if rest.startswith("//"):
        host, slash, rest = rest[2:].partition("/")
        if host not in ("", "localhost", socket.gethostname()):
            return None
        rest = slash + rest
    return os.fsdecode(unquote_to_bytes(os.fsencode(rest))) if rest.startswith("/") else None


def split_words(text: str) -> list[str] | None:
    """Split into words as a shell does, without expansion; None if a quote or escape is unfinished."""
    words: list[str] = []
    word: list[str] | None = None
    rest = iter(text)
    for char in rest:
        if char in " \t\r\n":
            if word is not None:
                words.append("".join(word))
            word = None
            continue
        word = [] if word is None else word
        quote = char if char in "'\"" else ""
        if char == "\\":
            escaped = next(rest, None)
            if escaped is None:
                return None
            word.append("" if escaped == "\n" else escaped)
        elif quote:
            quoted = _ansi_c(rest) if quote == "'" and word[-1:] == ["$"] else _quoted(rest, quote)
            if quoted is None:
                return None
            if quote == "'" and word[-1:] == ["$"]:
                word.pop()
            word.append(quoted)
        else:
            word.append(char)
    if word is not None:
        words.append("".join(word))
    return words


def _quoted(rest: Iterator[str], quote: str) -> str | None:
    """Return the text up to the closing quote. In double quotes a backslash escapes only five characters."""
    found: list[str] = []
    for char in rest:
        if char == quote:
            return "".join(found)
        if char == "\\" and quote == '"':
            char = next(rest, "")
            found.append("" if char == "\n" else char if char in '"\\$`' else "\\" + char)
        else:
            found.append(char)
    return None


def _ansi_c(rest: Iterator[str]) -> str | None:
    """Return the content of `$'…'`, which shells print for names with control characters or invalid bytes."""
    found: list[str] = []
    for char in rest:
        if char == "'":
            return _unescape_ansi_c("".join(found))
        found.append(char)
        if char == "\\":
            found.append(next(rest, ""))
    return None


def _unescape_ansi_c(text: str) -> str:
    found = bytearray()
    at = 0
    while at < len(text):
        if text[at] != "\\" or at + 1 == len(text):
            found += os.fsencode(text[at])
            at += 1
        elif numbered := _NUMBERED.match(text, at + 1):
            hexadecimal, octal, short, long = numbered.groups()
            code = int(octal, 8) if octal else int(hexadecimal or short or long, 16)
            found += os.fsencode(chr(code)) if short or long else bytes([code & 0xFF])
            at = numbered.end()
        else:
            found += os.fsencode(_ESCAPES.get(text[at + 1], text[at + 1]))
            at += 2
    return os.fsdecode(bytes(found))
