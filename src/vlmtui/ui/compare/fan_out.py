"""A fan-out, which sends one message several ways: the form that plans it, and its answers in a grid."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, cast

from textual import events, on, work
from textual.app import ComposeResult
from textual.containers import Grid, Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.timer import Timer
from textual.widgets import Input, RadioButton, RadioSet, Static, TextArea

from vlmtui.domain.conversation import Attachment, attachments_of
from vlmtui.domain.sampling import PARAMETERS, Number, Sampling
from vlmtui.errors import Remedy, VlmtuiError, bad_input
from vlmtui.inspection.answer_diff import AnswerDiff, tally_text
from vlmtui.inspection.build import fingerprint_of
from vlmtui.session.fan_out import (
    ENGINE,
    MOST,
    PICTURE,
    PIXELS,
    PROMPT,
    SYSTEM,
    FanOut,
    PictureChange,
    Plan,
    plan_of,
    read_values,
    verdict,
    why_identical,
)
from vlmtui.session.generation import Answer
from vlmtui.session.lanes import LaneScore
from vlmtui.text import one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.compare.answers import AnswerPanel, PictureStrip
from vlmtui.ui.compare.sides import ask_export
from vlmtui.ui.document.view import INTERVAL_S
from vlmtui.ui.keys import hint
from vlmtui.ui.terminal.key_queue import before_keys
from vlmtui.ui.widgets.footer_bar import FooterBar
from vlmtui.ui.widgets.line_editing import LineInput
from vlmtui.ui.widgets.long_lines import LongLineArea

if TYPE_CHECKING:
    from vlmtui.ui.app import VlmtuiApp

_CHOICES: tuple[tuple[str, str, str], ...] = (
    ("seed", "Seeds", "1, 2, 3, 4"),
    ("temperature", "Temperatures", "0, 0.5, 1"),
    (PROMPT, "Prompts", ""),
    ("thinking", "Thinking", "on, off"),
    (PICTURE, "Pictures", "sent, none, grey, blur"),
    (PIXELS, "Picture sizes", "1000000, 250000, 62500"),
    (SYSTEM, "System prompts", ""),
    (ENGINE, "Engines", "here, transformers"),
)
_OF_PICTURES = (PICTURE, PIXELS)
_LABELS = {
    PICTURE: f"Change of the pictures: {', '.join(PictureChange)}",
    PIXELS: "Maximum pixels of a picture, comma-separated",
    PROMPT: "Prompts, one a line",
    SYSTEM: "System prompts, one a line",
    ENGINE: "Engines: here, transformers, here dtype=bfloat16, a model or server",
}
_COMMAS = "Values, comma-separated"
_WARM = 0.8
"""The temperature suggested for several seeds if the conversation sets none."""
NARROWEST = 36
"""Minimum width of a tile, in cells."""
LOWEST = 8
"""Minimum height of a tile, in cells."""
COLUMNS_MAX = 4
_ROWS_ABOVE = 16
"""Added to a tile's rows for `PictureStrip.fit`, which expects the rows of a whole screen."""
DIFFERS_STYLE = "bold underline $warning"
GONE_STYLE = "strike $muted"
Leave = int | Literal["new_plan", "look"] | None


