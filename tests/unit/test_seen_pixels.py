"""Images made from a processor's tensors, and their place in the sent image."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw

from vlmtui.domain.generation import View
from vlmtui.paths import private_dir
from vlmtui.session.opened_view import crop_region, difference_between, find_regions
from vlmtui.worker.backends.vllm.requests import normalisation_by_model
from vlmtui.worker.hf.prompt_inputs import item_tensors
from vlmtui.worker.hf.seen_pixels import (
    IMAGES_MAX,
    Normalisation,
    images_in,
    normalisation_of,
    shares,
    write_seen,
)

HALF = Normalisation((0.5, 0.5, 0.5), (0.5, 0.5, 0.5), patch=14, merge=2, temporal=2)


def drawing(width: int, height: int) -> Image.Image:
    image = Image.new("RGB", (width, height), "white")
    brush = ImageDraw.Draw(image)
    brush.ellipse((0, 0, width // 2, height // 2), fill="red")
    brush.rectangle((width * 2 // 3, height // 2, width - 1, height - 1), fill="blue")
    brush.line((0, height, width, 0), fill="green", width=7)
    return image


def values(image: Image.Image) -> np.ndarray[Any, np.dtype[np.float32]]:
    return ((np.asarray(image, np.float32).transpose(2, 0, 1) / 255 - 0.5) / 0.5).astype(np.float32)


def shown(data: dict[str, Any], how: Normalisation = HALF) -> tuple[str, list[Image.Image]]:
    layout, _, found = images_in(data, how)
    return layout, [Image.fromarray(how.pixels(one)) for one in found]


def patches_by_loops(image: Image.Image) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Qwen2-VL's order, written out: blocks of 2 × 2 patches; in each its channels, both frames, rows, columns."""
    held, rows = values(image), []
    for top in range(0, image.height, 28):
        for left in range(0, image.width, 28):
            for y in (top, top + 14):
                for x in (left, left + 14):
                    patch = held[:, y : y + 14, x : x + 14]
                    rows.append(np.stack([patch, patch], axis=1).reshape(-1))
    return np.stack(rows)


@pytest.mark.parametrize("nested", [lambda x: x, lambda x: x[None], lambda x: [x], lambda x: [[x]]])
def test_whole_images_are_restored_exactly(nested: Any) -> None:
    image = drawing(61, 43)
    layout, (found,) = shown({"pixel_values": nested(values(image))})
    assert layout == "picture"
    assert found.tobytes() == image.tobytes()


def test_merged_patches_are_restored() -> None:
    image = drawing(84, 56)
    layout, found = shown({"pixel_values": patches_by_loops(image), "image_grid_thw": np.array([1, 4, 6])})
    assert layout == "patches"
    assert [one.tobytes() for one in found] == [image.tobytes()]


class Cutter:
    """Cuts patches as an image processor does."""

    image_mean = image_std = (0.5, 0.5, 0.5)
    patch_size, merge_size, temporal_patch_size = 14, 2, 1

    def __init__(self, *, by_rows: bool) -> None:
        self.by_rows = by_rows

    def __call__(self, images: list[Image.Image], *, do_resize: bool, return_tensors: str) -> dict[str, Any]:
        held = values(images[0])
        rows, columns = held.shape[1] // 28, held.shape[2] // 28
        blocks = held.reshape(3, rows, 2, 14, columns, 2, 14)
        order = (1, 2, 4, 5, 0, 3, 6) if self.by_rows else (1, 4, 2, 5, 0, 3, 6)
        return {"pixel_values": blocks.transpose(order).reshape(rows * columns * 4, -1)}


@pytest.mark.parametrize("by_rows", [True, False])
def test_the_order_of_patches_is_found_with_a_test_image(by_rows: bool) -> None:
    cutter, image = Cutter(by_rows=by_rows), drawing(84, 56)
    how = normalisation_of(cutter, "image")
    assert how.row_by_row is by_rows
    data = {**cutter([image], do_resize=False, return_tensors="np"), "image_grid_thw": np.array([1, 4, 6])}
    layout, found = shown(data, how)
    assert (layout, [one.tobytes() for one in found]) == ("patches", [image.tobytes()])


