"""Self-contained web pages: no scripts, no external resources, one layout and style for all.

The Jinja templates are in this folder. Every value is treated as hostile: control characters and bidi marks are made
visible, and it is always escaped.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from vlmtui.text import one_line, visible

if TYPE_CHECKING:
    from jinja2 import Environment


def render_page(template: str, /, **values: object) -> str:
    """Render a template of this folder, such as `conversation.html`."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # only needed for exports

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    environment.filters["one_line"] = one_line
    return environment
