"""Tells errors of widgets that are being removed from errors that matter."""

from __future__ import annotations

from traceback import walk_tb

from textual.css.query import NoMatches
from textual.dom import DOMNode


def comes_of_removal(error: Exception) -> bool:
    """Return whether a widget lacks a child only because it, or its screen, is being removed.

    Textual composes no children for such a widget, and nevertheless calls its `on_mount`. A call after a refresh runs
    in the screen that is current by then, so the widget is looked for in the frames of the error.
    """
    if not isinstance(error, NoMatches):
        return False
    ran = (frame.f_locals.get("self") for frame, _ in walk_tb(error.__traceback__))
    widgets = (one for one in ran if isinstance(one, DOMNode))
    return any(node._pruning or node._closing for one in widgets for node in one.ancestors_with_self)
