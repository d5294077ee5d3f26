"""Images of every sort become plain upright RGB, and the stored file is what one gets back."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms, ImageOps

from tests.unit.media.made import corners
from vlmtui.media.describe import attachment_line
from vlmtui.media.images import open_prepared, stage_image
from vlmtui.media.stage import stage

_ORIENTATION = 0x0112
_UNDO = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}
"""The transposition of a camera that the viewer's EXIF transposition undoes."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def _difference(one: Image.Image, other: Image.Image) -> float:
    assert one.size == other.size
    return float(np.abs(np.asarray(one, np.int16) - np.asarray(other, np.int16)).mean())


@pytest.mark.parametrize(
    "name", ["a.jpg", "a.png", "a.webp", "a.bmp", "a.tif", "a.gif", "a.avif", "a.jp2", "a.ppm", "a.ico"]
)
def test_formats(name: str, tmp_path: Path, store: Path) -> None:
    path = tmp_path / name
    corners().save(path)
    attachment = stage(path, store)
    assert attachment.modality == "image"
    assert attachment.name == name
    assert attachment.size_bytes == path.stat().st_size
    image = open_prepared(attachment.path)
    assert (image.mode, image.size) == ("RGB", (attachment.width, attachment.height))
    if name != "a.ico":
        assert _difference(image, corners()) < 8


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.webp", "a.tif", "a.avif"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_upright_by_exif_exactly_once(name: str, orientation: int, tmp_path: Path, store: Path) -> None:
    path, upright = tmp_path / name, corners()
    undo = _UNDO[orientation]
    exif = Image.Exif()
    exif[_ORIENTATION] = orientation
    (upright.transpose(undo) if undo is not None else upright).save(path, exif=exif, quality=95)
    attachment = stage(path, store)
    assert (attachment.width, attachment.height) == upright.size
    assert _difference(open_prepared(attachment.path), upright) < 8
    with Image.open(attachment.path) as stored:
        again = ImageOps.exif_transpose(stored)
        assert _difference(again.convert("RGB"), upright) < 8, "whoever honours EXIF must not turn it again"
    assert ("turned upright by EXIF" in attachment.notes) == (orientation != 1)


@pytest.mark.parametrize("name", ["a.jpg", "a.png"])
def test_plain_files_keep_their_bytes(name: str, tmp_path: Path, store: Path) -> None:
    path = tmp_path / name
    corners().save(path)
    attachment = stage_image(path, store)
    assert Path(attachment.path).read_bytes() == path.read_bytes()
    assert attachment.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert attachment.notes == ()


def test_transparency_becomes_white_with_a_note(tmp_path: Path, store: Path) -> None:
    image = Image.new("RGBA", (4, 1), (255, 0, 0, 255))
    image.putpixel((1, 0), (255, 0, 0, 0))
    image.putpixel((2, 0), (0, 0, 0, 128))
    image.save(tmp_path / "alpha.png")
    attachment = stage_image(tmp_path / "alpha.png", store)
    pixels = open_prepared(attachment.path)
    assert [pixels.getpixel((x, 0)) for x in range(3)] == [(255, 0, 0), (255, 255, 255), (127, 127, 127)]
    assert attachment.notes == ("transparency over white",)


def test_an_opaque_alpha_channel_is_no_news(tmp_path: Path, store: Path) -> None:
    corners().convert("RGBA").save(tmp_path / "opaque.png")
    attachment = stage_image(tmp_path / "opaque.png", store)
    assert attachment.notes == ()
    assert _difference(open_prepared(attachment.path), corners()) == 0


def test_transparent_palette_and_grey_alpha(tmp_path: Path, store: Path) -> None:
    palette = Image.new("P", (2, 1), 0)
    palette.putpalette([0, 0, 0, 0, 0, 255])
    palette.putpixel((1, 0), 1)
    palette.save(tmp_path / "p.png", transparency=0)
    Image.new("LA", (2, 1), (0, 0)).save(tmp_path / "la.png")
    assert open_prepared(stage_image(tmp_path / "p.png", store).path).getpixel((0, 0)) == (255, 255, 255)
    assert open_prepared(stage_image(tmp_path / "p.png", store).path).getpixel((1, 0)) == (0, 0, 255)
    assert open_prepared(stage_image(tmp_path / "la.png", store).path).getpixel((0, 0)) == (255, 255, 255)


def test_rgb_with_a_transparent_colour(tmp_path: Path, store: Path) -> None:
    Image.new("RGB", (2, 2), "black").save(tmp_path / "key.png", transparency=(0, 0, 0))
    attachment = stage_image(tmp_path / "key.png", store)
    assert open_prepared(attachment.path).getpixel((0, 0)) == (255, 255, 255)
    assert "transparency over white" in attachment.notes


def test_sixteen_bits_are_scaled_not_clipped(tmp_path: Path, store: Path) -> None:
    ramp = np.linspace(0, 65535, 256).astype(np.uint16).reshape(1, 256)
    Image.fromarray(ramp).save(tmp_path / "deep.png")
    Image.fromarray(ramp).save(tmp_path / "deep.tif")
    for name in ("deep.png", "deep.tif"):
        attachment = stage_image(tmp_path / name, store)
        pixels = np.asarray(open_prepared(attachment.path))[0, :, 0].astype(int)
        assert np.abs(pixels - np.arange(256)).max() <= 1
        assert attachment.notes == ("16 bits to 8",)


def test_float_tiff(tmp_path: Path, store: Path) -> None:
    Image.fromarray(np.array([[0.0, 0.5, 1.0]], np.float32)).save(tmp_path / "float.tif")
    pixels = np.asarray(open_prepared(stage_image(tmp_path / "float.tif", store).path))[0, :, 0]
    assert [int(value) for value in pixels] == [0, 128, 255]


