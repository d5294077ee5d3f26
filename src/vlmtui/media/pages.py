"""Draws pages of PDF documents as images, and handles the endings of paths that select a part of a file: `#page=3`
(also a frame of an animation) and `#sound` (a video's audio track)."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from vlmtui.domain.conversation import Attachment
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.media.content_store import store_bytes
from vlmtui.media.notes import damage, differs
from vlmtui.media.pdf_renderer import CPU_S, MEMORY_BYTES, Refusal
from vlmtui.processes import python_command, safe_environment
from vlmtui.reading import file_name, is_file, read_whole, shown_name, source_text
from vlmtui.text import human_bytes, one_line

if TYPE_CHECKING:
    from PIL import Image

MOVING = frozenset({"GIF", "WEBP", "PNG", "AVIF"})
"""Pillow's formats whose parts are frames; in all others they are pages."""
_COUNTED_BY_WALKING = frozenset({"GIF", "TIFF"})
"""Formats without a stored count, for which Pillow reads the whole file to count."""
_DOTS = "dpi=(?P<{}>[0-9]{{1,5}})"
_PAGES = re.compile(
    r"(?P<file>.+)#(?:page=(?P<first>[1-9][0-9]{0,5})(?:-(?P<last>[1-9][0-9]{0,5}))?"
    rf"(?:&{_DOTS.format('dots')})?|{_DOTS.format('alone')})",
    re.DOTALL,
)
"""A path that ends in `#page=N`, as in web addresses (RFC 8118). Ranges (`3-7`) and `dpi` are our additions."""

SOUND_OF = "#sound"
"""The ending of a video's path that selects its audio track."""

PAGES_MAX = 1000
"""Maximum number of pages to count and select; decoders read all earlier pages to reach one."""
FRAMES_MAX = 5000
PIXELS_MAX = 4_000_000_000
"""Maximum pixels of an animation, all frames together: a frame depends on earlier ones, so all are decoded."""
_PIXELS_OF_SMALL_FILES = 200_000_000
_PIXELS_PER_BYTE = 60
"""Larger files may have this many pixels per byte: more than screen recordings have, fewer than decompression bombs."""


