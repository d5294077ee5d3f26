"""The answers of a fan-out: a row for each kind of answer, and the selected answer below."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Literal, cast

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Static

from vlmtui.domain.conversation import attachments_of
from vlmtui.errors import Remedy, VlmtuiError, bad_input
from vlmtui.inspection.answer_diff import AnswerDiff
from vlmtui.inspection.build import fingerprint_of
from vlmtui.session.fan_out import PROMPT, SYSTEM, FanOut, Kind, verdict, why_identical
from vlmtui.session.lanes import LaneScore, times
from vlmtui.text import counted, nats, one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.compare.answers import AnswerPanel, PictureStrip, marked_words
from vlmtui.ui.compare.sides import ask_export
from vlmtui.ui.document.view import INTERVAL_S
from vlmtui.ui.terminal.key_queue import before_keys
from vlmtui.ui.widgets.footer_bar import FooterBar
from vlmtui.ui.widgets.row_list import RowList

if TYPE_CHECKING:
    from vlmtui.ui.app import VlmtuiApp

DIFFERS_STYLE = "bold underline $warning"
GONE_STYLE = "strike $muted"
_BAR = 10
"""Columns of the bar of a kind that is all answers."""
_CHANCE = 8
"""Columns of an answer's probability."""
_BEFORE = 12
"""Characters shown before the first word that differs, if it would be beyond the row's end."""
Leave = int | Literal["new_plan"] | None


