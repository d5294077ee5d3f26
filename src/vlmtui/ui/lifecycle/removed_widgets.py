"""Tells errors of widgets that are being removed from errors that matter."""

from __future__ import annotations

from textual._context import active_message_pump
from textual.css.query import NoMatches
from textual.dom import DOMNode


def comes_of_removal(error: Exception) -> bool:
    """Return whether the widget that runs now lacks a child only because it, or its screen, is being removed.

    Textual composes no children for such a widget, and nevertheless calls its `on_mount`.
    """
    running = active_message_pump.get(None)
    if not isinstance(error, NoMatches) or not isinstance(running, DOMNode):
        return False
    return any(node._pruning or node._closing for node in running.ancestors_with_self)
