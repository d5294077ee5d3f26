"""Thumbnails of attachments as rows of the screen."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from textual.strip import Strip
from textual.widget import Widget

from vlmtui.domain.conversation import Attachment
from vlmtui.errors import VlmtuiError
from vlmtui.text import one_line
from vlmtui.ui.terminal.graphics import Drawing, Graphics

_GLYPHS = {"image": "▣", "video": "▶", "audio": "♪"}
_PIXELS = (320, 320)
_WAVEFORM = (320, 80)
_KEPT_MAX = 60
"""Most thumbnails that are kept as they were drawn: more than fit on a screen."""
DRAWER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="thumbnail")
"""Draws thumbnails. One thread, since each further one would delay the event loop, and a frame shows few new ones."""


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