def most_parts(image: Image.Image, size_bytes: int) -> int:
    """Return the maximum number of pages or frames to read from an open image, at least 1. An animation's limit grows
    with its size in bytes: a small file may hold thousands of large frames, which take long to decode."""
    if image.format not in MOVING:
        return PAGES_MAX
    pixels = min(PIXELS_MAX, max(_PIXELS_OF_SMALL_FILES, _PIXELS_PER_BYTE * size_bytes))
    return max(1, min(FRAMES_MAX, pixels // max(1, image.width * image.height)))


def count_parts(image: Image.Image, most: int) -> int:
    """Return the number of pages or frames of an open image, at most `most`. A JPEG or HEIC with several images
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
    """Return `scan.tif (page 2)`; for the first page, the file's name alone."""
    return f"{file_name(path)} ({_part(kind)} {page})" if page > 1 else file_name(path)


def page_note(kind: str, page: int, pages: int) -> str:
    """Return the note for an image that is one of the pages or frames of its file: which one, and of how many."""
    return f"frame {page} of {pages}, as a still image" if kind in MOVING else f"page {page} of {pages}"


def _part(kind: str | None) -> str:
    return "frame" if kind in MOVING else "page"


class ChosenPages(NamedTuple):
    """The pages and dots per inch in the ending of a path: `paper.pdf#page=3-7&dpi=300`."""

    file: str
    pages: range
    """Page numbers from 1, at most PAGES_MAX of them; empty: the path selects none."""
    dots: int | None

    def names(self) -> Iterator[str]:
        """Yield a name for each page: `paper.pdf#page=3&dpi=300`."""
        dots = f"&dpi={self.dots}" if self.dots is not None else ""
        yield from (f"{self.file}#page={page}{dots}" for page in self.pages)


def split_pages(text: str) -> ChosenPages:
    """Split a path into the file, its pages and the dots per inch. `#dpi=N` alone selects page 1."""
    found = _PAGES.fullmatch(text)
    if found is None:
        return ChosenPages(text, range(0), None)
    first = int(found["first"] or 1)
    last = int(found["last"] or first)
    pages = range(first, min(last, first + PAGES_MAX - 1) + 1)
    dots = found["dots"] or found["alone"]
    return ChosenPages(found["file"], pages, int(dots) if dots else None)


def with_page(path: Path, page: int = 1, dots: int | None = None) -> tuple[Path, int, int | None]:
    """Return the file, page and dots per inch of a path such as `paper.pdf#page=3&dpi=300`. An existing file of exactly
    that name takes precedence."""
    chosen = split_pages(path.name)
    if len(chosen.pages) != 1 or chosen.file in ("", ".") or is_file(path):
        return path, page, dots
    return path.with_name(chosen.file), chosen.pages[0], chosen.dots


def sound_source(path: Path) -> Path:
    name = path.name.removesuffix(SOUND_OF)
    return path.with_name(name) if name not in ("", ".", path.name) else path


BYTES_MAX = 500_000_000
DPI = 150.0
DPI_MIN, DPI_MAX = 10, 1200
LONGEST = 2000.0
"""Maximum pixels of a page's longer side, unless the user chose dots per inch."""
LONGEST_CHOSEN = 6000.0
_SECONDS = 120.0
_POINTS = 72
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE)
_DRAWN_AT_ONCE = threading.BoundedSemaphore(4)
"""Each page may take the renderer's whole limit of memory."""


class _Facts(msgspec.Struct, frozen=True):
    """The renderer's facts about a document; sizes in points."""

    pages: int
    wide: float
    high: float
    dpi: float
    differs: tuple[str, ...]
    """Parts that a viewer may draw and the renderer does not. Hostile text."""
    damaged: tuple[str, ...]


def stage_page(path: Path, store: Path, *, page: int = 1, dots: int | None = None) -> Attachment:
    """Draw a page of a document, from 1, and store it as an image. Blocking. Raises VlmtuiError naming the document.

    `dots`: the dots per inch; the longer side is at most 6,000 pixels. None: 150, or fewer if the longer side would
    have more than 2,000 pixels.
    """
    if dots is not None and not DPI_MIN <= dots <= DPI_MAX:
        raise bad_input(f"{shown_name(path)} can't be drawn at {dots} dots per inch.", hint=f"{DPI_MIN} to {DPI_MAX}.")
    data = read_whole(path, bytes_max=BYTES_MAX)
    facts, png = _rendered(data, path, page, dots)
    stored = store_bytes(png, store, ".png", name=shown_name(path))
    width, height = (int.from_bytes(png[at : at + 4], "big") for at in (16, 20))
    inches = f"{facts.wide / _POINTS:.3g} × {facts.high / _POINTS:.3g} inches"
    return Attachment(
        modality="image",
        name=page_name(path, "PDF", page),
        path=str(stored.path),
        sha256=stored.sha256,
        width=width,
        height=height,
        size_bytes=len(data),
        format="PDF",
        notes=(
            page_note("PDF", page, facts.pages),
            f"drawn at {facts.dpi:.0f} dots per inch ({inches})",
            *map(differs, map(one_line, facts.differs)),
            *map(damage, map(one_line, facts.damaged)),
        ),
        source=source_text(path),
        page=page,
        pages=facts.pages,
    )


class PagePicture(NamedTuple):
    image: Image.Image
    pages: int


def page_picture(path: Path) -> PagePicture:
    """Draw the first page of a document, without storing it. Blocking. Raises VlmtuiError naming the document."""
    facts, png = _rendered(read_whole(path, bytes_max=BYTES_MAX), path, 1)
    from PIL import Image

    with Image.open(io.BytesIO(png), formats=("PNG",)) as image:
        return PagePicture(image.convert("RGB"), facts.pages)


def _rendered(data: bytes, path: Path, page: int, dots: int | None = None) -> tuple[_Facts, bytes]:
    size = (DPI, LONGEST) if dots is None else (float(dots), LONGEST_CHOSEN)
    command = python_command(sys.executable, "-m", "vlmtui.media.pdf_renderer", str(page), *map(str, size))
    environment = safe_environment(os.environ)
    name = shown_name(path)
    try:
        with _DRAWN_AT_ONCE:
            done = subprocess.run(
                command, input=data, capture_output=True, timeout=_SECONDS, check=False, env=environment
            )
    except subprocess.TimeoutExpired as error:
        raise bad_input(f"{name} takes longer than {_SECONDS:.0f} seconds a page.") from error
    if done.returncode == Refusal.TOO_COSTLY or (done.returncode < 0 and -done.returncode not in _CRASHES):
        limits = f"the limits are {human_bytes(MEMORY_BYTES)} and {CPU_S} seconds of processor time a page"
        raise bad_input(f"{name} takes too much memory or time to draw: {limits}.", detail=_ending(done))
    line, _, png = done.stdout.partition(b"\n")
    if done.returncode == Refusal.ENCRYPTED:
        raise bad_input(f"{name} is encrypted.", hint="Save a copy without its password first.")
    try:
        facts = msgspec.json.decode(line, type=_Facts)
    except msgspec.DecodeError as error:
        raise _broken(name, done) from error
    if done.returncode == Refusal.NO_PAGE:
        raise bad_input(f"{name} has no page {page:,}: there {'is' if facts.pages == 1 else 'are'} {facts.pages:,}.")
    if done.returncode != 0 or (not png.startswith(b"\x89PNG")):
        raise _broken(name, done)
    return facts, png


def _broken(name: str, done: subprocess.CompletedProcess[bytes]) -> VlmtuiError:
    return bad_input(f"{name} is a damaged PDF document.", detail=_ending(done))


def _ending(done: subprocess.CompletedProcess[bytes]) -> str:
    last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
    return f"exit {done.returncode} {''.join(last)}".strip()
