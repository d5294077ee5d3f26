"""Web pages that need nothing else: no script, nothing loaded from anywhere. One frame and one style for all of them.

The templates are Jinja, beside this file. Every value that they print is hostile: its control characters and bidi marks
are made visible, then it is escaped, whatever the template says.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from vlmtui.text import one_line, visible

if TYPE_CHECKING:
    from jinja2 import Environment


def render_page(template: str, /, **values: object) -> str:
    """The page of a template in this folder (`conversation.html`)."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # few export a page

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
