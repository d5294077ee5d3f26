"""The boxes, polygons and points that an answer gives, drawn on the image or video frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from textual.content import Content

from vlmtui.errors import bad_input
from vlmtui.inspection.grounding import PlacedMark
from vlmtui.media.describe import clock
from vlmtui.session.answer_places import AnswerPlaces, Badge, ShownMedium, badges_of, draw_marks, open_shown, range_line
from vlmtui.text import counted, one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.seeing.seeing_screen import SeeingScreen, Sight
from vlmtui.ui.widgets.thumbnails import mark_at, name_line

if TYPE_CHECKING:
    from PIL.Image import Image

_AROUND = 60
"""Characters of the answer shown before and after the text of the highlighted mark."""
_SPAN_MAX = 400


class PlacesScreen(SeeingScreen["Image"]):
    """The image with numbered marks, the list of marks, and the text of the answer that gives the highlighted mark."""

    SCOPE = "places"
    BINDINGS = bindings(SCOPE)

    def __init__(self, places: AnswerPlaces, numbers: Sequence[int], *, folder: Path) -> None:
        """`numbers`: the numbers of the images or videos in the conversation. `folder`: the folder for exports."""
        super().__init__()
        self.places = places
        self._numbers = numbers
        self._folder = folder
        self._medium = places.medium_of(0)
        self._spans: list[tuple[int, int]] = []
        """Start and end of the text in the answer, for each line of the list."""

    def on_mount(self) -> None:
        self._list(0)
        self.open(partial(open_shown, self._medium))

    def sight(self) -> tuple[object, Callable[[], Sight]]:
        assert self.opened is not None
        key = self.places.grounding, self.chosen, self._medium
        return key, partial(_marked_image, self.opened, self.places, self._medium, self.chosen)

    def chosen_changed(self) -> None:
        self._turn_to_medium()
        self._tell_span()

    def clicked(self, x: float, y: float, reach: float) -> None:
        """Highlight the mark that was clicked, or one less than two cells away: a point is too small to be clicked
        exactly."""
        here, placed = self.places.marks_on(self._medium), self.places.placed
        at = mark_at([placed[one] for one in here], x, y, reach=2 * reach)
        if at is not None:
            self.listed.highlighted = here[at]

    @property
    def chosen(self) -> int | None:
        """The index of the highlighted mark; None if the highlighted line is a time range or unreadable text."""
        at = self.listed.highlighted
        return at if at is not None and at < len(self.places.marks) else None

    def action_convention(self) -> None:
        self._read_again(self.places.with_next_scale())

    def action_order(self) -> None:
        self._read_again(self.places.with_other_order())

    def action_export(self) -> None:
        if self.opened is None:
            self.tell_error(bad_input("Can't export: the image is not open."))
            return

        def picture(image: Image = self.opened, places: AnswerPlaces = self.places) -> Image:
            drawn = _marked_image(image, places, self._medium, None)
            return draw_marks(image, drawn.marks, badges=drawn.badges)

        self.export(self._folder, "places", picture, self.places.as_json)

    def _read_again(self, places: AnswerPlaces) -> None:
        at = self.chosen
        self.places = places
        self._list(at or 0)
        self.redraw()

    def _turn_to_medium(self) -> None:
        """Show the image or frame of the highlighted mark or time range."""
        at, places = self.listed.highlighted, self.places
        if at is None or at >= len(places.marks) + len(places.ranges):
            return
        medium = places.medium_of(at)
        if medium != self._medium:
            self._medium = medium
            self._tell_title()
            self.open(partial(open_shown, medium))

    def _tell_title(self) -> None:
        medium, second = self._medium
        named = name_line(medium, self._numbers[self.places.media.index(medium)])
        when = f" at {clock(second)}" if medium.modality == "video" else ""
        self.say("title", f"Where it points · {named}{when}")

    def _place_of(self, at: int) -> str:
        """Return where mark `at` is: the time in a video, or the image's number. Empty if there is only one image."""
        medium, second = self.places.medium_of(at)
        if medium.modality == "video":
            return f" at {clock(second)}"
        media = self.places.media
        return f" on ▣ {self._numbers[media.index(medium)]}" if len(media) > 1 else ""

    def _list(self, at: int) -> None:
        """List the marks, the time ranges and the unreadable parts; highlight line `at`."""
        places, marks = self.places, self.places.placed
        lines = [
            _mark_line(one, badge, self._place_of(number))
            for number, (one, badge) in enumerate(zip(marks, badges_of(places.marks), strict=True))
        ]
        lines += [Content(range_line(one.start_s, one.end_s, one.label)) for one in places.ranges]
        lines += [
            Content.styled(f"unreadable: {one_line(places.answer[start:end])}", "$text-muted")
            for start, end in places.unreadable
        ]
        self._spans = [
            *((one.start, one.end) for one in places.marks),
            *((one.start, one.end) for one in places.ranges),
            *places.unreadable,
        ]
        self.listed.clear_options()
        self.listed.add_options(lines)
        self.listed.highlighted = min(at, len(lines) - 1) if lines else None
        self._turn_to_medium()
        self._tell_title()
        times = counted(len(places.ranges), "time range") if places.ranges else ""
        inside = f"{places.inside} of {len(marks)} inside" if marks else "" if times else "nothing found"
        lost = f"{len(places.unreadable)} unreadable" if places.unreadable else ""
        self.say("count", " · ".join(filter(None, (inside, times, lost))))
        self.say("convention", f"Read as {places.convention}" if marks or not times else "")
        self._tell_span()

    def _tell_span(self) -> None:
        at = self.listed.highlighted
        if at is None or at >= len(self._spans):
            self.say("span", "The answer contains no coordinates that can be read.")
            return
        answer, (start, end) = self.places.answer, self._spans[at]
        before, after = answer[max(0, start - _AROUND) : start], answer[end : end + _AROUND]
        parts = [
            Content(("…" if start > _AROUND else "") + one_line(before)),
            Content.styled(one_line(answer[start : min(end, start + _SPAN_MAX)]), "reverse"),
            Content(one_line(after) + ("…" if end + _AROUND < len(answer) else "")),
        ]
        self.say("span", Content("").join(parts))


def _marked_image(image: Image, places: AnswerPlaces, medium: ShownMedium, chosen: int | None) -> Sight:
    """Return the image with its marks, numbered as in the list."""
    here, placed, badges = places.marks_on(medium), places.placed, badges_of(places.marks)
    at = here.index(chosen) if chosen in here else None
    return Sight(image, [placed[one] for one in here], at, [badges[one] for one in here])


def _mark_line(one: PlacedMark, badge: Badge, place: str) -> Content:
    label = one_line(one.mark.label) or one.mark.kind
    where = ",".join(f"{value:.0f}" for value in (one.xyxy if one.mark.kind != "point" else one.xyxy[:2]))
    cut = " cut" if one.is_clipped else ""
    number = Content.styled(f" {badge.number} ", f"bold #ffffff on {badge.colour}")
    return Content.assemble(number, f" {label} ", (f"{where}{cut}{place}", "$text-muted"))
