"""The export formats for conversations. To add one, add a row here and its name to `cli/conversations_parser.py`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from vlmtui.store.document import Document
from vlmtui.store.export import ExportText, damaged_of, to_json_document, to_markdown, to_openai
from vlmtui.store.html_export import to_html


class Place(NamedTuple):
    """Where an export will be written."""

    media_folder: str
    """Folder next to it, for files that are not embedded."""
    inline: bool = False
    """There is no such folder: embed media if the format allows it."""
    paths: bool = False
    """Include the folders of files and local models."""


class Format(NamedTuple):
    """An export format."""

    suffixes: tuple[str, ...]
    """File extensions, lower case; new files get the first."""
    render: Callable[[Document, Place], ExportText]


def _markdown(document: Document, place: Place) -> ExportText:
    return to_markdown(document, media_folder=place.media_folder)


def _html(document: Document, _: Place) -> ExportText:
    return ExportText(to_html(document), damaged=damaged_of(document, shown_only=True))


def _openai(document: Document, place: Place) -> ExportText:
    return ExportText(to_openai(document, paths=place.paths))


def _json(document: Document, place: Place) -> ExportText:
    return to_json_document(document, inline=place.inline, media_folder=place.media_folder, paths=place.paths)


FORMATS = {
    "md": Format((".md", ".markdown"), _markdown),
    "html": Format((".html", ".htm"), _html),
    "json": Format((".json",), _json),
    "openai": Format((".openai.json",), _openai),
}
DEFAULT = "md"


def format_of(path: Path) -> str:
    """Return the name of the format for a file name: the one with the longest matching extension."""
    name = path.name.lower()
    fitting = [(len(end), key) for key, one in FORMATS.items() for end in one.suffixes if name.endswith(end)]
    return max(fitting, default=(0, DEFAULT))[1]
