"""Text areas in which undo does not fail, and keys stay quick however long a line is."""

from __future__ import annotations

import re
from collections.abc import Callable

from rich.text import Text
from textual.widgets import TextArea
from textual.widgets.text_area import Edit, EditResult, Location, Selection

from vlmtui.text import growth
from vlmtui.ui.widgets.line_editing import CONTINUES

_LINE_MAX = 1500
"""Characters of a line from which on it is broken."""
_LONG = re.compile(rf"(?:.{{{_LINE_MAX // 2},{_LINE_MAX}}}(?<=\s)|.{{{_LINE_MAX}}})(?=.)")
"""The beginning of a line that is too long, if possible up to a blank."""


class UndoArea(TextArea):
    """A TextArea in which undo also works if the text then needs no scrollbar any more."""

    def undo(self) -> None:
        self._change_from_start(super().undo)

    def redo(self) -> None:
        self._change_from_start(super().redo)

    def _change_from_start(self, change: Callable[[], None]) -> None:
        """Undo or redo with the cursor at the start: Textual looks for it in the new text before it moves it."""
        before, selection = self.text, self.selection
        self.selection = Selection.cursor((0, 0))
        change()
        if self.text == before:
            self.selection = selection


class LongLineArea(UndoArea):
    """A TextArea that holds a long line as several lines, since Textual lays out the whole line at every key.

    `text`, `selected_text`, `index_of` and `location_of` do not show the breaks. The cursor skips them.
    """

    _text: str | None = None
    """`text`, which Textual reads for each line that it draws; None: not read since the last edit."""

    _grows = False
    """True if terminals may draw the text wider, so that its rows need more room."""

    @property
    def wrap_width(self) -> int:
        return super().wrap_width * 5 // 9 if self._grows else super().wrap_width

    @property
    def text(self) -> str:
        if self._text is None:
            self._text = self._joined(super().text)
        return self._text

    @text.setter
    def text(self, value: str) -> None:
        self.load_text(value)

    @property
    def selected_text(self) -> str:
        return self._joined(super().selected_text)

    def _change_from_start(self, change: Callable[[], None]) -> None:
        def changed() -> None:
            self._text = None
            change()

        super()._change_from_start(changed)

    def get_line(self, line_index: int) -> Text:
        line = super().get_line(line_index)
        line.plain = line.plain.replace(CONTINUES, " ")
        return line

    def load_text(self, text: str) -> None:
        self._text, self._grows = None, growth(text) > 0
        super().load_text(_broken(text))

    def edit(self, edit: Edit) -> EditResult:
        self._text = None
        if not self._grows and growth(edit.text):
            self._grows = True
            self.wrapped_document.wrap(self.wrap_width, self.indent_width)
        edit.text = _broken(edit.text)
        if edit.text and edit.top[1] >= _LINE_MAX and "\n" not in edit.text:
            edit.text += f"{CONTINUES}\n"
        result = super().edit(edit)
        return EditResult(result.end_location, self._joined(result.replaced_text))

    def delete(self, start: Location, end: Location, *, maintain_selection_offset: bool = True) -> EditResult:
        start, end = map(self.location_of, self.span_of(start, end))
        return super().delete(start, end, maintain_selection_offset=maintain_selection_offset)

    def span_of(self, start: Location, end: Location) -> tuple[int, int]:
        """Return the offsets of the text between two locations to delete. If there is only a break between them, it is
        the character before it."""
        first, last = sorted((self.index_of(start), self.index_of(end)))
        return (max(0, first - 1), last) if first == last and start != end else (first, last)

    def validate_selection(self, selection: Selection) -> Selection:
        """Keep both ends out of breaks."""
        return Selection(*map(self._beside_break, selection))

    def index_of(self, location: Location) -> int:
        """Return the offset in `text` of a location."""
        row, column = location
        lines, gap = self.document.lines, len(self.document.newline)
        before = sum(len(line) + (-1 if line.endswith(CONTINUES) else gap) for line in lines[:row])
        return before + min(column, self._length(row))

    def location_of(self, index: int) -> Location:
        """Return the location of an offset in `text`."""
        gap = len(self.document.newline)
        for row, line in enumerate(self.document.lines):
            size = len(line) + (-1 if line.endswith(CONTINUES) else gap)
            if index < size:
                return row, index
            index -= size
        return self.document.end

    def _length(self, row: int) -> int:
        line = self.document.get_line(row)
        return len(line) - line.endswith(CONTINUES)

    def _beside_break(self, location: Location) -> Location:
        row, column = location
        line = self.document.get_line(row) if row < self.document.line_count else ""
        if column < len(line) or not line.endswith(CONTINUES):
            return location
        if self.selection.end == (row + 1, 0):  # the cursor moves left
            return row, max(0, len(line) - 2)
        return (row + 1, 0) if self.selection.end == (row, len(line) - 1) else (row, len(line) - 1)

    def _joined(self, text: str) -> str:
        return (
            text.replace(f"{CONTINUES}{self.document.newline}", "").replace(CONTINUES, "")
            if CONTINUES in text
            else text
        )


def _broken(text: str) -> str:
    text = text.replace(CONTINUES, "")
    return _LONG.sub(rf"\g<0>{CONTINUES}\n", text) if len(text) > _LINE_MAX else text
