"""Converts images of any mode, depth and colour profile to 8-bit sRGB."""

from __future__ import annotations

import io
from typing import NamedTuple

from PIL import Image

from vlmtui.text import one_line


class PlainImage(NamedTuple):
    """An image as 8-bit sRGB, with notes on the conversions for display."""

    pixels: Image.Image
    """Mode RGB."""
    notes: tuple[str, ...]
    is_recoloured: bool
    """Whether a colour profile was applied."""


def to_rgb(image: Image.Image) -> PlainImage:
    """Convert a loaded image to RGB: deep samples to 8 bits, colour profile to sRGB, transparency over white.

    The image is not rotated.
    """
    profile = image.info.get("icc_profile")
    image, notes = _to_eight_bits(image)
    if image.mode in ("P", "PA"):
        image = image.convert("RGBA" if "transparency" in image.info or image.mode == "PA" else "RGB")
    elif image.mode in ("LA", "La", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
    alpha = image.getchannel("A") if image.mode == "RGBA" else None
    unprofiled = image.convert("RGB") if alpha else image
    image, profile_notes = _to_srgb(unprofiled, profile)
    notes += profile_notes
    is_recoloured = image is not unprofiled
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
    return PlainImage(image, tuple(notes), is_recoloured)


def _to_eight_bits(image: Image.Image) -> tuple[Image.Image, list[str]]:
    """Scale modes with more than 8 bits per sample; Pillow's own `convert` would clip them to white."""
    if image.mode not in ("I;16", "I;16L", "I;16B", "I;16N", "I", "F"):
        return image, []
    if image.mode == "F":
        low, high = _extrema(image)
        usual = next((top for top in (1.0, 255.0) if 0.0 <= low <= high <= top), None)
    else:
        image = image.convert("I")
        low, high = _extrema(image)
        usual = 65535.0 if 0.0 <= low <= high <= 65535.0 else None
    low, high = (low, high) if usual is None else (0.0, usual)
    note = "16 bits to 8" if (low, high) == (0.0, 65535.0) else "deep samples to 8 bits"
    scale = 255.0 / (high - low or 1.0)
    return image.convert("F").point(lambda value: value * scale + (0.5 - low * scale)).convert("L"), [note]


def _extrema(image: Image.Image) -> tuple[float, float]:
    low, high = image.getextrema()
    assert isinstance(low, int | float) and isinstance(high, int | float)
    return float(low), float(high)


def is_recoloured(image: Image.Image) -> bool:
    """Whether `to_rgb` would apply the image's colour profile, as far as its name says."""
    profile = image.info.get("icc_profile")
    if not isinstance(profile, bytes) or not profile:
        return False
    from PIL import ImageCms

    try:
        description = ImageCms.getProfileDescription(ImageCms.ImageCmsProfile(io.BytesIO(profile)))
    except (ImageCms.PyCMSError, OSError, ValueError, TypeError):
        return False
    return "srgb" not in description.lower()


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
