"""The modes of the image room: the file, the sent and the seen image, the heat map, the boxes, and the blind test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import msgspec
from textual.content import Content

from vlmtui.domain.conversation import Attachment
from vlmtui.domain.generation import MediaSpan
from vlmtui.errors import bad_input
from vlmtui.inspection.grounding import PlacedMark
from vlmtui.media.describe import clock
from vlmtui.media.images import open_prepared
from vlmtui.media.thumbnails import StoredPixels, open_pixels
from vlmtui.session.answer_places import (
    AnswerPlaces,
    Badge,
    ShownMedium,
    badges_of,
    draw_marks,
    open_shown,
    places_of,
    range_line,
)
from vlmtui.session.fan_out import LABELS, PictureChange
from vlmtui.session.generation import media_items
from vlmtui.session.lanes import LaneScore
from vlmtui.session.prompt_report import require_same
from vlmtui.session.seeing import (
    COLD,
    GRIDS,
    HOT,
    BlindTest,
    OcclusionMap,
    OcclusionPlan,
    PatchGrid,
    RoomMode,
    ask_model_view,
    blind_test,
    changed_images,
    draw_heat,
    grid_of_span,
    occlusion_map,
    occlusion_plan,
    own_attachment,
    patch_grid,
)
from vlmtui.text import counted, nats, one_line
from vlmtui.ui.keys import with_keys
from vlmtui.ui.seeing.marks import Marks, mark_at

if TYPE_CHECKING:
    from PIL.Image import Image

    from vlmtui.session.opened_view import OpenedView
    from vlmtui.ui.seeing.room import ImageRoom

Exported = tuple[str, Callable[[], "Image"], Callable[[], object]]
"""A name for files, and functions for a thread that return the image and the data to write."""
_AROUND = 60
"""Characters of the answer shown before and after the text of the highlighted mark."""
_SPAN_MAX = 400
_LAYOUTS = {"": "in a layout that cannot be read", "picture": "one image", "tiles": "tiles", "patches": "patches"}
_BARS = " ▁▂▃▄▅▆▇"
_HOT, _COLD = (f"rgb({red},{green},{blue})" for red, green, blue in (HOT, COLD))


class ImageMode:
    """A way to look at an image of the room. Keys of a single mode run its method of that name (`convention`)."""

    title: ClassVar[str]
    lists: ClassVar[bool] = True
    """True if a list of rows is beside the image; otherwise the facts are."""
    has_patches: ClassVar[bool] = False
    """True if patches can be chosen."""

    def __init__(self, room: ImageRoom) -> None:
        self.room = room
        self.attachment = room.attachment
        self.is_loaded = False

    async def load(self) -> None:
        """Get ready. Called once, unless it raises VlmtuiError."""

    def entered(self) -> None:
        """Called whenever the mode begins to show an image."""

    def key(self) -> object:
        """Return what the image depends on."""
        return self

    def marks_key(self) -> object:
        """Return what the marks depend on, besides the image, the patch and the highlighted row."""
        return None

    def maker(self) -> Callable[[], Image]:
        """Return a function for a thread that returns the RGB image, or raises VlmtuiError."""
        raise NotImplementedError

    def marks(self, size: tuple[int, int]) -> Marks:
        """Return what to draw over an image of this size: by default the patches."""
        patch, grid = self.room.patch, self.patches()
        if grid is None:
            return Marks()
        wide, high = size[0] / grid[1], size[1] / grid[0]
        framed = (patch[1] * wide, patch[0] * high, (patch[1] + 1) * wide, (patch[0] + 1) * high) if patch else None
        return Marks(framed=framed, grid=grid if self.room.has_grid else None)

    def rows(self) -> list[Content]:
        return []

    def row_chosen(self) -> None:
        """Called when the user highlights a row."""

    def about(self) -> str | Content:
        """Return the line above the image."""
        return ""

    def state(self) -> str:
        """Return the text beside the modes."""
        return ""

    def told(self) -> str | Content:
        """Return the text below the rows: by default the chosen patch and its token of the prompt."""
        patch, grid, report = self.room.patch, self.token_grid(), self.room.report
        if patch is None or grid is None or report is None or report.prompt is None:
            return ""
        at, ids = grid.token(*patch), report.prompt.token_ids
        known = report.vocabulary.get(ids[at]) if at < len(ids) else None
        place = f"row {patch[0] + 1} of {grid.rows}, column {patch[1] + 1} of {grid.columns}"
        return f"Patch in {place}: token {at:,} of {len(ids):,}" + (f" “{one_line(known.text)}”" if known else "")

    def token(self, step: int) -> None:
        """Choose the next or previous token of the answer: by default another row."""
        if count := len(self.rows()):
            self.room.chosen = ((self.room.chosen or 0) + step) % count

    @property
    def _spans(self) -> tuple[MediaSpan, ...]:
        """The image's places in the prompt; empty if unknown."""
        report = self.room.report
        items = media_items(report.prompt, report.attachments) if report is not None else []
        return next((one.spans for one in items if one.attachment == self.room.attachment), ())

    def sizes(self) -> list[str]:
        """Return the image's size after the processor's resize, its patches and tokens, as far as known."""
        if not (spans := self._spans):
            return []
        grid = grid_of_span(spans[0]) if len(spans) == 1 else None
        resized = f"→ {spans[0].resized[0]}×{spans[0].resized[1]}" if spans[0].resized else ""
        patches = f"{grid.columns}×{grid.rows} patches" if grid is not None else ""
        return [*filter(None, (resized, patches)), f"{sum(span.tokens for span in spans):,} tokens"]

    def token_grid(self) -> PatchGrid | None:
        """Return the patches whose tokens are known."""
        return grid_of_span(self._spans[0]) if len(self._spans) == 1 else None

    def patches(self) -> tuple[int, int] | None:
        """Return the rows and columns of patches that can be chosen; None: there are none, or they are unknown."""
        grid = self.token_grid() if self.has_patches else None
        return (grid.rows, grid.columns) if grid is not None else None


