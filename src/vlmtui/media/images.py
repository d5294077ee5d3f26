"""Stages images: opens, checks, rotates and converts them to RGB, and stores them by content hash ("staging").

The preview and the model both use the stored image, through `open_prepared`.
"""

from __future__ import annotations

import io
import logging
import re
import struct
import warnings
import zlib
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

from PIL import Image, ImageOps
from PIL.ExifTags import Base

from vlmtui.domain.conversation import Attachment
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.media.content_store import require_intact, store_bytes
from vlmtui.media.notes import CROPPED, damage, differs, hole, wide_colours, wide_heif_colours
from vlmtui.media.pages import page_name, page_note, turn_to
from vlmtui.media.sniff import HEAD_BYTES, FileType, Kind, sniff
from vlmtui.reading import read_whole, shown_name, source_text
from vlmtui.text import human_bytes, one_line


class PlainImage(NamedTuple):
    """An image as 8-bit sRGB, with notes on the conversions for display."""

    pixels: Image.Image
    """Mode RGB."""
    notes: tuple[str, ...]


def to_rgb(image: Image.Image) -> PlainImage:
    """Convert an image to upright RGB: more than 8 bits per sample to 8, colour profile to sRGB, transparency over
    white."""
    image.load()
    profile = image.info.get("icc_profile")
    image, notes = _to_eight_bits(image)
    if orientation_of(image) != 1:
        image = ImageOps.exif_transpose(image)
    if image.mode in ("P", "PA"):
        image = image.convert("RGBA" if "transparency" in image.info or image.mode == "PA" else "RGB")
    elif image.mode in ("LA", "La", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
    alpha = image.getchannel("A") if image.mode == "RGBA" else None
    image, profile_notes = _to_srgb(image.convert("RGB") if alpha else image, profile)
    notes += profile_notes
    if image.mode == "CMYK":
        notes.append("CMYK to RGB")
    if image.mode != "RGB":  # `convert` would copy even an RGB image, and copying blocks all other threads
        image = image.convert("RGB")
    if alpha is not None and alpha.getextrema() != (255, 255):
        notes.append("transparency over white")
        # `Image.composite` would need one more copy.
        white = Image.new("RGB", image.size, "white")
        white.paste(image, mask=alpha)
        image = white
    return PlainImage(image, tuple(notes))


_DEEP = frozenset({"I;16", "I;16L", "I;16B", "I;16N", "I", "F"})
"""Pillow's modes of more than 8 bits per sample."""


def _to_eight_bits(image: Image.Image) -> tuple[Image.Image, list[str]]:
    """Scale images with more than 8 bits per sample to 8; Pillow's own `convert` would clip them to white. Samples that
    are not finite numbers become black or, as infinity, white."""
    tags = getattr(image, "tag_v2", {})
    colours = tags.get(Base.ColorMap, ())
    if image.mode == "P" and colours and max(colours) < 256:  # some writers fill only the low byte, and viewers know
        shades = len(colours) // 3
        image.putpalette(bytes(value for number in range(shades) for value in colours[number::shades]))
    if image.mode not in _DEEP:
        return image, []
    import numpy as np

    samples = np.asarray(image)
    bits = tags.get(Base.BitsPerSample, (16,))[0]
    if image.mode == "I" and bits == 32 and tags.get(Base.SampleFormat, (1,))[0] == 1:
        samples = samples.view(np.uint32)  # Pillow reads them as signed
    finite = np.isfinite(samples)
    not_finite = samples.size - int(np.count_nonzero(finite))
    known = samples if not not_finite else samples[finite]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    tops = (1.0, 255.0) if image.mode == "F" else (2.0 ** min(bits, 16) - 1,)
    usual = next((top for top in tops if 0.0 <= low <= high <= top), None)
    notes = ["16 bits to 8" if usual == 65535.0 else "deep samples to 8 bits"]
    if usual is None:
        notes = [f"deep samples to 8 bits: {low:g} is black, {high:g} is white"]
    if not_finite:
        notes.append(damage(f"{not_finite:,} of {samples.size:,} samples are not finite numbers"))
    low, high = (low, high) if usual is None else (0.0, usual)
    scaled = np.nan_to_num(samples.astype(np.float32), copy=False, nan=low, posinf=high, neginf=low)
    scaled -= low
    scaled *= 255.0 / (high - low or 1.0)
    scaled += 0.5
    made = Image.fromarray(scaled.astype(np.uint8))
    if tags.get(Base.PhotometricInterpretation) == 0:  # white is zero, which Pillow knows only for 8 bits
        made = ImageOps.invert(made)
    made.info = image.info
    return made, notes


def _is_recoloured(image: Image.Image) -> bool:
    """Return True if `to_rgb` would apply the image's colour profile, judged by the profile's name."""
    probe = Image.new(image.mode, (1, 1))
    return _to_srgb(probe, image.info.get("icc_profile"))[0] is not probe


def _to_srgb(image: Image.Image, profile: object) -> tuple[Image.Image, list[str]]:
    """Apply the embedded colour profile unless it is sRGB; an unusable profile is ignored."""
    if not isinstance(profile, bytes) or not profile:
        return image, []
    from PIL import ImageCms

    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        description = ImageCms.getProfileDescription(source).strip()
        if "srgb" in description.lower():
            return image, []
        converted = ImageCms.profileToProfile(image, source, ImageCms.createProfile("sRGB"), outputMode="RGB")
    except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
        return image, ["unreadable colour profile ignored"]
    assert converted is not None
    return converted, [f"colour profile {one_line(description[:60]) or 'without a name'} to sRGB"]


PIXELS_MAX = 200_000_000
"""Maximum pixels of an image (600 MB as RGB), checked in the header before decoding."""
_PIXELS_OF_SMALL_FILES = 50_000_000
_PIXELS_PER_BYTE = 200
"""Larger files may have this many pixels per byte, up to PIXELS_MAX. Photographs have fewer than 20; more than this is
a nearly blank page or a decompression bomb."""
RECODED_PIXELS_MAX = 50_000_000
"""Maximum pixels of an image that must be re-encoded. A larger one is shrunk by a whole number: writing, hashing and
reading 200 million pixels as PNG takes half a minute, and no model's processor accepts a tenth of that."""
BYTES_MAX = 256_000_000

_EXIF = b"Exif\0\0"
_EXIF_MAX = 100
"""Most Exif segments of a JPEG: Pillow joins them one by one, which takes minutes for 100,000."""

FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP", "DIB", "TIFF", "AVIF", "HEIF", "JPEG2000", "ICO", "PPM")
"""Pillow's decoders that may open untrusted files. Excludes PostScript and others that run programs."""

DECODER_ERRORS = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    struct.error,
    ArithmeticError,
    LookupError,
    TypeError,
    AttributeError,
    zlib.error,
    Image.DecompressionBombError,
    MemoryError,
    RuntimeError,
)

