"""Mouse clicks, text that can be clicked, and several changes drawn in one frame."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from textual import events
from textual.content import Content
from textual.style import Style
from textual.widget import Widget


def is_click(widget: Widget, event: events.Click) -> bool:
    """Return whether this is a click of the left button, and not the end of selecting text."""
    return event.button == 1 and not widget.screen.selections


def clicked(widget: Widget, event: events.Click) -> Widget:
    """Return the innermost widget under the mouse."""
    return widget.screen.get_widget_at(event.screen_x, event.screen_y)[0]


def clickable(text: str, style: str, **told: str | int) -> Content:
    """Return a text that can be clicked. The click event has `told` in `event.style.meta`, which says what was
    clicked."""
    return Content.styled(text, style).stylize(Style.from_meta(dict(told)))


@contextmanager
def one_frame(widget: Widget) -> Iterator[None]:
    """Draw all changes inside the `with` block at once, in one frame. With Textual's `batch_update` alone, they would
    be drawn only after the next message."""
    with widget.app.batch_update():
        yield
    widget.screen.check_idle()