class FanFormScreen(ModalScreen[Plan | None]):
    """The form that plans a fan-out. Returns the plan, or None if cancelled. `question`: the message, filled in as the
    first of several prompts. `system`: the system prompt, filled in as the first of several system prompts. `no_seeds`:
    why seeds can't be varied; empty if they can."""

    CSS_PATH = "fan_form.tcss"
    SCOPE = "fan_form"
    BINDINGS = bindings(SCOPE)

    def __init__(
        self, question: str, sampling: Sampling, *, no_seeds: str = "", system: str = "", has_pictures: bool = False
    ) -> None:
        super().__init__()
        self._texts = {PROMPT: one_line(question), SYSTEM: one_line(system)}
        self._has_pictures = has_pictures
        self._no_seeds = no_seeds
        self._sampling = sampling

    def compose(self) -> ComposeResult:
        own = self._sampling.temperature
        with Vertical(id="panel"):
            yield Static(f"Fan out: up to {MOST} answers at once", id="title")
            with RadioSet(id="parameter", compact=True):
                for number, (name, title, _) in enumerate(_CHOICES):
                    is_off = bool(self._no_seeds) if name == "seed" else name in _OF_PICTURES and not self._has_pictures
                    first = 1 if self._no_seeds else 0
                    yield RadioButton(title, value=number == first, disabled=is_off, id=f"by-{name}")
            yield Static(self._no_seeds, classes="label" if self._no_seeds else "-nothing", id="no-seeds", markup=False)
            yield Static(_COMMAS, classes="label", id="values-label")
            yield LineInput(_CHOICES[1 if self._no_seeds else 0][2], id="values", compact=True)
            yield Static("Prompts, one a line", classes="label", id="prompts-label")
            yield LongLineArea(self._texts[PROMPT], id="prompts", compact=True, tab_behavior="focus")
            yield Static("Temperature of all answers", classes="label", id="temperature-label")
            yield LineInput(f"{own or _WARM:g}", id="temperature", compact=True)
            yield Static(id="problem", markup=False)
            keys = hint(self.app, "fan_form.ask", "fan_form.cancel")
            yield Static(f"Enter or {keys} · Tab Next field", id="keys", markup=False)

    def on_mount(self) -> None:
        self.query_one("#no-seeds").display = bool(self._no_seeds)
        self._show()
        self.query_one("#values").focus()

    @on(RadioSet.Changed)
    def _chosen(self) -> None:
        by = self._parameter
        self.query_one("#values", Input).value = next(example for name, _, example in _CHOICES if name == by)
        if by in self._texts:
            self.query_one("#prompts", TextArea).text = self._texts[by]
        self._show()

    @on(Input.Changed)
    @on(TextArea.Changed)
    def _changed(self) -> None:
        self._read()

    @on(Input.Submitted)
    def _submitted(self) -> None:
        self.action_go()

    def action_go(self) -> None:
        """Return the plan if it is valid."""
        plan = self._read()
        if plan is not None:
            self.dismiss(plan)

    def action_cancel(self) -> None:
        self.dismiss(None)

    @property
    def _parameter(self) -> str:
        return _CHOICES[max(self.query_one(RadioSet).pressed_index, 0)][0]

    def _show(self) -> None:
        by = self._parameter
        for name in ("prompts", "prompts-label"):
            self.query_one(f"#{name}").display = by in self._texts
        for name in ("values", "values-label"):
            self.query_one(f"#{name}").display = by not in self._texts
        label = self.query_one("#prompts-label" if by in self._texts else "#values-label", Static)
        label.update(_LABELS.get(by, _COMMAS))
        for name in ("temperature", "temperature-label"):
            self.query_one(f"#{name}").display = by == "seed"
        self._read()

    def _read(self) -> Plan | None:
        """Return the fan-out plan that the fields describe. If it is invalid, show the problem and return None."""
        by, told = self._parameter, self.query_one("#problem", Static)
        try:
            fixed: dict[str, Number] = {}
            if by == "seed":
                fixed["temperature"] = PARAMETERS["temperature"].read(self.query_one("#temperature", Input).value)
            typed = self.query_one("#prompts", TextArea).text if by in self._texts else self._values
            plan = plan_of(by, read_values(by, typed), fixed)
        except VlmtuiError as error:
            told.update(one_line(error.message))
            told.remove_class("-doubt")
            return None
        told.update(why_identical(plan, self._sampling))
        told.add_class("-doubt")
        return plan

    @property
    def _values(self) -> str:
        return self.query_one("#values", Input).value


