"""Changes that are drawn together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from textual.widget import Widget


@contextmanager
def one_frame(widget: Widget) -> Iterator[None]:
    """Draw what changes inside in one frame. At the end of Textual's own batch the screen waits for its next message
    before it draws."""
    with widget.app.batch_update():
        yield
    widget.screen.check_idle()
