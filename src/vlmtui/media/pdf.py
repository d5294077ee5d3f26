"""Pages of PDF documents as images."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec
from PIL import Image

from vlmtui.domain.attachment import Attachment
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.media.content_store import store_bytes
from vlmtui.media.pages import page_name, page_note
from vlmtui.media.pdf_renderer import Refusal
from vlmtui.processes import python_command, safe_environment
from vlmtui.reading import read_whole, shown_name, source_text

BYTES_MAX = 500_000_000
"""Most bytes of a document."""
DPI = 150.0
DPI_MIN, DPI_MAX = 10, 1200
LONGEST = 2000.0
"""Most pixels of a page's longer side, unless dots per inch are chosen."""
LONGEST_CHOSEN = 6000.0
_SECONDS = 120.0
_POINTS = 72


class _Facts(msgspec.Struct, frozen=True):
    """What the renderer tells; sizes in points."""

    pages: int
    wide: float
    high: float
    dpi: float


def stage_page(path: Path, store: Path, *, page: int = 1, dots: int | None = None) -> Attachment:
    """Draw a page of a document, from 1, and store it as an image. Blocking. Raises VlmtuiError naming the document.

    At 150 dots per inch, or as many as make the longer side 2,000 pixels. `dots`: so many, up to 6,000 pixels.
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
        notes=(page_note("PDF", page, facts.pages), f"drawn at {facts.dpi:.0f} dots per inch ({inches})"),
        source=source_text(path),
        page=page,
        pages=facts.pages,
    )


class PagePicture(NamedTuple):
    """A page as a picture, and how many pages its document has."""

    image: Image.Image
    pages: int


def page_picture(path: Path, page: int = 1) -> PagePicture:
    """Draw a page of a document, from 1, without storing it. Blocking. Raises VlmtuiError naming the document."""
    facts, png = _rendered(read_whole(path, bytes_max=BYTES_MAX), path, page)
    with Image.open(io.BytesIO(png), formats=("PNG",)) as image:
        return PagePicture(image.convert("RGB"), facts.pages)


def _rendered(data: bytes, path: Path, page: int, dots: int | None = None) -> tuple[_Facts, bytes]:
    size = (DPI, LONGEST) if dots is None else (float(dots), LONGEST_CHOSEN)
    command = python_command(sys.executable, "-m", "vlmtui.media.pdf_renderer", str(page), *map(str, size))
    environment = safe_environment(os.environ)
    name = shown_name(path)
    try:
        done = subprocess.run(command, input=data, capture_output=True, timeout=_SECONDS, check=False, env=environment)
    except subprocess.TimeoutExpired as error:
        raise bad_input(f"{name} takes longer than {_SECONDS:.0f} seconds a page.") from error
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
    last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
    return bad_input(f"{name} is a damaged PDF document.", detail=f"exit {done.returncode} {''.join(last)}".strip())
