"""Parts of files: the pages of a TIFF or a document, the frames of an animation as still pictures, a video's sound."""

from __future__ import annotations

import re
from pathlib import Path

from PIL import Image

from vlmtui.errors import bad_input
from vlmtui.reading import file_name, shown_name

_MOVING = frozenset({"GIF", "WEBP", "PNG", "AVIF"})
"""Pillow's formats whose parts are frames; in all others they are pages."""
_COUNTED_BY_WALKING = frozenset({"GIF", "TIFF"})
"""Formats without a stored count, for which Pillow reads the whole file to count."""
_PAGES = re.compile(r"(?P<file>.+)#page=(?P<first>[1-9][0-9]{0,5})(?:-(?P<last>[1-9][0-9]{0,5}))?", re.DOTALL)
"""As web addresses name a page of a document (RFC 8118); a range is our own."""

SOUND_OF = "#sound"
"""Behind the path of a video: its audio track."""

PAGES_MAX = 1000
"""Most pages counted and selectable; decoders read all earlier pages to reach one."""
FRAMES_MAX = 5000
"""Most frames of an animation."""
PIXELS_MAX = 4_000_000_000
"""Most pixels of all frames of an animation together; they depend on each other, so all are decoded."""
_PIXELS_OF_SMALL_FILES = 200_000_000
"""Most pixels allowed in a file of any size."""
_PIXELS_PER_BYTE = 60
"""Larger files may have more: this exceeds screen recordings, but not decompression bombs."""


def most_parts(image: Image.Image, size_bytes: int) -> int:
    """Return the most pages or frames to read from an open image, so that small files stay fast. At least 1."""
    if image.format not in _MOVING:
        return PAGES_MAX
    pixels = min(PIXELS_MAX, max(_PIXELS_OF_SMALL_FILES, _PIXELS_PER_BYTE * size_bytes))
    return max(1, min(FRAMES_MAX, pixels // max(1, image.width * image.height)))


def count_parts(image: Image.Image, most: int) -> int:
    """Return the number of pages or frames of an open image, at most `most`. A JPEG or HEIC with several pictures
    counts as one. Raises DECODER_ERRORS for damaged files."""
    if image.format in ("MPO", "HEIF"):
        return 1
    if image.format not in _COUNTED_BY_WALKING:
        return min(most, getattr(image, "n_frames", 1))
    count = 1
    try:
        while count < most:
            image.seek(count)
            count += 1
    except EOFError:
        pass
    image.seek(0)
    return count


def turn_to(image: Image.Image, page: int, path: Path, size_bytes: int) -> int:
    """Seek an open image to `page` (from 1). Return the number of pages, at most `most_parts`.

    Raises VlmtuiError for a missing page, and DECODER_ERRORS for damaged files.
    """
    most = most_parts(image, size_bytes)
    pages = count_parts(image, most)
    if not 1 <= page <= pages:
        there = f"there {'is' if pages == 1 else 'are'} {pages}"
        there = f"only the first {most} can be used" if pages == most > 1 else there
        raise bad_input(f"{shown_name(path)} has no {_part(image.format)} {page}: {there}.")
    if page > 1:
        image.seek(page - 1)
    return pages


def page_name(path: Path, kind: str, page: int) -> str:
    """`scan.tif (page 2)`; the file's own name for the first page."""
    return f"{file_name(path)} ({_part(kind)} {page})" if page > 1 else file_name(path)


def page_note(kind: str, page: int, pages: int) -> str:
    """Return the note for a picture that is one of several in its file."""
    return f"frame {page} of {pages}, as a still picture" if kind in _MOVING else f"page {page} of {pages}"


def _part(kind: str | None) -> str:
    return "frame" if kind in _MOVING else "page"


def split_pages(text: str) -> tuple[str, range]:
    """Split `paper.pdf#page=3-7` into the file and its pages, from 1; without `#page=` the pages are empty. At most
    PAGES_MAX pages."""
    found = _PAGES.fullmatch(text)
    if found is None:
        return text, range(0)
    first = int(found["first"])
    last = int(found["last"] or first)
    return found["file"], range(first, min(last, first + PAGES_MAX - 1) + 1)


def with_page(path: Path, page: int = 1) -> tuple[Path, int]:
    """Return the file and the page of a path such as `paper.pdf#page=3`; a file of that very name comes first."""
    name, pages = split_pages(path.name)
    if len(pages) != 1 or path.exists():
        return path, page
    return path.with_name(name), pages[0]


def sound_source(path: Path) -> Path:
    """Return the video of a path such as `clip.mp4#sound`."""
    return path.with_name(path.name.removesuffix(SOUND_OF))
