"""Tells errors of widgets that are being removed from errors that matter."""

from __future__ import annotations

from collections.abc import Sequence
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

from textual.css.query import NoMatches
from textual.widget import Widget

if TYPE_CHECKING:
    from textual.screen import Screen


def comes_of_removal(error: Exception, stack: Sequence[Screen[Any]]) -> bool:
    """Return whether a widget lacks a child only because it, or its screen, is being removed.

    Textual composes no children for such a widget, and nevertheless calls its `on_mount`. A call after a refresh runs
    in the screen that is current by then, so the widget is looked for in the frames of the error. `stack`: the
    screens that are shown; a removed widget stands on none of them.
    """
    if not isinstance(error, NoMatches):
        return False
    ran = (frame.f_locals.get("self") for frame, _ in walk_tb(error.__traceback__))
    widgets = (one for one in ran if isinstance(one, Widget))
    return any(not any(screen in widget.ancestors_with_self for screen in stack) for widget in widgets)
