"""The file browser: folders and media files with a filter, marks and a preview."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from rich.cells import cell_len
from textual import events, on, work
from textual.app import ComposeResult
from textual.containers import Container, Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widgets import Input, Static

from vlmtui.domain.conversation import Modality
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.media.folder import FolderEntry, FolderView, home_short, list_folder, typed_path
from vlmtui.reading import shown_name
from vlmtui.session.cost import EstimateTokens
from vlmtui.text import counted, human_bytes, one_line
from vlmtui.ui.actions import ACTIONS, bindings
from vlmtui.ui.keys import LEADER, hint, shown_keys, spell_key
from vlmtui.ui.terminal.graphics import Graphics
from vlmtui.ui.widgets.line_editing import LineInput
from vlmtui.ui.widgets.row_list import RowList

if TYPE_CHECKING:
    from PIL.Image import Image


_SIZE = 9
_NAME_MIN = 12


class FileList(RowList[FolderEntry]):
    """One line for each file. The filter keeps the focus, and the screen moves the highlight."""

    can_focus = False

    def __init__(self, marked: Mapping[Path, FolderEntry], *, id: str | None = None) -> None:
        """`marked`: the marked files, read whenever a line is drawn."""
        super().__init__(id=id)
        self._marked = marked

    def draw(self, index: int, width: int) -> list[Content]:
        entry = self.rows[index]
        mark = "● " if entry.path in self._marked else "  "
        when = time.strftime("%Y-%m-%d", time.localtime(entry.modified))
        facts = f"{'' if entry.is_folder else human_bytes(entry.size):>{_SIZE}}  {when}"
        room = max(_NAME_MIN, width - len(mark) - len(facts) - 1)
        name = Content.styled(entry.shown, "$text-accent" if entry.is_folder else "").truncate(room, ellipsis=True)
        name = name.pad_right(room - name.cell_length)
        return [Content.assemble((mark, "$accent"), name, " ", (facts, "$muted"))]


class FolderTitle(Static):
    """The folder's path; a long one is cut at the start."""

    DEFAULT_CSS = "FolderTitle { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False)
        self._text = ""

    def show(self, folder: Path) -> None:
        self._text = one_line(home_short(folder))
        self._fit()

    @on(events.Resize)
    def _fit(self) -> None:
        room = self.content_size.width
        self.update(_fitting(self._text, room) if room else self._text)


class FilterInput(LineInput):
    """The filter field, which keeps the focus. While it is empty, it passes Backspace, Left, Home and End to the
    browser; after an arrow key it passes Space."""

    is_browsing = True
    """True if Space marks a file. False while the user types a filter or path."""

    @dataclass
    class BrowserKey(Message):
        """A key that the filter field passes to the browser: `space`, `backspace`, `left`, `home` or `end`."""

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


def _fitting(path: str, width: int) -> str:
    """Return the path; if it is wider than `width` cells, return only its end."""
    if cell_len(path) <= width:
        return path
    at, width = len(path), width - 1
    while at and (width := width - cell_len(path[at - 1])) >= 0:
        at -= 1
    return "…" + path[at:]


_PIXELS = (400, 400)
_WAVEFORM = (320, 80)
_KEPT_MAX = 24
"""Maximum number of cached previews; half a megabyte each."""
_DELAY_S = 0.08
"""Seconds that the highlight must rest on a file before it is opened, so that a held arrow key opens none."""
_ROWS_MIN = 4
"""Minimum rows for an image; a lower preview shows only the facts, in one line."""


class Preview(NamedTuple):
    """A file's preview image, if it has one, and facts about the file or the problem."""

    image: Image | None
    facts: tuple[str, ...]


