"""Where an answer points: its boxes, polygons and points on the picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from textual import events, on, work
from textual.app import ComposeResult
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.widgets import OptionList, Static
from textual.worker import get_current_worker

from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.files import write_numbered
from vlmtui.inspection.grounding import PlacedMark
from vlmtui.inspection.grounding_picture import colours_of, draw_marks
from vlmtui.media.images import as_png, open_prepared
from vlmtui.session.answer_places import AnswerPlaces
from vlmtui.text import one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.keys import error_text
from vlmtui.ui.seeing.marked_picture import MarkedDrawing, draw_marked, mark_at
from vlmtui.ui.seeing.picture_and_list import clicked_place, picture_and_list, show_drawing
from vlmtui.ui.terminal.graphics import Graphics

if TYPE_CHECKING:
    from PIL.Image import Image

_AROUND = 60
"""Characters of the answer shown on each side of the part that one is on."""


class PlacesScreen(Screen[None]):
    """The picture with numbered marks, the list of them, and the part of the answer that each was read from."""

    CSS_PATH = "seeing.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]
    SCOPE = "places"
    BINDINGS = bindings(SCOPE)

    @dataclass
    class Opened(Message):
        """The picture's pixels, or why there are none."""

        outcome: Image | VlmtuiError

    @dataclass
    class Drawn(Message):
        """A drawing, and what it was made for."""

        drawing: MarkedDrawing
        wanted: object

    @dataclass
    class Exported(Message):
        """The files written, or why that failed."""

        outcome: tuple[Path, Path] | VlmtuiError

    def __init__(self, places: AnswerPlaces, number: int, *, folder: Path) -> None:
        """`number`: the image's number in the conversation. `folder`: where exports are written."""
        super().__init__()
        self.places = places
        self.shown: object = None
        """What the drawing on the screen was made for; None while there is none."""
        self._number = number
        self._folder = folder
        self._image: Image | None = None

    def compose(self) -> ComposeResult:
        yield from picture_and_list()

    def on_mount(self) -> None:
        self.set_class(Graphics.of(self.app).mode == "off", "-off")
        self._list()
        self.query_one(OptionList).focus()
        self._open()

    @on(events.Resize)
    def _resized(self) -> None:
        self.call_after_refresh(self._redraw)

    @on(OptionList.OptionHighlighted)
    def _highlighted(self) -> None:
        self._tell_span()
        self._redraw()

    def on_click(self, event: events.Click) -> None:
        """Go to the mark that was clicked on the picture."""
        place = clicked_place(self, event, self._image.size) if self._image is not None else None
        if place is None:
            return
        # A mark that is less than two cells away counts, as a point has no size.
        at = mark_at(self.places.placed, place.x, place.y, reach=2 * place.cell)
        if at is not None:
            self.query_one(OptionList).highlighted = at

    @on(Opened)
    def _opened(self, event: Opened) -> None:
        if isinstance(event.outcome, VlmtuiError):
            reason = self.query_one("#reason", Static)
            reason.update(one_line(str(event.outcome)))
            reason.display = True
        else:
            self._image = event.outcome
            self._redraw()

    @on(Drawn)
    async def _drawn(self, event: Drawn) -> None:
        if event.wanted == self._wanted and await show_drawing(self, event.drawing):
            self.shown = event.wanted

    @on(Exported)
    def _exported(self, event: Exported) -> None:
        if isinstance(event.outcome, VlmtuiError):
            self.notify(error_text(self.app, event.outcome), severity="error", timeout=10, markup=False)
        else:
            names = " and ".join(one_line(str(path)) for path in event.outcome)
            self.notify(f"Saved {names}", timeout=8, markup=False)

    @property
    def chosen(self) -> int | None:
        """The index of the mark one is on."""
        at = self.query_one(OptionList).highlighted
        return at if at is not None and at < len(self.places.marks) else None

    def action_close(self) -> None:
        self.dismiss()

    def action_convention(self) -> None:
        """Read the numbers by the next convention."""
        self._read_again(self.places.with_next_scale())

    def action_order(self) -> None:
        """Swap which number of a pair comes first."""
        self._read_again(self.places.with_other_order())

    def action_list(self) -> None:
        """Hide the list, so that the picture has the whole width; or show it again."""
        self.toggle_class("-alone")
        self.call_after_refresh(self._redraw)

    def action_export(self) -> None:
        """Write the picture with its marks, and the marks as JSON."""
        if self._image is None:
            error = bad_input("The picture is not open, so there is nothing to draw on.")
            self.post_message(self.Exported(error))
        else:
            self._export(self.places, self._image)

    def _read_again(self, places: AnswerPlaces) -> None:
        at = self.chosen
        self.places = places
        self._list(at or 0)
        self._redraw()

    @property
    def _room(self) -> tuple[int, int]:
        width, height = self.query_one("#stage").content_size
        return width, height

    @property
    def _wanted(self) -> object:
        return self.places.grounding, self.chosen, self._room

    def _redraw(self) -> None:
        if not self.is_attached or self._image is None or Graphics.of(self.app).mode == "off":
            return
        room, wanted = self._room, self._wanted
        if all(room) and wanted != self.shown:
            self._draw(self._image, self.places, self.chosen, room, wanted)

    def _list(self, at: int = 0) -> None:
        places = self.places
        marks, colours = places.placed, colours_of(places.marks)
        both = enumerate(zip(marks, colours, strict=True), 1)
        lines = [_mark_line(number, one, colour) for number, (one, colour) in both]
        lines += [
            Content.styled(f"unreadable: {one_line(places.answer[start:end])}", "$text-muted")
            for start, end in places.unreadable
        ]
        listed = self.query_one(OptionList)
        listed.clear_options()
        listed.add_options(lines)
        listed.highlighted = min(at, len(lines) - 1) if lines else None
        self.query_one("#title", Static).update(f"Where it points · ▣ {self._number} {one_line(places.image.name)}")
        told = f"{places.inside} of {len(marks)} inside" if marks else "nothing found"
        lost = f" · {len(places.unreadable)} unreadable" if places.unreadable else ""
        self.query_one("#count", Static).update(told + lost)
        self.query_one("#convention", Static).update(f"Read as {places.convention}")
        self._tell_span()

    def _tell_span(self) -> None:
        at = self.query_one(OptionList).highlighted
        spans = [(mark.start, mark.end) for mark in self.places.marks] + list(self.places.unreadable)
        span = self.query_one("#span", Static)
        if at is None or at >= len(spans):
            span.update("The answer names no place that can be read.")
            return
        answer, (start, end) = self.places.answer, spans[at]
        before, after = answer[max(0, start - _AROUND) : start], answer[end : end + _AROUND]
        parts = [
            Content(("…" if start > _AROUND else "") + one_line(before)),
            Content.styled(one_line(answer[start : min(end, start + 400)]), "reverse"),
            Content(one_line(after) + ("…" if end + _AROUND < len(answer) else "")),
        ]
        span.update(Content("").join(parts))

    @work(thread=True, group="open", exclusive=True)
    def _open(self) -> None:
        try:
            self.post_message(self.Opened(open_prepared(self.places.image.path)))
        except VlmtuiError as error:
            self.post_message(self.Opened(error))

    @work(thread=True, group="draw", exclusive=True)
    def _draw(
        self, image: Image, places: AnswerPlaces, chosen: int | None, room: tuple[int, int], wanted: object
    ) -> None:
        worker = get_current_worker()
        if worker.is_cancelled:
            return
        drawing = draw_marked(image, places.placed, chosen, Graphics.of(self.app), room)
        if not worker.is_cancelled:
            self.post_message(self.Drawn(drawing, wanted))

    @work(thread=True, group="export")
    def _export(self, places: AnswerPlaces, image: Image) -> None:
        try:
            picture = write_numbered(self._folder, "vlmtui-places.png", as_png(draw_marks(image, places.placed)))
            data = msgspec.json.format(msgspec.json.encode(places.as_json()), indent=2) + b"\n"
            self.post_message(self.Exported((picture, write_numbered(self._folder, "vlmtui-places.json", data))))
        except VlmtuiError as error:
            self.post_message(self.Exported(error))


def _mark_line(number: int, one: PlacedMark, colour: str) -> Content:
    label = one_line(one.mark.label) or one.mark.kind
    where = ",".join(f"{value:.0f}" for value in (one.xyxy if one.mark.kind != "point" else one.xyxy[:2]))
    cut = " cut" if one.is_clipped else ""
    badge = Content.styled(f" {number} ", f"bold #ffffff on {colour}")
    return Content.assemble(badge, f" {label} ", (f"{where}{cut}", "$text-muted"))
