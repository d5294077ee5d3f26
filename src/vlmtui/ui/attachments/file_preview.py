"""The preview of the highlighted file."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.cells import cell_len
from textual import events, on, work
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Static

from vlmtui.domain.attachment import Modality
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.media.folder import FolderEntry
from vlmtui.reading import shown_name
from vlmtui.session.cost import EstimateTokens
from vlmtui.text import one_line
from vlmtui.ui.terminal.graphics import Graphics

if TYPE_CHECKING:
    from PIL.Image import Image

_PIXELS = (400, 400)
_WAVEFORM = (320, 80)
_KEPT_MAX = 24
"""Most pictures cached for going back; half a megabyte each."""
_DELAY_S = 0.08
"""Seconds that the highlight must rest on a file before it is opened, so that a held arrow key opens none."""
_ROWS_MIN = 4
"""Fewest rows for a picture; below that, the facts share a line."""


class FilePreview(Vertical):
    """A picture, or a video's first frame, above its facts. Opens one file at a time; files scrolled past are
    skipped."""

    DEFAULT_CSS = """
    FilePreview {
        .facts { width: 100%; height: auto; color: $muted; }
        .picture { margin-bottom: 1; }
    }
    """

    @dataclass
    class PreviewReady(Message):
        """A file's picture, if it has one, and its facts or its problem."""

        entry: FolderEntry
        image: Image | None
        facts: tuple[str, ...]

    def __init__(self, estimate: EstimateTokens | None = None, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._estimate = estimate
        self._wanted: FolderEntry | None = None
        self._opening: FolderEntry | None = None
        self._seen: OrderedDict[FolderEntry, FilePreview.PreviewReady] = OrderedDict()
        self._timer: Timer | None = None

    def compose(self) -> ComposeResult:
        yield Static(classes="facts", markup=False)

    def show(self, entry: FolderEntry | None) -> None:
        """Show this file soon; None: nothing. Only this widget's own handlers draw, so that no two draw at once."""
        self._wanted = entry
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        if entry is None or entry in self._seen:
            self.call_later(self._draw_wanted)
        else:
            self._timer = self.set_timer(_DELAY_S, self._open)

    @property
    def facts_text(self) -> str:
        """Return the facts as text."""
        return str(self.query_one(".facts", Static).render())

    @on(events.Resize)
    async def _draw_wanted(self) -> None:
        seen = None if self._wanted is None else self._seen.get(self._wanted)
        if seen is not None:
            self._seen.move_to_end(seen.entry)
            await self._draw(seen.image, seen.facts)
        elif self._wanted is None:
            await self._draw(None, ())

    @on(PreviewReady)
    async def _looked_at(self, event: PreviewReady) -> None:
        event.stop()
        self._opening = None
        self._seen[event.entry] = event
        while len(self._seen) > _KEPT_MAX:
            self._seen.popitem(last=False)
        if self._wanted == event.entry:
            await self._draw_wanted()
        else:
            self._open()

    def _open(self) -> None:
        """Open the wanted file, unless another one is still open: its end returns here."""
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
            picture.add_class("picture")
            await self.mount(picture, before=0)

    @work(thread=True, group="look")
    def _look(self, entry: FolderEntry) -> None:
        self.post_message(preview_file(entry, self._estimate))


def preview_file(entry: FolderEntry, estimate: EstimateTokens | None = None) -> FilePreview.PreviewReady:
    """Return a file's preview; a problem is described in its facts. Blocking."""
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.modified))
    if entry.is_folder:
        return FilePreview.PreviewReady(entry, None, ("Folder", when))
    from vlmtui.text import human_bytes

    try:
        found = _first_picture(entry.path)
    except VlmtuiError as error:
        told = tuple(one_line(text) for text in (error.message, error.hint or error.detail) if text)
        return FilePreview.PreviewReady(entry, None, told)
    tokens = estimate(found.modality, found.size, found.frames) if estimate else None
    cost = () if tokens is None else (f"~{tokens:,} tokens",)
    facts = (entry.shown, *found.facts, f"{human_bytes(entry.size)} · {when}", *cost)
    return FilePreview.PreviewReady(entry, found.image, facts)


class _Picture(NamedTuple):
    """A small upright RGB picture, its media kind, its full size in pixels, and its facts."""

    image: Image
    modality: Modality
    size: tuple[int, int]
    facts: tuple[str, ...]
    frames: int | None = None
    """Frames of an animation; a video's are not counted for a preview."""


def _first_picture(path: Path) -> _Picture:
    """Return the file's picture, or a video's first frame. Raises VlmtuiError."""
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
            raise bad_input(f"{shown_name(path)} is {found.title}, neither a picture, a video nor a sound.")
        case _:
            return _of_image(path, may_move=found.kind is Kind.ANIMATION)


def _of_video(path: Path) -> _Picture:
    from PIL import Image as Pillow

    from vlmtui.domain.attachment import VideoSampling
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
    from vlmtui.media.sound import RATE, read_sound
    from vlmtui.media.sound_picture import draw_sound

    samples = read_sound(path)
    return _Picture(draw_sound(samples, _WAVEFORM), "audio", (0, 0), (human_duration(len(samples) / RATE),))


def _of_document(path: Path) -> _Picture:
    from vlmtui.media.pdf import page_picture

    drawn = page_picture(path)
    pages = f"{drawn.pages:,} page{'s' if drawn.pages != 1 else ''} · {shown_name(path)}#page=3-7 attaches some"
    size = drawn.image.size
    drawn.image.thumbnail(_PIXELS)
    return _Picture(drawn.image, "image", size, (pages,))


def _of_image(path: Path, *, may_move: bool) -> _Picture:
    from PIL import ExifTags, ImageOps

    from vlmtui.media.images import BYTES_MAX, DECODER_ERRORS, open_image
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
            small = _plain(ImageOps.exif_transpose(image))
            small.thumbnail(_PIXELS)
        except DECODER_ERRORS as error:
            raise bad_input(f"{shown_name(path)} can't be shown.", detail=str(error)) from error
    told = f"{width} × {height} pixels" + (f" · {frames} frames" if frames > 1 else "")
    return _Picture(small, "video" if may_move and frames > 1 else "image", (width, height), (told,), frames)


def _plain(image: Image) -> Image:
    from vlmtui.media.colour import to_rgb

    image.load()
    return to_rgb(image).pixels
