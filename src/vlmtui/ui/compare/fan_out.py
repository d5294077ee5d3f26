"""The answers of a fan-out, side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from textual import work
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Static

from vlmtui.domain.prompt import attachments_of
from vlmtui.errors import Remedy, VlmtuiError, bad_input
from vlmtui.files import free_path
from vlmtui.inspection.answer_diff import AnswerDiff, tally_text
from vlmtui.inspection.build import fingerprint_of
from vlmtui.session.comparison_export import SUFFIXES, export_comparison
from vlmtui.session.fan_out import PICTURE, PIXELS, PROMPT, SYSTEM, FanOut, why_identical
from vlmtui.session.lanes import LaneScore
from vlmtui.session.prompt_report import PromptReport
from vlmtui.text import one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.compare.answer_grid import AnswerGrid, AnswerTile, difference_in_words
from vlmtui.ui.document.view import INTERVAL_S
from vlmtui.ui.keys import error_text, with_keys
from vlmtui.ui.terminal.key_queue import ask_user, before_keys
from vlmtui.ui.widgets.dialogs import ChoiceScreen
from vlmtui.ui.widgets.footer_bar import FooterBar

_FORMATS = ("Markdown, to read", "A web page with its images", "JSON, to replay")
Leave = int | Literal["new_plan", "look"] | None


class FanOutScreen(Screen[Leave]):
    """Returns the index of the chosen answer, `new_plan` or `look` for another plan, or None.

    `engine` returns the engine for the inspector if it is ready, or raises VlmtuiError. A finished fan-out is only
    shown.
    """

    CSS_PATH = "fan_out.tcss"
    VERTICAL_BREAKPOINTS = [(0, "-low"), (20, "-high")]
    SCOPE = "answers"
    BINDINGS = bindings(SCOPE)

    def __init__(
        self,
        fan_out: FanOut,
        *,
        changed: str = "",
        media: Path,
        cache: Path,
        show_inspector: Callable[[PromptReport], None],
    ) -> None:
        """`changed`: the settings that were changed since it was sent; `media`: the folder of the stored attachments,
        for exported pages; `cache`: the folder of the thumbnails."""
        super().__init__()
        self.fan_out = fan_out
        self.differences: list[AnswerDiff | None] | None = None
        """None until computed."""
        self.scores: list[LaneScore | None] | None = None
        """None until computed; a lane's score is None for the base, or if unknown."""
        self._changed = changed
        self._media = media
        self._cache = cache
        self._show_inspector = show_inspector
        self._timer: Timer | None = None
        self._state = ""

    def compose(self) -> ComposeResult:
        with Horizontal(id="top"):
            yield Static(f"Fan-out · {self.fan_out.plan.title}", id="title", markup=False)
            yield Static(one_line(self.fan_out.question), id="question", markup=False)
            yield Static(id="state", markup=False)
        yield Static(id="doubt", markup=False)
        yield Static(id="verdict", markup=False)
        yield Static(id="tally", markup=False)
        yield AnswerGrid([self._tile(number) for number in range(len(self.fan_out.lanes))], id="answers")
        yield FooterBar()

    def on_mount(self) -> None:
        stale = f"Stale: {one_line(self._changed)}. {{answers.new_plan}} fans out again." if self._changed else ""
        same = why_identical(self.fan_out.plan, self.fan_out.sampling)
        self._say("#doubt", "\n".join(filter(None, (with_keys(self.app, stale), same))))
        self._grid.panes[0].focus()
        self._timer = self.set_interval(INTERVAL_S, self._grow)
        self._grow()
        if self.fan_out.is_running:
            self._run()
        else:
            self._over()

    def _over(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        self._grow()
        self._say("#tally", tally_text([lane.answer.text for lane in self.fan_out.lanes if not lane.has_failed]))
        self._hold_against_base()

    async def _show_differences(self) -> None:
        if self.differences is None:
            return
        base = self.fan_out.base
        scores = self.scores or [None] * len(self.fan_out.lanes)
        for number, (pane, difference) in enumerate(zip(self._grid.panes, self.differences, strict=True)):
            failed, score = self.fan_out.lanes[number].has_failed, scores[number]
            said = [
                "stopped" if failed else "",
                f"base {score.times}" if score else "",
                difference_in_words(difference) if difference else "",
            ]
            pane.tell(" · ".join(filter(None, said)), is_base=number == base and not failed)
        for pane, difference in zip(self._grid.panes, self.differences, strict=True):
            pane.mark(difference)
            await asyncio.sleep(0)  # a long answer takes as long as a key may wait

    def action_move(self, across: int, down: int) -> None:
        """Focus a neighbouring answer."""
        self._grid.move(across, down)

    def action_choose(self) -> None:
        """Continue the conversation with this answer."""
        lane = self.fan_out.lanes[self._grid.current]
        if lane.is_running:
            self._tell_error(bad_input("This answer is not complete yet.", remedy=Remedy.STOP_FAN_OUT))
        elif not lane.answer.text:
            self._tell_error(bad_input("This answer is empty."))
        else:
            self._leave(self._grid.current)

    def action_base(self) -> None:
        """Compare the others with this answer."""
        self.fan_out.base = self._grid.current
        self.scores = None
        if not self.fan_out.is_running:
            self._hold_against_base()

    def action_copy(self) -> None:
        """Copy this answer, through the terminal (OSC 52)."""
        text = self.fan_out.lanes[self._grid.current].answer.text
        self.app.copy_to_clipboard(text)
        self.notify(f"Copied {len(text):,} characters.", markup=False)

    def action_inspect(self) -> None:
        """Inspect this prompt and answer."""
        self._show_inspector(self.fan_out.report(self._grid.current))

    @before_keys
    async def action_export(self) -> None:
        """Write all answers to a file: to read, for a browser, or to replay."""
        if self.fan_out.is_running:
            self._tell_error(bad_input("Not all answers are complete yet.", remedy=Remedy.STOP_FAN_OUT))
            return
        chosen = await ask_user(self.app, ChoiceScreen("Export as", [Content(name) for name in _FORMATS]))
        if chosen is None:
            return
        try:
            target = await asyncio.to_thread(self._write, SUFFIXES[chosen], Path.cwd())
        except VlmtuiError as error:
            self._tell_error(error)
        else:
            self.notify(f"Written: {one_line(str(target))}", timeout=8, markup=False)

    def action_new_plan(self) -> None:
        """Fan out the same message over other values."""
        if not self.fan_out.is_running:
            self._leave("new_plan")

    def action_look(self) -> None:
        """Send the same message without its pictures, and with changed ones."""
        if self.fan_out.is_running:
            self._tell_error(bad_input("Not all answers are complete yet.", remedy=Remedy.STOP_FAN_OUT))
        else:
            self._leave("look")

    async def action_leave(self) -> None:
        """Stop running answers; if there are none, return to the chat."""
        if self.fan_out.is_running:
            await self.fan_out.lanes.stop()
        else:
            self._leave(None)

    @property
    def _grid(self) -> AnswerGrid:
        return self.query_one(AnswerGrid)

    def _leave(self, chosen: Leave) -> None:
        if self._timer is not None:
            self._timer.stop()
        self.dismiss(chosen)

    def _tile(self, number: int) -> AnswerTile:
        lane = self.fan_out.lanes[number]
        has_own = self.fan_out.plan.parameter in (PICTURE, PIXELS)
        pictures = attachments_of(lane.request.prompt) if has_own else ()
        return AnswerTile(self._label(lane.spec.label, number), lane.answer, pictures=pictures, cache=self._cache)

    def _label(self, label: str, number: int) -> str:
        texts = self.fan_out.plan.values if self.fan_out.plan.parameter in (PROMPT, SYSTEM) else ()
        return f"{label}  {texts[number] or '(none)'}" if texts else label

    def _grow(self) -> None:
        if not self.is_attached:
            return
        for pane, lane in zip(self._grid.panes, self.fan_out.lanes, strict=True):
            pane.grow(lane.waits_for)
            if self.fan_out.models and lane.info is not None:
                pane.name_engine(fingerprint_of(lane.info).facts)
        running = sum(lane.is_running for lane in self.fan_out.lanes)
        state = f"{running} of {len(self.fan_out.lanes)} running" if running else ""
        if state != self._state:
            self._state = state
            self.query_one("#state", Static).update(state)

    def _tell_error(self, error: VlmtuiError) -> None:
        self.notify(error_text(self.app, error), severity="error", timeout=8, markup=False)

    @work(group="run")
    async def _run(self) -> None:
        await self.fan_out.run()
        self._over()

    def _say(self, where: str, text: str) -> None:
        """Show a line above the answers, or hide it if empty."""
        line = self.query_one(where, Static)
        line.update(text)
        line.display = bool(text)

    def _hold_against_base(self) -> None:
        self._compare()
        if self.fan_out.plan.changes_prompt:
            self._score()

    @work(group="score", exclusive=True)
    async def _score(self) -> None:
        problem = ""
        try:
            self.scores = await self.fan_out.scores()
        except VlmtuiError as error:
            self.scores, problem = [None] * len(self.fan_out.lanes), one_line(error.message)
        self._say("#verdict", problem or self.fan_out.verdict(self.scores))
        self.query_one("#verdict").set_class(bool(problem), "-problem")
        await self._show_differences()

    @work(group="compare", exclusive=True)
    async def _compare(self) -> None:
        lanes = range(len(self.fan_out.lanes))
        self.differences = await asyncio.to_thread(lambda: [self.fan_out.difference(at) for at in lanes])
        await self._show_differences()

    def _write(self, suffix: str, folder: Path) -> Path:
        return export_comparison(self.fan_out.document(), free_path(folder, f"vlmtui-fan-out{suffix}"), self._media)