class FilePreview(Vertical):
    """The preview image of a file, above facts about the file. Opens one file at a time; files that the user scrolls
    past are not opened."""

    DEFAULT_CSS = """
    FilePreview {
        .facts { width: 100%; height: auto; color: $muted; }
        .picture { margin-bottom: 1; }
    }
    """

    def __init__(self, estimate: EstimateTokens | None = None, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._estimate = estimate
        self._wanted: FolderEntry | None = None
        self._opening: FolderEntry | None = None
        self._seen: OrderedDict[FolderEntry, Preview] = OrderedDict()
        self._timer: Timer | None = None

    def compose(self) -> ComposeResult:
        yield Static(classes="facts", markup=False)

    def show(self, entry: FolderEntry | None) -> None:
        """Show a file after a short delay; None: show nothing. All drawing happens in this widget's message handlers,
        so two drawings never overlap."""
        if entry == self._wanted:
            return
        self._wanted = entry
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        if entry is None or entry in self._seen:
            self.call_later(self._draw_wanted)
        else:
            self._timer = self.set_timer(_DELAY_S, self._open)

    @on(events.Resize)
    async def _draw_wanted(self) -> None:
        if self._wanted is None:
            await self._draw(None, ())
        elif self._wanted in self._seen:
            self._seen.move_to_end(self._wanted)
            await self._draw(*self._seen[self._wanted])

    def _open(self) -> None:
        """Start reading the highlighted file. If another file is being read, the end of that reading calls this method
        again."""
        if self._opening is None and self._wanted is not None and self._wanted not in self._seen:
            self._opening = self._wanted
            self._look(self._wanted)

    async def _draw(self, image: Image | None, facts: tuple[str, ...]) -> None:
        await self.query(".picture").remove()
        width, height = self.content_size
        is_low = height < _ROWS_MIN
        self.query_one(".facts", Static).update((" · " if is_low else "\n").join(facts))
        # Long names wrap below the picture; wrapping at words may need one more row.
        rows = height - 1 - sum(1 + cell_len(fact) // max(1, width) for fact in facts)
        if image is None or is_low or rows < 1:
            return
        picture = Graphics.of(self.app).widget_for(image, columns=width, rows=rows)
        if picture is not None:
            await self.mount(picture, before=0)

    @work(group="look")
    async def _look(self, entry: FolderEntry) -> None:
        self._seen[entry] = await asyncio.to_thread(preview_file, entry, self._estimate)
        self._opening = None
        if len(self._seen) > _KEPT_MAX:
            self._seen.popitem(last=False)
        if self._wanted == entry:
            self.call_later(self._draw_wanted)
        else:
            self._open()


def preview_file(entry: FolderEntry, estimate: EstimateTokens | None = None) -> Preview:
    """Return a file's preview; a problem is described in its facts. Blocking."""
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.modified))
    if entry.is_folder:
        return Preview(None, ("Folder", when))
    try:
        found = _first_picture(entry.path)
    except VlmtuiError as error:
        told = tuple(one_line(text) for text in (error.message, error.hint or error.detail) if text)
        return Preview(None, told)
    tokens = estimate(found.modality, found.size, found.frames) if estimate else None
    cost = () if tokens is None else (f"~{tokens:,} tokens",)
    facts = (entry.shown, *found.facts, f"{human_bytes(entry.size)} · {when}", *cost)
    return Preview(found.image, facts)


class _Picture(NamedTuple):
    """A preview image (upright, RGB), the file's modality, its full size in pixels, and its facts."""

    image: Image
    modality: Modality
    size: tuple[int, int]
    facts: tuple[str, ...]
    frames: int | None = None
    """Number of frames of an animation; None for a video, whose frames are not counted."""


def _first_picture(path: Path) -> _Picture:
    """Return an image, a video's first frame, audio's waveform or a document's first page. Raises VlmtuiError."""
    from vlmtui.media.sniff import Kind
    from vlmtui.media.stage import file_type, is_sound

    found = file_type(path)
    match found.kind:
        case Kind.SOUND:
            return _of_sound(path)
        case Kind.VIDEO:
            return _of_sound(path) if is_sound(path, found) else _of_video(path)
        case Kind.DOCUMENT:
            return _of_document(path)
        case Kind.OTHER:
            raise bad_input(f"{shown_name(path)} is {found.title}, neither an image, a video nor a sound.")
        case _:
            return _of_image(path, may_move=found.kind is Kind.ANIMATION)


def _of_video(path: Path) -> _Picture:
    from PIL import Image as Pillow

    from vlmtui.domain.conversation import VideoSampling
    from vlmtui.media.describe import human_duration
    from vlmtui.media.frames import sample_frames

    video = sample_frames(path, VideoSampling(num_frames=1))
    image = Pillow.fromarray(video.frames[0])
    size = image.size
    image.thumbnail(_PIXELS)
    told = (f"{size[0]} × {size[1]} pixels", f"{human_duration(video.duration_s)} · {video.fps:.4g} frames/s")
    return _Picture(image, "video", size, told)


def _of_sound(path: Path) -> _Picture:
    from vlmtui.media.describe import human_duration
    from vlmtui.media.sound import RATE, draw_sound, read_sound

    samples = read_sound(path)
    return _Picture(draw_sound(samples, _WAVEFORM), "audio", (0, 0), (human_duration(len(samples) / RATE),))


