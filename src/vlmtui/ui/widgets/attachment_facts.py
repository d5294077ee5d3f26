"""The facts of an attachment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vlmtui.domain.attachment import Attachment
from vlmtui.text import one_line
from vlmtui.ui.document.blocks import TextBlock, fact

_LABEL = 10
_TEXT_MAX = 400
_SHA_SHOWN = 16


def attachment_details(attachment: Attachment, exif: Sequence[tuple[str, str]]) -> Iterator[TextBlock]:
    """Yield all facts."""
    for label, value in (*_known(attachment), *exif):
        text = value if len(value) <= _TEXT_MAX else value[: _TEXT_MAX - 1] + "…"
        yield fact(label, one_line(text), _LABEL)


def _known(attachment: Attachment) -> Iterator[tuple[str, str]]:
    from vlmtui.media.describe import human_duration

    yield "Name", attachment.name
    if attachment.source:
        yield "From", attachment.source
    yield "Size", f"{attachment.width} × {attachment.height} pixels"
    yield "Format", attachment.format
    yield "File", f"{attachment.size_bytes:,} bytes"
    yield "SHA-256", f"{attachment.sha256[:_SHA_SHOWN]}…"
    if attachment.pages > 1:
        yield "Page", f"{attachment.page} of {attachment.pages}"
    if attachment.duration_s is not None:
        rate = "" if attachment.fps is None else f" · {attachment.fps:g} fps"
        yield "Length", human_duration(attachment.duration_s) + rate
    for number, note in enumerate(attachment.notes):
        yield "" if number else "Notes", note
