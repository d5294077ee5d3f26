"""What the model sees of a prompt's attachments, beside the original, what was sent, and the difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from textual import events, on, work
from textual.app import ComposeResult
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.widgets import OptionList, Static
from textual.worker import get_current_worker

from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.inspection.grounding import GroundingMark, PlacedMark
from vlmtui.session.model_view import ModelView
from vlmtui.session.opened_view import VIEW_KINDS, OpenedView, ViewKind, open_model_view
from vlmtui.text import one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.keys import short_keys
from vlmtui.ui.seeing.picture_and_list import clicked_place, picture_and_list, show_drawing
from vlmtui.ui.terminal.graphics import Graphics
from vlmtui.ui.widgets.attachment_view import name_line
from vlmtui.ui.widgets.marked_picture import MarkedDrawing, draw_marked, mark_at

if TYPE_CHECKING:
    from PIL.Image import Image

_TITLES: dict[ViewKind, str] = {
    "original": "The original file",
    "sent": "What was sent",
    "seen": "What the model sees",
    "difference": "The difference, four times as bright",
}
_LAYOUTS = {"": "in a layout that cannot be read", "picture": "one picture", "tiles": "tiles", "patches": "patches"}


class _Wanted(NamedTuple):
    """What a drawing is made for."""

    at: int
    number: int
    kind: ViewKind
    room: tuple[int, int]


class ModelViewScreen(Screen[None]):
    """One key flicks between the views; beside them the pictures, tiles or frames, with their tokens."""

    CSS_PATH = "seeing.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]
    SCOPE = "model_view"
    BINDINGS = bindings(SCOPE)

    @dataclass
    class Opened(Message):
        """The pictures of an attachment, or why they cannot be shown."""

        at: int
        outcome: OpenedView | VlmtuiError

    @dataclass
    class Drawn(Message):
        """A drawing, or why there is none; what it was made for, and a line about it."""

        outcome: MarkedDrawing | VlmtuiError
        wanted: object
        said: str

    def __init__(self, views: Sequence[ModelView], numbers: Sequence[int]) -> None:
        """`numbers`: the attachments' numbers in the conversation."""
        super().__init__()
        self.at = 0
        self.kind: ViewKind = "seen"
        self.opened: OpenedView | None = None
        self.shown: object = None
        """What the drawing on the screen was made for; None while there is none."""
        self._views = views
        self._numbers = numbers

    def compose(self) -> ComposeResult:
        yield from picture_and_list()

    def on_mount(self) -> None:
        self.set_class(Graphics.of(self.app).mode == "off", "-off")
        self.query_one(OptionList).focus()
        self._turn_to(0)

    @on(events.Resize)
    def _resized(self) -> None:
        self.call_after_refresh(self._redraw)

    @on(OptionList.OptionHighlighted)
    def _highlighted(self) -> None:
        self._redraw()

    def on_click(self, event: events.Click) -> None:
        """Go to the tile that was clicked, or else show the next view."""
        opened = self.opened
        sent = opened.sent[0].size if opened is not None and opened.sent else (1, 1)
        place = clicked_place(self, event, sent)
        if opened is None or place is None:
            return
        tiles = _tiles(opened) if self.kind == "sent" else []
        at = mark_at(tiles, place.x, place.y, reach=0)
        if at is None:
            self.action_kind(1)
        else:
            self.query_one(OptionList).highlighted = at

    @on(Opened)
    def _opened(self, event: Opened) -> None:
        if event.at != self.at:
            return
        if isinstance(event.outcome, VlmtuiError):
            self._say_why(event.outcome)
            return
        self.opened = event.outcome
        listed = self.query_one(OptionList)
        listed.clear_options()
        listed.add_options(_picture_lines(event.outcome))
        listed.highlighted = 0 if event.outcome.seen else None
        self._tell()
        self._redraw()

    @on(Drawn)
    async def _drawn(self, event: Drawn) -> None:
        if event.wanted != self._wanted:
            return
        stage = self.query_one("#stage")
        self.query_one("#span", Static).update(event.said)
        if isinstance(event.outcome, VlmtuiError):
            await stage.query(".picture").remove()
            self._say_why(event.outcome)
        elif await show_drawing(self, event.outcome):
            self.query_one("#reason").display = False
        self.shown = event.wanted

    def action_close(self) -> None:
        self.dismiss()

    def action_kind(self, step: int) -> None:
        """Show the next view, or the one before."""
        self.action_show(VIEW_KINDS[(VIEW_KINDS.index(self.kind) + step) % len(VIEW_KINDS)])

    def action_show(self, kind: ViewKind) -> None:
        self.kind = kind
        self._tell()
        self._redraw()

    def action_turn(self, step: int) -> None:
        """Show another attachment."""
        if len(self._views) > 1:
            self._turn_to((self.at + step) % len(self._views))

    def action_list(self) -> None:
        """Hide the list, so that the picture has the whole width; or show it again."""
        self.toggle_class("-alone")
        self.call_after_refresh(self._redraw)

    @property
    def _wanted(self) -> _Wanted:
        width, height = self.query_one("#stage").content_size
        return _Wanted(self.at, self.query_one(OptionList).highlighted or 0, self.kind, (width, height))

    def _turn_to(self, at: int) -> None:
        self.at, self.opened, self.shown = at, None, None
        self.query_one(OptionList).clear_options()
        self._tell()
        self._open(at)

    def _tell(self) -> None:
        view = self._views[self.at]
        keys = short_keys(self.app, *(f"model_view.{kind}" for kind in VIEW_KINDS), last=True)
        self.query_one("#title", Static).update(
            f"{_TITLES[self.kind]} · {name_line(view.attachment, self._numbers[self.at])}"
        )
        place = f"{self.at + 1} of {len(self._views)} · " if len(self._views) > 1 else ""
        self.query_one("#count", Static).update(f"{place}{keys}")
        self.query_one("#convention", Static).update(_about(view))

    def _say_why(self, error: VlmtuiError) -> None:
        reason = self.query_one("#reason", Static)
        reason.update(" ".join(one_line(text) for text in (error.message, error.hint) if text))
        reason.display = True

    def _redraw(self) -> None:
        if self.is_attached and self.opened is not None and self._wanted != self.shown and all(self._wanted.room):
            self._draw(self.opened, self._wanted, Graphics.of(self.app))

    @work(thread=True, group="open", exclusive=True)
    def _open(self, at: int) -> None:
        try:
            self.post_message(self.Opened(at, open_model_view(self._views[at])))
        except VlmtuiError as error:
            self.post_message(self.Opened(at, error))

    @work(thread=True, group="draw", exclusive=True)
    def _draw(self, opened: OpenedView, wanted: _Wanted, graphics: Graphics) -> None:
        worker = get_current_worker()
        image, marks, said = picture_of(opened, wanted.kind, wanted.number)
        if isinstance(image, VlmtuiError):
            self.post_message(self.Drawn(image, wanted, said))
            return
        drawing = draw_marked(image, marks, wanted.number if marks else None, graphics, wanted.room)
        if not worker.is_cancelled:
            self.post_message(self.Drawn(drawing, wanted, said))


