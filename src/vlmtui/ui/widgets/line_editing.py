"""Readline's editing commands for text fields. A line ends at a line break, not where it is wrapped."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeGuard

from textual.widgets import Input

from vlmtui.ui.actions import line_bindings

if TYPE_CHECKING:
    from textual.widgets import TextArea

Place = tuple[int, int]
CONTINUES = "\ufdd0"
"""Says at the end of a text area's line that the next one continues it (`LongLineArea`). A noncharacter, which no text
contains."""


class KillRing:
    """Holds the text that was cut last in any text field."""

    def __init__(self) -> None:
        self.text = ""


KILLED = KillRing()


def is_text_area(widget: object) -> TypeGuard[TextArea]:
    """Return whether the widget is a TextArea. Imports that class late, since the first screen does not need it."""
    from textual.widgets import TextArea

    return isinstance(widget, TextArea)


def _line_start(area: TextArea) -> Place:
    row = area.cursor_location[0]
    while row and area.document.get_line(row - 1).endswith(CONTINUES):
        row -= 1
    return row, 0


def _line_end(area: TextArea) -> Place:
    row = area.cursor_location[0]
    while area.document.get_line(row).endswith(CONTINUES):
        row += 1
    return row, len(area.document.get_line(row))


def _kill_line_end(area: TextArea) -> None:
    """Cut from the cursor to the end of the line; if the cursor is there, cut the line break."""
    row, end = _line_end(area)
    if area.cursor_location < (row, end) or area.selected_text:
        _kill(area, (row, end))
    elif row + 1 < area.document.line_count:
        _kill(area, (row + 1, 0))


def _yank(area: TextArea) -> None:
    if KILLED.text:
        area.replace(KILLED.text, *area.selection, maintain_selection_offset=False)


def _kill(area: TextArea, to: Place) -> None:
    """Cut the selection, or else the text from the cursor to `to`."""
    start, end = area.selection if area.selected_text else (area.cursor_location, to)
    if start != end:
        KILLED.text = area.delete(start, end, maintain_selection_offset=False).replaced_text


EDITS: dict[str, Callable[[TextArea], object]] = {
    "line_start": lambda area: area.move_cursor(_line_start(area)),
    "line_end": lambda area: area.move_cursor(_line_end(area)),
    "first": lambda area: area.move_cursor((0, 0)),
    "last": lambda area: area.move_cursor(area.document.end),
    "kill_line_end": _kill_line_end,
    "kill_line_start": lambda area: _kill(area, _line_start(area)),
    "kill_word_left": lambda area: _kill(area, area.get_cursor_word_left_location()),
    "kill_word_right": lambda area: _kill(area, area.get_cursor_word_right_location()),
    "yank": _yank,
    "undo": lambda area: area.undo(),
    "redo": lambda area: area.redo(),
    "select_all": lambda area: area.select_all(),
}
"""Editing commands for text areas, by the action's name without its scope."""


def _cut(field: Input, start: int, end: int) -> None:
    """Cut the selection, or else the text from `start` to `end`."""
    if not field.selection.is_empty:
        start, end = sorted(field.selection)
    if start != end:
        KILLED.text = field.value[start:end]
        field.delete(start, end)


def _word_start(field: Input) -> int:
    found = re.search(r"\w+\W*\Z", field.value[: field.cursor_position])
    return found.start() if found else 0


def _word_end(field: Input) -> int:
    found = re.compile(r"\W*\w+").match(field.value, field.cursor_position)
    return found.end() if found else len(field.value)


def _put(field: Input) -> None:
    """Paste the first line of the text cut last."""
    line = KILLED.text.split("\n")[0]
    field.replace(line, *sorted(field.selection))


LINE_EDITS: dict[str, Callable[[Input], object]] = {
    "kill_line_end": lambda field: _cut(field, field.cursor_position, len(field.value)),
    "kill_line_start": lambda field: _cut(field, 0, field.cursor_position),
    "kill_word_left": lambda field: _cut(field, _word_start(field), field.cursor_position),
    "kill_word_right": lambda field: _cut(field, field.cursor_position, _word_end(field)),
    "yank": _put,
}
"""Editing commands for fields of one line, where Textual's own are missing or do not keep the cut text."""


class LineInput(Input):
    """A text field of one line with readline's keys."""

    BINDINGS = line_bindings()

    def on_mount(self) -> None:
        self.cursor_blink = False  # blinking wakes the app twice a second