def _of_document(path: Path) -> _Picture:
    from vlmtui.media.pages import page_picture

    drawn = page_picture(path)
    pages = f"{counted(drawn.pages, 'page')} · {shown_name(path)}#page=3-7 attaches some"
    size = drawn.image.size
    drawn.image.thumbnail(_PIXELS)
    return _Picture(drawn.image, "image", size, (pages,))


def _of_image(path: Path, *, may_move: bool) -> _Picture:
    from PIL import ExifTags

    from vlmtui.media.images import BYTES_MAX, DECODER_ERRORS, open_image, to_rgb
    from vlmtui.media.pages import count_parts, most_parts
    from vlmtui.reading import read_whole

    data = read_whole(path, bytes_max=BYTES_MAX)
    with open_image(data, path) as image:
        width, height = image.size
        try:
            frames = count_parts(image, most_parts(image, len(data)))
            if image.getexif().get(ExifTags.Base.Orientation) in (5, 6, 7, 8):
                width, height = height, width
            # Decode large photos at reduced size, which saves most of the time. It changes `image.size`.
            image.draft("RGB", (_PIXELS[0] * 2, _PIXELS[1] * 2))
            small = to_rgb(image).pixels
            small.thumbnail(_PIXELS)
        except DECODER_ERRORS as error:
            raise bad_input(f"{shown_name(path)} can't be shown.", detail=str(error)) from error
    told = f"{width} × {height} pixels" + (f" · {frames} frames" if frames > 1 else "")
    return _Picture(small, "video" if may_move and frames > 1 else "image", (width, height), (told,), frames)


_WIDE = 100
_TALL = 40
_SLOW_S = 0.3
"""Seconds after which "Reading …" is shown for a slow folder."""
_EMPTY = "Nothing to attach here."


class FilesChoice(msgspec.Struct, frozen=True):
    """The files chosen in the browser, and the folder that it showed last."""

    paths: tuple[Path, ...]
    folder: Path


