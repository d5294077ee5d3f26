"""A prompt's attachments as the model receives them, to compare with the original file and the sent image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from textual.content import Content

from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.inspection.grounding import GroundingMark, PlacedMark
from vlmtui.session.opened_view import VIEW_KINDS, OpenedView, ViewKind, open_model_view
from vlmtui.session.seeing import ModelView
from vlmtui.text import one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.keys import short_keys
from vlmtui.ui.seeing.seeing_screen import SeeingScreen, Sight
from vlmtui.ui.widgets.thumbnails import mark_at, name_line

if TYPE_CHECKING:
    from PIL.Image import Image

_TITLES: dict[ViewKind, str] = {
    "original": "The original file",
    "sent": "What was sent",
    "seen": "What the model sees",
    "difference": "The difference, four times as bright",
}
_LAYOUTS = {"": "in a layout that cannot be read", "picture": "one picture", "tiles": "tiles", "patches": "patches"}


class ModelViewScreen(SeeingScreen[OpenedView]):
    """Four views of an attachment, one at a time; a key shows the next view. Beside it is a list of its images, tiles
    or frames with their tokens."""

    SCOPE = "model_view"
    BINDINGS = bindings(SCOPE)

    def __init__(self, views: Sequence[ModelView], numbers: Sequence[int]) -> None:
        """`numbers`: the attachments' numbers in the conversation."""
        super().__init__()
        self.at = 0
        self.kind: ViewKind = "seen"
        self._views = views
        self._numbers = numbers

    def on_mount(self) -> None:
        self._turn_to(0)

    def sight(self) -> tuple[object, Callable[[], Sight]]:
        assert self.opened is not None
        number = self.listed.highlighted or 0
        return (self.at, self.kind, number), partial(sight_of, self.opened, self.kind, number)

    def list_opened(self) -> None:
        assert self.opened is not None
        self.listed.clear_options()
        self.listed.add_options(_picture_lines(self.opened))
        self.listed.highlighted = 0 if self.opened.seen else None
        self._tell()

    def clicked(self, x: float, y: float, reach: float) -> None:
        """Select the clicked tile, or else show the next view."""
        tiles = _tiles(self.opened) if self.opened is not None and self.kind == "sent" else []
        at = mark_at(tiles, x, y, reach=0)
        if at is None:
            self.action_kind(1)
        else:
            self.listed.highlighted = at

    def action_kind(self, step: int) -> None:
        self.action_show(VIEW_KINDS[(VIEW_KINDS.index(self.kind) + step) % len(VIEW_KINDS)])

    def action_show(self, kind: ViewKind) -> None:
        self.kind = kind
        self._tell()
        self.redraw()

    def action_turn(self, step: int) -> None:
        if len(self._views) > 1:
            self._turn_to((self.at + step) % len(self._views))

    def _turn_to(self, at: int) -> None:
        self.at = at
        self.listed.clear_options()
        self._tell()
        self.open(partial(open_model_view, self._views[at]))

    def _tell(self) -> None:
        view = self._views[self.at]
        keys = short_keys(self.app, *(f"model_view.{kind}" for kind in VIEW_KINDS), last=True)
        place = f"{self.at + 1} of {len(self._views)} · " if len(self._views) > 1 else ""
        self.say("title", f"{_TITLES[self.kind]} · {name_line(view.attachment, self._numbers[self.at])}")
        self.say("count", f"{place}{keys}")
        self.say("convention", _about(view))


def sight_of(opened: OpenedView, kind: ViewKind, number: int) -> Sight:
    """Return what the view `kind` shows of the image, tile or frame with the index `number`. Blocking. Raises
    VlmtuiError if there is no such view."""
    medium = opened.view.medium
    if kind == "original":
        if isinstance(opened.original, VlmtuiError):
            raise opened.original
        return Sight(opened.original, said=f"{_size(opened.original)}, as in the file")
    if kind == "sent":
        image, tiles = opened.frame(number), _tiles(opened)
        told = "; ".join(one_line(note) for note in opened.view.attachment.notes) or "unchanged"
        return Sight(image, tiles, number if tiles else None, said=f"{_size(image)}: {told}")
    if not opened.seen:
        raise bad_input(f"The engine keeps {medium.tensor or 'this'} {_LAYOUTS['']}.")
    if kind == "seen":
        image = opened.seen[number]
        doubt = "" if medium.is_exact else "Contrast and colours are stretched, as the normalisation is unknown."
        return Sight(image, said=f"{_size(image)}, made from {medium.tensor}. {doubt}")
    found = opened.difference(number)
    if found is None:
        raise bad_input("Can't compare: the part of the image that this shows was not found.")
    return Sight(found.image, said=f"{found.mean:.1f} of 255 levels apart on average, {found.largest} at most")


def _size(image: Image) -> str:
    return f"{image.width} × {image.height} pixels"


def _tiles(opened: OpenedView) -> list[PlacedMark]:
    """Return the boxes of the tiles on the sent image; empty for a single image and for frames."""
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
    times = opened.times_s
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
    return f"The processor made {what}{name}; the engine received exactly this."
