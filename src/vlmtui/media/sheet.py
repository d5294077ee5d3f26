"""The contact sheet of a video: the frames that the model is given, small, each with its time.

Made from what `sample_frames` returns and from nothing else, so that what is shown is what is sent.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from PIL import Image, ImageDraw, ImageFont

from vlmtui.domain.attachment import Attachment, VideoSampling
from vlmtui.media.files import shown, store_bytes
from vlmtui.media.images import as_png
from vlmtui.media.video import Frames, sample_frames

_GAP_PX = 4
_TEXT_PX = 12
_LINE_PX = 16
_GROUND = (24, 24, 24)
_TEXT = (220, 220, 220)


class Cell(msgspec.Struct, frozen=True, eq=False):
    """One sampled frame, small."""

    image: Image.Image
    """RGB, no larger than a cell, nor than the frame."""
    time_s: float
    """When the frame appears, seconds from the video's first frame."""
    index: int
    """As in `Frames.indices`."""


class Sheet(msgspec.Struct, frozen=True, eq=False):
    """The sampled frames in order, to be shown in rows of `columns`; `cell_px` is (width, height) of a cell."""

    cells: tuple[Cell, ...]
    columns: int
    cell_px: tuple[int, int]


def contact_sheet(path: str | Path, sampling: VideoSampling | None, *, columns: int, cell_px: tuple[int, int]) -> Sheet:
    """Sample the video and make its sheet. Blocking. Errors as for `sample_frames`."""
    return sheet_of(sample_frames(path, sampling), columns=columns, cell_px=cell_px)


def sheet_of(frames: Frames, *, columns: int, cell_px: tuple[int, int]) -> Sheet:
    """The sheet of frames that have been sampled already."""
    cells: list[Cell] = []
    for pixels, time, index in zip(frames.frames, frames.times_s, frames.indices, strict=True):
        image = Image.fromarray(pixels)
        image.thumbnail(cell_px, Image.Resampling.BICUBIC)
        cells.append(Cell(image, time, index))
    return Sheet(tuple(cells), max(1, columns), cell_px)


def draw(sheet: Sheet) -> Image.Image:
    """The whole sheet as one RGB picture, the time under each frame."""
    columns = min(sheet.columns, len(sheet.cells))
    rows = -(-len(sheet.cells) // columns)
    width, height = sheet.cell_px[0] + _GAP_PX, sheet.cell_px[1] + _LINE_PX + _GAP_PX
    picture = Image.new("RGB", (columns * width + _GAP_PX, rows * height + _GAP_PX), _GROUND)
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(_TEXT_PX)
    for number, cell in enumerate(sheet.cells):
        row, column = divmod(number, columns)
        left, top = _GAP_PX + column * width, _GAP_PX + row * height
        inset = (sheet.cell_px[0] - cell.image.width) // 2, (sheet.cell_px[1] - cell.image.height) // 2
        picture.paste(cell.image, (left + inset[0], top + inset[1]))
        middle = left + sheet.cell_px[0] // 2, top + sheet.cell_px[1] + _LINE_PX // 2
        pen.text(middle, time_text(cell.time_s), fill=_TEXT, font=font, anchor="mm")
    return picture


def time_text(seconds: float) -> str:
    """When a frame appears: `1.25 s`."""
    return f"{seconds:.2f} s"


def frames_as_images(attachment: Attachment, store: Path, *, most: int) -> tuple[Attachment, ...]:
    """The sampled frames of a staged video, each kept in `store` as a PNG, for models that take images only.

    Where the sampling makes more than `most` (at least 1), it is `most` frames uniform in time instead. Pixels are
    those of `sample_frames`. Blocking. Raises VlmtuiError (BAD_INPUT) when the stored video cannot be read.
    """
    sampling = attachment.sampling or VideoSampling()
    fewer = msgspec.structs.replace(sampling, num_frames=most, fps=None)
    if sampling.fps is None and sampling.num_frames > most:
        sampling = fewer
    frames = sample_frames(attachment.path, sampling)
    if len(frames.frames) > most:
        frames = sample_frames(attachment.path, fewer)
    return tuple(_as_image(attachment, frames, number, store) for number in range(len(frames.frames)))


def _as_image(video: Attachment, frames: Frames, number: int, store: Path) -> Attachment:
    pixels = frames.frames[number]
    data = as_png(Image.fromarray(pixels))
    name = f"{video.name} @ {time_text(frames.times_s[number])}"
    stored = store_bytes(data, store, ".png", name=shown(Path(video.name)))
    return Attachment(
        modality="image",
        name=name,
        path=str(stored.path),
        sha256=stored.sha256,
        width=pixels.shape[1],
        height=pixels.shape[0],
        size_bytes=len(data),
        format="PNG",
        notes=(f"frame {number + 1} of the {len(frames.frames)} sampled from a video", *video.notes),
        source=video.source,
    )