class FileMode(ImageMode):
    """The file as the user attached it."""

    title = "File"
    lists = False

    def maker(self) -> Callable[[], Image]:
        from vlmtui.session.opened_view import open_original  # NumPy takes a while to import

        return partial(open_original, self.attachment)

    def about(self) -> str:
        return "The file as it was attached."


class SentMode(ImageMode):
    """The stored pixels, which the engine gets: an image, a video's frames, or a sound's waveform."""

    title = "Sent"
    lists = False
    has_patches = True
    pixels: StoredPixels
    _frame = 0

    async def load(self) -> None:
        self.pixels = await asyncio.to_thread(open_pixels, self.attachment)

    def key(self) -> object:
        return self, self._frame

    def maker(self) -> Callable[[], Image]:
        return partial(self.pixels.image, self._frame)

    def frame(self, step: int) -> None:
        if self.is_loaded and (count := len(self.pixels.times_s)):
            self._frame = min(max(self._frame + step, 0), count - 1)

    def about(self) -> str:
        return "; ".join(one_line(note) for note in self.attachment.notes) or "Sent unchanged."

    def state(self) -> str:
        seconds = self.pixels.times_s
        return f"frame {self._frame + 1} of {len(seconds)} · {seconds[self._frame]:.2f} s" if seconds else ""


