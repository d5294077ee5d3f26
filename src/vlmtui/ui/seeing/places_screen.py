"""Where an answer points: its boxes, polygons and points on the picture."""

from __future__ import annotations

from collections.abc import Sequence
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
from vlmtui.inspection.grounding_picture import Badge, badges_of, draw_marks
from vlmtui.media.describe import clock
from vlmtui.media.images import as_png
from vlmtui.session.answer_places import AnswerPlaces, ShownMedium, open_shown
from vlmtui.text import one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.keys import error_text
from vlmtui.ui.seeing.picture_and_list import clicked_place, picture_and_list, show_drawing
from vlmtui.ui.terminal.graphics import Graphics
from vlmtui.ui.widgets.attachment_view import name_line
from vlmtui.ui.widgets.marked_picture import MarkedDrawing, draw_marked, mark_at

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
        """The pixels of a picture or frame, or why there are none."""

        shown: ShownMedium
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

    def __init__(self, places: AnswerPlaces, numbers: Sequence[int], *, folder: Path) -> None:
        """`numbers`: of the images or videos in the conversation. `folder`: where exports are written."""
        super().__init__()
        self.places = places
        self.shown: object = None
        """What the drawing on the screen was made for; None while there is none."""
        self._numbers = numbers
        self._folder = folder
        self._medium = places.medium_of(0)
        self._image: Image | None = None
        """Of `_medium`; None until it is open."""

    def compose(self) -> ComposeResult:
        yield from picture_and_list()

    def on_mount(self) -> None:
        self.set_class(Graphics.of(self.app).mode == "off", "-off")
        self._list()
        self.query_one(OptionList).focus()
        self._open(self._medium)

    @on(events.Resize)
    def _resized(self) -> None:
        self.call_after_refresh(self._redraw)

    @on(OptionList.OptionHighlighted)
    def _highlighted(self) -> None:
        self._turn_to_medium()
        self._tell_span()
        self._redraw()

    def on_click(self, event: events.Click) -> None:
        """Go to the mark that was clicked on the picture."""
        place = clicked_place(self, event, self._image.size) if self._image is not None else None
        if place is None:
            return
        # A mark that is less than two cells away counts, as a point has no size.
        here = self._here
        placed = self.places.placed
        at = mark_at([placed[one] for one in here], place.x, place.y, reach=2 * place.cell)
        if at is not None:
            self.query_one(OptionList).highlighted = here[at]

    @on(Opened)
    def _opened(self, event: Opened) -> None:
        if event.shown != self._medium:
            return
        reason = self.query_one("#reason", Static)
        if isinstance(event.outcome, VlmtuiError):
            self.query("#stage > .picture").remove()
            reason.update(one_line(str(event.outcome)))
            reason.display = True
        else:
            reason.display = False
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
            self._export(self.places, self._here, self._image)

    def _read_again(self, places: AnswerPlaces) -> None:
        at = self.chosen
        self.places = places
        self._list(at or 0)
        self._redraw()

    @property
    def _here(self) -> list[int]:
        """The indices of the marks on the picture that is shown."""
        places = self.places
        return [at for at in range(len(places.marks)) if places.medium_of(at) == self._medium]

    def _turn_to_medium(self) -> None:
        """Show the picture or frame of the mark or range that one is on."""
        at, places = self.query_one(OptionList).highlighted, self.places
        if at is not None and at < len(places.marks) + len(places.ranges):
            medium = places.medium_of(at)
            if medium != self._medium:
                self._medium, self._image = medium, None
                self._tell_title()
                self._open(medium)

    def _tell_title(self) -> None:
        medium, second = self._medium
        named = name_line(medium, self._numbers[self.places.media.index(medium)])
        when = f" at {clock(second)}" if medium.modality == "video" else ""
        self.query_one("#title", Static).update(f"Where it points · {named}{when}")

    def _place_of(self, at: int) -> str:
        """Say on which picture, or when, mark `at` is; empty if there is but one picture."""
        medium, second = self.places.medium_of(at)
        if medium.modality == "video":
            return f" at {clock(second)}"
        media = self.places.media
        return f" on ▣ {self._numbers[media.index(medium)]}" if len(media) > 1 else ""

    @property
    def _room(self) -> tuple[int, int]:
        width, height = self.query_one("#stage").content_size
        return width, height

    @property
    def _wanted(self) -> object:
        return self.places.grounding, self.chosen, self._room, self._medium

    def _redraw(self) -> None:
        if not self.is_attached or self._image is None or Graphics.of(self.app).mode == "off":
            return
        room, wanted = self._room, self._wanted
        if all(room) and wanted != self.shown:
            self._draw(self._image, self.places, self._here, self.chosen, room, wanted)

    def _list(self, at: int = 0) -> None:
        places = self.places
        marks = places.placed
        lines = [
            _mark_line(one, badge, self._place_of(at))
            for at, (one, badge) in enumerate(zip(marks, badges_of(places.marks), strict=True))
        ]
        lines += [
            Content.assemble(f"{clock(one.start_s)} – {clock(one.end_s)} ", one_line(one.label))
            for one in places.ranges
        ]
        lines += [
            Content.styled(f"unreadable: {one_line(places.answer[start:end])}", "$text-muted")
            for start, end in places.unreadable
        ]
        listed = self.query_one(OptionList)
        listed.clear_options()
        listed.add_options(lines)
        listed.highlighted = min(at, len(lines) - 1) if lines else None
        self._turn_to_medium()
        self._tell_title()
        times = f"{len(places.ranges)} time range{'s' * (len(places.ranges) != 1)}" if places.ranges else ""
        told = f"{places.inside} of {len(marks)} inside" if marks else "" if times else "nothing found"
        told = " · ".join(filter(None, (told, times)))
        lost = f" · {len(places.unreadable)} unreadable" if places.unreadable else ""
        self.query_one("#count", Static).update(told + lost)
        self.query_one("#convention", Static).update(f"Read as {places.convention}" if marks or not times else "")
        self._tell_span()

    def _tell_span(self) -> None:
        at = self.query_one(OptionList).highlighted
        spans = [(mark.start, mark.end) for mark in self.places.marks]
        spans += [(one.start, one.end) for one in self.places.ranges]
        spans += self.places.unreadable
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
    def _open(self, shown: ShownMedium) -> None:
        try:
            self.post_message(self.Opened(shown, open_shown(shown)))
        except VlmtuiError as error:
            self.post_message(self.Opened(shown, error))

    @work(thread=True, group="draw", exclusive=True)
    def _draw(
        self,
        image: Image,
        places: AnswerPlaces,
        here: list[int],
        chosen: int | None,
        room: tuple[int, int],
        wanted: object,
    ) -> None:
        worker = get_current_worker()
        if worker.is_cancelled:
            return
        placed, badges = places.placed, badges_of(places.marks)
        at = here.index(chosen) if chosen in here else None
        marks, numbered = [placed[one] for one in here], [badges[one] for one in here]
        drawing = draw_marked(image, marks, at, Graphics.of(self.app), room, numbered)
        if not worker.is_cancelled:
            self.post_message(self.Drawn(drawing, wanted))

    @work(thread=True, group="export")
    def _export(self, places: AnswerPlaces, here: list[int], image: Image) -> None:
        placed, badges = places.placed, badges_of(places.marks)
        try:
            drawn = draw_marks(image, [placed[at] for at in here], badges=[badges[at] for at in here])
            picture = write_numbered(self._folder, "vlmtui-places.png", as_png(drawn))
            data = msgspec.json.format(msgspec.json.encode(places.as_json()), indent=2) + b"\n"
            self.post_message(self.Exported((picture, write_numbered(self._folder, "vlmtui-places.json", data))))
        except VlmtuiError as error:
            self.post_message(self.Exported(error))


def _mark_line(one: PlacedMark, badge: Badge, place: str) -> Content:
    label = one_line(one.mark.label) or one.mark.kind
    where = ",".join(f"{value:.0f}" for value in (one.xyxy if one.mark.kind != "point" else one.xyxy[:2]))
    cut = " cut" if one.is_clipped else ""
    number = Content.styled(f" {badge.number} ", f"bold #ffffff on {badge.colour}")
    return Content.assemble(number, f" {label} ", (f"{where}{cut}{place}", "$text-muted"))
