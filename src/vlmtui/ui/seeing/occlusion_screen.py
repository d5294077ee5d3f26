"""The heat map of an answer: which parts of an image the answer, or a word of it, depends on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from textual import on, work
from textual.content import Content
from textual.widgets import OptionList
from textual.worker import Worker

from vlmtui.engine.interface import Engine
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.media.images import open_prepared
from vlmtui.session.lanes import times
from vlmtui.session.seeing import GRIDS, OcclusionMap, OcclusionPlan, draw_heat, occlusion_map
from vlmtui.text import one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.keys import with_keys
from vlmtui.ui.seeing.seeing_screen import SeeingScreen, Sight

if TYPE_CHECKING:
    from PIL.Image import Image


class OcclusionScreen(SeeingScreen["Image"]):
    """Shows what measuring will cost. After Enter, it measures and shows the heat map for the highlighted line of the
    list: the whole answer, or one of its words."""

    SCOPE = "occlusion"
    BINDINGS = bindings(SCOPE)

    def __init__(
        self, plan: OcclusionPlan, engine: Callable[[], Engine], *, store: Path, folder: Path, number: int
    ) -> None:
        """`engine` returns the engine or raises VlmtuiError. `store`: the folder for changed images while measuring;
        `folder`: the folder for exports; `number`: the image's number in the conversation."""
        super().__init__()
        self.plan = plan
        self.map: OcclusionMap | None = None
        self._engine = engine
        self._store, self._folder, self._number = store, folder, number
        self._measuring: Worker[None] | None = None
        self._window: int | None = None
        """Index of the clicked part of the image; None: none was clicked."""

    def on_mount(self) -> None:
        self.listed.add_option(Content.styled("The whole answer", "bold"))
        self.listed.add_options([Content(one_line(word) or "␣") for word, _ in self.plan.words()])
        self.listed.highlighted = 0
        self.say("title", f"What the answer depends on · ▣ {self._number} {one_line(self.plan.image.name)}")
        self._tell()
        self.open(partial(open_prepared, self.plan.image.path))

    def sight(self) -> tuple[object, Callable[[], Sight]]:
        assert self.opened is not None
        key = self.map, self._tokens, self._window
        return key, partial(_heated_image, self.opened, *key)

    def chosen_changed(self) -> None:
        self._window = None
        self._tell()

    def clicked(self, x: float, y: float, reach: float) -> None:
        """Show how likely the answer would be without the clicked part of the image."""
        if self.map is not None:
            self._window = self.plan.window_at(x, y)
            self._tell()
            self.redraw()

    @on(OptionList.OptionSelected)
    def _selected(self) -> None:
        self.action_measure()

    def action_close(self) -> None:
        """Stop measuring; if nothing is being measured, close."""
        if self._measuring is None:
            self.dismiss()
            return
        self._measuring.cancel()
        self._measuring = None
        self._tell()

    def action_measure(self) -> None:
        if self._measuring is None:
            self.map = None
            self._measuring = self._measure(self.plan)
            self._progressed(0)

    def action_grid(self, step: int) -> None:
        at = min(max(GRIDS.index(self.plan.longer) + step, 0), len(GRIDS) - 1)
        if self._measuring is None and GRIDS[at] != self.plan.longer:
            self.plan = msgspec.structs.replace(self.plan, longer=GRIDS[at])
            self.map = None
            self._tell()
            self.redraw()

    def action_export(self) -> None:
        if self.map is None or self.opened is None:
            self.tell_error(bad_input("There is no heat map yet.", hint="Measure first."))
            return
        make = self.sight()[1]
        self.export(self._folder, "heat", lambda: make().image, self.map.as_json)

    @property
    def _tokens(self) -> range | None:
        """The tokens of the highlighted word; None: those of the whole answer."""
        word = self.listed.highlighted or 0
        return self.plan.words()[word - 1][1] if word else None

    def _progressed(self, done: int) -> None:
        if self.is_attached and self._measuring is not None:
            told = f"{done:,} of {self.plan.requests:,} scored · {{occlusion.close}} stops"
            self.say("count", with_keys(self.app, told))

    def _tell(self) -> None:
        self.say("convention", self.plan.cost)
        if self._measuring is None:
            self.say("count", "" if self.map is not None else with_keys(self.app, "{occlusion.measure} measures"))
        if self.map is None:
            self.say("span", "Red: without that part the answer is less likely. Blue: it is more likely.")
            return
        _, drop = self.map.part(self._window, self._tokens)
        subject = "The answer" if self._tokens is None else "This word"
        if self._window is None and drop <= 0:
            self.say("span", f"{subject} is not less likely without any one part.")
        else:
            self.say("span", f"{subject} is {times(-drop)} as likely without the outlined part.")

    @work(group="measure", exclusive=True)
    async def _measure(self, plan: OcclusionPlan) -> None:
        try:
            self.map = await occlusion_map(self._engine(), plan, self._store, self._progressed)
        except VlmtuiError as error:
            self.tell_error(error)
        self._measuring, self._window = None, None
        self._tell()
        self.redraw()


def _heated_image(image: Image, found: OcclusionMap | None, tokens: range | None, window: int | None) -> Sight:
    """Return the image; if the heat map has been measured, with the heat map over it."""
    if found is None:
        return Sight(image)
    return Sight(draw_heat(image, found.heat(tokens), found.part(window, tokens)[0]))
