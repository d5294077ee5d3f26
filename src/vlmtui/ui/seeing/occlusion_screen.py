"""Which part of a picture an answer depends on: a heat map, for the whole answer or a word of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from textual import events, on, work
from textual.app import ComposeResult
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.widgets import OptionList, Static
from textual.worker import Worker, get_current_worker

from vlmtui.engine.interface import Engine
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.files import write_numbered
from vlmtui.inspection.heat_picture import draw_heat
from vlmtui.media.images import as_png, open_prepared
from vlmtui.session.likelihood import times
from vlmtui.session.occlusion import GRIDS, OcclusionMap, OcclusionPlan, first_error, occlusion_map
from vlmtui.text import one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.keys import error_text, with_keys
from vlmtui.ui.seeing.picture_and_list import clicked_place, picture_and_list, show_drawing
from vlmtui.ui.terminal.graphics import Graphics
from vlmtui.ui.widgets.marked_picture import MarkedDrawing, draw_marked

if TYPE_CHECKING:
    from PIL.Image import Image


class _Wanted(NamedTuple):
    """What a drawing is made for."""

    map: OcclusionMap | None
    word: int
    window: int | None
    """Which part to outline; None: the one that matters most."""
    room: tuple[int, int]


class OcclusionScreen(Screen[None]):
    """Tells the cost first; Enter measures; then the heat map for the whole answer, or for the word one is on."""

    CSS_PATH = "seeing.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]
    SCOPE = "occlusion"
    BINDINGS = bindings(SCOPE)

    @dataclass
    class Opened(Message):
        """The picture, or why it cannot be shown."""

        outcome: Image | VlmtuiError

    @dataclass
    class Measured(Message):
        """The map, or why there is none."""

        outcome: OcclusionMap | VlmtuiError

    @dataclass
    class Drawn(Message):
        """A drawing, and what it was made for."""

        drawing: MarkedDrawing
        wanted: object

    @dataclass
    class Exported(Message):
        """The files written, or why that failed."""

        outcome: tuple[Path, Path] | VlmtuiError

    def __init__(
        self, plan: OcclusionPlan, engine: Callable[[], Engine], *, store: Path, folder: Path, number: int
    ) -> None:
        """`engine` returns the engine or raises VlmtuiError. `store`: where changed pictures are written meanwhile;
        `folder`: where exports are. `number`: the image's number in the conversation."""
        super().__init__()
        self.plan = plan
        self.map: OcclusionMap | None = None
        self.shown: object = None
        """What the drawing on the screen was made for; None while there is none."""
        self._engine = engine
        self._store, self._folder, self._number = store, folder, number
        self._image: Image | None = None
        self._measuring: Worker[None] | None = None
        self._window: int | None = None
        """The part of the picture that was clicked."""

    def compose(self) -> ComposeResult:
        yield from picture_and_list()

    def on_mount(self) -> None:
        self.set_class(Graphics.of(self.app).mode == "off", "-off")
        listed = self.query_one(OptionList)
        listed.add_option(Content.styled("The whole answer", "bold"))
        listed.add_options([Content(one_line(word) or "␣") for word, _ in self.plan.words()])
        listed.highlighted = 0
        listed.focus()
        self.query_one("#title", Static).update(
            f"What the answer depends on · ▣ {self._number} {one_line(self.plan.image.name)}"
        )
        self._tell()
        self._open()

    @on(events.Resize)
    def _resized(self) -> None:
        self.call_after_refresh(self._redraw)

    @on(OptionList.OptionHighlighted)
    def _highlighted(self) -> None:
        self._window = None
        self._tell()
        self._redraw()

    def on_click(self, event: events.Click) -> None:
        """Tell how likely the answer is without the part that was clicked."""
        place = clicked_place(self, event, self._image.size) if self._image is not None else None
        if place is not None and self.map is not None:
            self._window = self.plan.window_at(place.x, place.y)
            self._tell()
            self._redraw()

    @on(OptionList.OptionSelected)
    def _selected(self) -> None:
        self.action_measure()

    @on(Opened)
    def _opened(self, event: Opened) -> None:
        if isinstance(event.outcome, VlmtuiError):
            self._tell_error(event.outcome)
        else:
            self._image = event.outcome
            self._redraw()

    @on(Measured)
    def _measured(self, event: Measured) -> None:
        self._measuring = None
        if isinstance(event.outcome, VlmtuiError):
            self._tell_error(event.outcome)
        else:
            self.map, self._window = event.outcome, None
        self._tell()
        self._redraw()

    @on(Drawn)
    async def _drawn(self, event: Drawn) -> None:
        wanted = self._wanted
        if event.wanted == wanted:
            await show_drawing(self, event.drawing)
            self.shown = wanted

    @on(Exported)
    def _exported(self, event: Exported) -> None:
        if isinstance(event.outcome, VlmtuiError):
            self._tell_error(event.outcome)
        else:
            names = " and ".join(one_line(str(path)) for path in event.outcome)
            self.notify(f"Saved {names}", timeout=8, markup=False)

    def action_close(self) -> None:
        """Stop measuring; or close."""
        if self._measuring is None:
            self.dismiss()
            return
        self._measuring.cancel()
        self._measuring = None
        self._tell()

    def action_measure(self) -> None:
        """Score the answer with each part greyed out."""
        if self._measuring is None:
            self.map = None
            self._measuring = self._measure(self.plan)
            self._progressed(0)

    def action_grid(self, step: int) -> None:
        """Take finer or coarser cells."""
        at = min(max(GRIDS.index(self.plan.longer) + step, 0), len(GRIDS) - 1)
        if self._measuring is None and GRIDS[at] != self.plan.longer:
            self.plan = msgspec.structs.replace(self.plan, longer=GRIDS[at])
            self.map = None
            self._tell()
            self._redraw()

    def action_export(self) -> None:
        """Write the heat map and its numbers."""
        if self.map is None or self._image is None:
            self._tell_error(bad_input("There is no heat map yet.", hint="Measure first."))
        else:
            self._export(self.map, self._image, self._window, self._tokens(self._word))

    @property
    def _word(self) -> int:
        """The index of the chosen line: 0 is the whole answer."""
        return self.query_one(OptionList).highlighted or 0

    @property
    def _wanted(self) -> _Wanted:
        width, height = self.query_one("#stage").content_size
        return _Wanted(self.map, self._word, self._window, (width, height))

    def _tokens(self, word: int) -> range | None:
        return None if word == 0 else self.plan.words()[word - 1][1]

    def _progressed(self, done: int) -> None:
        if self.is_attached and self._measuring is not None:
            told = f"{done:,} of {self.plan.requests:,} scored · {{occlusion.close}} stops"
            self.query_one("#count", Static).update(with_keys(self.app, told))

    def _tell(self) -> None:
        self.query_one("#convention", Static).update(self.plan.cost)
        said = self.query_one("#span", Static)
        if self._measuring is None:
            told = "" if self.map is not None else with_keys(self.app, "{occlusion.measure} measures")
            self.query_one("#count", Static).update(told)
        if self.map is None:
            said.update("Red: without that part the answer is less likely. Blue: it is more likely.")
            return
        tokens = self._tokens(self._word)
        _, drop = _part(self.map, self._window, tokens)
        what = "The answer" if tokens is None else "This word"
        if self._window is None and drop <= 0:
            said.update(f"{what} is not less likely without any one part.")
        else:
            said.update(f"{what} is {times(-drop)} as likely without the outlined part.")

    def _tell_error(self, error: VlmtuiError) -> None:
        self.notify(error_text(self.app, error), severity="error", timeout=10, markup=False)

    def _redraw(self) -> None:
        if self.is_attached and self._image is not None and self._wanted != self.shown and all(self._wanted.room):
            self._draw(self._image, self._wanted, self._tokens(self._word), Graphics.of(self.app))

    @work(thread=True, group="open", exclusive=True)
    def _open(self) -> None:
        try:
            self.post_message(self.Opened(open_prepared(self.plan.image.path)))
        except VlmtuiError as error:
            self.post_message(self.Opened(error))

    @work(group="measure", exclusive=True)
    async def _measure(self, plan: OcclusionPlan) -> None:
        try:
            found = await occlusion_map(self._engine(), plan, self._store, self._progressed)
        except VlmtuiError as error:
            self.post_message(self.Measured(error))
        except BaseExceptionGroup as errors:
            self.post_message(self.Measured(first_error(errors)))
        else:
            self.post_message(self.Measured(found))

    @work(thread=True, group="draw", exclusive=True)
    def _draw(self, image: Image, wanted: _Wanted, tokens: range | None, graphics: Graphics) -> None:
        worker = get_current_worker()
        found = wanted.map
        drawn = image if found is None else _drawn(image, found, wanted.window, tokens)
        drawing = draw_marked(drawn, [], None, graphics, wanted.room)
        if not worker.is_cancelled:
            self.post_message(self.Drawn(drawing, wanted))

    @work(thread=True, group="export")
    def _export(self, found: OcclusionMap, image: Image, window: int | None, tokens: range | None) -> None:
        try:
            drawn = as_png(_drawn(image, found, window, tokens))
            picture = write_numbered(self._folder, "vlmtui-heat.png", drawn)
            data = msgspec.json.format(msgspec.json.encode(found.as_json()), indent=2) + b"\n"
            self.post_message(self.Exported((picture, write_numbered(self._folder, "vlmtui-heat.json", data))))
        except VlmtuiError as error:
            self.post_message(self.Exported(error))


def _part(found: OcclusionMap, window: int | None, tokens: range | None) -> tuple[tuple[int, int, int, int], float]:
    """Return the part to outline, and by how many nats these tokens are less likely without it."""
    return found.hottest(tokens) if window is None else found.part(window, tokens)


def _drawn(image: Image, found: OcclusionMap, window: int | None, tokens: range | None) -> Image:
    return draw_heat(image, found.heat(tokens), _part(found, window, tokens)[0])
