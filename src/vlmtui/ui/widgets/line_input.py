"""A text field of one line."""

from __future__ import annotations

from textual.widgets import Input

from vlmtui.ui.actions import line_bindings


class LineInput(Input):
    """Has readline's keys."""

    BINDINGS = line_bindings()
