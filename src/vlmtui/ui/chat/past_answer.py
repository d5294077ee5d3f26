"""The widget of a finished answer."""

from __future__ import annotations

from collections.abc import Callable

from textual import events
from textual.content import Content

from vlmtui.session.answer_line import answer_marks
from vlmtui.session.generation import Answer
from vlmtui.text import visible
from vlmtui.ui.chat.failure_note import failure_note
from vlmtui.ui.chat.thinking_block import thinking_lines, thinking_title
from vlmtui.ui.document.markdown_lines import markdown_lines
from vlmtui.ui.widgets.clicks import is_click
from vlmtui.ui.widgets.line_widget import Lines, LineWidget

_MARKS = "$muted 80%"


class PastAnswer(LineWidget):
    """Looks like a finished `AssistantTurn`, in one widget. A click on the reasoning's title unfolds it."""

    DEFAULT_CSS = "PastAnswer { margin: 1 0 0 0; padding: 0 1 0 2; }"

    def __init__(
        self, answer: Answer, marks: Callable[[], Content] = Content, *, thinking_open: bool | None = None
    ) -> None:
        """`marks` returns whether a raw prompt made it, and its place among its siblings.

        `thinking_open` None: the default of a finished answer, folded if an answer follows.
        """
        super().__init__()
        self._marks = marks
        self.answer = answer
        self._parts = answer.parts(visible(answer.text))
        self._folds = True
        self._is_open = not self._parts.answer if thinking_open is None else thinking_open

    @property
    def is_thinking_open(self) -> bool:
        return self._is_open

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        if offset is not None and offset.y == 0 and is_click(self, event) and self.toggle_thinking():
            event.stop()

    def toggle_thinking(self) -> bool:
        """Show or hide the reasoning; False if there is none."""
        if self._parts.thinking:
            self._is_open = not self._is_open
            self.lay_out_again()
        return bool(self._parts.thinking)

    def toggle_json(self) -> None:
        """Show long JSON completely, or fold it."""
        self._folds = not self._folds
        self.lay_out_again()

    def lines_of(self, width: int) -> Lines:
        width = max(width, 1)
        return [
            *self._thinking_lines(width),
            *(line.content for line in markdown_lines(self._parts.answer, width, folds=self._folds)),
            *_wrapped(marks_line(self.answer, self._marks()), width),
            *self._failure_lines(width),
        ]

    def _thinking_lines(self, width: int) -> Lines:
        if not self._parts.thinking:
            return []
        title = thinking_title(self.answer, self._parts)
        return [*thinking_lines(self._parts, title, width, is_open=self._is_open), Content()]

    def _failure_lines(self, width: int) -> Lines:
        lines = _wrapped(failure_note(self.app, self.answer), max(1, width - 3))
        return [Content(), *(Content.assemble(("▌ ", "$error"), line) for line in lines)] if lines else []


def marks_line(answer: Answer, marks: Content) -> Content:
    """Return what marks the answer, then `marks`."""
    own = answer_marks(answer)
    return Content.styled(" · ", _MARKS).join([part for part in (Content.styled(own, _MARKS), marks) if part])


def _wrapped(text: Content, width: int) -> Lines:
    return text.wrap(width) if text else []
