"""The files of the browser, and the lines above them."""

from __future__ import annotations

import time
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.cells import cell_len
from textual import events, on
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.style import Style
from textual.visual import Visual
from textual.widgets import Input, Static

from vlmtui.media.folder import FolderEntry, home_short
from vlmtui.text import human_bytes, one_line
from vlmtui.ui.actions import ACTIONS, line_bindings
from vlmtui.ui.keys import LEADER, hint, shown_keys, spell_key
from vlmtui.ui.widgets.highlight import entry_at

_SIZE = 9
_NAME_MIN = 12
_PAD = 1
"""Cells on each side of a line."""


class FileList(ScrollView):
    """One line for each file, one of them highlighted. Only lines in view are rendered: folders of thousands stay
    fast."""

    can_focus = False
    COMPONENT_CLASSES = {"file-list--highlighted", "file-list--empty"}
    DEFAULT_CSS = """
    FileList {
        scrollbar-size-vertical: 1;
        overflow-x: hidden;
        .file-list--highlighted {
            color: $block-cursor-blurred-foreground;
            background: $block-cursor-blurred-background;
            text-style: $block-cursor-blurred-text-style;
        }
        .file-list--empty { color: $muted; }
    }
    """

    highlighted: reactive[int | None] = reactive(None)

    @dataclass
    class Highlighted(Message):
        """Another line is highlighted, or its file changed."""

        entry: FolderEntry

    def __init__(self, marked: Container[Path], *, id: str | None = None) -> None:
        """`marked` is read whenever a line is drawn."""
        super().__init__(id=id)
        self.entries: Sequence[FolderEntry] = ()
        self._marked = marked
        self._otherwise = ""

    @property
    def current(self) -> FolderEntry | None:
        """The highlighted file."""
        return entry_at(self.entries, self.highlighted)

    def show(self, entries: Sequence[FolderEntry], *, highlight: Path | None = None, otherwise: str = "") -> None:
        """Show these; highlight the given one, or else the first. `otherwise`: the text for an empty list."""
        before = self.current
        self._otherwise = otherwise
        self.entries = entries
        self.virtual_size = Size(0, len(entries))
        places = (index for index, entry in enumerate(entries) if entry.path == highlight)
        self.highlighted = next(places, 0) if entries else None
        self.call_after_refresh(self._keep_in_view)
        self.refresh()
        if self.current is not None and self.current != before:
            self.post_message(self.Highlighted(self.current))

    def text_of(self, index: int) -> str:
        """Return the text of a line."""
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
        if not self.entries and index == 0 and self._otherwise:
            return self._strip(Content(" " * _PAD + self._otherwise), self.get_visual_style("file-list--empty"))
        if index >= len(self.entries):
            return Strip.blank(self.size.width, style.rich_style)
        if index == self.highlighted:
            style = self.get_visual_style("file-list--highlighted")
        return self._strip(self._line(self.entries[index]), style)

    def action_move(self, how: str) -> None:
        """Move the highlight: `up`, `down`, `page_up`, `page_down`, `first` or `last`. `up` and `down` wrap around."""
        count = len(self.entries)
        if self.highlighted is None or not count:
            return
        page = max(1, self.size.height - 1)
        match how:
            case "up" | "down":
                self.highlighted = (self.highlighted + (1 if how == "down" else -1)) % count
            case "first" | "last":
                self.highlighted = 0 if how == "first" else count - 1
            case _:
                step = page if how == "page_down" else -page
                self.highlighted = min(max(0, self.highlighted + step), count - 1)

    def _strip(self, line: Content, style: Style) -> Strip:
        strip = Visual.to_strips(self, line, self.size.width, 1, style)[0]
        return strip.extend_cell_length(self.size.width, style.rich_style)

    def _keep_in_view(self) -> None:
        if self.highlighted is not None:
            self.scroll_to_region(Region(0, self.highlighted, 1, 1), animate=False, force=True)

    def _line(self, entry: FolderEntry) -> Content:
        mark = "● " if entry.path in self._marked else "  "
        when = time.strftime("%Y-%m-%d", time.localtime(entry.modified))
        facts = f"{'' if entry.is_folder else human_bytes(entry.size):>{_SIZE}}  {when}"
        room = self.size.width - len(mark) - len(facts) - 1 - 2 * _PAD
        room = max(_NAME_MIN, room)
        text = _fitting(entry.shown, room) if "/" in entry.name else entry.shown
        name = Content.styled(text, "$text-accent" if entry.is_folder else "").truncate(room, ellipsis=True)
        name = name.pad_right(room - name.cell_length)
        return Content.assemble(" " * _PAD, (mark, "$accent"), name, " ", (facts, "$muted"))


class FolderTitle(Static):
    """The folder's path; a long one is cut at the start."""

    DEFAULT_CSS = "FolderTitle { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._text = ""

    def show(self, folder: Path | None, otherwise: str = "") -> None:
        """Show this folder; without one, the other text."""
        self._text = one_line(home_short(folder)) if folder else otherwise
        self._fit()

    @on(events.Resize)
    def _fit(self) -> None:
        room = self.content_size.width
        self.update(_fitting(self._text, room) if room else self._text)


class FilterInput(Input):
    """Keeps the focus. Keys without a use in an empty filter go to the browser; so does Space after an arrow key."""

    BINDINGS = line_bindings()

    is_browsing = True
    """Whether Space marks a file. False while typing."""

    def on_mount(self) -> None:
        self.cursor_blink = False

    @dataclass
    class BrowserKey(Message):
        """`space`, `backspace`, `left`, `home` or `end`, not used by the text."""

        key: str

    async def on_key(self, event: events.Key) -> None:
        takes = event.key in ("backspace", "left", "home", "end") and not self.value
        if takes or (event.key == "space" and (self.is_browsing or not self.value)):
            event.stop()
            event.prevent_default()
            self.post_message(self.BrowserKey(event.key))
        elif event.is_printable:
            self.is_browsing = False

    def on_paste(self, event: events.Paste) -> None:
        self.is_browsing = False


class KeyHint(Static):
    """The browser's keys, as bound."""

    DEFAULT_CSS = "KeyHint { height: 2; color: $muted; text-wrap: nowrap; text-overflow: ellipsis; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)

    def on_mount(self) -> None:
        app, leader = self.app, ACTIONS[LEADER]
        choose, leave = hint(app, "browser.choose"), hint(app, "browser.leave")
        first = f"{choose} · Space Mark · ← Parent folder · ~ / Path · {leave}"
        by_letter = (ACTIONS[f"browser.{name}"] for name in ("mark_all", "sort", "media", "hidden", "recent"))
        second = " · ".join(f"{spell_key(action.leader)} {action.title}" for action in by_letter)
        self.update(f"{first}\n{shown_keys(app, leader)}… {second}")


def _fitting(path: str, width: int) -> str:
    """Return the path, or the end of it that fits into `width` cells."""
    if cell_len(path) <= width:
        return path
    at, width = len(path), width - 1
    while at and (width := width - cell_len(path[at - 1])) >= 0:
        at -= 1
    return "…" + path[at:]