def test_cmyk_jpeg(tmp_path: Path, store: Path) -> None:
    corners().convert("CMYK").save(tmp_path / "print.jpg", quality=95)
    attachment = stage_image(tmp_path / "print.jpg", store)
    assert _difference(open_prepared(attachment.path), corners()) < 8
    assert attachment.notes == ("CMYK to RGB",)


def _swapped_profile() -> bytes:
    """An RGB profile that is not sRGB: linear light."""
    lab = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    at = lab.index(b"curv") if b"curv" in lab else lab.index(b"para")
    return lab[:at] + b"para\0\0\0\0\0\0\0\0\0\1\0\0" + lab[at + 16 :]


def test_colour_profile_to_srgb(tmp_path: Path, store: Path) -> None:
    profile = _swapped_profile().replace("sRGB".encode("utf-16-be"), "Line".encode("utf-16-be"))
    Image.new("RGB", (8, 8), (128, 128, 128)).save(tmp_path / "wide.png", icc_profile=profile)
    attachment = stage_image(tmp_path / "wide.png", store)
    assert attachment.notes[0].startswith("colour profile Line")
    pixel = open_prepared(attachment.path).getpixel((0, 0))
    assert isinstance(pixel, tuple) and pixel[0] > 170, "linear 50 % is a light grey in sRGB"
    with Image.open(attachment.path) as stored:
        assert "icc_profile" not in stored.info


def test_srgb_profile_keeps_the_bytes_and_a_broken_one_is_left_out(tmp_path: Path, store: Path) -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    corners().save(tmp_path / "srgb.jpg", icc_profile=profile)
    corners().save(tmp_path / "broken.png", icc_profile=b"no profile at all")
    kept = stage_image(tmp_path / "srgb.jpg", store)
    assert (kept.size_bytes, kept.notes) == (Path(kept.path).stat().st_size, ())
    attachment = stage_image(tmp_path / "broken.png", store)
    assert attachment.notes == ("unreadable colour profile ignored",)
    assert _difference(open_prepared(attachment.path), corners()) == 0


def test_store_is_private_and_written_once(tmp_path: Path, store: Path) -> None:
    corners().save(tmp_path / "a.png")
    (tmp_path / "copy.png").write_bytes((tmp_path / "a.png").read_bytes())
    first = stage_image(tmp_path / "a.png", store)
    stored = Path(first.path)
    assert stored == store / first.sha256[:2] / f"{first.sha256}.png"
    assert stored.stat().st_mode & 0o777 == 0o600
    assert store.stat().st_mode & 0o777 == stored.parent.stat().st_mode & 0o777 == 0o700
    before = stored.stat()
    second = stage_image(tmp_path / "copy.png", store)
    after = stored.stat()
    assert (second.path, second.name) == (first.path, "copy.png")
    assert before.st_ino == after.st_ino
    assert [path for path in store.rglob("*") if path.is_file()] == [stored]


@pytest.mark.parametrize("is_short", [True, False])
def test_a_damaged_stored_file_is_written_again(is_short: bool, tmp_path: Path, store: Path) -> None:
    corners().save(tmp_path / "a.png")
    stored = Path(stage_image(tmp_path / "a.png", store).path)
    stored.write_bytes(b"" if is_short else bytes(stored.stat().st_size))
    stage_image(tmp_path / "a.png", store)
    assert stored.read_bytes() == (tmp_path / "a.png").read_bytes()


def test_the_original_may_go(tmp_path: Path, store: Path) -> None:
    corners().save(tmp_path / "a.bmp")
    attachment = stage_image(tmp_path / "a.bmp", store)
    (tmp_path / "a.bmp").unlink()
    assert _difference(open_prepared(attachment.path), corners()) == 0


@pytest.mark.parametrize("size", [(1, 1), (10_000, 1), (1, 10_000)])
def test_odd_sizes(size: tuple[int, int], tmp_path: Path, store: Path) -> None:
    Image.new("RGB", size, "red").save(tmp_path / "odd.png")
    attachment = stage_image(tmp_path / "odd.png", store)
    assert (attachment.width, attachment.height) == size == open_prepared(attachment.path).size


def test_interlaced_png_and_progressive_jpeg(tmp_path: Path, store: Path) -> None:
    corners().save(tmp_path / "p.jpg", progressive=True, quality=95)
    assert _difference(open_prepared(stage_image(tmp_path / "p.jpg", store).path), corners()) < 8


def test_a_jpeg_of_two_pictures_is_one_image(tmp_path: Path, store: Path) -> None:
    corners().save(tmp_path / "phone.jpg", "MPO", save_all=True, append_images=[corners((32, 24))])
    attachment = stage(tmp_path / "phone.jpg", store)
    assert (attachment.modality, attachment.width, attachment.notes) == ("image", 64, ())
    assert _difference(open_prepared(attachment.path), corners()) < 8


def test_a_motion_photo_is_its_picture(tmp_path: Path, store: Path) -> None:
    corners().save(tmp_path / "motion.jpg", quality=95)
    with (tmp_path / "motion.jpg").open("ab") as file:
        file.write(b"\0\0\0\x18ftypmp42" + b"\xff\xda\0" * 100)
    corners().save(tmp_path / "zipped.png")
    with (tmp_path / "zipped.png").open("ab") as file:
        file.write(bytes(100_000))
    for name in ("motion.jpg", "zipped.png"):
        assert _difference(open_prepared(stage(tmp_path / name, store).path), corners()) < 8


def test_description(tmp_path: Path, store: Path) -> None:
    corners((1280, 720)).save(tmp_path / "cat.png")
    attachment = stage_image(tmp_path / "cat.png", store)
    assert attachment_line(attachment).startswith("cat.png · 1280 × 720 · ")
