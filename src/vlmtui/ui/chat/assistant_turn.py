"""The widget of a running answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Region
from textual.strip import Strip
from textual.timer import Timer
from textual.widgets import Static

from vlmtui.inspection.thinking import ThinkingParts
from vlmtui.session.generation import Answer
from vlmtui.text import visible
from vlmtui.ui.chat.failure_note import failure_note
from vlmtui.ui.chat.past_answer import marks_line
from vlmtui.ui.chat.thinking_block import ThinkingBlock
from vlmtui.ui.widgets.blank_lines import blank_lines
from vlmtui.ui.widgets.markdown_text import MarkdownText

REFRESH_S = 0.1
"""Shortest interval in seconds between updates of the text."""
_REST = 4.0
"""How many times as long as an update takes other things have before the next one: keys, above all."""


class AssistantTurn(Vertical):
    """Shows a growing `Answer`. `PastAnswer` looks the same and is cheaper for finished ones: change both."""

    DEFAULT_CSS = """
    AssistantTurn {
        height: auto;
        margin: 1 0 0 0;
        padding: 0 1 0 2;
        .facts { height: auto; color: $muted 80%; }
        .failure { height: auto; border-left: outer $error; padding: 0 1; margin-top: 1; }
    }
    """

    def __init__(self, answer: Answer, marks: Callable[[], Content] = Content) -> None:
        """`marks` returns whether a raw prompt made it, and its place among its siblings."""
        super().__init__()
        self.answer = answer
        self._marks = marks
        self._pieces = 0
        """Number of the answer's pieces in `_text`."""
        self._text = ""
        self._clock: Timer | None = None
        """Counts the seconds until the first token."""
        self._is_due = False
        """Whether it will be shown soon."""
        self._shown_at = float("-inf")
        """When it showed new text last."""
        self._took_s = 0.0
        """How long that took."""
        self._shows_end = False
        self._lines = MarkdownText()

    def compose(self) -> ComposeResult:
        yield self._lines

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return what is seen around the children. Blank lines need not be drawn anew whenever the answer grows."""
        return super().render_lines(crop) if self.has_class("-marked") else blank_lines(self, crop)

    def on_mount(self) -> None:
        if self.display:
            self._follow()

    def begin(self, answer: Answer, marks: Callable[[], Content]) -> None:
        """Show an answer in a widget that was mounted hidden."""
        self.answer, self._marks = answer, marks
        self.display = True
        self._follow()

    def _follow(self) -> None:
        self.answer.on_event = self._grew
        self._clock = self.set_interval(1.0, self._show)
        self._show()

    def on_unmount(self) -> None:
        self._let_go()

    def finish(self) -> None:
        """Show the complete answer now, or on mount."""
        if self._clock is not None:
            self._show()

    async def restart(self, answer: Answer) -> None:
        """Show another answer from its start, now or on mount."""
        self._let_go()
        self.answer = answer
        self._pieces, self._text = 0, ""
        self._shown_at = float("-inf")
        self._shows_end = False
        if self._clock is None:
            return
        self._clock.stop()
        await self.query("ThinkingBlock, .facts, .failure").remove()
        self._follow()

    @property
    def is_finished(self) -> bool:
        """Whether it shows the complete answer."""
        return self._shows_end

    @property
    def is_thinking_open(self) -> bool:
        return any(block.is_open for block in self.query(ThinkingBlock))

    def toggle_thinking(self) -> bool:
        """Show or hide the reasoning; False if there is none."""
        blocks = self.query(ThinkingBlock)
        for block in blocks:
            block.toggle()
        return bool(blocks)

    def toggle_json(self) -> None:
        """Show long JSON completely, or fold it."""
        self._lines.toggle_json()

    def _grew(self) -> None:
        """Show what came: at once after a pause, else in a while, together with what comes until then."""
        if self._is_due:
            return
        self._is_due = True
        wait_s = self._shown_at + max(REFRESH_S, self._took_s * (1 + _REST)) - time.monotonic()
        if wait_s > 0:
            asyncio.get_running_loop().call_later(wait_s, self.call_next, self.show_due)
        else:
            self.call_next(self.show_due)

    def show_due(self) -> None:
        """Show now what came, if it would be shown soon."""
        if self._is_due:
            self._show()

    def _let_go(self) -> None:
        if self.answer.on_event == self._grew:
            self.answer.on_event = None

    def _show(self) -> None:
        """Update the widgets to the answer's current state. One that is removed before it was drawn has none."""
        self._is_due = False
        if not self.children:
            return
        if self._pieces < len(self.answer.pieces):  # the first text is shown as soon as it comes
            self._shown_at = time.monotonic()
        over = self.answer.outcome is not None
        parts = self._parts()
        waits = not over and not parts.answer and not parts.thinking
        if not waits and self._clock is not None:
            self._clock.pause()
        self._show_thinking(parts)
        began_s = time.monotonic()
        self._lines.show(parts.answer, waiting_text(self.answer, began_s - self.answer.began_s) if waits else "")
        self._took_s = time.monotonic() - began_s
        if over:
            self._show_end()

    def _parts(self) -> ThinkingParts:
        fresh = self.answer.pieces[self._pieces :]
        self._pieces += len(fresh)
        self._text += visible("".join(fresh))
        return self.answer.parts(self._text)

    def _show_thinking(self, parts: ThinkingParts) -> None:
        blocks = self.query(ThinkingBlock)
        if not parts.thinking:
            blocks.remove()
        elif blocks:
            blocks.first().show(parts)
        else:
            self.mount(ThinkingBlock(self.answer, parts), before=0)

    def _show_end(self) -> None:
        self._shows_end = True
        if self._clock is not None:
            self._clock.stop()
        self._let_go()
        line = marks_line(self.answer, self._marks())
        if line and not self.query(".facts"):
            self.mount(Static(line, classes="facts", markup=False))
        note = failure_note(self.app, self.answer)
        if note and not self.query(".failure"):
            self.mount(Static(note, classes="failure", markup=False))


def waiting_text(answer: Answer, seconds: float) -> str:
    """Return what an answer without tokens waits for, and for how long: `processing 1,234 prompt tokens · 3 s`."""
    if seconds < 1:
        return "…"
    if answer.prompt is None:
        return f"preparing the prompt · {int(seconds)} s"
    count = len(answer.prompt.token_ids)
    return f"processing {count:,} prompt token{'s' * (count != 1)} · {int(seconds)} s"
