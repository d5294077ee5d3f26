"""An attachment as a small picture with its facts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from textual import events, work
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip
from textual.visual import Visual
from textual.widget import Widget

from vlmtui.domain.attachment import Attachment
from vlmtui.errors import VlmtuiError
from vlmtui.text import one_line
from vlmtui.ui.terminal.graphics import Drawing, Graphics
from vlmtui.ui.widgets.clicks import is_click

if TYPE_CHECKING:
    from vlmtui.inspection.grounding import PlacedMark
    from vlmtui.session.places_picture import Badge

_GLYPHS = {"image": "▣", "video": "▶", "audio": "♪"}
_PIXELS = (320, 320)
_WAVEFORM = (320, 80)
_DRAWER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="thumbnail")
"""One thread: each further one would delay the event loop, and a frame shows few new pictures. A picture that is
removed before its turn is not drawn."""


def thumbnail_size(attachment: Attachment) -> tuple[int, int]:
    """Return width and height of the thumbnail, in pixels."""
    if attachment.modality == "audio":
        return _WAVEFORM
    scale = min(_PIXELS[0] / max(1, attachment.width), _PIXELS[1] / max(1, attachment.height), 1.0)
    return max(1, round(attachment.width * scale)), max(1, round(attachment.height * scale))


def name_line(attachment: Attachment, number: int | None) -> str:
    """Return `▣ 1 cat.jpg`, control characters visible; without a number if it is in no prompt."""
    glyph, name = _GLYPHS[attachment.modality], one_line(attachment.name)
    return f"{glyph} {name}" if number is None else f"{glyph} {number} {name}"


class ThumbnailMarks(msgspec.Struct, frozen=True):
    """What is drawn on a thumbnail: places in pixels of the whole picture, and a badge for each."""

    marks: tuple[PlacedMark, ...]
    badges: tuple[Badge, ...]


class AttachmentView(Widget):
    """The picture (if pictures are on), the name below it, and the facts.

    One widget, even for half cells: a dozen are laid out and painted at once. The room for the picture is reserved, so
    that nothing moves when it appears.
    """

    DEFAULT_CSS = "AttachmentView { width: 100%; height: auto; }"
    ALLOW_SELECT = False

    @dataclass
    class Clicked(Message):
        """A view was clicked: the attachments shown beside it with their numbers in the prompt, and its place."""

        attachments: Sequence[Attachment]
        numbers: Sequence[int] | None
        """None: they are left out of prompts."""
        at: int

    def __init__(
        self, attachment: Attachment, number: int | None, *, cache: Path, columns: int, rows: int, brief: bool = False
    ) -> None:
        """`number` is its number in the prompt; None: it is left out of prompts, and struck out. `rows` and
        `columns` limit the picture, in cells; without rows there is none. `brief`: all in one line."""
        super().__init__()
        self._brief = brief
        self.attachment = attachment
        self.number = number
        self._cost = ""
        self._cache = cache
        self._columns = columns
        self._rows = rows
        self._room = (0, 0)
        """Columns and rows reserved for the picture."""
        self._marks: ThumbnailMarks | None = None
        self._drawing: Drawing | None = None
        self._reason = ""
        """Why there is no picture."""
        self._told: tuple[int, list[Strip]] = (0, [])
        """Width of the lines below the picture, and these lines."""

    def on_click(self, event: events.Click) -> None:
        if self.parent is not None and is_click(self, event):
            beside = [view for view in self.parent.children if isinstance(view, AttachmentView)]
            numbers = [view.number for view in beside if view.number is not None]
            self.post_message(self.Clicked([view.attachment for view in beside], numbers or None, beside.index(self)))
            event.stop()

    @property
    def is_drawn(self) -> bool:
        """Whether the picture is shown."""
        return self._drawing is not None

    def tell_tokens(self, tokens: int | None, *, is_estimate: bool = False) -> None:
        """Set how many tokens of the prompt it takes; None: unknown."""
        cost = "" if tokens is None else f"{'~' if is_estimate else ''}{tokens:,} tokens"
        if cost != self._cost:
            self._cost, self._told = cost, (0, [])
            self.refresh(layout=not self._brief)

    def mark(self, marks: ThumbnailMarks | None) -> bool:
        """Draw places on the picture; None: none. False if the view has no picture."""
        if not self.is_drawn:
            return False
        self._marks = marks
        self._make()
        return True

    @property
    def marks(self) -> ThumbnailMarks | None:
        """The places on the picture."""
        return self._marks

    def on_mount(self) -> None:
        if self._rows > 0 and self._graphics.mode != "off":
            width, height = thumbnail_size(self.attachment)
            self._room = self._graphics.fit(width, height, columns=self._columns, rows=self._rows)
            self._make()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return self._room[1] + len(self._lines(width))

    def render_line(self, y: int) -> Strip:
        width, rows = self.size.width, self._room[1]
        strips = self._lines(width) if y >= rows else self._drawing.strips if self._drawing is not None else []
        row, blank = y - rows if y >= rows else y, self.visual_style.rich_style
        return strips[row].adjust_cell_length(width, blank) if row < len(strips) else Strip.blank(width, blank)

    @work(group="thumbnail", exclusive=True)
    async def _make(self) -> None:
        try:
            drawing = await asyncio.get_running_loop().run_in_executor(_DRAWER, self._draw, self._marks)
        except VlmtuiError as error:
            self._room, self._reason, self._told = (0, 0), error.message, (0, [])
            self.refresh(layout=True)
            return
        is_as_expected, self._drawing, self._room = drawing.size == self._room, drawing, drawing.size
        columns, rows = drawing.size
        await self.query("*").remove()
        if not drawing.strips and (picture := self._graphics.widget_for(drawing.image, columns=columns, rows=rows)):
            self.mount(picture)
        self.refresh(layout=not is_as_expected)

    def _draw(self, marks: ThumbnailMarks | None) -> Drawing:
        """Return the drawing. Blocking. Raises VlmtuiError."""
        from vlmtui.media.thumbnails import thumbnail

        image = thumbnail(self.attachment, self._cache, _PIXELS)
        if marks is None:
            return self._graphics.draw(image, columns=self._columns, rows=self._rows)
        from vlmtui.ui.widgets.marked_picture import draw_marked, numbered_strips

        across, down = image.width / self.attachment.width, image.height / self.attachment.height
        scaled = [
            msgspec.structs.replace(one, points=tuple((x * across, y * down) for x, y in one.points))
            for one in marks.marks
        ]
        drawn = draw_marked(image, scaled, None, self._graphics, self._room, marks.badges)
        return Drawing(drawn.image, drawn.size, numbered_strips(drawn.strips, drawn.numbers))

    def notify_style_update(self) -> None:
        self._told = (0, [])
        super().notify_style_update()

    def _lines(self, width: int) -> list[Strip]:
        """Return the name and the facts, cached: they are requested many times during a layout."""
        if self._told[0] != width:
            self._told = (width, self._written(width))
        return self._told[1]

    def _written(self, width: int) -> list[Strip]:
        from vlmtui.media.describe import attachment_facts

        name, told = name_line(self.attachment, self.number), self._reason and one_line(self._reason)
        told = told or attachment_facts(self.attachment)
        if self._brief:
            line = Content.styled(f"{name} · {self._cost or told.partition(' · ')[0]}", "$muted")
            words = line.truncate(width, ellipsis=True)
        else:
            told = f"{told} · {self._cost}" if self._cost else told
            told = told if self.number is not None else "left out of prompts"
            named = Content.styled(name, "" if self.number is not None else "strike").truncate(width, ellipsis=True)
            words = Content.assemble(named, "\n", (told, "$muted"))
        return Visual.to_strips(self, words, width, None, self.visual_style)

    @property
    def _graphics(self) -> Graphics:
        return Graphics.of(self.app)