class KindList(RowList[Kind]):
    """A row for each kind: how many answers, the text, its probability, and which requests gave it."""

    BINDINGS = bindings("answer_rows")

    def __init__(self, screen: FanOutScreen) -> None:
        super().__init__(id="kinds")
        self._screen = screen

    def columns(self, width: int) -> tuple[int, int, int]:
        """Return the columns for bar and count, for the text, and for which requests gave it."""
        count = _BAR + 4 if any(len(kind.lanes) > 1 for kind in self.rows) else 0
        longest = max((len(self._screen.about(kind)) for kind in self.rows), default=0)
        about = min(longest, max(24, width * 2 // 5))
        return count, max(1, width - count - _CHANCE - about - 3), about

    def draw(self, index: int, width: int) -> list[Content]:
        kind, fan_out = self.rows[index], self._screen.fan_out
        count, room, _ = self.columns(width)
        bar = "█" * max(1, round(_BAR * len(kind.lanes) / len(fan_out.lanes)))
        text = self._screen.row_text(kind, room).truncate(room, ellipsis=True)
        return [
            Content.assemble(
                (f"{bar:{_BAR}} {len(kind.lanes):>2} " if count else "", "$accent"),
                text.pad_right(room - text.cell_length),
                f" {'' if kind.logprob is None else _probability(kind.logprob):>{_CHANCE}}  ",
                (self._screen.about(kind), "$muted"),
            )
        ]


class FanOutScreen(Screen[Leave]):
    """The answers of a fan-out. Unless they are complete, the screen requests them. Returns the index of the answer to
    continue with; `new_plan` if the user wants another fan-out; or None."""

    CSS_PATH = "fan_out.tcss"
    VERTICAL_BREAKPOINTS = [(0, "-low"), (20, "-high")]
    SCOPE = "answers"
    BINDINGS = bindings(SCOPE)

    def __init__(self, fan_out: FanOut) -> None:
        super().__init__()
        self.fan_out = fan_out
        self.current = 0
        """The lane whose answer is shown below the rows."""
        self.differences: list[AnswerDiff | None] | None = None
        """None until computed."""
        self.scores: list[LaneScore | None] | None = None
        """For each answer, how likely the model is to give the base answer to its prompt; None for the base, or if
        unknown. None until computed."""
        self._changes = [""] * len(fan_out.lanes)
        """How each prompt differs from the base's, for a plan that varies the chat template."""
        self._timer: Timer | None = None
        self._drawn = ""
        """What the rows were drawn for."""
        self._prompts = 0, 0
        """The base and the number of known prompts that `_changes` was computed for."""

    @property
    def main_app(self) -> VlmtuiApp:
        return cast("VlmtuiApp", self.app)

    def compose(self) -> ComposeResult:
        with Horizontal(id="top"):
            yield Static(f"Fan-out · {self.fan_out.plan.title}", id="title", markup=False)
            yield Static(one_line(self.fan_out.question), id="question", markup=False)
        yield Static(id="doubt", markup=False)
        yield Static(id="verdict", markup=False)
        yield Static(id="heading", markup=False)
        yield KindList(self)
        yield Static(id="label", markup=False)
        yield Static(id="change", markup=False)
        yield PictureStrip(())
        yield AnswerPanel(has_edge=False, id="answer")
        yield FooterBar()

    async def on_mount(self) -> None:
        self._say("#doubt", why_identical(self.fan_out.plan, self.fan_out.sampling))
        self._rows.focus()
        await self._select(0)
        self._timer = self.set_interval(INTERVAL_S, self._grow)
        self._grow()
        if self.fan_out.is_running:
            self._run()
        else:
            self._over()

    def on_resize(self) -> None:
        self._fit()

    # -- what the rows say

    def about(self, kind: Kind) -> str:
        """Return which requests gave this kind of answer, and how it differs from the base."""
        fan_out, number = self.fan_out, kind.lanes[0]
        lane, score = fan_out.lanes[number], (self.scores or [None] * len(fan_out.lanes))[number]
        difference = self.differences[number] if self.differences is not None else None
        is_base = fan_out.base in kind.lanes
        engine = fingerprint_of(lane.info).facts if fan_out.models and lane.info is not None else ""
        said = (
            kind.where,
            "stopped" if lane.has_failed else "",
            engine,
            f"{nats(score.log_ratio)} nats" if score else "",
            "the base" if is_base and not lane.is_running else "",
            difference_in_words(difference) if difference and not is_base else "",
        )
        return " · ".join(filter(None, said))

    def row_text(self, kind: Kind, room: int) -> Content:
        """Return an answer on one line, with the words marked that differ from the base."""
        number = kind.lanes[0]
        lane, difference = self.fan_out.lanes[number], self.differences[number] if self.differences else None
        if lane.is_running:
            waits = f"waits for {lane.waits_for}" if lane.waits_for else counted(lane.answer.tokens, "token")
            return Content.assemble((f"◐ {one_line(waits)} ", "$muted"), one_line(lane.answer.text[-room:]))
        failure = lane.answer.failure
        if failure is not None:
            return Content.styled(one_line(failure.message), "$text-error")
        if difference is None or self.fan_out.base in kind.lanes:
            return Content(one_line(lane.answer.text[: 4 * room].strip()))
        at = difference.first_difference or 0
        skip = 0 if at < room - _BEFORE else at - _BEFORE
        return marked_words(difference, DIFFERS_STYLE, GONE_STYLE, skip=skip, longest=room + 1)

    def _show_rows(self) -> None:
        fan_out, rows = self.fan_out, self._rows
        kinds = fan_out.kinds()
        rows.show(kinds, highlight=next(at for at, kind in enumerate(kinds) if self.current in kind.lanes))
        done = [lane for lane in fan_out.lanes if not lane.is_running]
        texts = {lane.answer.text.strip() for lane in done if not lane.has_failed}
        told = f"{len(done)} of {len(fan_out.lanes)} answers" if fan_out.is_running else f"{len(done)} answers"
        told = f"{told}, {counted(len(texts), 'kind')}"
        count, room, _ = rows.columns(rows.content_size.width - 2)
        chance = "p(answer)" if any(kind.logprob is not None for kind in kinds) else ""
        self.query_one("#heading", Static).update(f"{told:{count + room + 1}}{chance:>{_CHANCE + 1}}")
        self._fit()

    def _fit(self) -> None:
        """Give the rows what they need, at most two fifths of the screen, and the answer what it needs of the rest."""
        rows = max(1, min(len(self._rows.rows), self.size.height * 2 // 5))
        self._rows.styles.height = rows
        taken = sum(
            one.outer_size.height for one in self.children if one.display and one not in (self._rows, self._panel)
        )
        room = self.size.height - rows - taken - self._panel.facts.outer_size.height - 1
        self._panel.view.styles.height = max(3, min(self._panel.view.document.height, room))

    async def _select(self, number: int) -> None:
        lane = self.fan_out.lanes[number]
        self.current = number
        self._panel.show_answer(lane.answer)
        if self.fan_out.plan.picture_changes:
            strip = self.query_one(PictureStrip)
            await strip.show(attachments_of(lane.request.prompt))
            await strip.fit(self.size.height)
        self._panel.grow(lane.waits_for)
        self._tell_label()
        self._mark()
        self.call_after_refresh(self._fit)

    def _tell_label(self) -> None:
        kind = next((kind for kind in self.fan_out.kinds() if self.current in kind.lanes), None)
        lanes = kind.lanes if kind is not None else (self.current,)
        place = f" · ← → answer {lanes.index(self.current) + 1} of {len(lanes)}" if len(lanes) > 1 else ""
        texts = [
            f"“{one_line(str(value)) or 'none'}”"
            for name, value in self.fan_out.plan.combinations[self.current].items()
            if name in (PROMPT, SYSTEM)
        ]
        about = self.about(kind) if kind is not None and len(lanes) == 1 else ""
        where = self.fan_out.plan.labels[self.current]
        about = about.removeprefix(where).removeprefix(" · ")
        label = Content.assemble(
            (self.fan_out.title(self.current), "bold $accent"),
            ("".join(f" · {one}" for one in (*texts, about) if one) + place, "$muted"),
        )
        self.query_one("#label", Static).update(label)
        self._say("#change", self._changes[self.current])

    def _mark(self) -> None:
        if self.differences is not None:
            self._panel.mark(self.differences[self.current], 1, DIFFERS_STYLE, GONE_STYLE)

    # -- while the answers arrive

    @work(group="run")
    async def _run(self) -> None:
        await self.fan_out.run()
        self._over()

    def _over(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        self._grow()
        self._compare_with_base()

    def _grow(self) -> None:
        if not self.is_attached:
            return
        lanes = self.fan_out.lanes
        known = self.fan_out.base, sum(lane.answer.prompt is not None for lane in lanes)
        if self.fan_out.plan.changes_rendering and known != self._prompts:
            self._prompts = known
            self._compare_prompts()
        if self._panel.grow(lanes[self.current].waits_for) and self._panel.is_over:
            self._panel.view.is_following = False
            self._panel.view.scroll_to(y=0, animate=False)
        drawn = " ".join(f"{lane.is_running}{lane.waits_for}{lane.answer.tokens}" for lane in lanes)
        if drawn != self._drawn:
            self._drawn = drawn
            self._show_rows()
            self._tell_label()

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
        self._show_differences()

    @work(group="prompts", exclusive=True)
    async def _compare_prompts(self) -> None:
        lanes = range(len(self.fan_out.lanes))
        self._changes = await asyncio.to_thread(lambda: [self.fan_out.prompt_change(at) for at in lanes])
        self._tell_label()

    @work(group="compare", exclusive=True)
    async def _compare(self) -> None:
        lanes = range(len(self.fan_out.lanes))
        self.differences = await asyncio.to_thread(lambda: [self.fan_out.difference(at) for at in lanes])
        self._show_differences()

    def _show_differences(self) -> None:
        self._show_rows()
        self._tell_label()
        self._mark()

    # -- actions

    @on(RowList.Highlighted)
    async def _highlighted(self) -> None:
        kind = self._rows.current
        if kind is not None and self.current not in kind.lanes:
            await self._select(kind.lanes[0])

    async def action_among(self, step: int) -> None:
        kind = self._rows.current
        if kind is not None:
            at = kind.lanes.index(self.current) + step if self.current in kind.lanes else 0
            await self._select(kind.lanes[at % len(kind.lanes)])

    def action_page(self, pages: int) -> None:
        self._panel.view.page(pages)

    def action_choose(self) -> None:
        lane = self.fan_out.lanes[self.current]
        if lane.is_running:
            self.main_app.tell_error(bad_input("This answer is not complete yet.", remedy=Remedy.STOP_FAN_OUT))
        elif not lane.answer.text:
            self.main_app.tell_error(bad_input("This answer is empty."))
        else:
            self._leave(self.current)

    def action_base(self) -> None:
        self.fan_out.base = self.current
        self.scores = None
        self._grow()
        if not self.fan_out.is_running:
            self._compare_with_base()

    def action_copy(self) -> None:
        text = self.fan_out.lanes[self.current].answer.text
        self.app.copy_to_clipboard(text)
        self.main_app.tell(f"Copied {len(text):,} characters.")

    def action_inspect(self) -> None:
        self.main_app.open_inspector(self.fan_out.report(self.current))

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

    async def action_leave(self) -> None:
        """Stop running answers; if there are none, return to the chat."""
        if self.fan_out.is_running:
            await self.fan_out.lanes.stop()
        else:
            self._leave(None)

    @property
    def _rows(self) -> KindList:
        return self.query_one(KindList)

    @property
    def _panel(self) -> AnswerPanel:
        return self.query_one("#answer", AnswerPanel)

    def _leave(self, chosen: Leave) -> None:
        if self._timer is not None:
            self._timer.stop()
        self.dismiss(chosen)

    def _say(self, where: str, text: str) -> None:
        """Show a text in the line with the selector `where`; hide the line if the text is empty."""
        line = self.query_one(where, Static)
        line.update(text)
        line.display = bool(text)


def difference_in_words(difference: AnswerDiff) -> str:
    """Return in words how an answer differs from the base, the answer with which all others are compared."""
    at = difference.first_divergence
    if difference.identical:
        return "same as the base" if at is None else f"same text, different tokens from {at:,} on"
    return "differs from the base" if at is None else f"differs from token {at:,}"


def _probability(logprob: float) -> str:
    """Return the probability of an answer: `0.93`, `1.7·10⁻⁴`."""
    return f"{math.exp(logprob):.2f}" if logprob > math.log(0.005) else times(logprob).removesuffix("×")