_AVERAGED = frozenset({"L", "LA", "RGB", "RGBA", "CMYK"})
_SAME_WHEN_RGB = frozenset({("JPEG", "RGB"), ("PNG", "RGB"), ("JPEG", "L"), ("PNG", "L")})

# Untrusted text must not reach the terminal through Pillow's warnings and log. The pixel limit is checked here.
warnings.filterwarnings("ignore", module=r"PIL\.")
logging.getLogger("PIL").addHandler(logging.NullHandler())
Image.MAX_IMAGE_PIXELS = PIXELS_MAX


class _Prepared(NamedTuple):
    pixels: Image.Image
    format: str
    notes: tuple[str, ...]
    pages: int
    keep_bytes: bool
    """The file already contains exactly these pixels."""
    scaled_from: tuple[int, int] | None
    """Upright width and height of the original, if the image was shrunk."""


def stage_image(path: Path, store: Path, *, page: int = 1) -> Attachment:
    """Check an image file, convert it to upright RGB and store it. Blocking: call it in a thread.

    A JPEG or PNG that already is upright sRGB is stored unchanged; anything else as PNG. `page` selects a TIFF page or
    an animation frame, from 1. Raises VlmtuiError (BAD_INPUT) naming the file and the reason.
    """
    data = read_whole(path, bytes_max=BYTES_MAX)
    prepared = _prepare(data, path, page)
    if prepared.keep_bytes:
        suffix = ".jpg" if prepared.format == "JPEG" else ".png"
        stored = store_bytes(data, store, suffix, name=shown_name(path))
    else:
        stored = store_bytes(as_png(prepared.pixels), store, ".png", name=shown_name(path))
    return Attachment(
        modality="image",
        name=page_name(path, prepared.format, page),
        path=str(stored.path),
        sha256=stored.sha256,
        width=prepared.pixels.width,
        height=prepared.pixels.height,
        size_bytes=len(data),
        format=prepared.format,
        notes=prepared.notes,
        source=source_text(path),
        page=page,
        pages=prepared.pages,
        scaled_from=prepared.scaled_from,
    )