@pytest.mark.parametrize(
    ("name", "of_frames"),
    [("pixel_position_ids", "pixel_position_ids_videos"), ("image_position_ids", "video_position_ids")],
)
def test_placed_patches_are_restored_without_padding(name: str, of_frames: str) -> None:
    image = drawing(56, 42)
    flat = values(image).reshape(3, 3, 14, 4, 14).transpose(1, 3, 2, 4, 0).reshape(12, -1)
    order = np.random.default_rng(0).permutation(12)
    cells = np.array([(at % 4, at // 4) for at in range(12)])
    padded = np.concatenate([flat[order], np.zeros((5, flat.shape[1]), np.float32)])
    places = np.concatenate([cells[order], np.full((5, 2), -1)])
    layout, found = shown({"pixel_values": padded, name: places})
    assert (layout, [one.tobytes() for one in found]) == ("patches", [image.tobytes()])
    frames = {"pixel_values_videos": np.stack([padded] * 2), of_frames: np.stack([places] * 2)}
    assert [one.tobytes() for one in shown(frames)[1]] == [image.tobytes()] * 2
    assert shown({"pixel_values": padded[:, :-1], name: places})[1] == []


def test_a_chunk_of_frames_comes_back_frame_by_frame() -> None:
    image = drawing(56, 42)
    flat = values(image).reshape(3, 3, 14, 4, 14).transpose(1, 3, 0, 2, 4).reshape(12, 3, 14, 14)
    layout, found = shown({"pixel_values": np.concatenate([flat] * 2), "grid_thws": np.array([[2, 3, 4]])})
    assert (layout, [one.tobytes() for one in found]) == ("patches", [image.tobytes()] * 2)


def test_patches_of_a_size_in_pixels_come_back() -> None:
    image = drawing(56, 42)
    flat = values(image).reshape(3, 3, 14, 4, 14).transpose(1, 3, 0, 2, 4).reshape(12, -1)
    layout, found = shown({"pixel_values": flat, "image_sizes": np.array([42, 56])})
    assert (layout, [one.tobytes() for one in found]) == ("patches", [image.tobytes()])


@pytest.mark.parametrize("last", [True, False])
def test_patches_in_row_order_are_restored(last: bool) -> None:
    image = drawing(56, 42)
    held = values(image).reshape(3, 3, 14, 4, 14)
    order = (1, 3, 2, 4, 0) if last else (1, 3, 0, 2, 4)
    flat = held.transpose(order).reshape(12, -1)
    padded = np.concatenate([flat, np.zeros((5, flat.shape[1]), np.float32)])
    grid = {"spatial_shapes" if last else "image_grid_hws": np.array([[3, 4]])}
    layout, found = shown({"pixel_values": padded, **grid})
    assert layout == "patches"
    assert [one.tobytes() for one in found] == [image.tobytes()]


def test_strips_of_patches_are_restored() -> None:
    """MiniCPM-V's `reshape_by_patch`; a tile may be padded at the end."""
    images = drawing(56, 42), drawing(42, 28)
    strips = []
    for image in images:
        rows, columns = image.height // 14, image.width // 14
        held = values(image).reshape(3, rows, 14, columns, 14).transpose(0, 2, 1, 3, 4)
        strips.append(np.pad(held.reshape(3, 14, -1), ((0, 0), (0, 0), (0, 14 * (12 - rows * columns)))))
    layout, found = shown({"pixel_values": strips, "tgt_sizes": np.array([[3, 4], [2, 3]])})
    assert (layout, [one.tobytes() for one in found]) == ("tiles", [image.tobytes() for image in images])
    assert shown({"pixel_values": strips, "tgt_sizes": np.array([[3, 4]])})[1] == []
    assert shown({"pixel_values": strips[:1], "tgt_sizes": np.array([[3, 5]])})[1] == []


@pytest.mark.parametrize("beside", ["image_input_idx", "image_token_pooling"])
def test_square_tiles_of_patches_are_restored(beside: str) -> None:
    images = drawing(56, 56), drawing(56, 56)
    tiles = [values(one).reshape(3, 4, 14, 4, 14).transpose(1, 3, 2, 4, 0).reshape(16, -1) for one in images]
    layout, found = shown({"images": np.stack(tiles), beside: np.zeros((2, 4))})
    assert (layout, [one.tobytes() for one in found]) == ("tiles", [image.tobytes() for image in images])
    assert shown({"images": np.stack(tiles)[:, :-1], beside: np.zeros((2, 4))})[1] == []


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"pixel_values": np.zeros((7, 1176), np.float32)},
        {"pixel_values": np.zeros((7, 1176), np.float32), "image_grid_thw": np.array([1, 3, 5])},
        {"pixel_values": np.zeros((4, 9), np.float32), "spatial_shapes": np.array([[2, 2]])},
        {"pixel_values": np.zeros((3, 588), np.float32), "spatial_shapes": np.array([[90, 90]])},
    ],
)
def test_an_unknown_layout_has_no_images(data: dict[str, Any]) -> None:
    assert shown(data)[1] == []


def test_nan_values_are_black() -> None:
    held = values(drawing(20, 20))
    held[:, 0, 0] = np.nan
    held[:, 0, 1] = 1e30
    _, (found,) = shown({"pixel_values": held})
    assert found.getpixel((0, 0)) == (0, 0, 0)
    assert found.getpixel((1, 0)) == (255, 255, 255)


