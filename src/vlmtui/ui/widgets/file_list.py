"""The files of the browser."""

from __future__ import annotations

import time
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path

from textual import events
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.visual import Visual

from vlmtui.media.files import human_bytes
from vlmtui.ui.controllers.folder import Entry
from vlmtui.ui.text import one_line

_SIZE = 9
_NAME_MIN = 12
_PAD = 1
"""Cells on each side of a line."""


class FileList(ScrollView):
    """One line a file, one of them highlighted. Only the lines in view are made: folders of thousands stay quick."""

    can_focus = False
    COMPONENT_CLASSES = {"file-list--highlighted"}
    DEFAULT_CSS = """
    FileList {
        scrollbar-size-vertical: 1;
        overflow-x: hidden;
        .file-list--highlighted {
            color: $block-cursor-blurred-foreground;
            background: $block-cursor-blurred-background;
            text-style: $block-cursor-blurred-text-style;
        }
    }
    """

    highlighted: reactive[int | None] = reactive(None)

    @dataclass
    class Highlighted(Message):
        """Another line is highlighted, or another file stands in it."""

        entry: Entry

    def __init__(self, marked: Container[Path], *, id: str | None = None) -> None:
        """`marked` is looked at whenever a line is drawn."""
        super().__init__(id=id)
        self.entries: Sequence[Entry] = ()
        self._marked = marked

    @property
    def current(self) -> Entry | None:
        """The highlighted file."""
        index = self.highlighted
        return self.entries[index] if index is not None and index < len(self.entries) else None

    def show(self, entries: Sequence[Entry], *, highlight: Path | None = None) -> None:
        """Show these; without a file to highlight, or where it is not among them, the first is."""
        before = self.current
        self.entries = entries
        self.virtual_size = Size(0, len(entries))
        places = (index for index, entry in enumerate(entries) if entry.path == highlight)
        self.highlighted = next(places, 0) if entries else None
        self.call_after_refresh(self._keep_in_view)
        self.refresh()
        if self.current is not None and self.current != before:
            self.post_message(self.Highlighted(self.current))

    def text_of(self, index: int) -> str:
        """A line as it is read."""
        return self._line(self.entries[index]).plain

    def watch_highlighted(self, before: int | None, now: int | None) -> None:
        for index in (before, now):
            if index is not None:
                self.refresh_line(index)
        self._keep_in_view()
        if before is not None and self.current is not None:
            self.post_message(self.Highlighted(self.current))

    def on_click(self, event: events.Click) -> None:
        index = event.y + round(self.scroll_y)
        if index < len(self.entries):
            self.highlighted = index

    def render_line(self, y: int) -> Strip:
        index, style = y + round(self.scroll_y), self.visual_style
        if index >= len(self.entries):
            return Strip.blank(self.size.width, style.rich_style)
        if index == self.highlighted:
            style = self.get_visual_style("file-list--highlighted")
        strip = Visual.to_strips(self, self._line(self.entries[index]), self.size.width, 1, style)[0]
        return strip.extend_cell_length(self.size.width, style.rich_style)

    def action_move(self, how: str) -> None:
        """`up`, `down`, `page_up` or `page_down`; past an end, a step goes on at the other one."""
        count = len(self.entries)
        if self.highlighted is None or not count:
            return
        page = max(1, self.size.height - 1)
        match how:
            case "up" | "down":
                self.highlighted = (self.highlighted + (1 if how == "down" else -1)) % count
            case _:
                step = page if how == "page_down" else -page
                self.highlighted = min(max(0, self.highlighted + step), count - 1)

    def _keep_in_view(self) -> None:
        if self.highlighted is not None:
            self.scroll_to_region(Region(0, self.highlighted, 1, 1), animate=False, force=True)

    def _line(self, entry: Entry) -> Content:
        style = "$text-accent" if entry.is_folder else ""
        name = Content.styled(one_line(entry.path.name) + ("/" if entry.is_folder else ""), style)
        mark = "● " if entry.path in self._marked else "  "
        when = time.strftime("%Y-%m-%d", time.localtime(entry.modified))
        facts = f"{'' if entry.is_folder else human_bytes(entry.size):>{_SIZE}}  {when}"
        room = self.size.width - len(mark) - len(facts) - 1 - 2 * _PAD
        name = name.truncate(max(_NAME_MIN, room), ellipsis=True)
        name = name.pad_right(max(0, room - name.cell_length))
        return Content.assemble(" " * _PAD, (mark, "$accent"), name, " ", (facts, "$muted"))
