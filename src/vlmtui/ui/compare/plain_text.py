"""A widget for text that is shown exactly, and grows."""

from __future__ import annotations

from textual.content import Content

from vlmtui.inspection.answer_diff import DifferingSpan
from vlmtui.ui.compare.growing_text import GROWING_MAX, growing
from vlmtui.ui.widgets.line_widget import Lines, LineWidget

_Line = tuple[str, tuple[tuple[int, int], ...]]
"""A line's text, and what is marked of it."""


class PlainText(LineWidget):
    """Text shown exactly: white space is kept, Markdown is not rendered."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self._grows = False
        self._styled: Content | None = None
        self._marks: tuple[DifferingSpan, ...] = ()
        self._mark_style = ""
        self._wrapped: dict[int, dict[_Line, Lines]] = {}
        """Lines of the text as they were wrapped last, by width."""

    def mark(self, marks: tuple[DifferingSpan, ...], style: str) -> None:
        """Show these parts of the text in a style."""
        if marks != self._marks:
            self._marks, self._mark_style = marks, style
            self._wrapped.clear()
            self.lines_changed()

    def show(self, text: str, *, grows: bool = False) -> None:
        """Show this text; control characters must be visible already. `grows`: more follows, so that the end of a
        long text is enough."""
        if self._styled is not None or text != self.text or grows != self._grows:
            is_as_before = self._styled is None and text == self.text and len(text) <= GROWING_MAX
            self.text, self._grows, self._styled = text, grows, None
            if not is_as_before:
                self.lines_changed()

    def show_styled(self, content: Content) -> None:
        """Show this text with its styles."""
        self.text, self._grows, self._styled = content.plain, False, content
        self.lines_changed()

    def lines_of(self, width: int) -> Lines:
        if self._styled is not None:
            return self._styled.wrap(max(width, 1))
        shown = growing(self.text) if self._grows else self.text
        if not shown:
            return []
        # Of a long text only the end is shown: what is above is told in a line.
        above = len(self.text) - len(shown) if shown != self.text else 0
        hidden = shown.index("\n") + 1 if above else 0
        marks = [(max(hidden, one.start - above), one.end - above) for one in self._marks if one.end - above > hidden]
        return self._wrapped_lines(shown, max(width, 1), marks)

    def _wrapped_lines(self, text: str, width: int, marks: list[tuple[int, int]]) -> Lines:
        """Return a text as lines; those of the last time are not wrapped again."""
        before: dict[_Line, Lines] = self._wrapped.get(width, {})
        now: dict[_Line, Lines] = {}
        found: Lines = []
        at = passed = 0
        for line in text.split("\n"):
            end = at + len(line)
            while passed < len(marks) and marks[passed][1] <= at:
                passed += 1
            own = []
            for start, stop in marks[passed:]:
                if start >= end:
                    break
                own.append((max(0, start - at), min(len(line), stop - at)))
            key = line, tuple(own)
            wrapped = before.get(key)
            if wrapped is None:
                content = Content(line)
                for start, stop in own:
                    content = content.stylize(self._mark_style, start, stop)
                wrapped = content.wrap(width)
            now[key] = wrapped
            found += wrapped
            at = end + 1
        self._wrapped[width] = now
        return found
