"""Pictures of several parts: the pages of a TIFF, the frames of an animation taken as a still picture."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from vlmtui.errors import bad_input
from vlmtui.media.files import file_name, shown


def turn_to(image: Image.Image, page: int, path: Path) -> int:
    """Turn an open image to `page` (from 1), and say how many there are.

    A JPEG or HEIC of several pictures counts as its main one. Raises VlmtuiError for a page that is not there, and
    what Pillow's decoders raise over damaged files.
    """
    pages = 1 if image.format in ("MPO", "HEIF") else getattr(image, "n_frames", 1)
    if not 1 <= page <= pages:
        there = f"there {'is' if pages == 1 else 'are'} {pages}"
        raise bad_input(f"{shown(path)} has no {_part(image.format)} {page}: {there}.")
    if page > 1:
        image.seek(page - 1)
    return pages


def page_name(path: Path, kind: str, page: int) -> str:
    """`scan.tif (page 2)`; the file's own name for the first page."""
    return f"{file_name(path)} ({_part(kind)} {page})" if page > 1 else file_name(path)


def page_note(kind: str, page: int, pages: int) -> str:
    """What is told of a picture that is one of several."""
    return f"page {page} of {pages}" if _part(kind) == "page" else f"frame {page} of {pages}, as a still picture"


def _part(kind: str | None) -> str:
    return "frame" if kind in ("GIF", "WEBP", "PNG", "AVIF") else "page"
