"""The lines of containers whose children are drawn over them."""

from __future__ import annotations

from rich.style import Style as RichStyle
from textual.geometry import Region
from textual.strip import Strip
from textual.style import Style
from textual.widget import Widget


def blank_lines(widget: Widget, crop: Region) -> list[Strip]:
    """Return the lines of a container without border: not drawn one by one whenever it grows or scrolls."""
    return [filtered(widget, Strip.blank(crop.width, blank_style(widget)))] * crop.height


def filtered(widget: Widget, strip: Strip) -> Strip:
    """Return a strip as the app's line filters make it (no colours, for instance)."""
    for line_filter in widget.get_line_filters():
        strip = strip.apply_filter(line_filter, widget.background_colors[1])
    return strip


def blank_style(widget: Widget) -> RichStyle:
    """Return the style in which Textual fills a widget's padding and short lines."""
    beneath, own = widget.background_colors
    return Style(background=beneath + own).rich_style