class BrowserScreen(ModalScreen[list[Path] | None]):
    """The browser; returns the chosen files, or None if cancelled. `folder` is the folder shown last."""

    CSS_PATH = "browser.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (_WIDE, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (_TALL, "-tall")]
    SCOPE = "browser"
    BINDINGS = bindings(SCOPE)

    def __init__(
        self,
        folder: Path,
        *,
        look: FolderView | None = None,
        estimate: EstimateTokens | None = None,
    ) -> None:
        """`look`: the sort order, and whether hidden files are shown; the user can change both. `estimate`: returns the
        tokens of an attachment."""
        super().__init__()
        self.folder = folder.absolute()
        self._marks: dict[Path, FolderEntry] = {}
        self._requested = self.folder
        """The folder requested last, whose entries may not be read yet."""
        self._look = look or FolderView()
        self._entries: list[FolderEntry] = []
        self._shown: list[FolderEntry] = []
        """The entries that match the filter, as sorted."""
        self._problem = ""
        """Why the typed folder can't be shown; empty: it can."""
        self._filter = FilterInput(placeholder="Type to filter, or a path", id="filter", compact=True)
        self._files = FileList(self._marks, id="files")
        self._preview = FilePreview(estimate, id="preview")

    def compose(self) -> ComposeResult:
        with Vertical(id="panel"):
            yield FolderTitle(id="title")
            yield Static(id="state", markup=False)
            yield self._filter
            with Container(id="body"):
                yield self._files
                yield self._preview
            yield Static(self._keys, id="keys", markup=False)

    def on_mount(self) -> None:
        self._filter.focus()
        self._open(self.folder)

    @property
    def marked(self) -> list[Path]:
        """The marked files, in the order in which the user marked them."""
        return list(self._marks)

    @on(FilterInput.BrowserKey)
    def _browser_key(self, event: FilterInput.BrowserKey) -> None:
        match event.key:
            case "space":
                self.action_mark()
            case "home" | "end":
                self.action_move("first" if event.key == "home" else "last")
            case _:
                self._open(self._requested.parent)

    @on(Input.Changed)
    def _filter_changed(self, event: Input.Changed) -> None:
        typed = typed_path(event.value)
        if typed and typed[0] != self._requested:
            self._open(typed[0])
        else:
            self._problem = ""
        self._show()

    @on(RowList.Highlighted)
    def _highlighted(self) -> None:
        self._preview.show(self._files.current)

    @on(RowList.Opened)
    def action_choose(self) -> None:
        """Open the highlighted folder; attach the marked files, or else the highlighted one."""
        entry = self._files.current
        typed = typed_path(self._filter.value)
        if self._requested != self.folder:
            return
        if self._problem:
            self.notify(self._problem, severity="error", markup=False)
        elif typed and not typed[1] and not self._filter.is_browsing:
            self._filter.value = ""
        elif entry is not None and entry.is_folder:
            self._open(entry.path)
        elif self._marks:
            self.dismiss(self.marked)
        elif entry is not None:
            self.dismiss([entry.path])

    def action_mark(self) -> None:
        entry = self._files.current
        if entry is None or entry.is_folder:
            return
        if entry.path in self._marks:
            del self._marks[entry.path]
        else:
            self._marks[entry.path] = entry
        self._show_state()
        self._files.refresh()
        self.action_move("down")

    def action_mark_all(self) -> None:
        files = {entry.path: entry for entry in self._shown if not entry.is_folder}
        if files.keys() <= self._marks.keys():
            for path in files:
                del self._marks[path]
        else:
            self._marks.update(files)
        self._show_state()
        self._files.refresh()

    def action_sort(self) -> None:
        self._look.sort = self._look.sort.next
        self._show()

    def action_hidden(self) -> None:
        self._look.hidden = not self._look.hidden
        self._show()

    def action_complete(self) -> None:
        entry, value = self._files.current, self._filter.value
        if entry is not None and typed_path(value) and entry.name == one_line(entry.name):
            head = value if "/" not in value else value.rpartition("/")[0]
            self._filter.value = f"{head}/{entry.name}{'/' if entry.is_folder else ''}"
            self._filter.is_browsing = False
            self._filter.cursor_position = len(self._filter.value)

    def action_leave(self) -> None:
        if self._filter.value:
            self._filter.value = ""
        else:
            self.dismiss(None)

    def action_move(self, how: str) -> None:
        self._filter.is_browsing = True
        self._files.action_move(how)

    @property
    def _keys(self) -> str:
        first = f"{hint(self.app, 'browser.choose')} · Space Mark · ← Parent folder · ~ / Path"
        by_letter = (ACTIONS[f"browser.{name}"] for name in ("mark_all", "sort", "hidden"))
        second = " · ".join(f"{spell_key(action.leader)} {action.title}" for action in by_letter)
        return f"{first} · {hint(self.app, 'browser.leave')}\n{shown_keys(self.app, ACTIONS[LEADER])}… {second}"

    def _show(self, highlight: Path | None = None) -> None:
        typed = typed_path(self._filter.value)
        wanted = typed[1] if typed else self._filter.value
        shown = [] if self._problem else self._look.arranged(self._look.shown(self._entries, wanted))
        if typed and wanted:
            highlight = next((entry.path for entry in shown if entry.name == wanted), None)
        elif highlight is None and self._files.current is not None:
            highlight = self._files.current.path
        empty = "" if self._problem else _EMPTY
        at = next((at for at, entry in enumerate(shown) if entry.path == highlight), 0)
        self._shown = shown
        self._files.show(shown, highlight=at, empty=empty)
        self._show_state()

    def _show_state(self) -> None:
        self.query_one(FolderTitle).show(self.folder)
        told = self._look.summary(self._entries, self._shown, self._marks.values())
        self.query_one("#state", Static).update(self._problem or told)
        self.query_one("#state").set_class(bool(self._problem), "-trouble")

    def _open(self, folder: Path) -> None:
        """Read a folder in a thread. Show it, unless the user has opened another one meanwhile."""
        self._requested = folder
        self._list(folder)
        self.set_timer(_SLOW_S, self._tell_slow)

    def _tell_slow(self) -> None:
        if self._requested != self.folder:
            self.query_one("#state", Static).update(f"Reading {one_line(str(self._requested))} …")

    @work(group="list", exclusive=True)
    async def _list(self, folder: Path) -> None:
        try:
            entries = await asyncio.to_thread(list_folder, folder)
        except VlmtuiError as error:
            self._requested = self.folder
            if self._is_typed(folder):
                self._problem = one_line(error.message)
                self._show()
            else:
                self.notify(one_line(error.message), severity="error", markup=False)
                self._show_state()
            return
        self._problem = ""
        came_from, self.folder, self._entries = self.folder, folder, entries
        if not self._is_typed(folder):
            self._filter.value = ""
            self._filter.is_browsing = True
        self._show(highlight=came_from)

    def _is_typed(self, folder: Path) -> bool:
        typed = typed_path(self._filter.value)
        return typed is not None and typed[0] == folder