class SeenMode(ImageMode):
    """The images, tiles or frames that the processor made, and their difference from the sent image."""

    title = "Seen"
    has_patches = True
    view: OpenedView
    _shows_difference = False

    async def load(self) -> None:
        from vlmtui.session.opened_view import open_model_view  # NumPy takes a while to import

        views = await ask_model_view(self.room.engine(), self.room.require_prompt(), self.room.store)
        own = own_attachment(self.attachment, [view.attachment for view in views])
        view = next(view for view in views if view.attachment is own)
        self.view = await asyncio.to_thread(open_model_view, view)

    @property
    def _number(self) -> int:
        return min(self.room.chosen or 0, len(self.view.seen) - 1)

    def key(self) -> object:
        return self, self._number, self._shows_difference

    def maker(self) -> Callable[[], Image]:
        return partial(_seen_image, self.view, self._number, self._shows_difference)

    def difference(self) -> None:
        self._shows_difference = not self._shows_difference

    def rows(self) -> list[Content]:
        medium, seconds, lines = self.view.view.medium, self.view.times_s, list[Content]()
        for number, one in enumerate(medium.pictures):
            tokens = "" if one.offset is None else f" · tokens {one.offset:,} to {one.offset + one.length - 1:,}"
            when = f" · {seconds[number * len(seconds) // len(medium.pictures)]:.2f} s" if seconds else ""
            lines.append(Content(f"{number + 1} {one.width} × {one.height}{when}{tokens}"))
        return [*lines, Content(f"and {medium.left_out:,} more, not shown")] if medium.left_out else lines

    def about(self) -> str:
        medium = self.view.view.medium
        count = len(medium.pictures) + medium.left_out
        made = f"{count} {medium.layout}" if medium.layout in ("tiles", "frames") else _LAYOUTS[medium.layout]
        doubt = "" if medium.is_exact else " Colours are stretched: the normalisation is unknown."
        return f"The processor made {made}{f' in {medium.tensor}' if medium.tensor else ''}.{doubt}"

    def state(self) -> str:
        return "difference, 4 × as bright" if self._shows_difference else ""

    def told(self) -> str | Content:
        found = self.view.difference(self._number) if self._shows_difference and self.view.seen else None
        levels = f"{found.mean:.1f} of 255 levels apart on average, {found.largest} at most." if found else ""
        return "\n".join(filter(None, (str(super().told()), levels)))

    def token_grid(self) -> PatchGrid | None:
        pictures = self.view.view.medium.pictures if self.is_loaded else ()
        if len(pictures) < 2:
            return super().token_grid()
        one = pictures[self._number]
        return None if one.offset is None else patch_grid(one.offset, one.length)