def open_prepared(path: str | Path) -> Image.Image:
    """Return the pixels of a stored image, mode RGB, upright, exactly as they are shown and sent to the model.

    Raises VlmtuiError (BAD_INPUT) if the stored file is missing, damaged or changed.
    """
    path = Path(path)
    require_intact(path)
    try:
        with Image.open(path, formats=("JPEG", "PNG")) as image:
            return image.convert("RGB")
    except DECODER_ERRORS as error:
        raise stored_copy_damaged(path, error) from error


def stored_copy_damaged(path: Path, error: BaseException) -> VlmtuiError:
    message = f"The stored image {shown_name(path)} is missing or damaged."
    return bad_input(message, detail=f"{path}: {error}", hint="Attach the image again.")


def open_image(data: bytes, path: Path) -> Image.Image:
    """Open the image in `data`: reads the header and checks the size without decoding. `path`: the file that errors
    name."""
    found = sniff(data[:HEAD_BYTES])
    if found.kind not in (Kind.IMAGE, Kind.ANIMATION):
        raise bad_input(f"{shown_name(path)} is {found.title}, not an image.")
    if found is FileType.HEIC:
        import pillow_heif

        pillow_heif.register_heif_opener()
    if found is FileType.TIFF:
        _silence_libtiff()
    if found is FileType.JPEG and data.count(_EXIF) > _EXIF_MAX:
        raise bad_input(
            f"{shown_name(path)} has more than {_EXIF_MAX} Exif segments.", hint="Save it again as JPEG or PNG."
        )
    try:
        image = Image.open(io.BytesIO(data), formats=[name for name in FORMATS if name in _known_formats()])
    except Image.DecompressionBombError as error:
        raise bad_input(
            f"{shown_name(path)} has too many pixels (the limit is {PIXELS_MAX:,}).",
            detail=str(error),
            hint="Scale it down first.",
        ) from error
    except DECODER_ERRORS as error:
        raise _damaged(path, found.title, error) from error
    _require_fitting(image, path, len(data))
    if found is FileType.TIFF:
        try:
            _require_whole_tiff(image, data, path)
        except DECODER_ERRORS as error:
            raise _damaged(path, found.title, error) from error
    return image


def _require_fitting(image: Image.Image, path: Path, size_bytes: int) -> None:
    """Raise VlmtuiError if the current page is too large; each page has its own size."""
    most = max(_PIXELS_OF_SMALL_FILES, _PIXELS_PER_BYTE * size_bytes)
    if most < image.width * image.height <= PIXELS_MAX:
        raise bad_input(
            f"{shown_name(path)} is too large for its {human_bytes(size_bytes)}: {image.width} × {image.height} pixels"
            f" (the limit is {most:,} pixels).",
            hint="Scale it down first.",
        )
    if image.width * image.height > PIXELS_MAX:
        raise bad_input(
            f"{shown_name(path)} is too large: {image.width} × {image.height} pixels (the limit is {PIXELS_MAX:,}).",
            hint="Scale it down first.",
        )


def is_animation(data: bytes, path: Path) -> bool:
    with open_image(data, path) as image:
        try:
            return bool(getattr(image, "is_animated", False))
        except DECODER_ERRORS:
            return False


