"""Answers as they come, and the words in which two of them differ."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content, Span
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Static

from vlmtui.domain.failure import Failure
from vlmtui.domain.generation import Finished
from vlmtui.inspection.answer_diff import differing_spans
from vlmtui.session.answer_line import answer_line
from vlmtui.session.generation import Answer
from vlmtui.text import counted, one_line, visible
from vlmtui.ui.compare.difference import LEFT, RIGHT
from vlmtui.ui.document.blocks import PlainBlock, TextBlock
from vlmtui.ui.document.view import INTERVAL_S, DocumentView
from vlmtui.ui.keys import key_of

_COUNT_EVERY_S = 0.5
"""Interval in seconds between updates of the number of tokens."""
_ROOM = 4
"""Lines by which the room of a running answer grows: each time the whole screen is laid out anew."""
_DETAIL_MAX = 400
_MARK_AFTER_S = 0.3
"""Seconds after which new text is compared, so that a stream is not compared at every token."""
_MARK_TIMES = 4
"""How many times as long as a comparison took is waited for the next one."""


class AnswerPanel(Vertical):
    """An answer as it comes, exactly, and below it how it was made."""

    def __init__(self, *, has_edge: bool, id: str | None = None) -> None:
        """`has_edge`: leave room for the bar beside a failure."""
        super().__init__(id=id)
        self.answer: Answer | None = None
        self.text = PlainBlock()
        self.view = DocumentView(follows=True, from_top=True, has_edge=has_edge)
        self.facts = Static(classes="facts", markup=False)
        self._pieces = 0
        """The number of the answer's pieces that are shown."""
        self.is_over = True
        """Whether all of it is shown."""
        self._told = ""
        self._told_s = 0.0
        """When its number of tokens was shown last."""

    def show_answer(self, answer: Answer) -> None:
        """Show this answer in place of another one. Call `grow` until it is over."""
        self.answer, self.text = answer, PlainBlock()
        self._pieces, self.is_over, self._told = 0, False, ""
        self.view.show(self.text)
        self.view.is_following = answer.outcome is None

    def grow(self, waits_for: str = "", stop: str = "") -> bool:
        """Show what has come since, and in the end why it ends; return whether there was anything. `waits_for`: what it
        waits for before it is sent; `stop`: the key that stops it."""
        answer = self.answer
        if answer is None or self.is_over:
            return False
        fresh = answer.pieces[self._pieces :]
        self._pieces += len(fresh)
        self.is_over = answer.outcome is not None
        if fresh:
            self.text.show(self.text.text + visible("".join(fresh)))
            self.view.changed(self.text)
        if not self.is_over:
            self._count(answer.tokens, waits_for, stop)
            return bool(fresh)
        if answer.failure is not None:
            self.view.add(_failure_block(answer.failure))
        self.facts.update(answer_line(answer))
        return True

    def _count(self, tokens: int, waits_for: str, stop: str) -> None:
        """Show the number of tokens so far."""
        waits = f"Waits for {one_line(waits_for)}" if waits_for else "Waiting"
        told = counted(tokens, "token") if tokens else waits
        told = f"{told} · {stop}" if stop else f"{told} …"
        is_wider = len(told) != len(self._told)
        if is_wider or time.monotonic() >= self._told_s + _COUNT_EVERY_S:
            self.facts.update(told, layout=is_wider)
            self._told, self._told_s = told, time.monotonic()


def _failure_block(failure: Failure) -> TextBlock:
    lines = [
        Content.styled(visible(failure.message), "bold $text-error"),
        Content.styled(visible(failure.detail.strip()[-_DETAIL_MAX:]), "$muted"),
        Content(visible(failure.hint)),
    ]
    return TextBlock(Content("\n").join(line for line in lines if line), edge="$error")