class BoxesMode(ImageMode):
    """The boxes, polygons and points of an answer on all images of its prompt, and the text that gives them."""

    title = "Boxes"
    places: AnswerPlaces
    _listed: tuple[AnswerPlaces | None, list[Content]] = (None, [])
    """The rows, and the marks that they were made for."""

    async def load(self) -> None:
        report = self.room.require_report()
        self.places = await asyncio.to_thread(places_of, report, self.room.family(report))

    def entered(self) -> None:
        """Highlight the first mark on this image, unless the highlighted one is on it."""
        here = [at for at in range(self._count) if self.places.medium_of(at).medium == self.room.attachment]
        if self.room.chosen not in here:
            self.room.chosen = here[0] if here else None

    @property
    def _count(self) -> int:
        """The number of marks and time ranges."""
        return len(self.places.marks) + len(self.places.ranges)

    @property
    def medium(self) -> ShownMedium:
        """The image, or the moment of the video, that is shown."""
        at = self.room.chosen
        medium = self.places.medium_of(at) if at is not None and at < self._count else None
        return medium if medium and medium.medium == self.room.attachment else ShownMedium(self.room.attachment)

    def key(self) -> object:
        return self, self.medium

    def marks_key(self) -> object:
        return self.places.grounding

    def maker(self) -> Callable[[], Image]:
        return partial(open_shown, self.medium)

    def marks(self, size: tuple[int, int]) -> Marks:
        here, placed, badges = self.places.marks_on(self.medium), self.places.placed, badges_of(self.places.marks)
        at = here.index(self.room.chosen) if self.room.chosen in here else None
        return Marks([placed[one] for one in here], [badges[one] for one in here], at)

    def rows(self) -> list[Content]:
        places = self.places
        if self._listed[0] is not places:
            badges = badges_of(places.marks)
            lines = [_mark_line(one, badges[at], self._place_of(at)) for at, one in enumerate(places.placed)]
            lines += [Content(range_line(one.start_s, one.end_s, one.label)) for one in places.ranges]
            unreadable = [one_line(places.answer[start:end]) for start, end in places.unreadable]
            lines += [Content.styled(f"unreadable: {text}", "$text-muted") for text in unreadable]
            self._listed = places, lines
        return self._listed[1]

    def row_chosen(self) -> None:
        at = self.room.chosen
        if at is not None and at < self._count:
            self.room.turn_to(self.places.medium_of(at).medium)

    def _place_of(self, at: int) -> str:
        """Return where mark `at` is: the time in a video, or the image's number. Empty if there is only one image."""
        medium, second = self.places.medium_of(at)
        if medium.modality == "video":
            return f" at {clock(second)}"
        number = next((one.number for one in self.room.images if one.attachment == medium), None)
        return f" on ▣ {number}" if len(self.places.media) > 1 else ""

    def about(self) -> str:
        places, placed = self.places, self.places.placed
        swapped = sum(one.is_swapped for one in placed)
        parts = (
            f"{places.inside} of {len(placed)} inside" if placed else "" if places.ranges else "nothing found",
            f"{swapped} with swapped corners" if swapped else "",
            counted(len(places.ranges), "time range") if places.ranges else "",
            f"{len(places.unreadable)} unreadable" if places.unreadable else "",
            f"read as {places.convention}" if places.marks or not places.ranges else "",
        )
        return " · ".join(filter(None, parts))

    def state(self) -> str:
        return f"at {clock(self.medium.second)}" if self.room.attachment.modality == "video" else ""

    def told(self) -> str | Content:
        at, places = self.room.chosen, self.places
        spans = [(one.start, one.end) for one in places.marks]
        spans += [*((one.start, one.end) for one in places.ranges), *places.unreadable]
        if at is None or at >= len(spans):
            return "" if spans else "The answer contains no coordinates that can be read."
        answer, (start, end) = places.answer, spans[at]
        before, after = answer[max(0, start - _AROUND) : start], answer[end : end + _AROUND]
        return Content.assemble(
            ("…" if start > _AROUND else "") + one_line(before),
            (one_line(answer[start : min(end, start + _SPAN_MAX)]), "reverse"),
            one_line(after) + ("…" if end + _AROUND < len(answer) else ""),
        )

    def clicked(self, x: float, y: float, reach: float) -> None:
        """Highlight the mark that was clicked, or one less than two cells away: a point is too small to be clicked
        exactly. `x`, `y`: the place in the image's pixels; `reach`: the longer side of a cell."""
        here, placed = self.places.marks_on(self.medium), self.places.placed
        at = mark_at([placed[one] for one in here], x, y, reach=2 * reach)
        if at is not None:
            self.room.chosen = here[at]

    def convention(self) -> None:
        self.places = self.places.with_next_scale()

    def order(self) -> None:
        self.places = self.places.with_other_order()

    def exported(self) -> Exported:
        medium, marks, places = self.medium, self.marks((0, 0)), self.places
        return "boxes", lambda: draw_marks(open_shown(medium), marks.placed, badges=marks.badges), places.as_json


class ScoringMode(ImageMode):
    """Scores the answer with changed images. Nothing is generated."""

    plan: OcclusionPlan
    found: OcclusionMap | BlindTest | None = None
    """The result; None until it is measured."""

    async def load(self) -> None:
        report, engine = self.room.require_report(), self.room.engine()
        require_same(engine, report)
        self.plan = occlusion_plan(report, self.room.require_prompt(), self.attachment, engine)

    def words(self) -> list[tuple[str, range]]:
        """Return the whole answer, and its words, each with its tokens."""
        words = [(one_line(word) or "␣", tokens) for word, tokens in self.plan.words()]
        return [("The whole answer", range(len(self.plan.ids))), *words]

    def about(self) -> str | Content:
        """Return the cost; once it is measured, what the numbers are."""
        if self.found is None:
            return with_keys(self.room.app, f"{{image_room.measure}} scores {self.cost}")
        return self.legend()

    def legend(self) -> str | Content:
        """Return what the numbers and colours of the result are."""
        raise NotImplementedError

    @property
    def cost(self) -> str:
        return self.plan.cost

    async def measure(self, on_progress: Callable[[int], object]) -> None:
        """Measure. `on_progress` gets the number of prompts scored so far. Raises VlmtuiError."""
        raise NotImplementedError

    def exported(self) -> Exported:
        if self.found is None:
            raise bad_input("Nothing was measured yet.", hint="Measure first.")
        return self.title.lower(), self.maker(), self.found.as_json


