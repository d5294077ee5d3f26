"""A text field of one line."""

from __future__ import annotations

from textual.widgets import Input

from vlmtui.ui.actions import line_bindings


class LineInput(Input):
    """Has readline's keys."""

    BINDINGS = line_bindings()

    def on_mount(self) -> None:
        self.cursor_blink = False  # it would wake the app twice a second