def picture_of(opened: OpenedView, kind: ViewKind, number: int) -> tuple[Image | VlmtuiError, list[PlacedMark], str]:
    """Return the picture of a view, the tiles to draw on it, and a line about it. Blocking."""
    medium = opened.view.medium
    match kind:
        case "original":
            size = opened.original.size if not isinstance(opened.original, VlmtuiError) else None
            return opened.original, [], f"{size[0]} × {size[1]} pixels, as in the file" if size else ""
        case "sent":
            image = opened.frame(number)
            told = "; ".join(one_line(note) for note in opened.view.attachment.notes) or "unchanged"
            return image, _tiles(opened), f"{image.width} × {image.height} pixels: {told}"
    if not opened.seen:
        return bad_input(f"The engine keeps {medium.tensor or 'this'} {_LAYOUTS['']}."), [], ""
    if kind == "seen":
        image = opened.seen[number]
        doubt = "" if medium.is_exact else "Contrast and colours are stretched: how it normalises is unknown."
        return image, [], f"{image.width} × {image.height} pixels, made from {medium.tensor}. {doubt}"
    found = opened.difference(number)
    if found is None:
        return bad_input("Which part of the picture this shows was not found, so it cannot be compared."), [], ""
    return found.image, [], f"{found.mean:.1f} of 255 levels apart in the mean, {found.largest} at most"


def _tiles(opened: OpenedView) -> list[PlacedMark]:
    """Return where the tiles lie on what was sent; none for a single picture and for frames."""
    if len(opened.seen) < 2 or opened.view.attachment.modality == "video":
        return []
    wide, high = opened.sent[0].size
    placed = []
    for number, found in enumerate(opened.regions):
        left, top, right, bottom = found.region if found is not None else (0.0, 0.0, 0.0, 0.0)
        points = tuple(
            (min(max(x, 0.0), 1.0) * wide, min(max(y, 0.0), 1.0) * high) for x, y in ((left, top), (right, bottom))
        )
        mark = GroundingMark(kind="box", label=str(number), points=points, start=0, end=0)
        placed.append(PlacedMark(mark=mark, points=points, is_clipped=False))
    return placed


def _picture_lines(opened: OpenedView) -> list[Content]:
    lines = []
    times = opened.view.times_s
    each = len(times) / len(opened.seen) if opened.seen else 0
    for number, one in enumerate(opened.view.medium.pictures):
        tokens = "" if one.offset is None else f" · tokens {one.offset:,} to {one.offset + one.length - 1:,}"
        when = f" · {times[min(int(number * each), len(times) - 1)]:.2f} s" if times else ""
        lines.append(Content(f"{number + 1} {one.width} × {one.height}{when}{tokens}"))
    if opened.view.medium.left_out:
        lines.append(Content(f"and {opened.view.medium.left_out:,} more, not shown"))
    return lines


def _about(view: ModelView) -> str:
    medium = view.medium
    count = len(medium.pictures) + medium.left_out
    what = f"{count} {medium.layout}" if medium.layout in ("tiles", "frames") else _LAYOUTS[medium.layout]
    name = f" in {medium.tensor}" if medium.tensor else ""
    return f"The processor made {what}{name}; the engine was given exactly this."
