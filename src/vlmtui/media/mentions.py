"""Finds paths and web addresses in the text of a message, and checks what files they name. A model would only get the
text, so the app offers to attach the files."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from enum import Enum, auto
from pathlib import Path

import msgspec

from vlmtui.media.paths import has_media_name, is_url, public_address, resolved, sniffed, split_words
from vlmtui.media.sniff import Kind
from vlmtui.reading import is_file, source_text

TEXT_MAX = 50_000
"""Maximum number of characters to search. Of a longer message, only the beginning and the end are searched."""
WORDS_MAX = 300
"""Maximum number of words to look up on the disk."""
FOUND_MAX = 50
FOLDER_MAX = 2000
"""Maximum number of names to read from a folder."""

_WORD = re.compile(r"(?:\\.|[^\s\\])+|\\$", re.DOTALL)
_OPENING, _CLOSING = "([{<`@", ".,;:!?)]}>`'\"…"
_PREFIX = re.compile(r"/|~[^/\s]*/|\.\.?/|file:/")
_ENDING = re.compile(r"[^/\s]\.[A-Za-z]\w{0,5}$")


class MentionKind(Enum):
    """The kind of thing that a path or an address in a message names."""

    MEDIA = auto()
    FOLDER = auto()
    """A folder with images or videos in it."""
    WEB = auto()
    """A web address, which is not opened."""
    OTHER = auto()
    """A file or folder without images and videos."""
    MISSING = auto()
    UNREADABLE = auto()


class Mention(msgspec.Struct, frozen=True):
    """A path or an address in a message."""

    start: int
    end: int
    """Offsets in the text, quotes included."""
    name: str
    """The path or address, without quotes and escapes. Hostile text."""
    kind: MentionKind
    sources: tuple[Path | str, ...] = ()
    """What can be attached for it: files, or a web address as text."""
    title: str = ""
    """The file type for display (`a PNG picture`, `a PDF document`), or why the file can't be read."""
    size: int = 0


class _Spelling(msgspec.Struct, frozen=True):
    """One possible reading of a word as a file name."""

    start: int
    end: int
    name: str


def may_name_files(text: str) -> bool:
    """Return True if the text has anything that `find_mentions` would look up. Reads no files."""
    return any(True for _ in _places(text))


def as_written(source: Path | str) -> str:
    """Return a file or a web address in the form in which `find_mentions` finds it in a message. Leaves out parts of an
    address that may be secret, as stored messages do."""
    if isinstance(source, str):
        return public_address(source) if is_url(source) else ""
    text = source_text(source)
    if "'" in text:
        return re.sub(r"[^\w/.-]", r"\\\g<0>", text)
    return text if re.fullmatch(r"[\w/.-]+", text) else f"'{text}'"


def find_mentions(text: str, base: Path) -> list[Mention]:
    """Return the paths and web addresses in a message, in order. Relative paths start at `base`. Blocking: call it in a
    thread. Opens no address and raises nothing.

    A path is a word that begins with `/`, `~/`, `./`, `../` or `file:`, or has a media file's ending; quoted, escaped
    or plain. Any other word with a dot or a slash counts only if such a file exists. A path to a missing file counts
    only if it has an ending, so that `/s` and `and/or` stay words.
    """
    found: list[Mention] = []
    end = 0
    for looked_up, spellings in enumerate(_places(text)):
        if looked_up >= WORDS_MAX or len(found) >= FOUND_MAX:
            break
        if spellings[-1].start >= end and (mention := _mention(spellings, base)):
            found.append(mention)
            end = mention.end
    return found


