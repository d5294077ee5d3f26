"""Pictures of several parts: the pages of a TIFF, the frames of an animation taken as a still picture."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from vlmtui.errors import bad_input
from vlmtui.reading import file_name, shown_name

_MOVING = frozenset({"GIF", "WEBP", "PNG", "AVIF"})
"""Pillow's formats whose several pictures are frames; those of all others are pages."""
_COUNTED_BY_WALKING = frozenset({"GIF", "TIFF"})
"""Formats that do not say how many there are, so that Pillow's own count goes through the whole file."""


PAGES_MAX = 1000
"""Pages of a document that are counted, and can be taken: decoders look through all pages for each next one."""
FRAMES_MAX = 5000
"""Frames of an animation."""
PIXELS_MAX = 4_000_000_000
"""Pixels of all frames of an animation together. They build on each other: all are decoded on the way."""
_PIXELS_OF_SMALL_FILES = 200_000_000
"""As many pixels may be in a file however small it is."""
_PIXELS_PER_BYTE = 60
"""A larger file may have more: more than in screen recordings, less than in files that are made to waste time."""


def most_parts(image: Image.Image, size_bytes: int) -> int:
    """How many pages, or frames, of an open image are looked at, so that no small file takes long. At least 1."""
    if image.format not in _MOVING:
        return PAGES_MAX
    pixels = min(PIXELS_MAX, max(_PIXELS_OF_SMALL_FILES, _PIXELS_PER_BYTE * size_bytes))
    return max(1, min(FRAMES_MAX, pixels // max(1, image.width * image.height)))


def count_parts(image: Image.Image, most: int) -> int:
    """How many pages or frames an open image has, counted to `most`: then it is `most`. A JPEG or HEIC of several
    pictures counts as its main one. Raises what Pillow's decoders raise over damaged files."""
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
    """Turn an open image to `page` (from 1), and say how many there are, counted to `most_parts`.

    Raises VlmtuiError for a page that is not there, and what Pillow's decoders raise over damaged files.
    """
    most = most_parts(image, size_bytes)
    pages = count_parts(image, most)
    if not 1 <= page <= pages:
        there = f"there {'is' if pages == 1 else 'are'} {pages}"
        there = f"only the first {most} can be taken" if pages == most > 1 else there
        raise bad_input(f"{shown_name(path)} has no {_part(image.format)} {page}: {there}.")
    if page > 1:
        image.seek(page - 1)
    return pages


def page_name(path: Path, kind: str, page: int) -> str:
    """`scan.tif (page 2)`; the file's own name for the first page."""
    return f"{file_name(path)} ({_part(kind)} {page})" if page > 1 else file_name(path)


def page_note(kind: str, page: int, pages: int) -> str:
    """What is told of a picture that is one of several."""
    return f"frame {page} of {pages}, as a still picture" if kind in _MOVING else f"page {page} of {pages}"


def _part(kind: str | None) -> str:
    return "frame" if kind in _MOVING else "page"