def test_a_normalisation_in_levels_is_read_from_the_processors_module(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("a_processor_with_levels")
    module._PIXEL_MEAN, module._PIXEL_STD = [51.0] * 3, [25.5] * 3  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    its_class = type("Processor", (), {"__module__": module.__name__})
    inner = SimpleNamespace(patch_size=16, merge_size=2, temporal_patch_size=2)
    its_class.mimo_processor = inner  # type: ignore[attr-defined]
    assert normalisation_of(its_class(), "image") == Normalisation((0.2,) * 3, (0.1,) * 3, 16, 2, 2)


def test_a_processors_normalisation_is_read() -> None:
    image_processor = SimpleNamespace(
        image_mean=[0.4, 0.4, 0.4], image_std=[0.2, 0.2, 0.2], patch_size=16, merge_size=2
    )
    how = normalisation_of(SimpleNamespace(image_processor=image_processor), "image")
    assert how == Normalisation((0.4, 0.4, 0.4), (0.2, 0.2, 0.2), 16, 2, 1)
    assert normalisation_of(SimpleNamespace(), "image").mean is None
    plain = SimpleNamespace(image_processor=SimpleNamespace(do_normalize=False))
    assert normalisation_of(plain, "image").std == (1.0,)


def test_files_are_private_numbered_and_limited(tmp_path: Path) -> None:
    folder = private_dir(tmp_path / "seen")
    many = np.zeros((IMAGES_MAX + 6, 3, 16, 16), np.uint8)
    view = View(folder=str(folder))
    medium = write_seen(
        {"pixel_values": many}, HALF, modality="image", index=0, ranges=[(5, 700)], view=view, request_id="a"
    )
    assert medium.layout == "tiles"
    assert (len(medium.pictures), medium.left_out) == (IMAGES_MAX, 6)
    assert (medium.pictures[1].offset, medium.pictures[1].length) == (15, 10)
    with Image.open(medium.pictures[0].path) as first:
        assert first.getpixel((0, 0)) == (0, 0, 0)  # bytes are pixels as they are: nothing is normalised yet
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}


@pytest.mark.parametrize(
    ("modules", "white"),
    [
        ([([1 / 127.5] * 3, [-1.0] * 3)], 1.0),
        ([([1.0], [0.0])], 255.0),
        ([], 1.0),  # unknown: as the processor would
    ],
)
def test_levels_are_compared_as_the_models_own_code_normalises_them(
    tmp_path: Path, modules: list[tuple[list[float], list[float]]], white: float
) -> None:
    levels = {"pixel_values": np.full((3, 16, 16), 255, np.uint8)}
    view = View(folder=str(private_dir(tmp_path / "seen")), values=True)
    by_model = normalisation_by_model(modules)
    medium = write_seen(levels, HALF, by_model, modality="image", index=0, ranges=[], view=view, request_id="a")
    assert np.load(medium.values[0]) == pytest.approx(white)


@pytest.mark.parametrize("rows", [lambda tiles: tiles, lambda tiles: tiles[None]])
def test_the_tiles_of_several_images_are_divided_by_their_tokens(rows: Any) -> None:
    tiles = np.arange(7, dtype=np.float32).repeat(3 * 8 * 8).reshape(7, 3, 8, 8)
    outputs = {"pixel_values": rows(tiles)}
    parts = [item_tensors(outputs, "image", at, 2, (20, 8))["pixel_values"] for at in range(2)]
    assert [part[:, 0, 0, 0].tolist() for part in parts] == [[0, 1, 2, 3, 4], [5, 6]]
    assert item_tensors(outputs, "image", 0, 2, (20, 9)) == {}, "not in whole tiles"


def test_tokens_are_divided_only_if_the_division_is_certain() -> None:
    assert shares([(0, 4), (6, 4)], 2) == [(0, 4), (6, 4)]
    assert shares([(3, 8)], 2) == [(3, 4), (7, 4)]
    assert shares([(3, 9)], 2) == []
    assert shares([(0, 4), (6, 4)], 3) == []


@pytest.mark.parametrize("whole_first", [True, False, None])
def test_tiles_are_found_in_the_image(whole_first: bool | None) -> None:
    image = drawing(600, 400)
    regions = [(x / 3, y / 2, (x + 1) / 3, (y + 1) / 2) for y in range(2) for x in range(3)]
    if whole_first is not None:
        regions.insert(0 if whole_first else len(regions), (0.0, 0.0, 1.0, 1.0))
    found = find_regions(image, [crop_region(image, region, (224, 224)) for region in regions])
    assert [one.region if one else None for one in found] == [pytest.approx(region) for region in regions]


@pytest.mark.parametrize("region", [(0, 0, 1, 1), (0, -0.25, 1, 1.25), (1 / 6, 0, 5 / 6, 1)])
def test_a_padded_or_cropped_whole_is_found_and_compared(region: tuple[float, float, float, float]) -> None:
    image = drawing(600, 400)
    seen = crop_region(image, region, (224, 224))
    (found,) = find_regions(image, [seen])
    assert found is not None
    assert found.region == pytest.approx(region)
    assert difference_between(image, seen, found.region).mean < 1.0


def test_another_image_is_not_found_as_a_part() -> None:
    assert find_regions(drawing(300, 300), [Image.new("RGB", (200, 200), "black")]) == [None]