class HeatMode(ScoringMode):
    """The parts of the image that the answer, or a word of it, depends on; and how much each word depends on a part."""

    title = "Heat"
    has_patches = True
    found: OcclusionMap | None = None

    async def measure(self, on_progress: Callable[[int], object]) -> None:
        self.found = await occlusion_map(self.room.engine(), self.plan, self.room.store, on_progress)

    def cells(self, step: int) -> None:
        at = min(max(GRIDS.index(self.plan.longer) + step, 0), len(GRIDS) - 1)
        if GRIDS[at] != self.plan.longer and not self.room.measured:
            self.plan, self.found = msgspec.structs.replace(self.plan, longer=GRIDS[at]), None

    @property
    def _word(self) -> tuple[str, range]:
        return self.words()[self.room.chosen or 0]

    def patches(self) -> tuple[int, int] | None:
        return super().patches() or (self.plan.grid if self.is_loaded else None)

    def _window(self, found: OcclusionMap) -> int:
        """Return the index of the outlined part: around the chosen patch, or else the part that matters most."""
        patch, grid, image = self.room.patch, self.patches(), found.plan.image
        if patch is None or grid is None:
            return found.strongest(self._word[1])
        x, y = (patch[1] + 0.5) * image.width / grid[1], (patch[0] + 0.5) * image.height / grid[0]
        return found.plan.window_at(x, y)

    def key(self) -> object:
        return self, self.found, self._word

    def maker(self) -> Callable[[], Image]:
        path, found, tokens = self.attachment.path, self.found, self._word[1]
        return lambda: draw_heat(open_prepared(path), found.heat(tokens)) if found else open_prepared(path)

    def marks(self, size: tuple[int, int]) -> Marks:
        marks, found = super().marks(size), self.found
        return marks._replace(framed=found.plan.box(found.plan.windows[self._window(found)])) if found else marks

    def rows(self) -> list[Content]:
        words, found = self.words(), self.found
        if found is None:
            return [Content(word) for word, _ in words]
        at = self._window(found)
        return _score_lines([(word, -found.sums(tokens)[at]) for word, tokens in words])

    def legend(self) -> Content:
        heat = self.found.heat(self._word[1]) if self.found is not None else []
        most = max((abs(cell) for row in heat for cell in row), default=0.0)
        less, more = f" {nats(-most)} nats: less likely without this part · ", f" +{nats(most)} nats: more likely"
        return Content.assemble(("█", _HOT), less, ("█", _COLD), more)

    def state(self) -> str:
        rows, columns = self.plan.grid
        return f"{columns}×{rows} cells"

    def told(self) -> str | Content:
        found, patch = self.found, str(super().told())
        if found is None:
            return patch
        word, tokens = self._word
        drop, subject = found.sums(tokens)[self._window(found)], f"“{word}”" if self.room.chosen else "The answer"
        if self.room.patch is None and drop <= 0:
            return f"{subject} is not less likely without any one part."
        said = f"{subject} is {LaneScore(-drop, 0).text} without the outlined part."
        return "\n".join(filter(None, (patch, said)))


