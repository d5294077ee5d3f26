"""An attachment as a small picture with its facts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Static

from vlmtui.domain.attachment import Attachment
from vlmtui.errors import VlmtuiError
from vlmtui.ui.graphics import Graphics
from vlmtui.ui.text import one_line

if TYPE_CHECKING:
    from PIL.Image import Image

_GLYPHS = {"image": "▣", "video": "▶"}
_PIXELS = (320, 320)


def name_line(attachment: Attachment, number: int) -> str:
    """`▣ 1 cat.jpg`, control characters visible."""
    return f"{_GLYPHS[attachment.modality]} {number} {one_line(attachment.name)}"


class AttachmentView(Vertical):
    """The picture (where pictures are on), the name below it, and the facts."""

    DEFAULT_CSS = """
    AttachmentView {
        width: 100%;
        height: auto;
        .facts { width: 100%; height: auto; color: $muted; }
        .name { width: 100%; height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
    }
    """

    @dataclass
    class ThumbnailMade(Message):
        """The small picture is there."""

        image: Image

    @dataclass
    class ThumbnailFailed(Message):
        """There is no picture to show."""

        reason: str

    def __init__(
        self, attachment: Attachment, number: int, *, cache: Path, columns: int, rows: int, brief: bool = False
    ) -> None:
        """`rows` and `columns` are the picture's, in cells; without rows there is none. `brief`: all in one line."""
        super().__init__()
        self._brief = brief
        self.attachment = attachment
        self._number = number
        self._cost = ""
        self._cache = cache
        self._columns = columns
        self._rows = rows

    def compose(self) -> ComposeResult:
        if self._brief:
            yield Static(self._facts, classes="name facts", markup=False)
        else:
            yield Static(name_line(self.attachment, self._number), classes="name", markup=False)
            yield Static(self._facts, classes="facts", markup=False)

    def tell_tokens(self, tokens: int | None, *, is_estimate: bool = False) -> None:
        """How many tokens of the prompt it takes; None: not known."""
        cost = "" if tokens is None else f"{'~' if is_estimate else ''}{tokens:,} tokens"
        if cost != self._cost:
            self._cost = cost
            for line in self.query(".facts").results(Static):
                line.update(self._facts)

    def on_mount(self) -> None:
        if self._rows > 0 and self._graphics.mode != "off":
            self._make()

    @on(ThumbnailMade)
    def _made(self, event: ThumbnailMade) -> None:
        picture = self._graphics.widget_for(event.image, columns=self._columns, rows=self._rows)
        if picture is not None:
            self.mount(picture, before=0)

    @on(ThumbnailFailed)
    def _failed(self, event: ThumbnailFailed) -> None:
        self.query_one(".facts", Static).update(one_line(event.reason))

    @work(thread=True, exit_on_error=False, group="thumbnail")
    def _make(self) -> None:
        from vlmtui.media.thumbnails import thumbnail

        try:
            self.post_message(self.ThumbnailMade(thumbnail(self.attachment, self._cache, _PIXELS)))
        except VlmtuiError as error:
            self.post_message(self.ThumbnailFailed(error.message))

    @property
    def _facts(self) -> str:
        from vlmtui.media.describe import facts

        told = facts(self.attachment)
        if self._brief:
            return f"{name_line(self.attachment, self._number)} · {self._cost or told.partition(' · ')[0]}"
        return f"{told} · {self._cost}" if self._cost else told

    @property
    def _graphics(self) -> Graphics:
        return Graphics.of(self.app)
