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


def caption(attachment: Attachment, number: int) -> str:
    """`▣ 1 cat.jpg · 224 × 224 · 12 kB`, control characters visible."""
    from vlmtui.media.describe import facts

    return f"{_GLYPHS[attachment.modality]} {number} {one_line(attachment.name)} · {facts(attachment)}"


class AttachmentView(Vertical):
    """The picture (where pictures are on) above its caption."""

    DEFAULT_CSS = """
    AttachmentView {
        width: auto;
        max-width: 100%;
        height: auto;
        margin: 0 2 0 0;
        .caption { width: auto; max-width: 100%; height: auto; color: $muted; }
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

    def __init__(self, attachment: Attachment, number: int, *, cache: Path, columns: int, rows: int) -> None:
        super().__init__()
        self.attachment = attachment
        self._number = number
        self._cache = cache
        self._columns = columns
        self._rows = rows

    def compose(self) -> ComposeResult:
        yield Static(caption(self.attachment, self._number), classes="caption", markup=False)

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
        self.query_one(".caption", Static).update(
            f"{caption(self.attachment, self._number)} · {one_line(event.reason)}"
        )

    @work(thread=True, exit_on_error=False, group="thumbnail")
    def _make(self) -> None:
        from vlmtui.media.thumbnails import thumbnail

        try:
            self.post_message(self.ThumbnailMade(thumbnail(self.attachment, self._cache, _PIXELS)))
        except VlmtuiError as error:
            self.post_message(self.ThumbnailFailed(error.message))

    @property
    def _graphics(self) -> Graphics:
        found = getattr(self.app, "graphics", None)
        return found if isinstance(found, Graphics) else Graphics("off")