class AnswerTile(AnswerPanel, can_focus=True):
    """An answer, with its label above and its facts below."""

    DEFAULT_CSS = """
    AnswerTile {
        height: 100%;
        border: round $border-blurred;
        padding: 0 1;
        &:focus { border: round $accent; }
        .label { height: 1; width: 100%; text-wrap: nowrap; text-overflow: ellipsis; }
        & > DocumentView { height: 1fr; }
        .facts { height: auto; max-height: 3; color: $muted; }
        .prompt { height: auto; max-height: 3; display: none; color: $warning; }
    }
    """
    BINDINGS = bindings("answer_tile")

    def __init__(self, label: str, answer: Answer, pictures: Sequence[Attachment] = ()) -> None:
        """`pictures`: the attachments of this answer's prompt, if the answers have different ones; otherwise empty."""
        super().__init__(has_edge=False)
        self.show_answer(answer)
        self._pictures = PictureStrip(pictures) if pictures else None
        self._label = Static(classes="label", markup=False)
        self._prompt = Static(classes="prompt", markup=False)
        self._heading = label
        self._said = ""
        self._engine = ""
        self._tell()

    def compose(self) -> ComposeResult:
        yield self._label
        yield self._prompt
        if self._pictures is not None:
            yield self._pictures
        yield self.view
        yield self.facts

    async def on_resize(self) -> None:
        if self._pictures is not None:
            await self._pictures.fit(self.size.height + _ROWS_ABOVE)

    def name_engine(self, facts: str) -> None:
        """Show which engine answers, beside the label."""
        if facts != self._engine:
            self._engine = facts
            self._tell()

    def tell_prompt(self, change: str) -> None:
        """Show how this answer's prompt differs from the base answer's prompt; empty: show nothing."""
        self._prompt.display = bool(change)
        self._prompt.update(change)

    def grow(self, waits_for: str = "") -> bool:
        """Show new text; at the end, scroll to the beginning, unless the user has scrolled."""
        has_grown = super().grow(waits_for)
        if has_grown and self.is_over and self.view.is_following:
            self.view.is_following = False
            self.view.scroll_to(y=0, animate=False)
        return has_grown

    def tell(self, said: str, *, is_base: bool = False) -> None:
        """Show `said`, how this answer differs from the base: the answer with which all others are compared."""
        self._said = "the base" if is_base else said
        self._tell()

    def _tell(self) -> None:
        about = " · ".join(filter(None, (self._said, self._engine)))
        name = (one_line(self._heading), "bold $accent")
        self._label.update(Content.assemble(name, (f"  {about}" if about else "", "$muted")))

    def action_page(self, pages: int) -> None:
        self.view.page(pages)


