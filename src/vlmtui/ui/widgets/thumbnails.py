"""Thumbnails of attachments as rows of the screen, and images with the boxes and points of an answer on them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
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
from vlmtui.ui.terminal.painter import placeholder_strip

if TYPE_CHECKING:
    from PIL.Image import Image

_ENLARGED = 1000
_GLYPHS = {"image": "▣", "video": "▶", "audio": "♪"}
_PIXELS = (320, 320)
_WAVEFORM = (320, 80)
_KEPT_MAX = 60
"""Most thumbnails that are kept as they were drawn: more than fit on a screen."""
DRAWER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="thumbnail")
"""Draws thumbnails. One thread, since each further one would delay the event loop, and a frame shows few new ones."""


class CellNumber(NamedTuple):
    """A number that is written at a column and row over an image drawn with characters."""

    column: int
    row: int
    text: str
    colour: str


class NumberedPicture(Widget):
    """An image drawn with characters, with numbers written over it: a cell has too few pixels to draw digits."""

    ALLOW_SELECT = False

    def __init__(self, strips: Sequence[Strip], numbers: Sequence[CellNumber]) -> None:
        super().__init__()
        self._strips = [
            _written_over(strip, [one for one in numbers if one.row == y]) for y, strip in enumerate(strips)
        ]

    def render_line(self, y: int) -> Strip:
        return self._strips[y] if y < len(self._strips) else Strip.blank(self.size.width)


class MarkedDrawing(msgspec.Struct, frozen=True):
    """An image with its marks, drawn by `draw_marked`. If the terminal draws images, show `image`; otherwise show
    `strips` with `numbers` over them."""

    image: Image
    size: tuple[int, int]
    strips: list[Strip]
    numbers: list[CellNumber]

    def widget(self, graphics: Graphics) -> Widget | None:
        """Return a widget that shows the drawing; None if images are off."""
        columns, rows = self.size
        if not self.strips:
            return graphics.widget_for(self.image, columns=columns, rows=rows)
        picture = NumberedPicture(self.strips, self.numbers)
        picture.styles.width, picture.styles.height = self.size
        return picture


def draw_marked(
    image: Image,
    marks: Sequence[PlacedMark],
    chosen: int | None,
    graphics: Graphics,
    room: tuple[int, int],
    badges: Sequence[Badge] | None = None,
) -> MarkedDrawing:
    """Draw an RGB image with its marks (boxes, points), in at most `room` (columns, rows). Blocking.

    `chosen`: the index of the mark to emphasize. `badges`: a number and a colour for each mark; None: numbers from 1.
    The image is scaled first, so that lines and numbers have the right size on the screen.
    """
    # A small image is enlarged to fill the room.
    size = graphics.fit(image.width * _ENLARGED, image.height * _ENLARGED, columns=room[0], rows=room[1])
    cell = graphics.pixels
    target = max(1, size[0] * cell[0]), max(1, size[1] * cell[1])
    across, down = target[0] / image.width, target[1] / image.height
    scaled = [
        msgspec.structs.replace(one, points=tuple((x * across, y * down) for x, y in one.points)) for one in marks
    ]
    badges = badges_of([one.mark for one in marks]) if badges is None else badges
    has_pixels = not graphics.draws_symbols
    drawn = draw_marks(image.resize(target), scaled, badges=badges, chosen=chosen, numbers=has_pixels)
    if not graphics.draws_symbols:
        return MarkedDrawing(drawn, size, [], [])
    numbers = []
    for one, (number, colour) in zip(scaled, badges, strict=True):
        left, top = one.xyxy[:2]
        text = str(number)
        column, row = min(int(left / cell[0]), size[0] - len(text)), min(int(top / cell[1]), size[1] - 1)
        numbers.append(CellNumber(max(0, column), row, text, colour))
    if chosen is not None and chosen < len(numbers):
        numbers.append(numbers[chosen])  # on top
    return MarkedDrawing(drawn, size, graphics.strips(drawn, size), numbers)


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


def _written_over(strip: Strip, numbers: Sequence[CellNumber]) -> Strip:
    for one in numbers:
        end = min(one.column + len(one.text), strip.cell_length)
        style = Style(color="#ffffff", bgcolor=one.colour, bold=True)
        middle = Strip([Segment(one.text[: end - one.column], style)])
        strip = Strip.join([strip.crop(0, one.column), middle, strip.crop(end)])
    return strip


def thumbnail_size(attachment: Attachment) -> tuple[int, int]:
    """Return width and height of an attachment's thumbnail in pixels."""
    if attachment.modality == "audio":
        return _WAVEFORM
    scale = min(_PIXELS[0] / max(1, attachment.width), _PIXELS[1] / max(1, attachment.height), 1.0)
    return max(1, round(attachment.width * scale)), max(1, round(attachment.height * scale))


