"""Resolves the argument of `/attach`: paths in any quoting, patterns such as `shots/*.png`, folders, web addresses."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterable, Iterator
from fnmatch import translate
from pathlib import Path

import msgspec

from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.media.folder import natural
from vlmtui.media.pages import SOUND_OF, sound_source, split_pages
from vlmtui.media.paths import TEXT_MAX, is_url, looks_like_media, parse_paths, resolved, split_words
from vlmtui.reading import is_folder, shown_name, unreadable
from vlmtui.text import one_line

ASK_ABOVE = 20
"""Number of files above which the app asks before attaching."""
ENTRIES_MAX = 10_000
"""Maximum number of folder entries read for one command."""
FILES_MAX = 1000
_NAME_MAX = 4096
_WILD = re.compile(r"[*?\[]")


class GatherResult(msgspec.Struct, frozen=True):
    """The files and addresses found, in the order of the text, and the problems; there may be both."""

    paths: tuple[Path, ...] = ()
    urls: tuple[str, ...] = ()
    problems: tuple[VlmtuiError, ...] = ()


def gather(text: str, *, base: Path, entries_max: int = ENTRIES_MAX, files_max: int = FILES_MAX) -> GatherResult:
    """Resolve the argument of `/attach`; relative names start at `base`. Blocking: call it in a thread.

    If a file of exactly that name exists, the name means this file, whatever characters it contains. Otherwise a name
    with `*`, `?`, `[…]` or `**` is a pattern, which matches only media files, and hidden files only if the pattern
    begins with a dot. A folder means the media files directly in it. A file that is named explicitly is returned
    whatever its type, which is checked when it is attached. Never raises VlmtuiError: errors are in `problems`.
    """
    if not text.strip():
        return GatherResult(
            problems=(bad_input("Nothing to attach.", hint="Give files, a folder, a pattern or a URL."),)
        )
    if len(text) > TEXT_MAX or "\0" in text:
        return GatherResult(
            problems=(bad_input("That is not a list of files: it is too long, or contains a NUL character."),)
        )
    search = _Search(base, entries_max, files_max)
    for word in _words(text, base):
        search.take(word)
    return GatherResult(tuple(search.paths), tuple(search.urls), tuple(search.problems))


def natural_key(path: Path) -> list[tuple[list[str | int], str, str]]:
    """Return a sort key that puts `2.png` before `10.png`, ignoring case."""
    return [natural(os.fsencode(part).decode(errors="replace")) for part in path.parts]


class _Search(msgspec.Struct):
    """The state of one `/attach`: the results so far, and how many entries and files may still be read."""

    base: Path
    entries_left: int
    files_left: int
    paths: dict[Path, None] = msgspec.field(default_factory=dict)
    urls: dict[str, None] = msgspec.field(default_factory=dict)
    problems: list[VlmtuiError] = msgspec.field(default_factory=list)
    is_over: bool = False
    looked_at: dict[Path, list[str]] = msgspec.field(default_factory=dict)

    def take(self, word: str | Path) -> None:
        """Add the files that a word of the command means, after its quotes were removed, or an existing path."""
        if isinstance(word, str) and is_url(word):
            self.urls[word.strip()] = None
            return
        path = word if isinstance(word, Path) else _path(word, self.base)
        failure = _failure(path)
        chosen = split_pages(path.name)
        if failure is not None and chosen.pages and _failure(path.with_name(chosen.file)) is None:
            self._add(map(path.with_name, chosen.names()))
        elif failure is not None and path.name.endswith(SOUND_OF) and _failure(sound_source(path)) is None:
            self._add([path])
        elif failure is None and is_folder(path):
            self._add_folder(path)
        elif failure is None:
            self._add([path])
        elif isinstance(failure, FileNotFoundError) and _WILD.search(str(word)):
            self._add_pattern(path, str(word))
        else:
            self.problems.append(unreadable(path, failure))

    def _add(self, paths: Iterable[Path]) -> None:
        for path in paths:
            if path in self.paths:
                continue
            if self.files_left == 0:
                self._stop(f"Only the first {len(self.paths)} files are attached.", "Attach fewer at a time.")
                return
            self.files_left -= 1
            self.paths[path] = None

    def _add_folder(self, folder: Path) -> None:
        names = self.entries(folder, say=True)
        found = [path for name in names if not name.startswith(".") and _is_attached_with_folder(path := folder / name)]
        if not found and folder in self.looked_at and not self.is_over:
            self.problems.append(bad_input(f"There are no images or videos in the folder {shown_name(folder)}."))
        self._add(sorted(found, key=natural_key))

    def _add_pattern(self, pattern: Path, word: str) -> None:
        found = dict.fromkeys(path for path in self._matches(pattern) if looks_like_media(path))
        if not found and not self.is_over:
            self.problems.append(
                bad_input(
                    f"{one_line(word)[:200]} matches no image or video.",
                    detail=one_line(str(pattern)),
                    hint="Patterns are case-sensitive.",
                )
            )
        self._add(sorted(found, key=natural_key))

    def _matches(self, pattern: Path) -> Iterator[Path]:
        """Search level by level, so that nearby files are found before the limit is reached."""
        parts = [part for at, part in enumerate(pattern.parts) if part != "**" or pattern.parts[at - 1 : at] != ("**",)]
        if parts[-1] == "**":
            parts.append("*")
        waiting = deque([(Path(parts[0]), 1)] if pattern.is_absolute() else [(Path(), 0)])
        while waiting:
            folder, at = waiting.popleft()
            last = at == len(parts) - 1
            if parts[at] == "**":
                waiting.append((folder, at + 1))
                waiting += [(below, at) for below in self._folders(folder)]
                continue
            for path in self._step(folder, parts[at]):
                if last:
                    yield path
                elif is_folder(path):
                    waiting.append((path, at + 1))

    def _step(self, folder: Path, part: str) -> list[Path]:
        """Return the matches of one part of a pattern in a folder. A literal name takes precedence."""
        literal = folder / part
        if not _WILD.search(part) or _failure(literal) is None:
            return [literal]
        fits = re.compile(translate(part)).match
        names = self.entries(folder)
        return [folder / name for name in names if fits(name) and (part[0] == "." or name[0] != ".")]

    def _folders(self, folder: Path) -> list[Path]:
        """Return the subfolders that `**` searches: no hidden ones and no links, which could be circular."""
        below = (folder / name for name in self.entries(folder) if not name.startswith("."))
        return [path for path in below if not path.is_symlink() and is_folder(path)]

    def entries(self, folder: Path, *, say: bool = False) -> list[str]:
        """Return the names in a folder, up to the remaining limit; each folder is read once."""
        if folder in self.looked_at:
            return self.looked_at[folder]
        names: list[str] = []
        try:
            with os.scandir(folder) as found:
                for entry in found:
                    if self.entries_left == 0:
                        self._stop("Too many files to search: some were skipped.", "Choose a subfolder.")
                        break
                    self.entries_left -= 1
                    names.append(entry.name)
        except OSError as error:
            if say:
                self.problems.append(unreadable(folder, error))
            return []
        self.looked_at[folder] = names
        return names

    def _stop(self, message: str, hint: str) -> None:
        if not self.is_over:
            self.problems.append(bad_input(message, hint=hint))
        self.is_over = True


def _words(text: str, base: Path) -> list[str] | list[Path]:
    """Split the argument into words without quotes: a single name with spaces, paths in any quoting, or words as in a
    shell."""
    bare = text.strip()
    if is_url(bare):
        return [bare]
    for candidate in (text, bare):
        if _failure(_path(candidate, base)) is None:
            return [_path(candidate, base)]
    # `parse_paths` resolves relative names from the working directory, which may differ from `base`.
    found = parse_paths(text)
    if found and all(path.is_absolute() for path in found):
        return found
    words = split_words(text)
    if words is None:
        return text.split()
    if len(words) > 1 and not any(is_url(word) for word in words) and _is_spaced_pattern(bare, words, base):
        return [bare]
    return [word for word in words if word]


def _is_spaced_pattern(text: str, words: list[str], base: Path) -> bool:
    """Return True for an unquoted pattern with spaces, such as `my shots/*.png`: its folder exists, and no file has the
    first word as its name."""
    if len(text) > _NAME_MAX or _failure(_path(words[0], base)) is None:
        return False
    folders = (text[: slash.start()] for slash in re.finditer("/", text) if _WILD.search(text, slash.end()))
    return any(re.search(r"\s", folder) and _failure(_path(folder, base)) is None for folder in folders)


def _path(word: str, base: Path) -> Path:
    return resolved(word, base) or base / word


def _failure(path: Path) -> OSError | ValueError | None:
    try:
        path.stat()
    except (OSError, ValueError) as error:
        return error
    return None


def _is_attached_with_folder(path: Path) -> bool:
    """Return True if attaching a folder includes this file: all media except PDFs, whose pages the user chooses."""
    return path.suffix.lower() != ".pdf" and looks_like_media(path)
