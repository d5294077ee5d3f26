"""The formats that a conversation can be written in: a new one is a row here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from vlmtui.store.document import Document
from vlmtui.store.export import ExportText, damaged_of, to_json_document, to_markdown, to_openai
from vlmtui.store.html_export import to_html


class Place(NamedTuple):
    """Where an export will stand."""

    media_folder: str
    """Beside it, for the files that do not stand in the text."""
    inline: bool = False
    """There is no place beside it: media stand in the text where the format allows it."""
    paths: bool = False
    """Files and local models are named with their folders."""


class Format(NamedTuple):
    """A format of conversations."""

    suffixes: tuple[str, ...]
    """Of file names, lower case; the first is given to new files."""
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
    """The name of the format that a file's name asks for: the one with the longest matching ending."""
    name = path.name.lower()
    fitting = [(len(end), key) for key, one in FORMATS.items() for end in one.suffixes if name.endswith(end)]
    return max(fitting, default=(0, DEFAULT))[1]
