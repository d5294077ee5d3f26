"""Thumbnails of attachments as rows of the screen, and images with the boxes and points of an answer on them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from vlmtui.domain.conversation import Attachment
from vlmtui.errors import VlmtuiError
from vlmtui.inspection.grounding import PlacedMark
from vlmtui.session.answer_places import Badge, badges_of, draw_marks
from vlmtui.text import one_line
from vlmtui.ui.terminal.graphics import Drawing, Graphics
from vlmtui.ui.terminal.painter import CELLS_MAX

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

    from vlmtui.media.thumbnails import Viewport

_CRISP = 3.0
"""Above this magnification, pixels are shown as squares instead of being smoothed."""
_GRID = "#808080"
_GLYPHS = {"image": "▣", "video": "▶", "audio": "♪"}
_PIXELS = (320, 320)
_WAVEFORM = (320, 80)
_KEPT_MAX = 60
"""Most thumbnails that are kept as they were drawn: more than fit on a screen."""
DRAWER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="thumbnail")
"""Draws thumbnails. One thread, since each further one would delay the event loop, and a frame shows few new ones."""


class MarkedDrawing(Drawing, frozen=True):
    """A part of an image with its marks, drawn by `draw_marked`."""

    box: tuple[float, float, float, float]
    """Left, top, right and bottom of the part, in pixels of the whole image."""


class Marks(NamedTuple):
    """What is drawn over an image: marks (boxes, points) with numbers and colours, frames around parts, and a grid."""

    placed: Sequence[PlacedMark] = ()
    badges: Sequence[Badge] | None = None
    """A number and a colour for each mark; None: numbers from 1."""
    chosen: int | None = None
    """The index of the mark to draw last and with a thicker line."""
    framed: tuple[float, float, float, float] | None = None
    """The part of the image to draw a frame around: left, top, right and bottom in its pixels."""
    grid: tuple[int, int] | None = None
    """Rows and columns of the lines over the image."""


def draw_marked(image: Image, marks: Marks, graphics: Graphics, room: tuple[int, int], view: Viewport) -> MarkedDrawing:
    """Draw the visible part of an RGB image with its marks, in at most `room` (columns, rows). A small image is
    enlarged. Blocking.

    The image is scaled first, so that lines and numbers have the right size on the screen.
    """
    from PIL.Image import Resampling

    room = min(room[0], CELLS_MAX), min(room[1], CELLS_MAX)
    within = room[0] * graphics.cell[0], room[1] * graphics.cell[1]
    scale, box = view.scale(image.size, within), view.box(image.size, within)
    left, top, wide, high = box[0], box[1], box[2] - box[0], box[3] - box[1]
    columns, rows = (
        max(1, min(most, round(side * scale / cell)))
        for most, side, cell in zip(room, (wide, high), graphics.cell, strict=True)
    )
    target = columns * graphics.pixels[0], rows * graphics.pixels[1]
    across, down = target[0] / wide, target[1] / high
    how = Resampling.NEAREST if min(across, down) > _CRISP else Resampling.BICUBIC
    scaled = image.resize(target, how, box=box, reducing_gap=2.0 if across < 1 else None)

    def moved(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
        return tuple(((x - left) * across, (y - top) * down) for x, y in points)

    all_badges = badges_of([one.mark for one in marks.placed]) if marks.badges is None else marks.badges
    order = sorted(range(len(marks.placed)), key=lambda at: at == marks.chosen)
    seen = [at for at in order if _overlap(marks.placed[at].xyxy, box)]
    placed = [msgspec.structs.replace(marks.placed[at], points=moved(marks.placed[at].points)) for at in seen]
    badges = [all_badges[at] for at in seen]
    chosen = len(seen) - 1 if seen and seen[-1] == marks.chosen else None
    drawn = draw_marks(scaled, placed, badges=badges, chosen=chosen, numbers=not graphics.draws_symbols)
    if marks.grid is not None:
        _draw_grid(drawn, marks.grid, moved([(0, 0), image.size]))
    if marks.framed is not None:
        (x, y), (right, bottom) = moved([marks.framed[:2], marks.framed[2:]])
        _pen(drawn).rectangle((x, y, max(x, right - 1), max(y, bottom - 1)), outline="white", width=_width(drawn))
    strips = graphics.draw(drawn, (columns, rows)).strips
    for one, (number, colour) in zip(placed, badges, strict=True) if strips else ():
        # Digits are written over the image: a cell has too few pixels to draw them.
        text, (x, y) = str(number), one.xyxy[:2]
        column, row = int(x / graphics.pixels[0]), int(y / graphics.pixels[1])
        row = max(0, min(row, rows - 1))
        strips[row] = _written_over(strips[row], max(0, min(column, columns - len(text))), text, colour)
    return MarkedDrawing(drawn, (columns, rows), strips, box)


def _overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] <= other[2] and one[2] >= other[0] and one[1] <= other[3] and one[3] >= other[1]


def _pen(image: Image) -> ImageDraw:
    from PIL import ImageDraw

    return ImageDraw.Draw(image)


def _width(image: Image) -> int:
    """Return the width of a frame's line, in pixels."""
    return max(1, max(image.size) // 200)


def _draw_grid(image: Image, grid: tuple[int, int], corners: tuple[tuple[float, float], ...]) -> None:
    """Draw the inner lines of a grid. `corners`: the grid's left top and right bottom, in pixels of `image`."""
    (left, top), (right, bottom) = corners
    rows, columns = grid
    pen = _pen(image)
    for at in range(1, columns):
        x = left + (right - left) * at / columns
        pen.line((x, top, x, bottom), fill=_GRID)
    for at in range(1, rows):
        y = top + (bottom - top) * at / rows
        pen.line((left, y, right, y), fill=_GRID)


def mark_at(marks: Sequence[PlacedMark], x: float, y: float, *, reach: float) -> int | None:
    """Return the index of the mark at a place of the image: the smallest box that contains the place, or else the
    nearest mark within `reach`; None if there is none. `x`, `y` and `reach` are in pixels of the image."""
    found = []
    for at, one in enumerate(marks):
        left, top, right, bottom = one.xyxy
        away = max(left - x, x - right, 0.0) + max(top - y, y - bottom, 0.0)
        area = (right - left) * (bottom - top)
        if away <= reach:
            found.append((away if area else 0.0, area, at))  # a point within reach counts as a box around the place
    return min(found)[2] if found else None


def _written_over(strip: Strip, column: int, text: str, colour: str) -> Strip:
    end = min(column + len(text), strip.cell_length)
    middle = Strip([Segment(text[: end - column], Style(color="#ffffff", bgcolor=colour, bold=True))])
    return Strip.join([strip.crop(0, column), middle, strip.crop(end)])


def thumbnail_size(attachment: Attachment) -> tuple[int, int]:
    """Return width and height of an attachment's thumbnail in pixels."""
    if attachment.modality == "audio":
        return _WAVEFORM
    scale = min(_PIXELS[0] / max(1, attachment.width), _PIXELS[1] / max(1, attachment.height), 1.0)
    return max(1, round(attachment.width * scale)), max(1, round(attachment.height * scale))


def name_line(attachment: Attachment, number: int | None, width: int = 0) -> str:
    """Return `▣ 1 cat.jpg`, or `▣ 1 p. 2/3 paper.pdf`, with control characters visible. `number`: its number in the
    prompt; None: it has none. `width`: cut a longer name in the middle, to this many cells; 0: don't."""
    glyph, name = _GLYPHS[attachment.modality], one_line(attachment.name)
    parts = [glyph] if number is None else [glyph, str(number)]
    if attachment.pages > 1:
        from vlmtui.media.pages import MOVING  # Pillow takes a while to import

        part = "frame" if attachment.format in MOVING else "page"
        name = name.removesuffix(f" ({part} {attachment.page})")
        parts.append(f"{'fr.' if part == 'frame' else 'p.'} {attachment.page}/{attachment.pages}")
    before = " ".join(parts) + " "
    room = width - cell_len(before)
    if width and 1 < room < cell_len(name):
        name = f"{set_cell_size(name, room // 2)}…{set_cell_size(name[::-1], (room - 1) // 2)[::-1]}"
    return before + name


def draw_thumbnail(attachment: Attachment, cache: Path, graphics: Graphics, room: tuple[int, int]) -> Drawing:
    """Draw a thumbnail into at most `room` columns and rows. Blocking. Raises VlmtuiError."""
    from vlmtui.media.thumbnails import thumbnail

    image = thumbnail(attachment, cache, _PIXELS)
    return graphics.draw(image, graphics.fit(image.width, image.height, columns=room[0], rows=room[1]))


class Wanted(NamedTuple):
    """A thumbnail to draw."""

    attachment: Attachment
    room: tuple[int, int]
    """The columns and rows that are free for it."""


class _Picture(NamedTuple):
    strips: list[Strip]
    number: int | None
    """Its number in the painter, if the terminal draws it."""
    reason: str = ""
    """Why it could not be drawn; empty if it could."""


class Thumbnails:
    """Draws thumbnails when their rows are asked for, that is when they come into view, and keeps the latest ones."""

    def __init__(self, view: Widget, cache: Path, drawn: Callable[[Attachment], None]) -> None:
        """`drawn`: called when a thumbnail was drawn, or when that failed."""
        self._view = view
        self._cache = cache
        self._drawn = drawn
        self._kept: OrderedDict[tuple[object, ...], _Picture] = OrderedDict()
        self._being_drawn: set[tuple[object, ...]] = set()

    def room(self, attachment: Attachment, columns: int, rows: int) -> tuple[int, int]:
        """Return the columns and rows to keep free for a thumbnail; (0, 0) if images are off."""
        graphics = Graphics.of(self._view.app)
        if rows <= 0 or graphics.mode == "off":
            return 0, 0
        return graphics.fit(*thumbnail_size(attachment), columns=columns, rows=rows)

    def row(self, wanted: Wanted, number: int) -> Strip | None:
        """Return a row of a thumbnail. If the thumbnail is not drawn yet, start drawing it and return None."""
        key = _key(wanted)
        picture = self._kept.get(key)
        if picture is not None:
            self._kept.move_to_end(key)
            return picture.strips[number] if number < len(picture.strips) else None
        if key not in self._being_drawn:
            self._being_drawn.add(key)
            self._view.run_worker(self._draw(key, wanted), group="thumbnails")
        return None

    def reason(self, wanted: Wanted) -> str:
        """Return why a thumbnail could not be drawn; empty if it could, or if that is not known yet."""
        picture = self._kept.get(_key(wanted))
        return "" if picture is None else picture.reason

    def leave(self) -> None:
        """Forget all thumbnails. Call it when they are no longer on the screen."""
        while self._kept:
            self._forget(next(iter(self._kept)))

    async def _draw(self, key: tuple[object, ...], wanted: Wanted) -> None:
        graphics = Graphics.of(self._view.app)
        try:
            drawing = await asyncio.get_running_loop().run_in_executor(
                DRAWER, draw_thumbnail, wanted.attachment, self._cache, graphics, wanted.room
            )
            picture = _Picture(*graphics.place(drawing))
        except VlmtuiError as error:
            picture = _Picture([], None, error.message)
        finally:
            self._being_drawn.discard(key)
        self._kept[key] = picture
        while len(self._kept) > _KEPT_MAX:
            self._forget(next(iter(self._kept)))
        self._drawn(wanted.attachment)

    def _forget(self, key: tuple[object, ...]) -> None:
        Graphics.of(self._view.app).leave(self._kept.pop(key).number)


def _key(wanted: Wanted) -> tuple[object, ...]:
    return wanted.attachment.sha256, wanted.attachment.modality, wanted.room
