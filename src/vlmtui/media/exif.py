"""Reads camera facts from a picture's EXIF data."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from PIL import ExifTags, Image

from vlmtui.domain.attachment import Attachment
from vlmtui.errors import VlmtuiError
from vlmtui.media.images import BYTES_MAX, DECODER_ERRORS, FORMATS
from vlmtui.media.web_address import is_url
from vlmtui.reading import opened
from vlmtui.text import one_line

_TEXT_MAX = 80
"""Most characters of one value."""
_SLOWEST_SHOWN_AS_FRACTION_S = 0.5

_Tags = dict[int, object]


def exif_facts(path: Path) -> list[tuple[str, str]]:
    """Return camera, lens, date and exposure as (label, value) pairs, as far as the file has them.

    A GPS position is only mentioned, never shown. Values are short and without control characters. Never raises: a
    missing, damaged or non-picture file has no facts. Blocking; reads only the headers.
    """
    try:
        main, details = _read(path)
    except (*DECODER_ERRORS, VlmtuiError):
        return []
    found: list[tuple[str, str]] = []
    for label, read in _READERS:
        try:
            value = read(main, details)
        except DECODER_ERRORS:
            continue
        if value:
            found.append((label, value))
    return found


def camera_facts(attachment: Attachment) -> list[tuple[str, str]]:
    """Return the EXIF facts of the original file, as the stored copy may have lost them. Blocking.

    If the file's size has changed, it is a different file, and [] is returned.
    """
    if attachment.modality != "image" or is_url(attachment.source) or not attachment.source:
        return []
    path = Path(attachment.source)
    try:
        is_same = path.stat().st_size == attachment.size_bytes
    except (OSError, ValueError):
        return []
    return exif_facts(path) if is_same else []


def _read(path: Path) -> tuple[_Tags, _Tags]:
    """Return the main tags and the Exif IFD's tags."""
    with opened(path, bytes_max=BYTES_MAX) as file:
        known = [name for name in FORMATS if name in _known_formats()]
        with Image.open(file, formats=known) as image:
            # Pillow would decode the whole PNG to find EXIF data after the pixels.
            if image.format == "PNG" and not {"exif", "Raw profile type exif"} & set(image.info):
                return {}, {}
            exif = image.getexif()
            return dict(exif), dict(exif.get_ifd(ExifTags.IFD.Exif))


def _known_formats() -> frozenset[str]:
    Image.init()
    return frozenset(Image.OPEN)


def _camera(main: _Tags, _: _Tags) -> str:
    make, model = _text(main.get(ExifTags.Base.Make)), _text(main.get(ExifTags.Base.Model))
    return model if model.lower().startswith(make.lower()) else f"{make} {model}".strip()


def _lens(_: _Tags, details: _Tags) -> str:
    return _text(details.get(ExifTags.Base.LensModel))


def _taken(main: _Tags, details: _Tags) -> str:
    when = _text(details.get(ExifTags.Base.DateTimeOriginal)) or _text(main.get(ExifTags.Base.DateTime))
    day, _, time = when.partition(" ")
    return f"{day.replace(':', '-')} {time}".strip()


def _exposure(_: _Tags, details: _Tags) -> str:
    parts: list[str] = []
    seconds = _number(details.get(ExifTags.Base.ExposureTime))
    if seconds is not None:
        short = seconds < _SLOWEST_SHOWN_AS_FRACTION_S
        parts.append(f"1/{1 / seconds:.0f} s" if short else f"{seconds:g} s")
    for tag, form in (
        (ExifTags.Base.FNumber, "f/{:g}"),
        (ExifTags.Base.ISOSpeedRatings, "ISO {:g}"),
        (ExifTags.Base.FocalLength, "{:g} mm"),
    ):
        number = _number(details.get(tag))
        if number is not None:
            parts.append(form.format(number))
    return " · ".join(parts)


def _position(main: _Tags, _: _Tags) -> str:
    return "the file contains a GPS position" if ExifTags.Base.GPSInfo in main else ""


_READERS: tuple[tuple[str, Callable[[_Tags, _Tags], str]], ...] = (
    ("Camera", _camera),
    ("Lens", _lens),
    ("Taken", _taken),
    ("Exposure", _exposure),
    ("Place", _position),
)


def _text(value: object) -> str:
    if isinstance(value, bytes):
        value = value[:_TEXT_MAX].decode("utf-8", "replace")
    if not isinstance(value, str):
        return ""
    text = value[:_TEXT_MAX].partition("\0")[0].strip()
    return one_line(text)[:_TEXT_MAX]


def _number(value: object) -> float | None:
    """Return a finite number above 0 (the first of several), or None."""
    if isinstance(value, tuple) and value:
        value = value[0]
    if isinstance(value, str | bytes) or value is None:
        return None
    number = float(value)  # type: ignore[arg-type]
    return number if math.isfinite(number) and 0 < number < 1e9 else None
