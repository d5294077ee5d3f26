"""One turn answered several ways, side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Static

from vlmtui.engine.interface import Engine
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.inspection.answer_diff import AnswerDiff
from vlmtui.paths import Paths
from vlmtui.ui.controllers.compare_export import SUFFIXES, export
from vlmtui.ui.controllers.fan_out import FanOutController
from vlmtui.ui.controllers.fan_plan import doubt
from vlmtui.ui.controllers.saving import free_path
from vlmtui.ui.text import one_line
from vlmtui.ui.widgets.answer_grid import AnswerGrid, AnswerTile, how_it_differs
from vlmtui.ui.widgets.key_bar import KeyBar

REFRESH_S = 0.1
"""New text is shown at most this often."""
_FORMATS = ("Markdown, to be read", "A web page with the images in it", "JSON, to be run again")


class FanOutScreen(Screen[int | Literal["anew"] | None]):
    """Gives the number of the answer to go on with, `anew` for another plan, or None.

    `engine` gives the engine that is loaded now, if any. A controller that has run already is only shown.
    """

    CSS_PATH = "fan_out.tcss"
    BINDINGS = [
        Binding("enter", "choose", "Use this", id="fan_out.choose", tooltip="Go on with this answer."),
        Binding("b", "base", "Base", id="fan_out.base", tooltip="Hold the others against this answer."),
        Binding("i", "inspect", "Inspect", id="fan_out.inspect", tooltip="Look into this prompt and answer."),
        Binding("y", "copy", "Copy", id="fan_out.copy", tooltip="Copy this answer to your clipboard."),
        Binding("x", "export", "Export", id="fan_out.export", tooltip="Write all of them into a file."),
        Binding("n", "anew", "New", id="fan_out.anew", tooltip="Fan the same message out over other values."),
        Binding("escape", "leave", "Stop, back", id="fan_out.leave", tooltip="Stop all; then back to the chat."),
        *(
            Binding(keys, f"move({across}, {down})", show=False, id=f"fan_out.{name}", tooltip=f"The answer {name}.")
            for keys, across, down, name in (
                ("left,h", -1, 0, "left"),
                ("right,l", 1, 0, "right"),
                ("up,k", 0, -1, "above"),
                ("down,j", 0, 1, "below"),
            )
        ),
    ]

    class Over(Message):
        """All answers have their outcome."""

    @dataclass
    class Compared(Message):
        """The answers held against a base; None for the base itself and for those that have not come to their end."""

        base: int
        differences: list[AnswerDiff | None]

    @dataclass
    class Exported(Message):
        """Where they were written, or why not."""

        outcome: Path | VlmtuiError

    def __init__(self, controller: FanOutController, *, paths: Paths, engine: Callable[[], Engine | None]) -> None:
        super().__init__()
        self.controller = controller
        self.differences: list[AnswerDiff | None] | None = None
        """None until they are known."""
        self._paths = paths
        self._engine = engine
        self._timer: Timer | None = None

    def compose(self) -> ComposeResult:
        with Horizontal(id="top"):
            yield Static(f"Fan-out · {self.controller.plan.title}", id="title", markup=False)
            yield Static(one_line(self.controller.lanes[0].variant.turn.text), id="question", markup=False)
            yield Static(id="state", markup=False)
        yield Static(id="doubt", markup=False)
        yield AnswerGrid([AnswerTile(self._label(lane.variant.label, number), lane.answer)
                          for number, lane in enumerate(self.controller.lanes)], id="answers")  # fmt: skip
        yield KeyBar()

    def on_mount(self) -> None:
        told = doubt(self.controller.plan, self.controller.sampling)
        self.query_one("#doubt", Static).update(told)
        self.query_one("#doubt").display = bool(told)
        self._grid.panes[0].focus()
        self._timer = self.set_interval(REFRESH_S, self._grow)
        self._grow()
        if self.controller.is_running:
            self._run()
        else:
            self.post_message(self.Over())

    @on(Over)
    def _over(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        self._grow()
        self._compare()

    @on(Compared)
    def _compared(self, event: Compared) -> None:
        if event.base != self.controller.base or not self.is_attached:
            return
        self.differences = event.differences
        base_failed = self.controller.lanes[event.base].has_failed
        for number, (pane, difference) in enumerate(zip(self._grid.panes, event.differences, strict=True)):
            said = "stopped" if self.controller.lanes[number].has_failed else ""
            if difference is not None:
                said = " · ".join(filter(None, (said, how_it_differs(difference))))
            pane.tell(said, is_base=number == event.base and not base_failed)
            pane.mark(difference)

    @on(Exported)
    def _exported(self, event: Exported) -> None:
        if isinstance(event.outcome, VlmtuiError):
            self._tell_error(event.outcome)
        else:
            self.notify(f"Written: {one_line(str(event.outcome))}", timeout=8, markup=False)

    def action_move(self, across: int, down: int) -> None:
        """To the answer beside."""
        self._grid.move(across, down)

    def action_choose(self) -> None:
        """Go on with this answer."""
        lane = self.controller.lanes[self._grid.current]
        if lane.is_running:
            self._tell_error(bad_input("This answer is not at its end yet.", hint="Esc stops all of them."))
        elif not lane.answer.text:
            self._tell_error(bad_input("There is no answer here to go on with."))
        else:
            self._leave(self._grid.current)

    def action_base(self) -> None:
        """Hold the others against this answer."""
        self.controller.base = self._grid.current
        if not self.controller.is_running:
            self._compare()

    def action_copy(self) -> None:
        """Copy this answer, through the terminal (OSC 52)."""
        text = self.controller.lanes[self._grid.current].answer.text
        self.app.copy_to_clipboard(text)
        self.notify(f"Copied {len(text):,} characters.", markup=False)

    def action_inspect(self) -> None:
        """Look into this prompt and answer."""
        from vlmtui.ui.screens.inspector import InspectorScreen

        inspected = self.controller.inspected(self._grid.current)
        self.app.push_screen(InspectorScreen(inspected, cache=self._paths.cache / "thumbnails", engine=self._engine))

    def action_export(self) -> None:
        """Write all of them into a file: for people, for a browser, or to be run again."""
        if self.controller.is_running:
            self._tell_error(bad_input("Not all answers are at their end yet.", hint="Esc stops them."))
        else:
            self._ask_format()

    def action_anew(self) -> None:
        """Fan the same message out over other values."""
        if not self.controller.is_running:
            self._leave("anew")

    async def action_leave(self) -> None:
        """Stop what is running; when nothing is, back to the chat."""
        engine = self._engine()
        if self.controller.is_running and engine is not None:
            await self.controller.stop(engine)
        else:
            self._leave(None)

    @property
    def _grid(self) -> AnswerGrid:
        return self.query_one(AnswerGrid)

    def _leave(self, chosen: int | Literal["anew"] | None) -> None:
        if self._timer is not None:
            self._timer.stop()
        self.dismiss(chosen)

    def _label(self, label: str, number: int) -> str:
        texts = self.controller.plan.values if self.controller.plan.parameter == "prompt" else ()
        return f"{label}  {texts[number]}" if texts else label

    def _grow(self) -> None:
        if not self.is_attached:
            return
        for pane in self._grid.panes:
            pane.grow()
        running = sum(lane.is_running for lane in self.controller.lanes)
        self.query_one("#state", Static).update(f"{running} of {len(self.controller.lanes)} running" if running else "")

    def _tell_error(self, error: VlmtuiError) -> None:
        self.notify(one_line(str(error)), severity="error", timeout=8, markup=False)

    @work(group="run")
    async def _run(self) -> None:
        engine = self._engine()
        if engine is not None:
            await self.controller.run(engine)
        self.post_message(self.Over())

    @work(thread=True, group="compare", exclusive=True)
    def _compare(self) -> None:
        controller = self.controller
        base = controller.base
        self.post_message(self.Compared(base, [controller.difference(at) for at in range(len(controller.lanes))]))

    @work(group="modal")
    async def _ask_format(self) -> None:
        from vlmtui.ui.screens.asking import ChoiceScreen

        chosen = await self.app.push_screen_wait(ChoiceScreen("Export as", [Content(name) for name in _FORMATS]))
        if chosen is not None:
            self._export(SUFFIXES[chosen], Path.cwd())

    @work(thread=True, group="export")
    def _export(self, suffix: str, folder: Path) -> None:
        try:
            target = free_path(folder, f"vlmtui-fan-out{suffix}")
            self.post_message(self.Exported(export(self.controller.comparison(), target, self._paths.media)))
        except VlmtuiError as error:
            self.post_message(self.Exported(error))