def name_line(attachment: Attachment, number: int | None) -> str:
    """Return `▣ 1 cat.jpg`, with control characters visible. `number`: its number in the prompt; None: it has none."""
    glyph, name = _GLYPHS[attachment.modality], one_line(attachment.name)
    return f"{glyph} {name}" if number is None else f"{glyph} {number} {name}"


def draw_thumbnail(attachment: Attachment, cache: Path, graphics: Graphics, room: tuple[int, int]) -> Drawing:
    """Draw a thumbnail into at most `room` columns and rows. Blocking. Raises VlmtuiError."""
    from vlmtui.media.thumbnails import thumbnail

    columns, rows = room
    return graphics.draw(thumbnail(attachment, cache, _PIXELS), columns=columns, rows=rows)


class Wanted(NamedTuple):
    """A thumbnail to draw."""

    attachment: Attachment
    room: tuple[int, int]
    """The columns and rows that are free for it."""


class _Picture(NamedTuple):
    wanted: Wanted
    strips: list[Strip]
    number: int | None
    """Its number in the painter, if the terminal draws it."""
    reason: str
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
        picture = self._picture(wanted)
        return picture.strips[number] if picture is not None and number < len(picture.strips) else None

    def reason(self, wanted: Wanted) -> str:
        """Return why a thumbnail could not be drawn; empty if it could, or if that is not known yet."""
        picture = self._kept.get(_key(wanted))
        return "" if picture is None else picture.reason

    def leave(self) -> None:
        """Forget all thumbnails. Call it when they are no longer on the screen."""
        while self._kept:
            self._forget(next(iter(self._kept)))

    def _picture(self, wanted: Wanted) -> _Picture | None:
        key = _key(wanted)
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        elif key not in self._being_drawn:
            self._being_drawn.add(key)
            self._view.run_worker(self._draw(key, wanted), group="thumbnails")
        return found

    async def _draw(self, key: tuple[object, ...], wanted: Wanted) -> None:
        graphics = Graphics.of(self._view.app)
        try:
            drawing = await asyncio.get_running_loop().run_in_executor(
                DRAWER, draw_thumbnail, wanted.attachment, self._cache, graphics, wanted.room
            )
            picture = _on_screen(wanted, drawing, graphics)
        except VlmtuiError as error:
            picture = _Picture(wanted, [], None, error.message)
        finally:
            self._being_drawn.discard(key)
        self._kept[key] = picture
        while len(self._kept) > _KEPT_MAX:
            self._forget(next(iter(self._kept)))
        self._drawn(wanted.attachment)

    def _forget(self, key: tuple[object, ...]) -> None:
        picture = self._kept.pop(key)
        painter = Graphics.of(self._view.app).painter
        if painter is not None and picture.number is not None:
            painter.leave(picture.number)


def _key(wanted: Wanted) -> tuple[object, ...]:
    return wanted.attachment.sha256, wanted.attachment.modality, wanted.room


def _on_screen(wanted: Wanted, drawing: Drawing, graphics: Graphics) -> _Picture:
    if drawing.strips or graphics.painter is None:
        return _Picture(wanted, drawing.strips, None, "")
    columns, rows = drawing.size
    number = graphics.painter.take(drawing.image, drawing.size)
    if number is None:
        return _Picture(wanted, [], None, "")
    return _Picture(wanted, [placeholder_strip(number, row, columns) for row in range(rows)], number, "")
