"""A comparison as a file that the user names: Markdown, a web page, or JSON that replays. Reads and writes files."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import msgspec

from vlmtui.errors import bad_input
from vlmtui.files import write_numbered
from vlmtui.inspection.comparison_pages import export_html, export_markdown
from vlmtui.inspection.replay import Comparison, MediaRecord, to_json
from vlmtui.reading import shown_name

ReadMedia = Callable[[MediaRecord], bytes | None]
"""Returns the bytes of an image or video; None where they are unavailable."""


FORMATS: dict[str, Callable[[Comparison, ReadMedia], bytes]] = {
    ".md": lambda comparison, _: export_markdown(comparison).encode("utf-8", "replace"),
    ".html": lambda comparison, read: export_html(comparison, read).encode("utf-8", "replace"),
    ".json": lambda comparison, read: to_json(with_media(comparison, read)),
}
"""Writers by file suffix."""
SUFFIXES = tuple(FORMATS)
ENDINGS = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"


def export_comparison(comparison: Comparison, target: Path, media: Path) -> Path:
    """Write the comparison in the format of the name's suffix. Return the absolute path: if the file exists, a number
    is added to the name. Blocking.

    `media` is the folder of the stored images and videos to embed.

    Raises VlmtuiError for an unknown suffix, and if the file cannot be written.
    """
    try:
        target = target.expanduser().absolute()
    except (RuntimeError, ValueError) as error:
        raise bad_input(f"{shown_name(target)} is not a path.", detail=str(error)) from error
    encode = FORMATS.get(target.suffix.lower())
    if encode is None:
        raise bad_input(f"{shown_name(target)} has no known ending.", hint=f"The name must end in {ENDINGS}.")
    data = encode(comparison, lambda record: stored_bytes(media, record.sha256))
    return write_numbered(target.parent, target.name, data)


def with_media(comparison: Comparison, read: ReadMedia) -> Comparison:
    """Return the document with embedded media, as far as `read` finds them."""

    def filled(record: MediaRecord) -> MediaRecord:
        content = read(record) if record.data is None else None
        return record if content is None else msgspec.structs.replace(record, data=base64.b64encode(content).decode())

    return msgspec.structs.replace(comparison, attachments=tuple(filled(record) for record in comparison.attachments))


def stored_bytes(media: Path, sha256: str) -> bytes | None:
    """Return the stored file with this hash, or None."""
    for path in sorted((media / sha256[:2]).glob(f"{sha256}*")):
        try:
            return path.read_bytes()
        except OSError:
            continue
    return None
