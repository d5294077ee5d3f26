"""One side of a comparison: its prompt as given to the model, and its answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.timer import Timer
from textual.widgets import Static

from vlmtui.domain.generation import Failed
from vlmtui.inspection.answer_diff import DifferingSpan
from vlmtui.inspection.folded_prompt import Run
from vlmtui.session.answer_line import answer_line
from vlmtui.session.generation import Answer
from vlmtui.text import one_line, visible
from vlmtui.ui.compare.plain_text import PlainText
from vlmtui.ui.keys import key_of
from vlmtui.ui.widgets.line_scroll import LineScroll
from vlmtui.ui.widgets.prompt_text import PromptText

REFRESH_S = 0.1
"""Shortest interval in seconds between updates of the text."""
_COUNT_EVERY_S = 0.5
"""Interval in seconds between updates of the number of tokens."""
_ROOM = 4
"""Lines by which the room of a running answer grows: each time the whole screen is laid out anew."""
_STYLES = {"text": "", "special": "bold $secondary", "media": "bold $accent on $panel"}
_DETAIL_MAX = 400


class PromptPane(Vertical):
    """A read-only prompt."""

    DEFAULT_CSS = """
    PromptPane {
        height: 1fr;
        min-height: 3;
        padding: 0 1;
        & > PromptText { height: 1fr; }
    }
    """

    class Resized(Message):
        """The prompt has another width."""

    def __init__(self, id: str) -> None:
        super().__init__(id=id)
        self.text = PromptText()
        self._note = Static("…", classes="note", markup=False)

    def compose(self) -> ComposeResult:
        yield self._note
        yield self.text

    def on_resize(self) -> None:
        self.post_message(self.Resized())

    @property
    def shown(self) -> str:
        """The prompt's text as shown."""
        return "\n".join(line.plain for line in self.text.lines)

    def show(self, runs: Sequence[Run]) -> None:
        """Show the prompt, scrolled to its end, which is the newest turn."""
        self._note.display = False
        text = self.text
        text.show(runs_content(runs).split("\n", allow_blank=True))
        text.call_after_refresh(text.scroll_end, animate=False)

    def show_lines(self, lines: Sequence[Content], barred: Collection[int]) -> None:
        """Show these lines, some with a bar at the left edge."""
        self._note.display = False
        self.text.show(lines, barred=barred)

    def tell(self, text: str) -> None:
        """Show why there is no prompt."""
        self._note.update(visible(text))
        self._note.display = True
        self.text.show(())


class AnswerPane(Vertical):
    """A side's streaming answer, and its statistics. Hidden until the side is sent."""

    DEFAULT_CSS = """
    AnswerPane {
        display: none;
        height: auto;
        border-top: solid $border-blurred;
        & > LineScroll { height: auto; max-height: 40vh; padding: 0 1; scrollbar-size-vertical: 1; }
        & > .facts { height: auto; padding: 0 1; color: $muted; }
        & > .mark { display: none; height: auto; padding: 0 1; color: $text-warning; }
        .failure { display: none; height: auto; border-left: outer $error; padding: 0 1; }
    }
    """

    class Grown(Message):
        """There is more of the answer."""

    def __init__(self, stop: str, *, id: str | None = None) -> None:
        """`stop`: the id of the action that stops the answer."""
        super().__init__(id=id)
        self.answer: Answer | None = None
        self._stop = stop
        self._mark = ""
        self._waits_for: Callable[[], str] = lambda: ""
        self._pieces = 0
        self._facts = ""
        """What is told of the running answer."""
        self._counted_s = 0.0
        """When that was shown."""
        self._timer: Timer | None = None

    def compose(self) -> ComposeResult:
        with LineScroll():
            yield PlainText()
            yield Static(classes="failure", markup=False)
        yield Static(classes="mark", markup=False)
        yield Static(classes="facts", markup=False)

    @property
    def shown(self) -> str:
        """The answer's text as shown."""
        return self.query_one(PlainText).text

    def begin(self, answer: Answer, *, mark: str = "", waits_for: Callable[[], str] = lambda: "") -> None:
        """Show this answer until it ends. `mark`: a note about its request; `waits_for`: what it waits for before it is
        sent, in words."""
        self.answer, self._pieces = answer, 0
        self.display = True
        self.query_one(PlainText).show("")
        self.mark((), "")
        self.query_one(".failure").display = False
        self._mark, self._facts, self._waits_for = mark, "", waits_for
        self.tell_stale("")
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_interval(REFRESH_S, self.update_answer)
        self.update_answer()

    def mark(self, differing: tuple[DifferingSpan, ...], style: str) -> None:
        """Mark the words that the other answer does not have."""
        self.query_one(PlainText).mark(differing, style)

    def tell_stale(self, text: str) -> None:
        """Note that the prompt of this answer has changed since; empty once it is the same again."""
        said = "\n".join(filter(None, (text, self._mark)))
        told = self.query_one(".mark", Static)
        told.update(said)
        told.display = bool(said)

    def update_answer(self) -> None:
        """Show the answer so far, and its outcome at the end."""
        answer = self.answer
        if answer is None:
            return
        fresh = answer.pieces[self._pieces :]
        self._pieces += len(fresh)
        view, text = self.query_one(LineScroll), self.query_one(PlainText)
        if fresh:
            view.follows_end = True
            text.show(self.shown + visible("".join(fresh)), grows=answer.outcome is None)
            if not view.show_vertical_scrollbar:
                view.styles.min_height = -(-text.line_count // _ROOM) * _ROOM
            self.post_message(self.Grown())
        facts = self.query_one(".facts", Static)
        if answer.outcome is None:
            stop = f"{key_of(self.app, self._stop)} Stop"
            waits_for = one_line(self._waits_for())
            waits = f"Waits for {waits_for} · {stop}" if waits_for else "…"
            told = f"{answer.tokens:,} tokens · {stop}" if answer.tokens else waits
            if len(told) != len(self._facts) or time.monotonic() >= self._counted_s + _COUNT_EVERY_S:
                facts.update(told, layout=len(told) != len(self._facts))
                self._facts, self._counted_s = told, time.monotonic()
            return
        self.post_message(self.Grown())
        facts.update(answer_line(answer))
        text.show(self.shown)
        view.follows_end, view.styles.min_height = False, 0
        self._show_failure(answer)
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def _show_failure(self, answer: Answer) -> None:
        note = self.query_one(".failure", Static)
        note.display = isinstance(answer.outcome, Failed)
        if answer.failure is not None:
            lines = [
                Content.styled(visible(answer.failure.message), "bold"),
                Content.styled(visible(answer.failure.detail.strip()[-_DETAIL_MAX:]), "$muted"),
                Content(visible(answer.failure.hint)),
            ]
            note.update(Content("\n").join(line for line in lines if line))


def runs_content(runs: Sequence[Run]) -> Content:
    """Return the runs as coloured content, control characters made visible."""
    return Content.assemble(
        *((visible(run.text) if run.style == "text" else one_line(run.text), _STYLES[run.style]) for run in runs)
    )
