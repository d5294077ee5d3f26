"""Choosing files without leaving the keyboard."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Input, Static
from textual.worker import Worker, WorkerState, get_current_worker

from vlmtui.errors import VlmtuiError
from vlmtui.ui.controllers.folder import Entry, list_folder
from vlmtui.ui.graphics import Graphics
from vlmtui.ui.text import one_line
from vlmtui.ui.widgets.file_list import FileList

if TYPE_CHECKING:
    from PIL.Image import Image

_WIDE = 100
_PREVIEW_PX = (320, 320)
_PREVIEW_CELLS = (34, 18)

_MARK = "ctrl+t,ctrl+space,ctrl+@"
"""Most terminals send Ctrl+@ for Ctrl+Space."""


def _move(key: str, how: str, tooltip: str) -> Binding:
    return Binding(key, f"move('{how}')", show=False, id=f"browser.{how}", tooltip=tooltip, priority=True)


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
        Binding(_MARK, "mark", "Mark", id="browser.mark", tooltip="Mark the file, to take several.", priority=True),
        Binding("escape", "leave", "Cancel", id="browser.leave", tooltip="Clear the filter, or cancel.", priority=True),
        _move("up", "up", "The file above."),
        _move("down", "down", "The file below."),
        _move("pageup", "page_up", "A page up."),
        _move("pagedown", "page_down", "A page down."),
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
        self._asked = self.folder
        """The folder that was asked for last; an answer about another one is too late."""
        self._cache = cache
        self._entries: list[Entry] = []

    def compose(self) -> ComposeResult:
        with Vertical(id="panel"):
            yield Static(id="title", markup=False)
            yield FilterInput(placeholder="Type to filter", id="filter", compact=True)
            with Horizontal(id="body"):
                yield FileList(self.marked, id="files")
                with Vertical(id="preview"):
                    yield Static(id="facts", markup=False)
            yield Static("enter attaches · space marks · ← folder above · ~ home · . hidden · esc", id="keys")

    def on_mount(self) -> None:
        self.query_one(FilterInput).focus()
        self._open(self.folder)

    @on(FilterInput.BrowserKey)
    def _browser_key(self, event: FilterInput.BrowserKey) -> None:
        match event.key:
            case "space":
                self.action_mark()
            case "~":
                self._open(Path.home())
            case _:
                self._open(self._asked.parent)

    @on(Input.Changed)
    def _filter_changed(self) -> None:
        self._show()

    @on(Listed)
    def _listed(self, event: Listed) -> None:
        if event.folder != self._asked:
            return
        if isinstance(event.outcome, VlmtuiError):
            self._asked = self.folder
            self.notify(one_line(event.outcome.message), severity="error", markup=False)
            return
        came_from = self.folder
        self.folder, self._entries = event.folder, event.outcome
        self.query_one(FilterInput).value = ""
        self._show(highlight=came_from)

    @on(FileList.Highlighted)
    def _highlighted(self, event: FileList.Highlighted) -> None:
        if self.has_class("-wide"):
            self._preview(event.entry)

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
            self._open(entry.path)
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
        self._show_title()
        self.query_one(FileList).refresh()
        self.action_move("down")

    def action_leave(self) -> None:
        """Clear the filter; leave when it is empty."""
        entered = self.query_one(FilterInput)
        if entered.value:
            entered.value = ""
        else:
            self.dismiss(None)

    def action_move(self, how: str) -> None:
        """Move the highlight."""
        self.query_one(FileList).action_move(how)

    @property
    def _current(self) -> Entry | None:
        return self.query_one(FileList).current

    def _show(self, highlight: Path | None = None) -> None:
        wanted = self.query_one(FilterInput).value.lower()
        names = ((entry, entry.path.name.lower()) for entry in self._entries)
        shown = [
            entry for entry, name in names if wanted in name and (wanted.startswith(".") or not name.startswith("."))
        ]
        self.query_one(FileList).show(shown, highlight=highlight)
        self._show_title()
        if not shown:
            self.query_one("#facts", Static).update("Nothing here that can be attached.")

    def _show_title(self) -> None:
        """The count before the path: a long path is cut off."""
        count = f"{len(self.marked)} marked  ·  " if self.marked else ""
        self.query_one("#title", Static).update(count + one_line(str(self.folder)))

    def _open(self, folder: Path) -> None:
        """Show this folder as soon as it is listed, unless another one is asked for before."""
        self._asked = folder
        self._list(folder)

    @work(thread=True, exit_on_error=False, group="list", exclusive=True)
    def _list(self, folder: Path) -> None:
        try:
            self.post_message(self.Listed(folder, list_folder(folder)))
        except VlmtuiError as error:
            self.post_message(self.Listed(folder, error))

    @work(thread=True, exit_on_error=False, group="preview", exclusive=True)
    def _preview(self, entry: Entry) -> None:
        worker = get_current_worker()
        if worker.is_cancelled:
            return
        seen = _previewed(entry)
        if not worker.is_cancelled:
            self.post_message(seen)


def _previewed(entry: Entry) -> BrowserScreen.Previewed:
    """Blocking."""
    if entry.is_folder:
        return BrowserScreen.Previewed(entry.path, None, "Folder")
    from vlmtui.media.preview import preview

    try:
        image, facts = preview(entry.path, _PREVIEW_PX)
    except VlmtuiError as error:
        why = "\n".join(one_line(text) for text in (error.message, error.detail) if text)
        return BrowserScreen.Previewed(entry.path, None, why)
    return BrowserScreen.Previewed(entry.path, image, f"{one_line(entry.path.name)}\n{facts}")