def _prepare(data: bytes, path: Path, page: int) -> _Prepared:
    with open_image(data, path) as image:
        kind = "JPEG" if image.format == "MPO" else str(image.format)
        what = f"a {kind} image"
        _require_whole(data, kind, path)
        try:
            pages = turn_to(image, page, path, len(data))
            _require_fitting(image, path, len(data))
            if kind == "PNG":  # its metadata may follow the pixels: reading it loads them
                image.load()
            # Read before loading: Pillow's TIFF decoder rotates the image itself and then drops the tag.
            orientation = orientation_of(image)
            whole = image.size
            is_same = _is_plain(image, kind, pages) and orientation == 1 and not _is_recoloured(image)
            factor = 1 if is_same else _factor(whole)
            if factor > 1:  # a JPEG is decoded at a half, a quarter or an eighth in a fraction of the time
                image.draft(None, (-(-whole[0] // factor), -(-whole[1] // factor)))
            told = untaken(image, data)
            image.load()
            plain = to_rgb(_smaller(image) if factor > 1 else image)
            pixels = _smaller(plain.pixels) if factor > 1 else plain.pixels
        except DECODER_ERRORS as error:
            raise _damaged(path, what, error) from error
    original = whole if (whole[0] > whole[1]) == (pixels.width > pixels.height) else whole[::-1]
    scaled_from = original if pixels.width * pixels.height < whole[0] * whole[1] else None
    notes = (
        *((page_note(kind, page, pages),) if pages > 1 else ()),
        *((TURNED,) if orientation != 1 else ()),
        *plain.notes,
        *told,
        *((smaller_note(original),) if scaled_from else ()),
    )
    return _Prepared(pixels, kind, notes, pages, is_same, scaled_from)


def smaller_note(original: tuple[int, int]) -> str:
    return f"made smaller from {original[0]} × {original[1]}"


def _is_plain(image: Image.Image, kind: str, pages: int) -> bool:
    is_one = pages == 1 and image.format != "MPO" and "transparency" not in image.info
    return is_one and (kind, image.mode) in _SAME_WHEN_RGB


def _factor(size: tuple[int, int]) -> int:
    """Return the smallest whole number by which to divide both sides to get at most RECODED_PIXELS_MAX pixels."""
    return next(n for n in count(1) if -(-size[0] // n) * -(-size[1] // n) <= RECODED_PIXELS_MAX)


def _smaller(image: Image.Image) -> Image.Image:
    """Return the image shrunk to at most RECODED_PIXELS_MAX pixels. Modes that Pillow can't average stay unchanged."""
    factor = _factor(image.size)
    return image.reduce(factor) if factor > 1 and image.mode in _AVERAGED else image


_RAW_STARTS = (b"CR", b"IIII", b"MMMM")
"""What follows the TIFF header in raw files of Canon and Phase One."""
_GAIN_MAPS = (b"hdrgm:Version", b"urn:iso:std:iso:ts:21496", b"aux:hdrgainmap")
_HEAD_OF_GAIN_MAPS = 300_000
_SRGB_GAMMA = 0.45455
_SRGB_PLACES = (0.3127, 0.329, 0.64, 0.33, 0.3, 0.6, 0.15, 0.06)
"""x and y of white, red, green and blue."""
_ICC_METHODS = (2, 3)
"""How a JPEG 2000 file (ISO 15444-1) names its colours: by an ICC profile, which Pillow does not read."""
TURNED = "turned upright by EXIF"


def untaken(image: Image.Image, data: bytes) -> tuple[str, ...]:
    """Return notes on what the open image's file holds and Pillow does not read, or reads as something else."""
    info, kind = image.info, str(image.format)
    notes = _untaken_colours(image, data)
    if _is_reduced(image):
        notes += (differs("a reduced copy of another image"),)
    across, down = map(float, info.get("dpi") or info.get("resolution") or (1, 1))
    if kind == "TIFF" and across > 0 and down > 0 and not 0.9 < across / down < 1.1:
        notes += (differs(f"not stretched, though {across:g} × {down:g} pixels make a square"),)
    if kind == "AVIF" and b"clap" in data[: data.find(b"mdat")]:
        notes += (CROPPED,)
    if kind in ("JPEG", "MPO"):
        start = _first_scan(data)
        if not _may_code_zeros(data[:start]):
            notes += hole(data, start, data.find(b"\xff\xd9", start), least=256)
    elif kind in ("AVIF", "HEIF") and (start := data.find(b"mdat")) >= 4:
        size = int.from_bytes(data[start - 4 : start], "big")
        notes += hole(data, start, min(len(data), start - 4 + size) if size > 1 else None)
    elif kind in ("WEBP", "JPEG2000", "GIF"):
        notes += hole(data)
    return notes


def _untaken_colours(image: Image.Image, data: bytes) -> tuple[str, ...]:
    info, kind = image.info, str(image.format)
    if kind in ("JPEG", "MPO", "HEIF", "AVIF") and any(name in data[:_HEAD_OF_GAIN_MAPS] for name in _GAIN_MAPS):
        return (differs("without its HDR gain map"),)
    if "icc_profile" in info:
        return ()
    if kind in ("HEIF", "AVIF"):
        return wide_heif_colours(data)
    if kind == "JPEG2000":
        at = data.find(b"colr", 0, data.find(b"jp2c"))
        return (differs("its colour profile not applied"),) if at > 0 and data[at + 4] in _ICC_METHODS else ()
    if kind != "PNG":
        return ()
    if (at := data.find(b"cICP", 0, data.find(b"IDAT"))) > 0:
        return wide_colours(data[at + 4], data[at + 5])
    notes: tuple[str, ...] = ()
    gamma, places = info.get("gamma", _SRGB_GAMMA), info.get("chromaticity", _SRGB_PLACES)
    if "srgb" not in info and abs(gamma - _SRGB_GAMMA) > 0.03:
        notes += (differs(f"its gamma of {gamma:g} not applied"),)
    if "srgb" not in info and any(abs(mine - usual) > 0.02 for mine, usual in zip(places, _SRGB_PLACES, strict=False)):
        notes += (differs("its primary colours (chromaticities) taken as sRGB's"),)
    return notes


def _require_whole_tiff(image: Image.Image, data: bytes, path: Path) -> None:
    """Raise VlmtuiError for a TIFF file of which Pillow reads only a thumbnail, or wrong pixels."""
    tags = getattr(image, "tag_v2", {})
    is_raw = Base.DNGVersion in tags or data[8:10] == b"CR" or data[8:12] in _RAW_STARTS
    if is_raw or (_is_reduced(image) and Base.SubIFDs in tags and Base.Make in tags):
        raise camera_raw(path)
    if (
        tags.get(Base.PlanarConfiguration) == 2
        and tags.get(Base.SamplesPerPixel, 1) > 1
        and max(tags.get(Base.BitsPerSample, (8,))) > 8
    ):
        raise bad_input(
            f"Can't read {shown_name(path)}: it is a TIFF with more than 8 bits per sample in separate planes.",
            hint="Convert it to PNG.",
        )


def _is_reduced(image: Image.Image) -> bool:
    """Return True if the page of an open TIFF is marked as a reduced copy of another picture in the file."""
    return bool(getattr(image, "tag_v2", {}).get(Base.NewSubfileType, 0) & 1)


def camera_raw(path: Path) -> VlmtuiError:
    """Return the error for a camera's raw file, of which Pillow reads the thumbnail."""
    return bad_input(
        f"{shown_name(path)} is a camera's raw file, which must be developed first.",
        hint="Export it as JPEG, PNG or TIFF.",
    )


def _may_code_zeros(head: bytes) -> bool:
    """Return True if zero bits mean "nothing here" in each Huffman table of a JPEG: then a flat area is a run of
    zeros."""
    for segment in re.finditer(rb"\xff\xc4(..)", head, re.DOTALL):
        at, stop = segment.end(), segment.start(1) + int.from_bytes(segment[1], "big")
        while at + 17 < stop:
            if head[at + 17] != 0:
                return False
            at += 17 + sum(head[at + 1 : at + 17])
    return True


def orientation_of(image: Image.Image) -> int:
    """Return the EXIF orientation, 1 to 8; 1 if missing or unreadable."""
    try:
        found = image.getexif().get(Base.Orientation, 1)
        if image.format == "HEIF":  # its plug-in rotates the image itself and reports the original tag
            found = image.info.get("original_orientation") or found
    except DECODER_ERRORS:
        return 1
    return found if isinstance(found, int) and 1 <= found <= 8 else 1


def _require_whole(data: bytes, kind: str, path: Path) -> None:
    """Reject truncated files, even if the decoder would silently fill the rest with grey."""
    # Data after the end marker (a motion photo's video, an archive) is ignored.
    if kind == "JPEG":
        whole = data.find(b"\xff\xd9", _first_scan(data)) >= 0
    elif kind == "PNG":
        whole = b"IEND\xaeB`\x82" in data
    else:
        return
    if not whole:
        raise bad_input(
            f"{shown_name(path)} is cut off: the end of the {kind} is missing (the file has {human_bytes(len(data))}).",
            hint="Copy or download it again; if it is still being written, wait.",
        )


def _first_scan(data: bytes) -> int:
    """Return the offset of a JPEG's pixel data. Thumbnails in earlier segments have their own end marker."""
    at = 2
    while data[at : at + 1] == b"\xff" and data[at + 1 : at + 2] != b"\xda":
        fill = data[at + 1 : at + 2] == b"\xff"
        at += 1 if fill else 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return at


def _damaged(path: Path, what: str, error: BaseException) -> VlmtuiError:
    text = str(error)
    state = "is cut off or damaged" if "truncated" in text.lower() else "does not decode"
    return bad_input(
        f"Can't read {shown_name(path)}: it begins like {what}, but {state}.",
        detail=f"{type(error).__name__}: {text}",
        hint="Copy or download it again, or convert it to PNG.",
    )


def _known_formats() -> frozenset[str]:
    Image.init()
    return frozenset(Image.OPEN)


def _silence_libtiff() -> None:
    """Stop libtiff from printing warnings to stderr, in the middle of the screen; Pillow has no setting for it.

    Uses libtiff's symbols from Pillow's extension module; does nothing if they are not there.
    """
    import ctypes

    from PIL import _imaging

    with suppress(OSError, AttributeError, TypeError):
        library = ctypes.CDLL(_imaging.__file__)
        library.TIFFSetErrorHandler(None)
        library.TIFFSetWarningHandler(None)


def as_png(image: Image.Image) -> bytes:
    """Encode an RGB image as PNG without metadata."""
    # Level 1 takes a quarter of the default's time and is only a few per cent larger.
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1, icc_profile=None, exif=None, pnginfo=None)
    return buffer.getvalue()
