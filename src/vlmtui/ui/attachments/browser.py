"""The file browser: chooses images and videos by keyboard."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Container, Vertical
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from vlmtui.errors import VlmtuiError
from vlmtui.media.folder import FolderEntry, FolderView, list_folder, list_folders, typed_path
from vlmtui.session.cost import EstimateTokens
from vlmtui.session.recent_folders import RecentFolders
from vlmtui.text import one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.attachments.file_list import FileList, FilterInput, FolderTitle, KeyHint
from vlmtui.ui.attachments.file_preview import FilePreview

_WIDE = 100
_TALL = 40
_SLOW_S = 0.3
"""Seconds after which "Reading …" is shown for a slow folder."""
_EMPTY = "Nothing to attach here."
_EMPTY_RECENT = "No recent folders yet. They appear after you attach a file."


class BrowserScreen(ModalScreen[list[Path] | None]):
    """Returns the chosen files, or None. `folder` is the folder shown last."""

    CSS_PATH = "browser.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (_WIDE, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (_TALL, "-tall")]
    SCOPE = "browser"
    BINDINGS = bindings(SCOPE)

    @dataclass
    class FolderRead(Message):
        """A folder's entries, or why it cannot be read. Without a folder: the recent ones."""

        folder: Path | None
        outcome: list[FolderEntry] | VlmtuiError

    def __init__(
        self,
        folder: Path,
        *,
        recent: RecentFolders | None = None,
        look: FolderView | None = None,
        estimate: EstimateTokens | None = None,
    ) -> None:
        """`recent` remembers the chosen files. `look` is updated with the user's changes. `estimate` returns the
        tokens of an attachment."""
        super().__init__()
        self._estimate = estimate
        self.folder = folder.absolute()
        self._marks: dict[Path, FolderEntry] = {}
        self._asked: Path | None = self.folder
        """The folder requested last; results for another one are outdated. None: the recent folders."""
        self._shows_recent = False
        self._recent = recent
        self._look = look or FolderView()
        self._entries: list[FolderEntry] = []
        self._trouble = ""
        """Why the typed folder cannot be shown."""

    def compose(self) -> ComposeResult:
        with Vertical(id="panel"):
            yield FolderTitle(id="title")
            yield Static(id="state", markup=False)
            yield FilterInput(placeholder="Type to filter, or a path", id="filter", compact=True)
            with Container(id="body"):
                yield FileList(self._marks, id="files")
                yield FilePreview(self._estimate, id="preview")
            yield KeyHint(id="keys")

    def on_mount(self) -> None:
        self.query_one(FilterInput).focus()
        self._open(self.folder)

    @property
    def marked(self) -> list[Path]:
        """The marked files, in the order of marking."""
        return list(self._marks)

    @on(FilterInput.BrowserKey)
    def _browser_key(self, event: FilterInput.BrowserKey) -> None:
        match event.key:
            case "space":
                self.action_mark()
            case "home" | "end":
                self.action_move("first" if event.key == "home" else "last")
            case _ if self._shows_recent:
                self._open(self.folder)
            case _:
                self._open((self._asked or self.folder).parent)

    @on(Input.Changed)
    def _filter_changed(self, event: Input.Changed) -> None:
        typed = typed_path(event.value)
        if typed and typed[0] != self._asked:
            self._open(typed[0])
        else:
            self._trouble = ""
        self._show()

    @on(FolderRead)
    def _listed(self, event: FolderRead) -> None:
        if event.folder != self._asked:
            return
        typed = typed_path(self._filter.value)
        is_typed = typed is not None and typed[0] == event.folder
        if isinstance(event.outcome, VlmtuiError):
            self._asked = None if self._shows_recent else self.folder
            if is_typed:
                self._trouble = one_line(event.outcome.message)
                self._show()
            else:
                self.notify(one_line(event.outcome.message), severity="error", markup=False)
                self._show_state()
            return
        self._trouble = ""
        came_from = None if self._shows_recent else self.folder
        self._shows_recent = event.folder is None
        self.folder = event.folder or self.folder
        self._entries = event.outcome
        if not is_typed:
            self._filter.value = ""
            self._filter.is_browsing = True
        self._show(highlight=came_from)

    @on(FileList.Highlighted)
    def _highlighted(self, event: FileList.Highlighted) -> None:
        self.query_one(FilePreview).show(event.entry)

    def action_choose(self) -> None:
        """Open the highlighted folder; attach the marked files, or else the highlighted one."""
        entry = self._current
        typed = typed_path(self._filter.value)
        if self._asked != (None if self._shows_recent else self.folder):
            return
        if self._trouble:
            self.notify(self._trouble, severity="error", markup=False)
        elif typed and not typed[1] and not self._filter.is_browsing:
            self._filter.value = ""
        elif entry is not None and entry.is_folder:
            self._open(entry.path)
        elif self._marks:
            self._leave_with(self.marked)
        elif entry is not None:
            self._leave_with([entry.path])

    def action_mark(self) -> None:
        """Mark or unmark the highlighted file."""
        entry = self._current
        if entry is None or entry.is_folder:
            return
        if entry.path in self._marks:
            del self._marks[entry.path]
        else:
            self._marks[entry.path] = entry
        self._show_state()
        self.query_one(FileList).refresh()
        self.action_move("down")

    def action_mark_all(self) -> None:
        """Mark all files shown, or unmark them if all are marked."""
        files = {entry.path: entry for entry in self.query_one(FileList).entries if not entry.is_folder}
        if files.keys() <= self._marks.keys():
            for path in files:
                del self._marks[path]
        else:
            self._marks.update(files)
        self._show_state()
        self.query_one(FileList).refresh()

    def action_sort(self) -> None:
        """Switch to the next sort order."""
        self._look.sort = self._look.sort.next
        self._show()

    def action_media(self) -> None:
        """Switch to the next kind of files."""
        self._look.media = self._look.media.next
        self._show()

    def action_hidden(self) -> None:
        """Show or hide files that begin with a dot."""
        self._look.hidden = not self._look.hidden
        self._show()

    def action_recent(self) -> None:
        """Switch between the folder and the recent folders."""
        self._open(self.folder if self._shows_recent else None)

    def action_complete(self) -> None:
        """Complete the typed path with the highlighted name."""
        entry, value = self._current, self._filter.value
        if entry is not None and typed_path(value) and entry.name == one_line(entry.name):
            head = value if "/" not in value else value.rpartition("/")[0]
            self._filter.value = f"{head}/{entry.name}{'/' if entry.is_folder else ''}"
            self._filter.is_browsing = False
            self._filter.cursor_position = len(self._filter.value)

    def action_leave(self) -> None:
        """Clear the filter; close the browser if it is empty."""
        if self._filter.value:
            self._filter.value = ""
        elif self._shows_recent:
            self._open(self.folder)
        else:
            self.dismiss(None)

    def action_move(self, how: str) -> None:
        self._filter.is_browsing = True
        self.query_one(FileList).action_move(how)

    @property
    def _filter(self) -> FilterInput:
        return self.query_one(FilterInput)

    @property
    def _current(self) -> FolderEntry | None:
        return self.query_one(FileList).current

    def _leave_with(self, files: list[Path]) -> None:
        if self._recent is not None:
            self._recent.remember(files)
        self.dismiss(files)

    def _show(self, highlight: Path | None = None) -> None:
        """Show the matching entries, and keep the highlight if possible."""
        typed = typed_path(self._filter.value)
        wanted = typed[1] if typed else self._filter.value
        shown = [] if self._trouble else self._look.shown(self._entries, wanted)
        # The recent folders are sorted already, newest first.
        shown = shown if self._shows_recent else self._look.arranged(shown)
        if typed and wanted:
            highlight = next((entry.path for entry in shown if entry.name == wanted), None)
        elif highlight is None and self._current is not None:
            highlight = self._current.path
        otherwise = "" if self._trouble else _EMPTY_RECENT if self._shows_recent else _EMPTY
        self.query_one(FileList).show(shown, highlight=highlight, otherwise=otherwise)
        self._show_state()
        if not shown:
            self.call_later(self.query_one(FilePreview).show, None)

    def _show_state(self) -> None:
        self.query_one(FolderTitle).show(None if self._shows_recent else self.folder, "Recent folders")
        shown = self.query_one(FileList).entries
        told = self._look.summary(self._entries, shown, self._marks.values(), are_recent=self._shows_recent)
        self.query_one("#state", Static).update(self._trouble or told)
        self.query_one("#state").set_class(bool(self._trouble), "-trouble")

    def _open(self, folder: Path | None) -> None:
        """Show this folder, or the recent ones, once it is read, unless another one is requested before."""
        self._asked = folder
        self._list(folder)
        self.set_timer(_SLOW_S, self._tell_slow)

    def _tell_slow(self) -> None:
        if self._asked is not None and self._asked != self.folder:
            self.query_one("#state", Static).update(f"Reading {one_line(str(self._asked))} …")

    @work(thread=True, group="list", exclusive=True)
    def _list(self, folder: Path | None) -> None:
        try:
            found = (
                list_folders(self._recent.folders if self._recent else ()) if folder is None else list_folder(folder)
            )
            self.post_message(self.FolderRead(folder, found))
        except VlmtuiError as error:
            self.post_message(self.FolderRead(folder, error))