class AnswerGrid(VerticalScroll, can_focus=False):
    """The answers, in as many columns as fit."""

    DEFAULT_CSS = """
    AnswerGrid {
        height: 1fr;
        scrollbar-size-vertical: 1;
        & > Grid { height: auto; width: 100%; grid-gutter: 0 1; }
        &.-low .facts { max-height: 2; }
    }
    """

    def __init__(self, panes: Sequence[AnswerTile], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.panes = list(panes)
        self.columns = 1

    def compose(self) -> ComposeResult:
        with Grid():
            yield from self.panes

    @property
    def current(self) -> int:
        """Index of the focused answer."""
        return next((number for number, pane in enumerate(self.panes) if pane.has_focus), 0)

    def move(self, across: int, down: int) -> None:
        """Focus the answer beside, above or below, if there is one."""
        at = self.current
        row, column = divmod(at, self.columns)
        target = (row + down) * self.columns + column + across
        if 0 <= column + across < self.columns and 0 <= target < len(self.panes):
            self.panes[target].focus()

    @on(events.Resize)
    def _resized(self) -> None:
        width, height = self.content_size
        if not width or not height:
            return
        count = len(self.panes)
        most = max(1, min(COLUMNS_MAX, width // NARROWEST, count))
        rows = -(-count // most)
        self.columns = -(-count // rows)
        grid = self.query_one(Grid)
        grid.styles.grid_size_columns = self.columns
        grid.styles.grid_rows = (max(LOWEST, height // rows),)
        self.set_class(height // rows <= LOWEST, "-low")


def difference_in_words(difference: AnswerDiff) -> str:
    """Return in words how an answer differs from the base, the answer with which all others are compared."""
    if difference.identical and difference.first_divergence is None:
        return "same as the base"
    if difference.identical:
        return f"same text, different tokens from {difference.first_divergence:,} on"
    at = difference.first_divergence
    return "differs from the base" if at is None else f"differs at token {at:,}"


class FanOutScreen(Screen[Leave]):
    """The answers of a fan-out. Unless they are complete, the screen requests them. Returns the index of the answer to
    continue with; `new_plan` or `look` if the user wants another fan-out; or None."""

    CSS_PATH = "fan_out.tcss"
    VERTICAL_BREAKPOINTS = [(0, "-low"), (20, "-high")]
    SCOPE = "answers"
    BINDINGS = bindings(SCOPE)

    def __init__(self, fan_out: FanOut) -> None:
        super().__init__()
        self.fan_out = fan_out
        self.differences: list[AnswerDiff | None] | None = None
        """None until computed."""
        self.scores: list[LaneScore | None] | None = None
        """For each answer, how likely the model is to give the base answer to its prompt; None for the base, or if
        unknown. None until computed."""
        self._timer: Timer | None = None
        self._state = ""
        self._prompts = 0, 0
        """The base and the number of known prompts for which the tiles show how the prompts differ."""

    @property
    def main_app(self) -> VlmtuiApp:
        return cast("VlmtuiApp", self.app)

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
        self._say("#doubt", why_identical(self.fan_out.plan, self.fan_out.sampling))
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
        self._compare_with_base()

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
            pane.mark(difference, 1, DIFFERS_STYLE, GONE_STYLE)
            await asyncio.sleep(0)  # marking a long answer takes as long as a key may wait

    def action_move(self, across: int, down: int) -> None:
        self._grid.move(across, down)

    def action_choose(self) -> None:
        lane = self.fan_out.lanes[self._grid.current]
        if lane.is_running:
            self.main_app.tell_error(bad_input("This answer is not complete yet.", remedy=Remedy.STOP_FAN_OUT))
        elif not lane.answer.text:
            self.main_app.tell_error(bad_input("This answer is empty."))
        else:
            self._leave(self._grid.current)

    def action_base(self) -> None:
        self.fan_out.base = self._grid.current
        self.scores = None
        self._grow()
        if not self.fan_out.is_running:
            self._compare_with_base()

    def action_copy(self) -> None:
        text = self.fan_out.lanes[self._grid.current].answer.text
        self.app.copy_to_clipboard(text)
        self.main_app.tell(f"Copied {len(text):,} characters.")

    def action_inspect(self) -> None:
        self.main_app.open_inspector(self.fan_out.report(self._grid.current))

    @before_keys
    async def action_export(self) -> None:
        if self.fan_out.is_running:
            self.main_app.tell_error(bad_input("Not all answers are complete yet.", remedy=Remedy.STOP_FAN_OUT))
            return
        document = await asyncio.to_thread(self.fan_out.document)
        await ask_export(self.main_app, document, "fan-out.html")

    def action_new_plan(self) -> None:
        if not self.fan_out.is_running:
            self._leave("new_plan")

    def action_look(self) -> None:
        if self.fan_out.is_running:
            self.main_app.tell_error(bad_input("Not all answers are complete yet.", remedy=Remedy.STOP_FAN_OUT))
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
        return AnswerTile(self._label(lane.spec.label, number), lane.answer, pictures)

    def _label(self, label: str, number: int) -> str:
        texts = self.fan_out.plan.values if self.fan_out.plan.parameter in (PROMPT, SYSTEM) else ()
        return f"{label}  {texts[number] or '(none)'}" if texts else label

    def _grow(self) -> None:
        if not self.is_attached:
            return
        prompts = self.fan_out.base, sum(lane.answer.prompt is not None for lane in self.fan_out.lanes)
        if self.fan_out.plan.changes_rendering and prompts != self._prompts:
            self._prompts = prompts
            self._compare_prompts()
        for pane, lane in zip(self._grid.panes, self.fan_out.lanes, strict=True):
            pane.grow(lane.waits_for)
            if self.fan_out.models and lane.info is not None:
                pane.name_engine(fingerprint_of(lane.info).facts)
        running = sum(lane.is_running for lane in self.fan_out.lanes)
        state = f"{running} of {len(self.fan_out.lanes)} running" if running else ""
        if state != self._state:
            self._state = state
            self.query_one("#state", Static).update(state)

    @work(group="run")
    async def _run(self) -> None:
        await self.fan_out.run()
        self._over()

    def _say(self, where: str, text: str) -> None:
        """Show a text in the line with the selector `where`; hide the line if the text is empty."""
        line = self.query_one(where, Static)
        line.update(text)
        line.display = bool(text)

    def _compare_with_base(self) -> None:
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
        self._say("#verdict", problem or verdict(self.fan_out.plan, self.scores))
        self.query_one("#verdict").set_class(bool(problem), "-problem")
        await self._show_differences()

    @work(group="prompts", exclusive=True)
    async def _compare_prompts(self) -> None:
        lanes = range(len(self.fan_out.lanes))
        changes = await asyncio.to_thread(lambda: [self.fan_out.prompt_change(at) for at in lanes])
        for pane, change in zip(self._grid.panes, changes, strict=True):
            pane.tell_prompt(change)

    @work(group="compare", exclusive=True)
    async def _compare(self) -> None:
        lanes = range(len(self.fan_out.lanes))
        self.differences = await asyncio.to_thread(lambda: [self.fan_out.difference(at) for at in lanes])
        await self._show_differences()