class AnswerPane(AnswerPanel):
    """The answer of a comparison's side. Hidden until the side is sent."""

    DEFAULT_CSS = """
    AnswerPane {
        display: none;
        &.-begun { display: block; }
        height: auto;
        border-top: solid $border-blurred;
        & > DocumentView { height: 1; }
        & > .facts { height: auto; padding: 0 1 0 2; color: $muted; }
        & > .mark { display: none; height: auto; padding: 0 1 0 2; color: $text-warning; }
    }
    """

    class Grown(Message):
        """There is more of the answer."""

    def __init__(self, stop: str = "", *, id: str) -> None:
        """`stop`: the id of the action that stops the answer."""
        super().__init__(has_edge=True, id=id)
        self._stop = stop
        self._mark = Static(classes="mark", markup=False)
        self._warning = ""
        self._waits_for: Callable[[], str] = lambda: ""
        self._timer: Timer | None = None

    def compose(self) -> ComposeResult:
        yield self.view
        yield self._mark
        yield self.facts

    def on_mount(self) -> None:
        self.watch(self.view, "virtual_size", self.give_room, init=False)

    def begin(self, answer: Answer, *, warning: str = "", waits_for: Callable[[], str] = lambda: "") -> None:
        """Show this answer until it ends. `warning`: a note about its request; `waits_for` returns what it waits for
        before it is sent, in words."""
        self.add_class("-begun")
        self._warning, self._waits_for = warning, waits_for
        self.tell_stale("")
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_interval(INTERVAL_S, self.update_answer)
        self.show_answer(answer)
        self.update_answer()

    def tell_stale(self, text: str) -> None:
        """Note that the prompt of this answer has changed since; empty once it is the same again."""
        said = "\n".join(filter(None, (text, self._warning)))
        self._mark.update(said)
        self._mark.display = bool(said)

    def update_answer(self) -> None:
        """Show the answer so far, and its outcome at the end."""
        stop = f"{key_of(self.app, self._stop)} Stop" if self._stop else ""
        if self.grow(self._waits_for(), stop):
            self.post_message(self.Grown())
        if self.is_over and self._timer is not None:
            self._timer.stop()
            self._timer = None
        self.give_room()

    def give_room(self) -> None:
        """Be as high as the answer, but leave most of the screen to the prompts."""
        rows = max(1, self.view.document.height)
        if not self.is_over:
            rows = -(-rows // _ROOM) * _ROOM
        self.view.styles.height = min(rows, max(_ROOM, self.app.size.height * 2 // 5))


class AnswerMarks:
    """Marks the words in which two answers differ while they grow. What one has not come to yet is no difference."""

    def __init__(self, left: AnswerPanel, right: AnswerPanel) -> None:
        self._panels = (left, right)
        self._after_s = _MARK_AFTER_S
        self._timer: Timer | None = None
        self._has_grown = False
        self.are_final = False
        """Whether both answers were over when they were compared, and did not grow since."""

    def grown(self) -> None:
        """Compare the answers soon, once for all that comes until then."""
        self._has_grown, self.are_final = True, False
        if self._timer is None:
            self._timer = self._panels[0].set_timer(self._after_s, self._mark)

    async def _mark(self) -> None:
        self._has_grown = False
        blocks = [panel.text for panel in self._panels]
        answers = [panel.answer for panel in self._panels]
        grows = [not (answer and isinstance(answer.outcome, Finished)) for answer in answers]
        started = time.monotonic()
        texts = [block.text for block in blocks]
        found = await asyncio.to_thread(differing_spans, *texts, left_grows=grows[0], right_grows=grows[1])
        self._timer = None
        for panel, block, spans, colour in zip(self._panels, blocks, found, (LEFT, RIGHT), strict=True):
            if panel.is_attached and all(answers) and panel.text is block:
                block.mark([Span(one.start, one.end, f"underline {colour}") for one in spans])
                panel.view.changed(block)
        self._after_s = max(_MARK_AFTER_S, _MARK_TIMES * (time.monotonic() - started))
        if self._has_grown:
            self.grown()
        else:
            self.are_final = not any(grows)
