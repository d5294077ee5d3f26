"""A comparison as a file that the user names: Markdown, a web page, or JSON that replays. Reads and writes files."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import msgspec

from vlmtui.errors import bad_input
from vlmtui.inspection.as_html import export_html
from vlmtui.inspection.as_markdown import export_markdown
from vlmtui.inspection.replay import Comparison, MediaRecord, to_json
from vlmtui.media.files import shown
from vlmtui.ui.controllers.saving import save_new

SUFFIXES = (".md", ".html", ".json")


def export(comparison: Comparison, target: Path, media: Path) -> Path:
    """Write the comparison; the name's ending says as what. Gives the file's absolute path: where one of that name is
    there already, the new one is numbered. Blocking.

    Args:
        media: the folder of the stored images and videos, from which they are put into the file.

    Raises VlmtuiError for another ending, and where the file cannot be written.
    """
    try:
        target = target.expanduser().absolute()
    except (RuntimeError, ValueError) as error:
        raise bad_input(f"{shown(target)} is no path.", detail=str(error)) from error
    match target.suffix.lower():
        case ".md":
            data = export_markdown(comparison).encode("utf-8", "replace")
        case ".html":
            data = export_html(comparison, lambda record: stored_bytes(media, record.sha256)).encode("utf-8", "replace")
        case ".json":
            data = to_json(with_media(comparison, lambda record: stored_bytes(media, record.sha256)))
        case _:
            hint = f"The name ends in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}."
            raise bad_input(f"{shown(target)} does not say what to write.", hint=hint)
    return save_new(target.parent, target.name, data)


def with_media(comparison: Comparison, read: Callable[[MediaRecord], bytes | None]) -> Comparison:
    """The document with the bytes of its images and videos in it, as far as `read` finds them."""

    def filled(record: MediaRecord) -> MediaRecord:
        content = read(record) if record.data is None else None
        return record if content is None else msgspec.structs.replace(record, data=base64.b64encode(content).decode())

    return msgspec.structs.replace(comparison, attachments=tuple(filled(record) for record in comparison.attachments))


def stored_bytes(media: Path, sha256: str) -> bytes | None:
    """The stored file of that hash; None when it is gone."""
    for path in sorted((media / sha256[:2]).glob(f"{sha256}*")):
        try:
            return path.read_bytes()
        except OSError:
            continue
    return None