def _places(text: str) -> Iterator[list[_Spelling]]:
    """Yield the possible readings of each word that may be a path or an address, the longest first."""
    for line_start, line in _lines(text):
        at = 0
        while found := _WORD.search(line, at):
            at = found.end()
            opening = len(found[0]) - len(found[0].lstrip(_OPENING))
            start = found.start() + opening
            quoted = _quoted(line, start)
            if quoted is not None:
                at = quoted.end
                spellings = [quoted]
            else:
                spellings = _spellings(line, start, found.end())
            if spellings:
                yield [_Spelling(line_start + one.start, line_start + one.end, one.name) for one in spellings]


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line with its offset; of a very long text, the first and the last ones."""
    half = TEXT_MAX // 2
    parts = [(0, text)] if len(text) <= TEXT_MAX else [(0, text[:half]), (len(text) - half, text[-half:])]
    for offset, part in parts:
        for line in part.splitlines(keepends=True):
            yield offset, line
            offset += len(line)


def _quoted(line: str, start: int) -> _Spelling | None:
    """Return the quoted name that begins at `start`; None if the quotes contain anything else."""
    quote = line[start : start + 1]
    end = line.find(quote, start + 1) if quote and quote in "\"'" else -1
    name = line[start + 1 : end]
    if end < 0 or not (_PREFIX.match(name) or has_media_name(name) or is_url(name)):
        return None
    return _Spelling(start, end + 1, name)


def _spellings(line: str, start: int, end: int) -> list[_Spelling]:
    word = line[start:end]
    bare = word.rstrip(_CLOSING)
    if is_url(bare):
        return [_Spelling(start, start + len(bare), bare)]
    if not _PREFIX.match(word) and "/" not in bare and not _ENDING.search(bare):
        return []
    return [_Spelling(start, start + len(name), _unescaped(name)) for name in dict.fromkeys((word, bare)) if name]


def _unescaped(word: str) -> str:
    words = split_words(word) if "\\" in word else None
    return words[0] if words and len(words) == 1 else word


def _mention(spellings: list[_Spelling], base: Path) -> Mention | None:
    """Return a mention of the first reading that exists or, if none does, one that says why. None for an ordinary
    word."""
    last = spellings[-1]
    if is_url(last.name):
        return Mention(last.start, last.end, last.name, MentionKind.WEB, (last.name,))
    failure: OSError | None = None
    for one in spellings:
        try:
            if (path := resolved(one.name, base)) is None:
                continue
            status = path.stat()
        except OSError as error:
            failure = error
            continue
        except ValueError:
            continue
        return _existing(one, path, status)
    if not _PREFIX.match(last.name) and not has_media_name(last.name):
        return None
    if isinstance(failure, FileNotFoundError | NotADirectoryError):
        kind, title = MentionKind.MISSING, ""
    elif failure is not None:
        kind, title = MentionKind.UNREADABLE, failure.strerror or ""
    else:
        return None
    return Mention(last.start, last.end, last.name, kind, title=title) if _ENDING.search(last.name) else None


def _existing(one: _Spelling, path: Path, status: os.stat_result) -> Mention | None:
    is_path = _PREFIX.match(one.name) is not None
    if stat.S_ISDIR(status.st_mode):
        return _folder(one, path) if is_path and path.name else None
    if not stat.S_ISREG(status.st_mode):
        return Mention(one.start, one.end, one.name, MentionKind.OTHER, title="not a regular file") if is_path else None
    try:
        found = sniffed(path)
    except OSError as error:
        return Mention(one.start, one.end, one.name, MentionKind.UNREADABLE, title=error.strerror or "")
    kind = MentionKind.OTHER if found.kind is Kind.OTHER else MentionKind.MEDIA
    sources = (path,) if kind is MentionKind.MEDIA else ()
    return Mention(one.start, one.end, one.name, kind, sources, found.title, status.st_size)


def _folder(one: _Spelling, path: Path) -> Mention:
    from vlmtui.media.gather import natural_key

    try:
        with os.scandir(path) as entries:
            names = [entry.name for entry, _ in zip(entries, range(FOLDER_MAX), strict=False)]
    except OSError as error:
        return Mention(one.start, one.end, one.name, MentionKind.UNREADABLE, title=error.strerror or "")
    media = (path / name for name in names if has_media_name(name) and not name.startswith("."))
    files = tuple(sorted(filter(is_file, media), key=natural_key))
    kind = MentionKind.FOLDER if files else MentionKind.OTHER
    return Mention(one.start, one.end, one.name, kind, files, "a folder")
