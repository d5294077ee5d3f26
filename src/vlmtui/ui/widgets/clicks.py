"""Clicks of the mouse, and changes that are drawn together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from textual import events
from textual.content import Content
from textual.style import Style
from textual.widget import Widget


def is_click(widget: Widget, event: events.Click) -> bool:
    """Return whether the left button was clicked; False at the end of a selection of text by dragging."""
    return event.button == 1 and not widget.screen.selections


def clicked(widget: Widget, event: events.Click) -> Widget:
    """Return the widget under the mouse, which may be inside of `widget`."""
    return widget.screen.get_widget_at(event.screen_x, event.screen_y)[0]


def clickable(text: str, style: str, **told: str | int) -> Content:
    """Return a text; a click on it has `told` in `event.style.meta`."""
    return Content.styled(text, style).stylize(Style.from_meta(dict(told)))


@contextmanager
def one_frame(widget: Widget) -> Iterator[None]:
    """Draw what changes inside in one frame. At the end of Textual's own batch the screen waits for its next message
    before it draws."""
    with widget.app.batch_update():
        yield
    widget.screen.check_idle()