class BlindMode(ScoringMode):
    """Does the answer depend on the image at all? It is scored without the image, and with changed ones."""

    title = "Blind"
    found: BlindTest | None = None
    images: dict[PictureChange, Attachment | None]
    _word = 0

    async def load(self) -> None:
        await super().load()
        at, all = self.room.view.at, [one.attachment for one in self.room.images]
        others = (one for one in (*all[at + 1 :], *all[:at]) if one.modality == "image")
        other = next((one for one in others if one.sha256 != self.attachment.sha256), None)
        self.images = await asyncio.to_thread(changed_images, self.plan.image, other, self.room.store)

    @property
    def cost(self) -> str:
        return counted(1 + len(self.images), "prompt")

    async def measure(self, on_progress: Callable[[int], object]) -> None:
        self.found = await blind_test(self.room.engine(), self.plan, self.images, on_progress)

    def token(self, step: int) -> None:
        self._word = (self._word + step) % len(self.words())

    @property
    def _shown(self) -> Attachment | None:
        return [self.attachment, *self.images.values()][self.room.chosen or 0]

    def key(self) -> object:
        return self, self._shown

    def maker(self) -> Callable[[], Image]:
        return partial(_image_or_black, self._shown, (self.attachment.width, self.attachment.height))

    def rows(self) -> list[Content]:
        names = ["as sent", *(LABELS[change] for change in self.images)]
        if self.found is None:
            return [Content(name) for name in names]
        sums = [0.0, *self.found.sums(self.words()[self._word][1])]
        return _score_lines([(name, -drop) for name, drop in zip(names, sums, strict=True)])

    def legend(self) -> str:
        return f"Nats, without the image or with another: {self.words()[self._word][0]}"

    def told(self) -> str | Content:
        return self.found.verdict() if self.found is not None else ""


def _seen_image(view: OpenedView, number: int, shows_difference: bool) -> Image:
    """Return a seen image, or its difference from its part of the sent one. Raises VlmtuiError if that is unknown."""
    if not view.seen:
        raise bad_input(f"The engine keeps {view.view.medium.tensor or 'this'} {_LAYOUTS['']}.")
    if not shows_difference:
        return view.seen[number]
    if (found := view.difference(number)) is None:
        raise bad_input("Can't compare: the part of the image that this shows was not found.")
    return found.image


def _image_or_black(attachment: Attachment | None, size: tuple[int, int]) -> Image:
    if attachment is not None:
        return open_prepared(attachment.path)
    from PIL import Image

    return Image.new("RGB", size)


def _mark_line(one: PlacedMark, badge: Badge, place: str) -> Content:
    label = one_line(one.mark.label) or one.mark.kind
    where = ",".join(f"{value:.0f}" for value in (one.xyxy if one.mark.kind != "point" else one.xyxy[:2]))
    doubts = (" cut" if one.is_clipped else "") + (" corners swapped" if one.is_swapped else "")
    number = Content.styled(f" {badge.number} ", f"bold #ffffff on {badge.colour}")
    return Content.assemble(number, f" {label} ", (f"{where}{doubts}{place}", "$text-muted"))


def _score_lines(scores: list[tuple[str, float]]) -> list[Content]:
    """Return a row for each word with its change in nats; the first is the sum, bars compare the others."""
    most = max((abs(change) for _, change in scores[1:]), default=0.0) or 1.0
    lines = []
    for name, change in scores:
        bar = _BARS[min(round(abs(change) / most * (len(_BARS) - 1)), len(_BARS) - 1)]
        number = f"{round(change, 2) + 0.0:,.2f}".replace("-", "−")  # + 0.0: not −0.00
        told = (f"{number:>7} ", "$text-muted"), (bar, _HOT if change < 0 else _COLD), f" {name}"
        lines.append(Content.assemble(*told))
    return lines


MODES: dict[RoomMode, type[ImageMode]] = {
    "file": FileMode,
    "sent": SentMode,
    "seen": SeenMode,
    "heat": HeatMode,
    "boxes": BoxesMode,
    "blind": BlindMode,
}
"""The modes, in the order of their digits."""
