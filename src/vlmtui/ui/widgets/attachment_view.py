"""A widget with an attachment's thumbnail, name and main facts; and the list of all its facts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from textual import events
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip
from textual.visual import Visual
from textual.widget import Widget

from vlmtui.domain.conversation import Attachment
from vlmtui.text import one_line
from vlmtui.ui.document.blocks import TextBlock, fact
from vlmtui.ui.widgets.clicks import is_click
from vlmtui.ui.widgets.thumbnails import Thumbnails, Wanted, name_line

_LABEL = 10
_TEXT_MAX = 400
_SHA_SHOWN = 16


class AttachmentView(Widget):
    """A thumbnail, the name below it, and the facts.

    It is a single widget, since a dozen of them are laid out and painted at once. The room for the thumbnail is kept
    free, so that nothing moves when it appears.
    """

    DEFAULT_CSS = "AttachmentView { width: 100%; height: auto; }"
    ALLOW_SELECT = False

    class Clicked(Message):
        """A view was clicked. The message has the attachments of this view and of all views beside it."""

        def __init__(self, attachments: Sequence[Attachment], numbers: Sequence[int] | None, at: int) -> None:
            super().__init__()
            self.attachments = attachments
            self.numbers = numbers
            """Their numbers in the prompt; None: they are not in it."""
            self.at = at
            """The index of the clicked attachment."""

    def __init__(
        self, attachment: Attachment, number: int | None, *, cache: Path, columns: int, rows: int, brief: bool = False
    ) -> None:
        """`number`: the attachment's number in the prompt; None: the prompt does not contain it, and its name is struck
        out. `columns`, `rows`: the maximum size of the thumbnail in cells; with 0 rows there is none. `brief`: show
        everything on one line."""
        super().__init__()
        self._brief = brief
        self.attachment = attachment
        self.number = number
        self._cost = ""
        self._columns = columns
        self._rows = rows
        self._thumbnails = Thumbnails(self, cache, self._drawn)
        self._wanted = Wanted(attachment, (0, 0))
        self._told: tuple[int, list[Strip]] = (0, [])
        """The width and the lines of the text below the thumbnail."""

    def on_click(self, event: events.Click) -> None:
        if self.parent is not None and is_click(self, event):
            beside = [view for view in self.parent.children if isinstance(view, AttachmentView)]
            numbers = [view.number for view in beside if view.number is not None]
            self.post_message(self.Clicked([view.attachment for view in beside], numbers or None, beside.index(self)))
            event.stop()

    def tell_tokens(self, tokens: int | None, *, is_estimate: bool = False) -> None:
        """Show how many tokens of the prompt the attachment takes; None: unknown."""
        cost = "" if tokens is None else f"{'~' if is_estimate else ''}{tokens:,} tokens"
        if cost != self._cost:
            self._cost, self._told = cost, (0, [])
            self.refresh(layout=not self._brief)

    def on_mount(self) -> None:
        self._wanted = Wanted(self.attachment, self._thumbnails.room(self.attachment, self._columns, self._rows))

    def on_unmount(self) -> None:
        self._thumbnails.leave()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return self._picture_rows + len(self._lines(width))

    def render_line(self, y: int) -> Strip:
        width, rows, blank = self.size.width, self._picture_rows, self.visual_style.rich_style
        below = self._lines(width)
        strip = (
            self._thumbnails.row(self._wanted, y) if y < rows else below[y - rows] if y - rows < len(below) else None
        )
        return Strip.blank(width, blank) if strip is None else strip.adjust_cell_length(width, blank)

    @property
    def _picture_rows(self) -> int:
        return 0 if self._thumbnails.reason(self._wanted) else self._wanted.room[1]

    def _drawn(self, attachment: Attachment) -> None:
        if self._thumbnails.reason(self._wanted):
            self._told = (0, [])
            self.refresh(layout=True)
        else:
            self.refresh()

    def notify_style_update(self) -> None:
        self._told = (0, [])
        super().notify_style_update()

    def _lines(self, width: int) -> list[Strip]:
        """Return the lines with name and facts, cached: a layout asks for them many times."""
        if self._told[0] != width:
            self._told = (width, self._draw_lines(width))
        return self._told[1]

    def _draw_lines(self, width: int) -> list[Strip]:
        from vlmtui.media.describe import attachment_facts

        told = one_line(self._thumbnails.reason(self._wanted)) or attachment_facts(self.attachment)
        if self._brief:
            about = f" · {self._cost or told.partition(' · ')[0]}"
            name = name_line(self.attachment, self.number, max(1, width - len(about)))
            words = Content.styled(name + about, "$muted").truncate(width, ellipsis=True)
        else:
            name = name_line(self.attachment, self.number, width)
            told = f"{told} · {self._cost}" if self._cost else told
            told = told if self.number is not None else "left out of prompts"
            named = Content.styled(name, "" if self.number is not None else "strike").truncate(width, ellipsis=True)
            words = Content.assemble(named, "\n", (told, "$muted"))
        return Visual.to_strips(self, words, width, None, self.visual_style)


def attachment_details(attachment: Attachment) -> Iterator[TextBlock]:
    """Yield all facts about an attachment, a line each."""
    for label, value in _facts_of(attachment):
        text = value if len(value) <= _TEXT_MAX else value[: _TEXT_MAX - 1] + "…"
        yield fact(label, one_line(text), _LABEL)


def _facts_of(attachment: Attachment) -> Iterator[tuple[str, str]]:
    from vlmtui.media.describe import human_duration

    yield "Name", attachment.name
    if attachment.source:
        yield "From", attachment.source
    yield "Size", f"{attachment.width} × {attachment.height} pixels"
    yield "Format", attachment.format
    yield "File", f"{attachment.size_bytes:,} bytes"
    yield "SHA-256", f"{attachment.sha256[:_SHA_SHOWN]}…"
    if attachment.pages > 1:
        yield "Page", f"{attachment.page} of {attachment.pages}"
    if attachment.duration_s is not None:
        rate = "" if attachment.fps is None else f" · {attachment.fps:g} fps"
        yield "Length", human_duration(attachment.duration_s) + rate
    for number, note in enumerate(attachment.notes):
        yield "" if number else "Notes", note
