"""The reasoning of an answer: its last lines while it streams, folded afterwards."""

from __future__ import annotations

from textual import events
from textual.content import Content

from vlmtui.inspection.thinking import ThinkingParts
from vlmtui.session.answer_line import seconds
from vlmtui.session.generation import Answer
from vlmtui.ui.widgets.clicks import is_click
from vlmtui.ui.widgets.line_widget import Lines, LineWidget

_LAST_LINES = 3
"""Lines shown of reasoning that streams, while it is folded."""
_BLINK_S = 0.1
"""Reasoning that took less is told without its seconds."""
_TAIL = 1500
"""Most characters laid out while reasoning streams: laying out long text ten times a second is slow."""


class ThinkingBlock(LineWidget):
    """Shows its last lines while the model reasons, and only its title once it answers, until it is unfolded. Reasoning
    without an answer unfolds at its end."""

    DEFAULT_CSS = "ThinkingBlock { margin: 0 0 1 0; }"

    def __init__(self, answer: Answer, parts: ThinkingParts) -> None:
        super().__init__()
        self._answer = answer
        self._parts = parts
        self.title = thinking_title(answer, parts)
        self._is_over = answer.outcome is not None
        self.is_open = self._is_over and _unfolds(parts)

    def show(self, parts: ThinkingParts) -> None:
        """Show the reasoning so far, control characters visible."""
        title = thinking_title(self._answer, parts)
        if (title, parts.thinking) == (self.title, self._parts.thinking) and parts.is_thinking:
            return
        if self._answer.outcome is not None and not self._is_over:
            self._is_over = True
            self.is_open = self.is_open or _unfolds(parts)
        self.title, self._parts = title, parts
        self.lines_changed()

    def toggle(self) -> None:
        """Unfold or fold it."""
        self.is_open = not self.is_open
        self.lay_out_again()

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        if offset is not None and offset.y == 0 and is_click(self, event):
            self.toggle()
            event.stop()

    def lines_of(self, width: int) -> Lines:
        return thinking_lines(self._parts, self.title, width, is_open=self.is_open)


def thinking_lines(parts: ThinkingParts, title: str, width: int, *, is_open: bool) -> Lines:
    """Return the title; below it the reasoning if it is unfolded, or its last lines while it streams."""
    lines = [Content.styled(f"{'▼' if is_open else '▶'} {title}", "$muted")]
    text, room = parts.thinking, max(1, width - 2)
    if parts.is_thinking:
        most = _TAIL if is_open else _LAST_LINES * room
        text = f"…{text[-most:]}" if len(text) > most else text
    if is_open or parts.is_thinking:
        thoughts = Content.styled(text, "$muted").wrap(room) if text else []
        lines += [line.pad_left(2) for line in (thoughts if is_open else thoughts[-_LAST_LINES:])]
    return lines


def thinking_title(answer: Answer, parts: ThinkingParts) -> str:
    """Return `Thinking… 3 s · 120 tokens` while it runs, then `Thought · 4.2 s · 210 tokens`; words if its tokens are
    unknown."""
    if parts.is_thinking:
        running = answer.thought.seconds
        facts = [f"{int(running)} s"] if running is not None and running >= 1 else []
        facts += [_tokens(answer.tokens)] if answer.tokens else []
        return " ".join(("Thinking…", " · ".join(facts))).rstrip()
    ended = answer.thought.ended
    words = len(parts.thinking.split())
    took = None if ended is None else ended.seconds
    facts = [] if took is None or took < _BLINK_S else [seconds(took)]
    facts.append(_tokens(ended.tokens) if ended and ended.tokens else f"{words:,} word{'s' * (words != 1)}")
    return " · ".join(("Thought", *facts))


def _unfolds(parts: ThinkingParts) -> bool:
    return not parts.is_thinking and not parts.answer


def _tokens(count: int) -> str:
    return f"{count:,} token{'s' * (count != 1)}"
