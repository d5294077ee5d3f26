"""Choosing files without leaving the keyboard."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option
from textual.worker import Worker, WorkerState

from vlmtui.errors import VlmtuiError
from vlmtui.ui.controllers.folder import Entry, list_folder
from vlmtui.ui.graphics import Graphics
from vlmtui.ui.text import one_line

if TYPE_CHECKING:
    from PIL.Image import Image

_WIDE = 100
_PREVIEW_PX = (320, 320)
_PREVIEW_CELLS = (34, 18)
_SIZE = 9
_NAME_MIN = 12
_MARGIN = 3
"""Cells beside a line: what the list itself keeps free, and the space before the facts."""


def _style(entry: Entry) -> str:
    return "$text-accent" if entry.is_folder else ""


class FilterInput(Input):
    """Keeps the focus; keys that mean nothing to an empty filter are the browser's."""

    @dataclass
    class BrowserKey(Message):
        """`space`, `backspace`, `left` or `~` in an empty filter."""

        key: str

    async def _on_key(self, event: events.Key) -> None:
        key = "~" if event.character == "~" else event.key
        if not self.value and key in ("space", "backspace", "left", "~"):
            event.stop()
            event.prevent_default()
            self.post_message(self.BrowserKey(key))


class BrowserScreen(ModalScreen[list[Path] | None]):
    """Gives the chosen files, or None. `folder` is the folder shown last."""

    CSS_PATH = "browser.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (_WIDE, "-wide")]
    BINDINGS = [
        Binding("enter", "choose", "Open", id="browser.choose", tooltip="Open the folder, or attach.", priority=True),
        Binding("ctrl+t", "mark", "Mark", id="browser.mark", tooltip="Mark the file, to take several.", priority=True),
        Binding("escape", "leave", "Cancel", id="browser.leave", tooltip="Clear the filter, or cancel.", priority=True),
        Binding("up", "move('cursor_up')", show=False, id="browser.up", priority=True),
        Binding("down", "move('cursor_down')", show=False, id="browser.down", priority=True),
        Binding("pageup", "move('page_up')", show=False, id="browser.page_up", priority=True),
        Binding("pagedown", "move('page_down')", show=False, id="browser.page_down", priority=True),
    ]

    @dataclass
    class Listed(Message):
        """A folder's entries, or why there are none."""

        folder: Path
        outcome: list[Entry] | VlmtuiError

    @dataclass
    class Previewed(Message):
        """The picture of a file, or why there is none."""

        path: Path
        image: Image | None
        facts: str

    def __init__(self, folder: Path, *, cache: Path) -> None:
        super().__init__()
        self.folder = folder.absolute()
        self.marked: list[Path] = []
        self._cache = cache
        self._entries: list[Entry] = []
        self._shown: list[Entry] = []

    def compose(self) -> ComposeResult:
        with Vertical(id="panel"):
            yield Static(id="title", markup=False)
            yield FilterInput(placeholder="Type to filter", id="filter", compact=True)
            with Horizontal(id="body"):
                files = OptionList(id="files")
                files.can_focus = False
                yield files
                with Vertical(id="preview"):
                    yield Static(id="facts", markup=False)
            yield Static("enter attaches · space marks · ← folder above · ~ home · . hidden · esc", id="keys")

    def on_mount(self) -> None:
        self.query_one(FilterInput).focus()
        self._list(self.folder)

    def on_resize(self) -> None:
        self.call_after_refresh(self._show_again)

    @on(FilterInput.BrowserKey)
    def _browser_key(self, event: FilterInput.BrowserKey) -> None:
        match event.key:
            case "space":
                self.action_mark()
            case "~":
                self._list(Path.home())
            case _:
                self._list(self.folder.parent)

    @on(Input.Changed)
    def _filter_changed(self) -> None:
        self._show()

    @on(Listed)
    def _listed(self, event: Listed) -> None:
        if isinstance(event.outcome, VlmtuiError):
            self.notify(one_line(event.outcome.message), severity="error", markup=False)
            return
        came_from = self.folder
        self.folder, self._entries = event.folder, event.outcome
        self.query_one(FilterInput).value = ""
        self._show(highlight=came_from)

    @on(OptionList.OptionHighlighted)
    def _highlighted(self) -> None:
        entry = self._current
        if entry is not None and self.has_class("-wide"):
            self._preview(entry)

    @on(Previewed)
    async def _previewed(self, event: Previewed) -> None:
        entry = self._current
        if entry is None or entry.path != event.path:
            return
        pane = self.query_one("#preview")
        await pane.query(".picture").remove()
        graphics = getattr(self.app, "graphics", None)
        if event.image is not None and isinstance(graphics, Graphics):
            picture = graphics.widget_for(event.image, columns=_PREVIEW_CELLS[0], rows=_PREVIEW_CELLS[1])
            if picture is not None:
                picture.add_class("picture")
                await pane.mount(picture, before=0)
        self.query_one("#facts", Static).update(event.facts)

    @on(Worker.StateChanged)
    def _worker_changed(self, event: Worker.StateChanged) -> None:
        if event.state is WorkerState.ERROR and event.worker.error is not None:
            raise event.worker.error

    def action_choose(self) -> None:
        """Open the highlighted folder; attach what is marked, else the highlighted file."""
        entry = self._current
        if self.marked and (entry is None or not entry.is_folder):
            self.dismiss(self.marked)
        elif entry is not None and entry.is_folder:
            self._list(entry.path)
        elif entry is not None:
            self.dismiss([entry.path])

    def action_mark(self) -> None:
        """Mark the highlighted file, or take its mark away."""
        entry = self._current
        if entry is None or entry.is_folder:
            return
        if entry.path in self.marked:
            self.marked.remove(entry.path)
        else:
            self.marked.append(entry.path)
        self._show(highlight=entry.path)
        self.action_move("cursor_down")

    def action_leave(self) -> None:
        """Clear the filter; leave when it is empty."""
        entered = self.query_one(FilterInput)
        if entered.value:
            entered.value = ""
        else:
            self.dismiss(None)

    def action_move(self, how: str) -> None:
        """Move the highlight."""
        getattr(self.query_one("#files", OptionList), f"action_{how}")()

    @property
    def _current(self) -> Entry | None:
        index = self.query_one("#files", OptionList).highlighted
        return self._shown[index] if index is not None and index < len(self._shown) else None

    def _show(self, highlight: Path | None = None) -> None:
        wanted = self.query_one(FilterInput).value.lower()
        names = ((entry, entry.path.name.lower()) for entry in self._entries)
        self._shown = [
            entry for entry, name in names if wanted in name and (wanted.startswith(".") or not name.startswith("."))
        ]
        files = self.query_one("#files", OptionList)
        files.clear_options()
        files.add_options([Option(self._line(entry)) for entry in self._shown])
        places = [index for index, entry in enumerate(self._shown) if entry.path == highlight]
        files.highlighted = (places or [0])[0] if self._shown else None
        count = f"  ·  {len(self.marked)} marked" if self.marked else ""
        self.query_one("#title", Static).update(one_line(str(self.folder)) + count)
        if not self._shown:
            self.query_one("#facts", Static).update("Nothing here that can be attached.")

    def _show_again(self) -> None:
        """The lines are as wide as the list."""
        if self._shown:
            self._show(highlight=self._current.path if self._current else None)

    def _line(self, entry: Entry) -> Content:
        from vlmtui.media.files import human_bytes

        name = Content.styled(one_line(entry.path.name) + ("/" if entry.is_folder else ""), _style(entry))
        mark = "● " if entry.path in self.marked else "  "
        when = time.strftime("%Y-%m-%d", time.localtime(entry.modified))
        facts = f"{'' if entry.is_folder else human_bytes(entry.size):>{_SIZE}}  {when}"
        room = self.query_one("#files").scrollable_content_region.width - len(mark) - len(facts) - _MARGIN
        name = name.truncate(max(_NAME_MIN, room), ellipsis=True)
        return Content.assemble(
            (mark, "$accent"), name.pad_right(max(0, room - name.cell_length)), " ", (facts, "$muted")
        )

    @work(thread=True, exit_on_error=False, group="list", exclusive=True)
    def _list(self, folder: Path) -> None:
        try:
            self.post_message(self.Listed(folder, list_folder(folder)))
        except VlmtuiError as error:
            self.post_message(self.Listed(folder, error))

    @work(thread=True, exit_on_error=False, group="preview", exclusive=True)
    def _preview(self, entry: Entry) -> None:
        if entry.is_folder:
            self.post_message(self.Previewed(entry.path, None, "Folder"))
            return
        from vlmtui.media.preview import preview

        try:
            image, facts = preview(entry.path, _PREVIEW_PX)
            self.post_message(self.Previewed(entry.path, image, f"{one_line(entry.path.name)}\n{facts}"))
        except VlmtuiError as error:
            self.post_message(self.Previewed(entry.path, None, one_line(error.message)))
