"""HEIC pictures, the pages of a TIFF, and animations as still pictures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pillow_heif
import pytest
from PIL import Image

from tests.unit.media.made import corners, gif, numbers, video
from vlmtui.errors import VlmtuiError
from vlmtui.media.images import open_prepared
from vlmtui.media.stage import stage


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def _heic(path: Path, image: Image.Image, orientation: int = 1) -> Path:
    exif = Image.Exif()
    exif[0x0112] = orientation
    pillow_heif.from_pillow(image).save(path, quality=95, exif=exif.tobytes())
    return path


def _far_from_corners(path: str) -> float:
    image = open_prepared(path)
    assert image.size == corners().size
    return float(np.abs(np.asarray(image, np.int16) - np.asarray(corners(), np.int16)).mean())


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_heic_upright(orientation: int, tmp_path: Path, store: Path) -> None:
    undo = {1: None, 3: Image.Transpose.ROTATE_180, 6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270}
    transpose = undo[orientation]
    turned = corners().transpose(transpose) if transpose is not None else corners()
    attachment = stage(_heic(tmp_path / "photo.heic", turned, orientation), store)
    assert (attachment.modality, attachment.format, attachment.pages) == ("image", "HEIF", 1)
    assert _far_from_corners(attachment.path) < 12
    assert attachment.path.endswith(".png")
    assert ("turned upright by EXIF" in attachment.notes) == (orientation != 1)


def test_heic_with_transparency_and_one_of_two_pictures(tmp_path: Path, store: Path) -> None:
    attachment = stage(_heic(tmp_path / "clear.heic", Image.new("RGBA", (64, 64), (255, 0, 0, 0))), store)
    assert attachment.notes == ("transparency over white",)
    assert open_prepared(attachment.path).getpixel((9, 9)) == (255, 255, 255)
    both = pillow_heif.from_pillow(Image.new("RGB", (64, 64), "red"))
    both.add_from_pillow(corners())
    both.save(tmp_path / "burst.heic", primary_index=1, quality=95)
    attachment = stage(tmp_path / "burst.heic", store)
    assert attachment.pages == 1
    assert _far_from_corners(attachment.path) < 12


def test_heic_cut_in_half(tmp_path: Path, store: Path) -> None:
    path = _heic(tmp_path / "half.heic", Image.effect_noise((200, 150), 80).convert("RGB"))
    for part in (0.02, 0.5, 0.9):
        (tmp_path / "cut.heic").write_bytes(path.read_bytes()[: int(path.stat().st_size * part)])
        with pytest.raises(VlmtuiError, match=r"cut\.heic") as caught:
            stage(tmp_path / "cut.heic", store)
        assert caught.value.hint
    assert not list(store.rglob("*.png"))


def test_the_heif_plug_in_is_not_loaded_before_a_heic_file_is_met(tmp_path: Path) -> None:
    corners().save(tmp_path / "a.png")
    code = (
        "import sys; from pathlib import Path; from vlmtui.media.stage import stage\n"
        f"stage(Path({str(tmp_path / 'a.png')!r}), Path({str(tmp_path / 'store')!r}))\n"
        "print('pillow_heif' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"


def test_pages_of_a_tiff(tmp_path: Path, store: Path) -> None:
    path = tmp_path / "scan.tif"
    corners().save(path, save_all=True, append_images=[Image.new("RGB", (9, 9), "red"), corners((32, 24))])
    first, second, third = (stage(path, store, page=page) for page in (1, 2, 3))
    assert [item.name for item in (first, second, third)] == ["scan.tif", "scan.tif (page 2)", "scan.tif (page 3)"]
    assert [(item.page, item.pages, item.width) for item in (first, second, third)] == [
        (1, 3, 64),
        (2, 3, 9),
        (3, 3, 32),
    ]
    assert second.notes == ("page 2 of 3",)
    assert open_prepared(second.path).getpixel((0, 0)) == (255, 0, 0)
    assert second.source == first.source == str(path)
    for page in (0, -1, 4):
        with pytest.raises(VlmtuiError, match=rf"scan\.tif has no page {page}: there are 3"):
            stage(path, store, page=page)


def test_a_file_without_pages_has_no_page(tmp_path: Path, store: Path) -> None:
    corners().save(tmp_path / "a.jpg")
    with pytest.raises(VlmtuiError, match=r"a\.jpg has no page 2: there is 1"):
        stage(tmp_path / "a.jpg", store, page=2)
    for path in (gif(tmp_path / "a.gif"), video(tmp_path / "a.mp4")):
        with pytest.raises(VlmtuiError, match=r"has no page 2: it is .*, attached as a video"):
            stage(path, store, page=2)


@pytest.mark.parametrize("name", ["a.gif", "a.webp", "a.png", "a.avif"])
def test_still(name: str, tmp_path: Path, store: Path) -> None:
    path = gif(tmp_path / name, frames=5)
    assert stage(path, store).modality == "video"
    attachment = stage(path, store, still=True)
    assert (attachment.modality, attachment.name, attachment.page, attachment.pages) == ("image", name, 1, 5)
    assert attachment.notes[0] == "frame 1 of 5, as a still image"
    assert attachment.sampling is None
    assert numbers(np.asarray(open_prepared(attachment.path))[None]) == (0,)
    later = stage(path, store, still=True, page=4)
    assert (later.name, numbers(np.asarray(open_prepared(later.path))[None])) == (f"{name} (frame 4)", (3,))
    with pytest.raises(VlmtuiError, match="has no frame 6: there are 5"):
        stage(path, store, still=True, page=6)


def test_still_changes_nothing_for_other_files(tmp_path: Path, store: Path) -> None:
    corners().save(tmp_path / "a.png")
    assert stage(tmp_path / "a.png", store, still=True) == stage(tmp_path / "a.png", store)
    video(tmp_path / "a.mp4")
    assert stage(tmp_path / "a.mp4", store, still=True).modality == "video"


def test_source_is_where_the_file_was(tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    corners().save(tmp_path / "a.png")
    (tmp_path / "link.png").symlink_to("a.png")
    assert stage(Path("link.png"), store).source == str(tmp_path / "link.png")
    video(tmp_path / "a.mp4")
    assert stage(Path("a.mp4"), store).source == str(tmp_path / "a.mp4")
    (tmp_path / "a.png").rename(b"caf\xe9.png".decode("utf-8", "surrogateescape"))
    assert stage(Path(b"caf\xe9.png".decode("utf-8", "surrogateescape")), store).source.endswith("caf\ufffd.png")
