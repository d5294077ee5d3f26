"""Self-contained web pages: no scripts, no external resources, one layout and style for all.

The Jinja templates are in this folder. Every value is treated as hostile text: it is escaped, and its control
characters and bidi marks are made visible.
"""

from __future__ import annotations

import base64
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vlmtui.text import one_line, visible

if TYPE_CHECKING:
    from jinja2 import Environment


_SHOWN = ("image/png", "image/jpeg", "image/webp", "image/gif", "video/", "audio/")
"""How the media types begin that are shown. Files of all others are only named: images may contain a script."""


class Figure(NamedTuple):
    """A media file on a page, for `figure.html`: `url` contains the file's data; if the file is not shown, `missing`
    says why."""

    name: str
    modality: str
    url: str = ""
    missing: str = ""


def figure(name: str, modality: str, media_type: str, content: bytes | None, *, gone: str) -> Figure:
    """Return a media file for embedding in a page. `gone`: the reason to show if `content` is None. A file that
    browsers can't show appears with its size."""
    if content is None:
        return Figure(name, modality, missing=gone)
    if not media_type.startswith(_SHOWN):
        return Figure(name, modality, missing=f"{len(content):,} bytes")
    return Figure(name, modality, url=data_url(media_type, content))


def data_url(media_type: str, content: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


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
